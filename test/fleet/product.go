package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// installed is a file of the product.
type installed struct {
	path string // below the root
	mode fs.FileMode
	data []byte
}

// product is what `make install` puts where, built once for all fleets of this process.
var product = sync.OnceValues(func() ([]installed, error) {
	top, err := Top()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ctrl-product")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := makeInstall(top, dir); err != nil {
		return nil, err
	}
	return readTree(dir)
})

// Build builds the product, where New would do it too: for who wants to know which of both
// takes its time.
func Build() error {
	_, err := product()
	return err
}

// makeInstall is alone in the repository while it runs: make writes to bin/ there.
func makeInstall(top, dir string) error {
	lock, err := os.Open(top)
	if err != nil {
		return err
	}
	defer lock.Close()
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return err
	}
	cmd := exec.Command("make", "-s", "-C", top, "install", "DESTDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make install: %w: %s", err, out)
	}
	return nil
}

func readTree(dir string) (files []installed, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		path, err = filepath.Rel(dir, path)
		files = append(files, installed{path, info.Mode().Perm(), data})
		return err
	})
	return files, err
}

// install puts the product and the scenario's units where every node finds them.
func (f *Fleet) install(dir string) error {
	files, err := product()
	if err != nil {
		return err
	}
	for name, text := range f.opt.Units {
		files = append(files[:len(files):len(files)], installed{filepath.Join("usr/lib/systemd/system", name), 0o644, []byte(text)})
	}
	for _, file := range files {
		path := filepath.Join(dir, file.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, file.data, file.mode); err != nil {
			return err
		}
	}
	return nil
}

// Top is the repository's top folder.
func Top() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
		if dir == "/" {
			return "", errors.New("not inside the repository: no go.mod here or above")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
