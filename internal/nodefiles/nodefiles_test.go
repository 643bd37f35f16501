package nodefiles

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/bundle"
)

type fixture struct {
	*Files
	t   *testing.T
	dir string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.MkdirAll(at("vendor"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := New(Options{
		Layout:    bundle.Layout{Units: at("units"), Runtime: at("runtime"), Store: at("store")},
		FilePaths: []string{at("files")}, Workloads: at("workloads"), Scratch: at("scratch"),
		UnitPath: []string{at("units"), at("runtime"), at("vendor")},
	}, slog.New(slog.DiscardHandler))
	return &fixture{f, t, dir}
}

func (f *fixture) at(name string) string { return filepath.Join(f.dir, name) }

func (f *fixture) must(steps ...bundle.Step) {
	f.t.Helper()
	for _, s := range steps {
		if err := f.do(s); err != nil {
			f.t.Fatalf("%s: %v", s.Kind, err)
		}
	}
}

func (f *fixture) put(name, text string) {
	f.t.Helper()
	path := f.at(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		f.t.Fatal(err)
	}
}

// tree lists all files below the fixture's directory.
func (f *fixture) tree() []string {
	var out []string
	filepath.WalkDir(f.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(f.dir, path)
			out = append(out, rel)
		}
		return nil
	})
	return out
}

func (f *fixture) file(content string, write bool) (bundle.File, bundle.Step) {
	file := bundle.File{Path: f.at("files/sub/a.conf"), SHA256: bundle.Sum([]byte(content)), Mode: 0o640, Write: write}
	return file, bundle.Step{Kind: bundle.StepContent, File: file, Data: []byte(content)}
}

