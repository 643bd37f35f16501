package nodefiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dir is an open directory, below which nothing is reached through a symbolic link.
type dir struct {
	*os.File
	path string
}

// open opens the directory of a path below a trusted root: every directory on the way by
// itself, none of them a link. With create it makes what is missing, mode 0755.
func open(root, rel string, create bool) (*dir, string, error) {
	if create {
		if err := makeRoot(root); err != nil {
			return nil, "", err
		}
	}
	f, err := os.OpenFile(root, unix.O_DIRECTORY|os.O_RDONLY, 0)
	if err != nil {
		return nil, "", err
	}
	d := &dir{f, root}
	parts := strings.Split(rel, "/")
	for _, part := range parts[:len(parts)-1] {
		next, err := d.sub(part, create)
		d.Close()
		if err != nil {
			return nil, "", err
		}
		d = next
	}
	return d, parts[len(parts)-1], nil
}

// makeRoot makes a directory for all to read, whatever umask the process has.
func makeRoot(root string) error {
	if _, err := os.Lstat(root); err == nil {
		return nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	return os.Chmod(root, 0o755)
}

// sub opens a directory in a directory.
func (d *dir) sub(name string, create bool) (*dir, error) {
	if create {
		err := unix.Mkdirat(d.fd(), name, 0o755)
		if err == nil {
			// The process may have a umask that is right for its own files.
			err = unix.Fchmodat(d.fd(), name, 0o755, 0)
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, d.fault("make directory", name, err)
		}
	}
	fd, err := unix.Openat(d.fd(), name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("%s is no directory, or a link to one, which is not followed", filepath.Join(d.path, name))
	}
	if err != nil {
		return nil, d.fault("open", name, err)
	}
	return &dir{os.NewFile(uintptr(fd), name), filepath.Join(d.path, name)}, nil
}

func (d *dir) fd() int { return int(d.Fd()) }

func (d *dir) fault(what, name string, err error) error {
	return fmt.Errorf("cannot %s %s: %w", what, filepath.Join(d.path, name), err)
}

// read opens a regular file for reading; nothing is waited for, no link followed.
func (d *dir) read(name string) (*os.File, fs.FileInfo, error) {
	fd, err := unix.Openat(d.fd(), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, d.fault("read", name, err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.path, name))
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", f.Name())
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// attributes of a file that is written.
type attributes struct {
	mode     uint32
	uid, gid int
}

// write makes a file of which the content is on the disk when it returns. What is there
// under that name, which is one of our own for what is on its way, is replaced.
func (d *dir) write(name string, content io.Reader, a attributes) (err error) {
	if err := unix.Unlinkat(d.fd(), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return d.fault("replace", name, err)
	}
	fd, err := unix.Openat(d.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return d.fault("write", name, err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.path, name))
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			unix.Unlinkat(d.fd(), name, 0)
			err = d.fault("write", name, err)
		}
	}()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	if err := f.Chmod(fs.FileMode(a.mode)); err != nil {
		return err
	}
	// The owner comes last: a file of somebody else takes a capability more to be changed.
	if a.uid != os.Geteuid() || a.gid != os.Getegid() {
		if err := f.Chown(a.uid, a.gid); errors.Is(err, unix.EPERM) {
			return fmt.Errorf("this agent may not give files to other users; its unit needs CapabilityBoundingSet=CAP_CHOWN: %w", err)
		} else if err != nil {
			return err
		}
	}
	return f.Sync()
}

// rename puts a file that was written into its place.
func (d *dir) rename(from, to string) error {
	if err := unix.Renameat(d.fd(), from, d.fd(), to); err != nil {
		return d.fault("replace", to, err)
	}
	return nil
}

// unlink removes a file; that it is not there is no fault.
func (d *dir) unlink(name string) error {
	if err := unix.Unlinkat(d.fd(), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return d.fault("remove", name, err)
	}
	return nil
}

// prune removes the directories on the way to a path that are empty, up to the root.
func prune(root, rel string) {
	for rel = filepath.Dir(rel); rel != "."; rel = filepath.Dir(rel) {
		d, name, err := open(root, rel, false)
		if err != nil {
			return
		}
		err = unix.Unlinkat(d.fd(), name, unix.AT_REMOVEDIR)
		d.Close()
		if err != nil {
			return // it is not empty
		}
	}
}
