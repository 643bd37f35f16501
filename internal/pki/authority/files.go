package authority

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"example.org/ctrl/internal/atomicfile"
)

// DamagedError is an error of Open that does not go away by itself: somebody must look at the
// files.
type DamagedError struct{ err error }

func (e *DamagedError) Error() string { return e.err.Error() }
func (e *DamagedError) Unwrap() error { return e.err }

// passingError is one that may go away: a full disk, another process, a clock.
type passingError struct{ err error }

func (e *passingError) Error() string { return e.err.Error() }
func (e *passingError) Unwrap() error { return e.err }

func passing(err error) error { return &passingError{err} }

// judged marks an error of Open that is none of those that pass.
func judged(err error) error {
	var p *passingError
	if err == nil || errors.As(err, &p) {
		return err
	}
	return &DamagedError{err}
}

// folder is the directory that holds all of an authority's files. Only its owner may enter.
type folder struct {
	path string
	lock *os.File
}

// openFolder makes the directory where it is missing, and keeps every other process out of
// it until close.
func openFolder(path string) (*folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, passing(fmt.Errorf("cannot make the state directory %s: %w", path, reason(err)))
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot use the state directory %s: %w", path, reason(err))
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory, and the state is to be there", path)
	}
	if err := checkOwner("directory "+path, info, "chmod 0700"); err != nil {
		return nil, err
	}
	f := &folder{path: path}
	name := f.file("lock")
	if f.lock, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600); err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", name, reason(err))
	}
	if err := syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, passing(fmt.Errorf("another manager uses the state directory %s", path))
		}
		return nil, fmt.Errorf("cannot lock %s: %w", name, err)
	}
	return f, nil
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

func (f *folder) close() { f.lock.Close() }

// checkOwner wants something that only this program's user can look into.
func checkOwner(what string, info fs.FileInfo, fix string) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if uid := os.Geteuid(); int(st.Uid) != uid {
		return fmt.Errorf("%s belongs to uid %d, and this program runs as uid %d; make that the owner (chown)", what, st.Uid, uid)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o and holds the secrets of the fleet: let nobody else in (%s)", what, mode, fix)
	}
	return nil
}

// maxFile bounds a file that is read: 65,536 nodes need about 32 MiB.
const maxFile = 64 << 20

// read reads a file; the error of one that is missing is fs.ErrNotExist.
func (f *folder) read(name string) ([]byte, error) {
	path := f.file(name)
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, reason(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err := checkOwner(path, info, "chmod 0600"); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", path, reason(err))
	case len(data) > maxFile:
		return nil, fmt.Errorf("%s is larger than %d MiB, so it is something else", path, maxFile>>20)
	}
	return data, nil
}

// write replaces a file by one with other content, or leaves it as it is.
func (f *folder) write(name string, data []byte) error {
	if err := atomicfile.Write(f.file(name), data, 0o600); err != nil {
		return passing(fmt.Errorf("cannot write %s: %w", f.file(name), reason(err)))
	}
	return nil
}

// tidy removes what a crash has left of files that were being written: they may hold keys.
func (f *folder) tidy(names ...string) error {
	for _, name := range names {
		if err := atomicfile.Tidy(f.file(name)); err != nil {
			return fmt.Errorf("cannot tidy %s: %w", f.path, reason(err))
		}
	}
	return nil
}

// remove deletes a file for good.
func (f *folder) remove(name string) error {
	if err := os.Remove(f.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove %s: %w", f.file(name), reason(err))
	}
	return atomicfile.SyncDir(f.path)
}

// reason drops what an error of package os says about the path, which our texts name.
func reason(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
