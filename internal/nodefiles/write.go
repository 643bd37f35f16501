package nodefiles

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"example.org/ctrl/internal/bundle"
)

// suffix of names for what is on its way. With the dot before it systemd does not look at it.
const suffix = ".ctrl-new"

func staged(name string) string { return "." + name + suffix }

// original is the name that a staged one is for, "" where it is none.
func original(name string) string {
	name, ok := strings.CutSuffix(name, suffix)
	if !ok || len(name) < 2 || name[0] != '.' {
		return ""
	}
	return name[1:]
}

// writers is how many files are written at a time: their way to the disk is shared.
const writers = 8

// stage writes texts beside their places.
func (f *Files) stage(texts []bundle.Text) error {
	room := make(chan struct{}, writers)
	faults := make([]error, len(texts))
	var all sync.WaitGroup
	for i, t := range texts {
		room <- struct{}{}
		all.Go(func() {
			faults[i] = f.stageOne(t)
			<-room
		})
	}
	all.Wait()
	for _, t := range texts {
		f.dirty[filepath.Dir(t.Path)] = true
	}
	err := errors.Join(faults...)
	if err != nil {
		err = errors.Join(err, f.unstage(texts))
	}
	return err
}

func (f *Files) stageOne(t bundle.Text) error {
	root, rel, err := f.root(t.Path)
	if err != nil {
		return err
	}
	d, name, err := open(root, rel, true)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.write(staged(name), strings.NewReader(t.Text), attributes{0o644, os.Geteuid(), os.Getegid()})
}

// unstage removes what stage has left.
func (f *Files) unstage(texts []bundle.Text) error {
	var errs []error
	for _, t := range texts {
		root, rel, err := f.root(t.Path)
		if err != nil {
			continue
		}
		d, name, err := open(root, rel, false)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = d.unlink(staged(name))
			d.Close()
			prune(root, rel)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// place puts a staged text into its place.
func (f *Files) place(path string) error {
	root, rel, err := f.root(path)
	if err != nil {
		return err
	}
	d, name, err := open(root, rel, false)
	if err != nil {
		return err
	}
	defer d.Close()
	f.dirty[d.path] = true
	return d.rename(staged(name), name)
}

// remove removes a file, and the directories that are empty then.
func (f *Files) remove(path string) error {
	root, rel, err := f.root(path)
	if err != nil {
		return err
	}
	d, name, err := open(root, rel, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.unlink(name); err != nil {
		return err
	}
	f.dirty[d.path] = true
	prune(root, rel)
	return nil
}

// owner finds the accounts of a file on this node.
func owner(f bundle.File) (attributes, error) {
	a := attributes{mode: f.Mode}
	var err error
	if a.uid, err = account(f.Owner, func(name string) (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", fmt.Errorf("user %s of %s is not on this node; make it first: useradd --system %s", name, f.Path, name)
		}
		return u.Uid, nil
	}); err != nil {
		return a, err
	}
	a.gid, err = account(f.Group, func(name string) (string, error) {
		g, err := user.LookupGroup(name)
		if err != nil {
			return "", fmt.Errorf("group %s of %s is not on this node; make it first: groupadd --system %s", name, f.Path, name)
		}
		return g.Gid, nil
	})
	return a, err
}

// account is the number of an account by name or number; "" and root are 0.
func account(name string, lookup func(string) (string, error)) (int, error) {
	if name == "" || name == "root" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	id, err := lookup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(id)
}

// putContent puts a content into the store.
func (f *Files) putContent(file bundle.File, data []byte) error {
	a, err := owner(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.opt.Layout.Store, 0o700); err != nil {
		return err
	}
	return f.put(f.opt.Layout.Store, file.ContentID(), bytes.NewReader(data), a)
}

// put writes a file whole: under another name, on the disk, then into its place.
func (f *Files) put(root, rel string, content io.Reader, a attributes) error {
	d, name, err := open(root, rel, true)
	if err != nil {
		return err
	}
	defer d.Close()
	f.dirty[d.path] = true
	if err := d.write(staged(name), content, a); err != nil {
		return err
	}
	return d.rename(staged(name), name)
}

// putFile copies a content to its path.
func (f *Files) putFile(file bundle.File) error {
	a, err := owner(file)
	if err != nil {
		return err
	}
	root, rel, err := f.root(file.Path)
	if err != nil {
		return err
	}
	store, name, err := open(f.opt.Layout.Store, file.ContentID(), false)
	if err != nil {
		return err
	}
	defer store.Close()
	content, _, err := store.read(name)
	if err != nil {
		return err
	}
	defer content.Close()
	return f.put(root, rel, content, a)
}

func (f *Files) dropContent(id string) error {
	d, name, err := open(f.opt.Layout.Store, filepath.Base(id), false)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.unlink(name)
}

// settle brings all renames and removals so far to the disk.
func (f *Files) settle() error {
	for path := range f.dirty {
		d, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err == nil {
			err = d.Sync()
			d.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // one that was removed is empty on the disk as well
			return fmt.Errorf("cannot bring %s to the disk: %w", path, err)
		}
		delete(f.dirty, path)
	}
	return nil
}
