package raw

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const service = "[Service]\nExecStart=/usr/bin/web\n[Install]\nWantedBy=multi-user.target\n"

// tree writes files into a new folder; a name that ends in / is a folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFolder(t *testing.T) {
	dir := tree(t, map[string]string{
		"web.service": service, "web.timer": "[Timer]\nOnBootSec=1\n", "web.service.d/10-x.conf": "[Service]\nNice=1\n",
		"files/etc/ctrl-files/web.conf": "port=80\n", "files/etc/ctrl-files/run": "#!/bin/sh\n", "README.md": "about", ".git/config": "", "web.service~": "old",
	})
	if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "files/etc/ctrl-files/run"), 0o750); err != nil {
		t.Fatal(err)
	}
	all, err := Load(dir, "web", nil)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d, %v", len(all), err)
	}
	b := all[0].Package.Bundle
	if b.Workload != "web" || len(b.Units) != 2 || len(b.Units[0].DropIns) != 1 || b.Units[0].Text != service || len(b.Files) != 2 {
		t.Errorf("the bundle is %+v", b)
	}
	if !slices.Equal(b.Enable, []string{"web.service"}) || !slices.Equal(b.Start, []string{"web.service"}) {
		t.Errorf("enabled %v, started %v", b.Enable, b.Start)
	}
	modes := map[string]uint32{}
	for _, f := range b.Files {
		modes[f.Path] = f.Mode
	}
	if modes["/etc/ctrl-files/web.conf"] != 0o644 || modes["/etc/ctrl-files/run"] != 0o755 {
		t.Errorf("modes %v", modes)
	}
	again, err := Load(dir, "web", nil)
	if err != nil || string(again[0].Package.Encode()) != string(all[0].Package.Encode()) {
		t.Errorf("read again it is another package: %v", err)
	}
}

func TestBadFolders(t *testing.T) {
	link := func(name, to string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		files  map[string]string
		change func(*testing.T, string)
		want   string
	}{
		"empty":         {map[string]string{}, nil, "no unit in it"},
		"no unit file":  {map[string]string{"web.conf": "x"}, nil, "web.conf"},
		"folder":        {map[string]string{"web.service": service, "other/x.service": service}, nil, "other: this folder"},
		"deep drop-in":  {map[string]string{"web.service": service, "web.service.d/x/y.conf": "x"}, nil, "web.service.d/x: this folder"},
		"no conf":       {map[string]string{"web.service": service, "web.service.d/x": "x"}, nil, "neither a unit file nor a drop-in"},
		"foreign":       {map[string]string{"web.service": service, "ssh.service.d/x.conf": "[Service]\nNice=1\n"}, nil, "allowForeign"},
		"empty unit":    {map[string]string{"web.service": "", "web.service.d/x.conf": "[Service]\nNice=1\n"}, nil, "web.service is empty"},
		"bad line":      {map[string]string{"web.service": "[Service]\nnonsense\n"}, nil, "web.service:2"},
		"CR":            {map[string]string{"web.service": "[Service]\nA=b\rC=d\n"}, nil, "web.service:2"},
		"NUL":           {map[string]string{"web.service": "[Service]\nA=\x00\n"}, nil, "web.service:2"},
		"unit link":     {map[string]string{"web.service": service}, link("b.service", "web.service"), "b.service: it is a symbolic link"},
		"link outside":  {map[string]string{"web.service": service}, link("b.service", "/etc/passwd"), "b.service: it is a symbolic link"},
		"file link":     {map[string]string{"web.service": service, "files/etc/": ""}, link("files/etc/x", "/etc/shadow"), "files/etc/x: it is a symbolic link"},
		"folder link":   {map[string]string{"web.service": service}, link("files", "/etc"), "files"},
		"pipe":          {map[string]string{"web.service": service}, func(t *testing.T, dir string) { _ = syscall.Mkfifo(filepath.Join(dir, "b.service"), 0o600) }, "it is no file"},
		"huge unit":     {map[string]string{"web.service": "[Service]\n" + strings.Repeat("#", 17<<20)}, nil, "larger than"},
		"two in one":    {map[string]string{"web.service": service, "files/etc/a": "", "files/etc/a.d/": ""}, nil, ""},
		"odd file name": {map[string]string{"web.service": service, "files/etc/a b": ""}, nil, "no path for a file"},
		"unit in files": {map[string]string{"web.service": service, "files": "x"}, nil, "files"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, tt.files)
			if tt.change != nil {
				tt.change(t, dir)
			}
			_, err := Load(dir, "web", nil)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want %q and the folder", err, tt.want)
			}
		})
	}
	if _, err := Load(tree(t, map[string]string{"a.service": service}), "", nil); err == nil || !strings.Contains(err.Error(), "--name") {
		t.Errorf("without a name: %v", err)
	}
	if _, err := Load(tree(t, map[string]string{"a.service": service}), "../x", nil); err == nil || !strings.Contains(err.Error(), "workload name") {
		t.Errorf("with a bad name: %v", err)
	}
	if _, err := Load("/nowhere", "", nil); err == nil {
		t.Error("what is not there is read")
	}
}