func TestWriteReadRemove(t *testing.T) {
	f := newFixture(t)
	texts := []bundle.Text{{Path: f.at("units/a.service"), Text: "[Service]\n"}, {Path: f.at("units/a.service.d/x.conf"), Text: "[Unit]\n"}}
	f.must(bundle.Step{Kind: bundle.StepStage, Texts: texts})
	facts, err := f.look(bundle.Query{Texts: []string{texts[0].Path, texts[1].Path}})
	if err != nil || facts.Paths[texts[0].Path].Kind != "" {
		t.Errorf("staged is seen: %+v %v", facts, err)
	}
	file, content := f.file("x", true)
	f.must(bundle.Step{Kind: bundle.StepUnit, Path: texts[0].Path}, bundle.Step{Kind: bundle.StepUnit, Path: texts[1].Path}, content, bundle.Step{Kind: bundle.StepFile, File: file})
	facts, err = f.look(bundle.Query{Texts: []string{texts[0].Path, texts[1].Path}, Files: []bundle.File{file}, Contents: []string{file.ContentID(), "x"}})
	if err != nil || facts.Paths[texts[1].Path].Text != "[Unit]\n" || facts.Paths[file.Path].ID != file.ContentID() || !facts.Contents[file.ContentID()] || facts.Contents["x"] {
		t.Errorf("%+v %v", facts, err)
	}
	if info, err := os.Stat(file.Path); err != nil || info.Mode().Perm() != 0o640 {
		t.Error(info, err)
	}
	if err := os.Chmod(file.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if facts, _ := f.look(bundle.Query{Files: []bundle.File{file}}); facts.Paths[file.Path].ID == file.ContentID() {
		t.Error("another mode is not noticed")
	}
	f.must(bundle.Step{Kind: bundle.StepRemove, Path: texts[0].Path}, bundle.Step{Kind: bundle.StepRemove, Path: texts[1].Path},
		bundle.Step{Kind: bundle.StepRemove, Path: texts[1].Path}, bundle.Step{Kind: bundle.StepRemove, Path: file.Path}, bundle.Step{Kind: bundle.StepDropContent, Path: file.ContentID()})
	if left := f.tree(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(f.at("units/a.service.d")); err == nil {
		t.Error("an empty directory is left")
	}
}

// TestNoLinkIsFollowed: neither at the end of a path nor on the way, for nothing.
func TestNoLinkIsFollowed(t *testing.T) {
	f := newFixture(t)
	f.put("secret/x.conf", "secret")
	f.put("secret/a.conf", "secret")
	f.put("units/b.service", "[Service]\n")
	f.put("files/keep", "")
	for link, to := range map[string]string{"units/a.service.d": "secret", "units/l.service": "secret/x.conf", "files/sub": "secret"} {
		if err := os.Symlink(f.at(to), f.at(link)); err != nil {
			t.Fatal(err)
		}
	}
	text := bundle.Text{Path: f.at("units/a.service.d/x.conf"), Text: "[Unit]\n"}
	file, content := f.file("x", true)
	f.must(content)
	for _, s := range []bundle.Step{
		{Kind: bundle.StepStage, Texts: []bundle.Text{text}}, {Kind: bundle.StepUnit, Path: text.Path}, {Kind: bundle.StepRemove, Path: text.Path},
		{Kind: bundle.StepFile, File: file}, {Kind: bundle.StepRemove, Path: file.Path},
		{Kind: bundle.StepRemove, Path: f.at("secret/x.conf")}, {Kind: bundle.StepRemove, Path: f.at("units/../secret/x.conf")},
	} {
		if err := f.do(s); err == nil {
			t.Errorf("%s %s was done", s.Kind, s.Path)
		}
	}
	if _, err := f.look(bundle.Query{Texts: []string{text.Path}}); err == nil || !strings.Contains(err.Error(), "not followed") {
		t.Errorf("look: %v", err)
	}
	facts, err := f.look(bundle.Query{Texts: []string{f.at("units/l.service")}})
	if err != nil || facts.Paths[f.at("units/l.service")] != (bundle.PathFact{Kind: bundle.KindLink, Target: f.at("secret/x.conf")}) {
		t.Errorf("%+v %v", facts, err)
	}
	for _, name := range []string{"secret/x.conf", "secret/a.conf"} {
		if got, _ := os.ReadFile(f.at(name)); string(got) != "secret" {
			t.Errorf("%s is %q", name, got)
		}
	}
	// A staged name that somebody has made a link is replaced, not written through.
	if err := os.Symlink(f.at("secret/x.conf"), f.at("units/.b.service.ctrl-new")); err != nil {
		t.Fatal(err)
	}
	b := bundle.Text{Path: f.at("units/b.service"), Text: "new"}
	f.must(bundle.Step{Kind: bundle.StepStage, Texts: []bundle.Text{b}}, bundle.Step{Kind: bundle.StepUnit, Path: b.Path})
	if got, _ := os.ReadFile(f.at("secret/x.conf")); string(got) != "secret" {
		t.Errorf("written through a link: %q", got)
	}
	// A FIFO is not waited for.
	if err := exec.Command("mkfifo", f.at("units/p.service")).Run(); err != nil {
		t.Fatal(err)
	}
	if facts, err := f.look(bundle.Query{Texts: []string{f.at("units/p.service")}}); err != nil || facts.Paths[f.at("units/p.service")].Kind != bundle.KindOther {
		t.Errorf("%+v %v", facts, err)
	}
}

func TestElsewhere(t *testing.T) {
	f := newFixture(t)
	f.put("vendor/a.service", "[Service]\n")
	f.put("runtime/b.service", "[X-Ctrl]\nWorkload=web\n")
	f.put("runtime/c.service", "[X-Ctrl]\nWorkload=db\n")
	f.put("units/d.service", "[Service]\n")
	facts, err := f.look(bundle.Query{Workload: "web", Units: []string{"a.service", "b.service", "c.service", "d.service", "e.service"}, Texts: []string{f.at("units/d.service")}})
	want := map[string]string{"a.service": f.at("vendor/a.service"), "c.service": f.at("runtime/c.service")}
	if err != nil || len(facts.Elsewhere) != 2 || facts.Elsewhere["a.service"] != want["a.service"] || facts.Elsewhere["c.service"] != want["c.service"] {
		t.Errorf("%+v %v", facts.Elsewhere, err)
	}
}

// TestLoad: what a crash has left is gone, what cannot be read is named and left.
func TestLoad(t *testing.T) {
	f := newFixture(t)
	b := &bundle.Bundle{Format: 1, Workload: "web", Units: []bundle.Unit{{Name: "a.service", Text: "[Service]\n"}}}
	state := &bundle.State{Format: 1, Workload: "web", Current: 2, Revisions: []bundle.Revision{{Number: 2}}}
	f.must(bundle.Step{Kind: bundle.StepRevision, Workload: "web", Number: 2, Bundle: b}, bundle.Step{Kind: bundle.StepState, State: state},
		bundle.Step{Kind: bundle.StepRevision, Workload: "web", Number: 3, Bundle: b}, bundle.Step{Kind: bundle.StepRevision, Workload: "new", Number: 1, Bundle: b},
		bundle.Step{Kind: bundle.StepStage, Texts: []bundle.Text{{Path: f.at("units/a.service")}, {Path: f.at("units/a.service.d/b.conf")}}})
	f.put("units/m.service", "[X-Ctrl]\nWorkload=gone\n")
	f.put("store/.abc.ctrl-new", "")
	f.put("files/x/.abc.ctrl-new", "")
	f.put("workloads/web/.state.json.ctrl-new", "")
	f.put("workloads/bad/state.json", "{")
	f.put("workloads/odd/state.json", `{"format":1,"workload":"web"}`)
	f.put("workloads/next/state.json", `{"format":2,"workload":"next"}`)
	d, err := f.load()
	if err != nil || len(d.States) != 1 || d.Current["web"].Units[0].Name != "a.service" || d.Marked[f.at("units/m.service")] != "gone" || len(d.Broken) != 3 {
		t.Errorf("%+v %v", d, err)
	}
	want := []string{"units/m.service", "workloads/bad/state.json", "workloads/next/state.json", "workloads/odd/state.json", "workloads/web/2.json", "workloads/web/state.json"}
	if got := f.tree(); !slices.Equal(got, want) {
		t.Errorf("left: %q", got)
	}
	if info, _ := os.Stat(f.at("workloads/web/2.json")); info.Mode().Perm() != 0o600 {
		t.Errorf("a revision has mode %v", info.Mode())
	}
	f.put("workloads/web/2.json", `{"format":1,"workload":"web","units":[{"name":"../x"}]}`)
	if d, err := f.load(); err != nil || d.Broken["web"] == "" {
		t.Errorf("a revision in effect that is not valid: %+v %v", d, err)
	}
}

func TestStageIsWholeOrNot(t *testing.T) {
	f := newFixture(t)
	f.put("units/b.service.d", "a file where a directory should be")
	err := f.do(bundle.Step{Kind: bundle.StepStage, Texts: []bundle.Text{{Path: f.at("units/a.service")}, {Path: f.at("units/b.service.d/x.conf")}}})
	if err == nil || !strings.Contains(err.Error(), "b.service.d") {
		t.Error(err)
	}
	if got := f.tree(); !slices.Equal(got, []string{"units/b.service.d"}) {
		t.Errorf("left: %q", got)
	}
	_, content := f.file("x", false)
	content.File.Owner = "no-such-user"
	if err := f.do(content); err == nil || !strings.Contains(err.Error(), "useradd --system no-such-user") {
		t.Error(err)
	}
}

// TestVerify lets the machine's own systemd-analyze find what it would leave out.
func TestVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("left out: no systemd-analyze")
	}
	f := newFixture(t)
	text := func(name, text string) bundle.Text {
		unit, _, _ := strings.Cut(name, ".d/")
		return bundle.Text{Path: f.at("units/" + name), Unit: unit, Text: text}
	}
	good := "[Service]\nExecStart=/bin/true\n[X-Ctrl]\nWorkload=web\n"
	got, err := f.verify([]bundle.Text{
		text("good.service", good), text("g@.service", good), text("missing.service", "[Service]\nExecStart=/no/such/program\nUser=nobodyhere\n"),
		text("a.service", "[Unit]\nFoo=1\n[Service]\nExecStart=/bin/echo 'test\\.com'\nTimeoutStartSec=banana\n[Nope]\nA=b\n"),
		text("w@.service", "[Service]\nExecStart=/bin/true\nRestart=bogus\n"),
		text("good.service.d/x.conf", "[Service]\nBar=2\n"), text("none.service", "[Service]\nType=oneshot\n"), text("t.timer", "[Timer]\n"),
		text("dbus.service.d/y.conf", "[Service]\nBaz=1\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{"a.service:2: Unknown key 'Foo'", "a.service:4: Ignoring unknown escape", "a.service:5: Failed to parse TimeoutStartSec", "a.service:6: Unknown section",
		"w@.service:3: ", "good.service.d/x.conf:2: Unknown key 'Bar'", "none.service: Service has no ExecStart", "t.timer: Timer unit lacks value"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	for _, no := range []string{"missing.service", "good.service:", "g@.service", f.dir} {
		if strings.Contains(all, no) {
			t.Errorf("%q is in\n%s", no, all)
		}
	}
	if left := f.tree(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestEnds(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.Run(ctx); close(ended) }()
	answer := make(chan error, 1)
	f.Do(bundle.Step{Kind: bundle.StepRemove, Path: f.at("units/x.service")}, func(err error) { answer <- err })
	if err := <-answer; err != nil {
		t.Error(err)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
	f.Do(bundle.Step{Kind: bundle.StepReload}, func(err error) { answer <- err })
	if err := <-answer; !errors.Is(err, errEnded) {
		t.Error(err)
	}
}
