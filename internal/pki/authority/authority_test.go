package authority

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/pki"
)

func TestFirstStart(t *testing.T) {
	w := newWorld(t)
	if got := w.names(); !slices.Equal(got, []string{"authority-1.pem", "ca.crt", "fleet", "manager.pem"}) {
		t.Errorf("there are %v", got)
	}
	filepath.WalkDir(w.path(""), func(path string, e fs.DirEntry, _ error) error {
		info, _ := e.Info()
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %04o", path, info.Mode().Perm())
		}
		return nil
	})
	store, err := pki.Open(w.Files(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.CheckTime(); err != nil || store.Name() != "manager" {
		t.Errorf("%s, %v", store.Name(), err)
	}
	ca := parse(t, []byte(w.files()["ca.crt"]))
	if !ca.IsCA || ca.MaxPathLen != 0 || ca.PublicKeyAlgorithm != x509.ECDSA || ca.NotAfter.Before(time.Now().AddDate(9, 0, 0)) {
		t.Errorf("the authority is %+v", ca)
	}
	before := w.files()
	w.restart()
	for name, text := range w.files() {
		if before[name] != text {
			t.Errorf("a restart changes %s", name)
		}
	}
}

func TestOneManager(t *testing.T) {
	w := newWorld(t)
	var damaged *DamagedError
	if _, err := Open(w.dir, nil, quiet); err == nil || errors.As(err, &damaged) || !strings.Contains(err.Error(), "another manager uses the state directory") {
		t.Errorf("got %v", err)
	}
}

// TestDamage: a file that is not as it was written keeps the manager from starting, by its
// name, and stays as it is.
func TestDamage(t *testing.T) {
	cut := func(s string) string { return s[:len(s)/2] }
	tests := map[string]struct {
		file  string
		spoil func(string) string
		want  string
	}{
		"ledger cut":          {"fleet", cut, "it is damaged"},
		"ledger empty":        {"fleet", func(string) string { return "" }, "it is damaged"},
		"ledger changed":      {"fleet", func(s string) string { return strings.Replace(s, `"generation": 1`, `"generation": 2`, 1) }, "it is damaged"},
		"ledger with a tail":  {"fleet", func(s string) string { return s + "\n" }, "it is damaged"},
		"ledger of zeros":     {"fleet", func(s string) string { return strings.Repeat("\x00", len(s)) }, "it is damaged"},
		"authority cut":       {"authority-1.pem", cut, "it is damaged"},
		"authority empty":     {"authority-1.pem", func(string) string { return "" }, "it is damaged"},
		"authority twice":     {"authority-1.pem", func(s string) string { return s + s }, "it is damaged"},
		"authority's key cut": {"authority-1.pem", func(s string) string { return s[:strings.Index(s, "-----BEGIN PRIVATE")] }, "it is damaged"},
		"manager cut":         {"manager.pem", cut, "it is damaged"},
		"manager empty":       {"manager.pem", func(string) string { return "" }, "it is damaged"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.join(w.machine("node1"), "node1", w.add("node1"))
			spoilt := test.spoil(w.files()[test.file])
			if err := os.WriteFile(w.path(test.file), []byte(spoilt), 0o600); err != nil {
				t.Fatal(err)
			}
			w.Close()
			before := w.files()
			_, err := Open(w.dir, nil, quiet)
			var damaged *DamagedError
			if !errors.As(err, &damaged) || !strings.Contains(err.Error(), w.path(test.file)) || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v", err)
			}
			for name, text := range w.files() {
				if before[name] != text {
					t.Errorf("%s was changed", name)
				}
			}
			if len(before) != len(w.files()) {
				t.Errorf("there are %v", w.names())
			}
		})
	}
}

func TestMissingFiles(t *testing.T) {
	for file, want := range map[string]string{
		"fleet":           "is missing beside authority-1.pem, and with it who is in the fleet and who was removed",
		"authority-1.pem": "cannot read",
		"manager.pem":     "", // a new one is issued
		"ca.crt":          "", // holds nothing of its own
	} {
		w := newWorld(t)
		w.Close()
		if err := os.Remove(w.path(file)); err != nil {
			t.Fatal(err)
		}
		a, err := Open(w.dir, nil, quiet)
		if want == "" {
			if err != nil || len(w.names()) != 4 {
				t.Errorf("without %s: %v, %v", file, err, w.names())
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), w.path(file)) {
			t.Errorf("without %s: %v", file, err)
		}
		if a != nil {
			a.Close()
		}
	}
}

// TestCrashAtFirstStart: what a manager leaves that ends in the middle is no obstacle.
func TestCrashAtFirstStart(t *testing.T) {
	w := newWorld(t)
	w.Close()
	l := &ledger{}
	data, err := l.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"authority-1.pem", ""} {
		for name := range w.files() {
			if name != left {
				os.Remove(w.path(name))
			}
		}
		os.WriteFile(w.path("fleet"), data, 0o600)
		for _, name := range []string{".fleet.new-123", ".authority-1.pem.new-4", ".manager.pem.new-6"} {
			os.WriteFile(w.path(name), []byte("half"), 0o600)
		}
		w.open()
		if got := w.names(); !slices.Equal(got, []string{"authority-1.pem", "ca.crt", "fleet", "manager.pem"}) {
			t.Errorf("there are %v", got)
		}
		if _, err := pki.Open(w.Files(), quiet); err != nil {
			t.Error(err)
		}
		w.Close()
	}
	w.open()
}

func TestFilesAreSecret(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"chmod 0600": func(w *world) { os.Chmod(w.path("authority-1.pem"), 0o640) },
		"chmod 0700": func(w *world) { os.Chmod(w.path(""), 0o755) },
		"not a regular file": func(w *world) {
			os.Remove(w.path("fleet"))
			os.Mkdir(w.path("fleet"), 0o700)
		},
		"too many levels of symbolic links": func(w *world) {
			os.Rename(w.path("manager.pem"), w.path("other"))
			os.Symlink("other", w.path("manager.pem"))
		},
	} {
		w := newWorld(t)
		w.Close()
		spoil(w)
		if a, err := Open(w.dir, nil, quiet); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
			if a != nil {
				a.Close()
			}
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("files of others need root")
	}
	w := newWorld(t)
	w.Close()
	os.Chown(w.path("authority-1.pem"), 12345, 12345)
	if _, err := Open(w.dir, nil, quiet); err == nil || !strings.Contains(err.Error(), "belongs to uid 12345") || !strings.Contains(err.Error(), "authority-1.pem") {
		t.Errorf("got %v", err)
	}
}

// TestManagerRenewsItself: its certificate is never near its end.
func TestManagerRenewsItself(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, err := Open(dir, func(Change) {}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		done := make(chan bool)
		go func() { a.Run(t.Context()); close(done) }()
		serials := make(map[string]bool)
		for range 200 {
			time.Sleep(24 * time.Hour)
			s, err := a.State()
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(s.Manager.NotAfter); left < 29*24*time.Hour {
				t.Fatalf("%v are left", left)
			}
			serials[s.Manager.Fingerprint] = true
		}
		if len(serials) != 4 {
			t.Errorf("%d certificates in 200 days", len(serials))
		}
	})
}
