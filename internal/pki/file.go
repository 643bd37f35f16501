package pki

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

type file struct{ key, path string }

func (c Config) files() [3]file {
	return [3]file{{"CertFile", c.CertFile}, {"KeyFile", c.KeyFile}, {"CAFile", c.CAFile}}
}

// stamps tells whether any of the files has changed, without reading them.
type stamps [3]stamp

type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime time.Duration // since 1970
}

func stat(c Config) stamps {
	var out stamps
	for i, f := range c.files() {
		var st syscall.Stat_t
		if syscall.Stat(f.path, &st) != nil {
			continue // missing: the zero stamp
		}
		out[i] = stamp{
			dev: st.Dev, ino: st.Ino, size: st.Size,
			mtime: time.Duration(st.Mtim.Nano()), ctime: time.Duration(st.Ctim.Nano()),
		}
	}
	return out
}

func (s stamps) newest() time.Time {
	var newest time.Duration
	for _, one := range s {
		newest = max(newest, one.mtime, one.ctime)
	}
	return time.Unix(0, int64(newest))
}

// maxFile bounds what is read: no chain of certificates comes near it.
const maxFile = 1 << 20

// readFile reads a regular file whose owner and mode let no stranger change it and, where it
// is secret, read it. What is checked is what is read: the open file.
func readFile(key, path string, secret bool) ([]byte, error) {
	// Without O_NONBLOCK the open of a named pipe would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, openError(key, path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot read %s=%s: %w", key, path, reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s=%s is not a regular file", key, path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if why := checkMode(info.Mode().Perm(), int(st.Uid), os.Geteuid(), secret); why != "" {
			return nil, fmt.Errorf("%s=%s has owner %d and mode %04o: %s", key, path, st.Uid, info.Mode().Perm(), why)
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s=%s: %w", key, path, reason(err))
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s=%s is larger than %d KiB, so it is not what it should be", key, path, maxFile>>10)
	}
	return data, nil
}

// checkMode says what is wrong with a file's owner and mode, and how to put it right. A
// secret may be readable by a group only where root has decided that.
func checkMode(mode fs.FileMode, owner, self int, secret bool) string {
	if owner != 0 && owner != self {
		return fmt.Sprintf("it must belong to root or to uid %d, which runs this program (chown)", self)
	}
	if !secret {
		if mode&0o002 != 0 {
			return "everybody could change it (chmod o-w)"
		}
		return ""
	}
	switch {
	case mode&0o007 != 0:
		return "a private key must be out of reach of others (chmod 0600)"
	case mode&0o030 != 0 || mode&0o040 != 0 && owner != 0:
		return "a private key must be out of reach of its group (chmod 0600)"
	}
	return ""
}

func openError(key, path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s=%s does not exist", key, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cannot read %s=%s: permission denied for uid %d, which runs this program; make it the owner of the file, "+
			"and let it pass all directories above", key, path, os.Geteuid())
	}
	return fmt.Errorf("cannot read %s=%s: %w", key, path, reason(err))
}

// reason drops what an error of package os says about the path, which our texts name already.
func reason(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// printable tells readable bytes of a peer from noise, for error texts.
func printable(b []byte) bool {
	return len(b) > 0 && strings.IndexFunc(string(b), func(r rune) bool { return r < ' ' || r > '~' }) < 0
}