const document1 = `apiVersion: ctrl/v1
kind: Units
metadata: {name: web}
spec:
  nodes: [node1, "web-*"]
  nodeSelector: {role: web}
  units:
    web.service: |
      [Service]
      ExecStart=/usr/bin/web
      [Install]
      WantedBy=multi-user.target
    web@.service: {file: ./web@.service}
    web.service.d/10-x.conf: |
      [Service]
      Nice=1
  files:
    /etc/ctrl-files/a.conf: "a=1\n"
    /etc/ctrl-files/b.conf: {file: b.conf, mode: 0600, owner: root, group: daemon, units: [web.service], write: true, onChange: reload}
  start: [web.service, web@1.service]
  runtime: true
`

func TestDocument(t *testing.T) {
	dir := tree(t, map[string]string{"web.yaml": document1, "web@.service": "[Service]\nExecStart=/bin/x %i\n", "b.conf": "b=2\n"})
	all, err := Load(filepath.Join(dir, "web.yaml"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	w := all[0]
	b := w.Package.Bundle
	if !slices.Equal(w.Nodes, []string{"node1", "web-*"}) || w.Selector["role"] != "web" || !b.Runtime {
		t.Errorf("%+v", w)
	}
	if !slices.Equal(b.Enable, []string{"web.service"}) || !slices.Equal(b.Start, []string{"web.service", "web@1.service"}) {
		t.Errorf("enabled %v, started %v", b.Enable, b.Start)
	}
	if f := b.Files[1]; f.Mode != 0o600 || f.Group != "daemon" || !f.Write || f.OnChange != "reload" || string(w.Package.Blobs[f.SHA256]) != "b=2\n" {
		t.Errorf("%+v", f)
	}
	shuffled := strings.Replace(document1, "  runtime: true\n", "", 1)
	shuffled = strings.Replace(shuffled, "spec:\n", "spec:\n  runtime: true\n", 1)
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(shuffled), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Load(filepath.Join(dir, "web.yaml"), "", nil)
	if err != nil || string(again[0].Package.Encode()) != string(w.Package.Encode()) {
		t.Errorf("with its keys in another order it is another package: %v", err)
	}
}

func TestBadDocuments(t *testing.T) {
	const head = "apiVersion: ctrl/v1\nkind: Units\nmetadata: {name: web}\nspec:\n"
	const unit = "  units:\n    web.service: \"[Service]\\nExecStart=/bin/x\\n\"\n"
	for text, want := range map[string]string{
		"":                                   "holds no document",
		"kind: Units\n":                      "apiVersion",
		"kind: Deployment\napiVersion: v1\n": `f:1: kind: "Deployment" is not known`,
		"nonsense: 1\n":                      "f:1: nonsense: the key is not known",
		strings.Replace(head+unit, "ctrl/v1", "ctrl/v2", 1):              "apiVersion",
		strings.Replace(head+unit, "name: web", "name: Web", 1):          "metadata.name",
		head + unit + "  unitz: {}\n":                                    "f:7: spec.unitz: the key is not known",
		head + unit + "  nodes: node1\n":                                 "f:7: spec.nodes: this is a text; a list is meant",
		head + unit + "  nodes: [1]\n":                                   "spec.nodes[0]: 1 is a number for YAML; quote it",
		head + "  units:\n    web.service: {file: ../x}\n":               "../x",
		head + "  units:\n    web.service: {file: /etc/passwd}\n":        "/etc/passwd",
		head + "  units:\n    web.service: {fil: x}\n":                   "f:6: spec.units[\"web.service\"].fil: the key is not known",
		head + "  units:\n    web.service: 7\n":                          "mapping",
		head + "  units:\n    web: x\n":                                  "f:6: spec.units.web",
		head + unit + "  start: [other.service]\n":                       "other.service is no unit of this bundle",
		head + unit + "  enable: [web.service]\n":                        "no [Install] section",
		head + unit + "  files: {/etc/a: {text: x, file: y}}\n":          "one of text and file",
		head + unit + "  files: {/etc/a: {text: x, mode: 0999}}\n":       "file mode",
		head + unit + "  files: {etc/a: x}\n":                            "no path for a file",
		head + unit + "  files: {/etc/a: {text: x, onChange: reload}}\n": "needs write: true",
		head + unit + "---\n" + head + unit:                              "f:8: workload web is there already, in line 1",
		head + "  units:\n    web@.service: \"[Service]\\nExecStart=/x\\n[Install]\\nWantedBy=a.target\\n\"\n  enable: [web@.service]\n": "instance",
	} {
		dir := tree(t, map[string]string{"f": text})
		path := filepath.Join(dir, "f")
		if _, err := Load(path, "", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Load(Stdin, "", strings.NewReader(head+"  units:\n    web.service: {file: x}\n")); err == nil || !strings.Contains(err.Error(), "standard input has no folder") {
		t.Errorf("a file beside standard input: %v", err)
	}
	if all, err := Load(Stdin, "", strings.NewReader(head+unit)); err != nil || len(all) != 1 {
		t.Errorf("standard input: %v", err)
	}
	if _, err := Load(Stdin, "web", strings.NewReader(head+unit)); err == nil || !strings.Contains(err.Error(), "--name") {
		t.Errorf("a name for documents: %v", err)
	}
}
