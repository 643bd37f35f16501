package systemd

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// openDir is a directory that everyone may enter, which t.TempDir is not.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "units")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadPublic(t *testing.T) {
	dir := openDir(t)
	open := write(t, dir+"/open", "12345", 0o644)
	hidden := write(t, dir+"/hidden/open", "x", 0o644)
	fifo := dir + "/fifo"
	for _, err := range []error{
		os.Chmod(dir+"/hidden", 0o700), syscall.Mkfifo(fifo, 0o644), os.Symlink(open, dir+"/link"),
		os.Symlink(hidden, dir+"/link-to-hidden"), os.Symlink("/dev/null", dir+"/masked"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		path, want string
		room       int64
		err        string
	}{
		{open, "12345", 5, ""},
		{dir + "/link", "12345", 5, ""},
		{dir + "/masked", "", 5, ""},
		{open, "", 4, "larger than"},
		{write(t, dir+"/secret", "x", 0o640), "", 5, "0640"},
		{hidden, "", 5, "enter the directory " + dir + "/hidden"},
		{dir + "/link-to-hidden", "", 5, "enter the directory " + dir + "/hidden"},
		{dir, "", 5, "no regular file"},
		{fifo, "", 5, "no regular file"},
		{dir + "/none", "", 5, "no such file"},
	}
	for _, tt := range tests {
		got, err := readPublic(tt.path, tt.room)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, %v; want %q and an error with %q", tt.path, got, err, tt.want, tt.err)
		}
	}
}
