// Package atomicfile replaces files in one step: after a crash at any moment there is the old
// content or the new, whole.
package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Write gives a file new content and mode. The content is on the disk before it takes the
// name, and the name is before Write returns. On an error the file is as it was. The error
// names the file.
func Write(path string, data []byte, mode fs.FileMode) (err error) {
	dir, name := filepath.Split(path)
	next, err := os.CreateTemp(orHere(dir), temporary(name)+"*") // mode 0600 until it is whole
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: reason(err)}
	}
	defer func() {
		if err != nil {
			os.Remove(next.Name())
			err = &fs.PathError{Op: "write", Path: path, Err: reason(err)}
		}
	}()
	_, err = next.Write(data)
	if err == nil {
		err = next.Chmod(mode)
	}
	if err == nil {
		err = next.Sync()
	}
	if closed := next.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return err
	}
	return SyncDir(orHere(dir))
}

// temporary is how the names of files begin that Write has not finished.
func temporary(name string) string { return "." + name + ".new-" }

// Tidy removes what a crash in the middle of Write has left for a file. No Write of that
// file may be under way.
func Tidy(path string) error {
	dir, name := filepath.Split(path)
	entries, err := os.ReadDir(orHere(dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if prefix := temporary(name); len(e.Name()) > len(prefix) && e.Name()[:len(prefix)] == prefix {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// SyncDir puts the names in a directory on the disk.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}

func orHere(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}

// reason drops the path from an error of package os: it is the temporary one.
func reason(err error) error {
	switch e := err.(type) {
	case *fs.PathError:
		return e.Err
	case *os.LinkError:
		return e.Err
	}
	return err
}
