package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for _, content := range []string{"one", "", strings.Repeat("three", 100000)} {
		if err := Write(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left is %v", got)
	}
}

// Who has the old file open keeps it: it is replaced, not written over.
func TestOldContentIsNotTouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if n, _ := f.Read(b); string(b[:n]) != "old" {
		t.Errorf("it reads %q", b[:n])
	}
}

func TestFailureLeavesEverythingAsItWas(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "folder") // a directory that is not empty cannot be replaced
	if err := os.MkdirAll(filepath.Join(in, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := Write(in, []byte("data"), 0o600)
	if err == nil || !strings.Contains(err.Error(), in) || strings.Contains(err.Error(), ".new-") {
		t.Errorf("got %v", err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left is %v", got)
	}
	missing := filepath.Join(dir, "none", "state")
	if err := Write(missing, nil, 0o600); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("got %v", err)
	}
}

func TestFullDisk(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := Write(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A limit on the size of files fails in the middle of the write, as a full disk does. The
	// runtime ignores the signal that comes with it.
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4096, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	err := Write(path, make([]byte, 1<<16), 0o600)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, syscall.EFBIG) {
		t.Errorf("got %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("the file is %q", got)
	}
	if got := names(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("left is %v", got)
	}
}

func TestTidy(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".state.new-123", "state", ".other.new-1", ".state.new-"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Tidy(filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names(t, dir), " "); got != ".other.new-1 .state.new- state" {
		t.Errorf("left is %s", got)
	}
}
