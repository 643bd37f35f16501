package workloadstore

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/workload"
)

func open(t *testing.T, dir string) (*Store, []*workload.Spec, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s, specs, err := Open(dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return s, specs, &log
}

func spec(name string) *workload.Spec {
	return &workload.Spec{Format: workload.SpecFormat, Name: name, Generation: 3, Targets: map[string]*workload.Target{"node1": {Phase: workload.Done}}}
}

// wait runs something that answers through a callback.
func wait(t *testing.T, do func(done func(error))) error {
	t.Helper()
	answer := make(chan error, 1)
	do(func(err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-t.Context().Done():
		return t.Context().Err()
	}
}

func TestKeepsWorkloads(t *testing.T) {
	dir := t.TempDir()
	s, specs, _ := open(t, dir)
	if len(specs) != 0 {
		t.Fatalf("an empty folder has %v", specs)
	}
	for _, name := range []string{"web", "db"} {
		if err := wait(t, func(done func(error)) { s.SaveSpec(spec(name), done) }); err != nil {
			t.Fatal(err)
		}
	}
	next := spec("web")
	next.Generation = 4
	s.SaveSpec(spec("web"), func(error) {})
	if err := wait(t, func(done func(error)) { s.SaveSpec(next, done) }); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, func(done func(error)) { s.RemoveSpec("db", done) }); err != nil {
		t.Fatal(err)
	}
	_, specs, _ = open(t, dir)
	if len(specs) != 1 || specs[0].Name != "web" || specs[0].Generation != 4 || specs[0].Targets["node1"].Phase != workload.Done {
		t.Errorf("read again: %+v", specs)
	}
}

func TestKeepsPackages(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := open(t, dir)
	data := []byte("a package")
	digest := bundle.Sum(data)
	get := func() (got []byte, err error) {
		err = wait(t, func(done func(error)) { s.Package(digest, func(b []byte, err error) { got = b; done(err) }) })
		return got, err
	}
	if _, err := get(); err == nil {
		t.Error("a package that was never saved is there")
	}
	for range 2 {
		if err := wait(t, func(done func(error)) { s.SavePackage(digest, data, done) }); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := get(); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%q, %v", got, err)
	}
	path := filepath.Join(dir, "workloads/packages", digest)
	if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := get(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged package: %v", err)
	}
	if err := wait(t, func(done func(error)) { s.SavePackage(digest, data, done) }); err != nil {
		t.Fatal(err)
	}
	if _, err := get(); err != nil {
		t.Errorf("saved over a damaged one: %v", err)
	}
	s.Forget([]string{digest, "never there"})
	if _, err := get(); err == nil {
		t.Error("a forgotten package is there")
	}
}

func TestDamagedFilesAreNamedAndKept(t *testing.T) {
	for name, text := range map[string]string{
		"truncated": `{"format":1,"name":"web"`, "empty": "", "format": `{"format":9,"name":"web","targets":{}}`,
		"another": `{"format":1,"name":"db","targets":{}}`, "target": `{"format":1,"name":"web","targets":{"../x":{"phase":"done"}}}`,
		"null target": `{"format":1,"name":"web","targets":{"node1":null}}`, "phase": `{"format":1,"name":"web","targets":{"node1":{"phase":"x"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folder := filepath.Join(dir, "workloads")
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(folder, "web.json")
			for file, content := range map[string]string{path: text, filepath.Join(folder, ".db.json.new-1"): "half", filepath.Join(folder, "notes.txt"): "kept"} {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, specs, log := open(t, dir)
			if len(specs) != 0 || !strings.Contains(log.String(), path) {
				t.Errorf("specs %v; the log says %s", specs, log)
			}
			err := wait(t, func(done func(error)) { s.SaveSpec(spec("web"), done) })
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("saving over it: %v", err)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != text {
				t.Errorf("the file is %q now, %v", now, err)
			}
			entries, _ := os.ReadDir(folder)
			if len(entries) != 3 { // the file, the notes, the folder of packages
				t.Errorf("the folder holds %v", entries)
			}
		})
	}
}

// What was asked for before the end is on the disk after it.
func TestEndWritesWhatWaits(t *testing.T) {
	dir := t.TempDir()
	s, _, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		s.SaveSpec(spec(name), func(error) {})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ctx)
	_, specs, _ := open(t, dir)
	if len(specs) != 3 {
		t.Errorf("%d of 3 are there", len(specs))
	}
	if err := wait(t, func(done func(error)) { s.SaveSpec(spec("d"), done) }); err == nil {
		t.Error("a store that has ended saves")
	}
}
