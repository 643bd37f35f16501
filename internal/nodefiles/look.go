package nodefiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/unitfile"
)

// Look implements bundle.Files.
func (f *Files) Look(q bundle.Query, done func(bundle.Facts, error)) {
	f.post(func() { done(f.look(q)) }, func() { done(bundle.Facts{}, errEnded) })
}

func (f *Files) look(q bundle.Query) (bundle.Facts, error) {
	facts := bundle.Facts{Paths: make(map[string]bundle.PathFact), Elsewhere: make(map[string]string), Contents: make(map[string]bool)}
	for _, path := range q.Texts {
		fact, err := f.fact(path, nil)
		if err != nil {
			return facts, err
		}
		facts.Paths[path] = fact
	}
	for _, file := range q.Files {
		if _, done := facts.Paths[file.Path]; done {
			continue
		}
		fact, err := f.fact(file.Path, q.Files)
		if err != nil {
			return facts, err
		}
		facts.Paths[file.Path] = fact
	}
	for _, id := range q.Contents {
		info, err := os.Lstat(filepath.Join(f.opt.Layout.Store, id))
		facts.Contents[id] = err == nil && info.Mode().IsRegular()
	}
	for _, name := range q.Units {
		if at := f.elsewhere(name, q); at != "" {
			facts.Elsewhere[name] = at
		}
	}
	return facts, nil
}

// fact tells what is at a path: of a unit file its text, of another file (files is set) its
// ContentID. A path outside of what this agent writes to, or behind a link, is not looked at:
// what may not be there is refused by its plan or when it is written.
func (f *Files) fact(path string, files []bundle.File) (bundle.PathFact, error) {
	root, rel, err := f.root(path)
	if err != nil {
		return bundle.PathFact{}, nil
	}
	d, name, err := open(root, rel, false)
	if errors.Is(err, fs.ErrNotExist) {
		return bundle.PathFact{}, nil
	}
	if err != nil {
		return bundle.PathFact{}, err
	}
	defer d.Close()
	var st unix.Stat_t
	err = unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return bundle.PathFact{}, nil
	case err != nil:
		return bundle.PathFact{}, d.fault("look at", name, err)
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		target := make([]byte, 4096)
		n, err := unix.Readlinkat(d.fd(), name, target)
		if err != nil {
			return bundle.PathFact{}, d.fault("read the link", name, err)
		}
		return bundle.PathFact{Kind: bundle.KindLink, Target: string(target[:n])}, nil
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return bundle.PathFact{Kind: bundle.KindOther}, nil
	}
	return regular(d, name, path, files)
}

func regular(d *dir, name, path string, files []bundle.File) (bundle.PathFact, error) {
	fact := bundle.PathFact{Kind: bundle.KindFile}
	file, info, err := d.read(name)
	if err != nil {
		return fact, err
	}
	defer file.Close()
	if files != nil {
		fact.ID, err = contentID(file, info, path, files)
		return fact, err
	}
	if info.Size() > maxText {
		return fact, nil // none of ours
	}
	text, err := io.ReadAll(io.LimitReader(file, maxText))
	fact.Text = string(text)
	return fact, err
}

// maxText is the largest unit file that ctrl makes, with its mark.
const maxText = unitfile.MaxSize + 4096

// contentID is the ID of what a file is, in the words of one of the files that it may be.
func contentID(r io.Reader, info fs.FileInfo, path string, files []bundle.File) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	is := bundle.File{SHA256: hex.EncodeToString(sum.Sum(nil)), Mode: uint32(info.Mode().Perm())}
	st, _ := info.Sys().(*syscall.Stat_t)
	is.Owner, is.Group = strconv.Itoa(int(st.Uid)), strconv.Itoa(int(st.Gid))
	for _, f := range files {
		a, err := owner(f)
		if f.Path == path && err == nil && is.SHA256 == f.SHA256 && is.Mode == f.Mode && uint32(a.uid) == st.Uid && uint32(a.gid) == st.Gid {
			return f.ContentID(), nil
		}
	}
	return is.ContentID(), nil
}

// elsewhere is a file by which somebody else gives the node a unit of that name.
func (f *Files) elsewhere(name string, q bundle.Query) string {
	for _, dir := range f.opt.UnitPath {
		at := filepath.Join(dir, name)
		if slices.Contains(q.Texts, at) {
			continue // the plan looks at what is there
		}
		info, err := os.Lstat(at)
		if err != nil {
			continue
		}
		ours := dir == f.opt.Layout.Units || dir == f.opt.Layout.Runtime
		if ours && info.Mode().IsRegular() {
			if fact, err := f.fact(at, nil); err == nil && bundle.Mark(fact.Text) == q.Workload {
				continue
			}
		}
		return at
	}
	return ""
}

// tidy removes what was staged and never came to its place, and finds all files with a mark.
func (f *Files) tidy(marked map[string]string) {
	for _, root := range []string{f.opt.Layout.Units, f.opt.Layout.Runtime} {
		f.tidyUnits(root, "", marked)
	}
	for _, root := range f.opt.FilePaths {
		f.tidyFiles(root)
	}
}

// tidyUnits looks through a directory of unit files, or one of drop-ins.
func (f *Files) tidyUnits(root, sub string, marked map[string]string) {
	entries, err := os.ReadDir(filepath.Join(root, sub))
	if err != nil {
		return
	}
	for _, e := range entries {
		rel := filepath.Join(sub, e.Name())
		stem, isDropIns := strings.CutSuffix(e.Name(), ".d")
		switch {
		case original(e.Name()) != "":
			f.removeLeft(root, rel)
		case e.IsDir() && sub == "" && isDropIns && unit.Valid(stem):
			f.tidyUnits(root, rel, marked)
		case e.Type().IsRegular() && (sub == "" && unit.Valid(e.Name()) || sub != "" && strings.HasSuffix(e.Name(), ".conf")):
			at := filepath.Join(root, rel)
			if fact, err := f.fact(at, nil); err == nil && bundle.Mark(fact.Text) != "" {
				marked[at] = bundle.Mark(fact.Text)
			}
		}
	}
}

// tidyFiles looks for what was staged below a root of files.
func (f *Files) tidyFiles(root string) {
	// WalkDir follows no links below the root.
	filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && original(e.Name()) != "" {
			if rel, err := filepath.Rel(root, path); err == nil {
				f.removeLeft(root, rel)
			}
		}
		return nil
	})
}

func (f *Files) removeLeft(root, rel string) {
	if err := f.remove(filepath.Join(root, rel)); err != nil {
		f.log.Warn("cannot remove a temporary file", "err", err)
	}
}
