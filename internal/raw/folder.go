package raw

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"example.org/ctrl/internal/bundle"
)

// filesFolder holds configuration; below it each file stands at the path that it has on the
// node.
const filesFolder = "files"

// folder makes a workload of a folder: unit files and their drop-ins at its top, and
// configuration below files/.
func folder(root *os.Root, from, name string) (Workload, error) {
	b := newBuilder(name)
	err := fs.WalkDir(root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", path.Join(from, p), reason(err))
		}
		if err := b.entry(root, p, e); err != nil {
			return fmt.Errorf("%s: %w", path.Join(from, p), reason(err))
		}
		return nil
	})
	if err != nil {
		return Workload{}, err
	}
	p, err := b.finish(false, nil, nil, false, false)
	if err != nil {
		return Workload{}, fmt.Errorf("%s: %w", from, err)
	}
	return Workload{Package: p, Source: from}, nil
}

func (b *builder) entry(root *os.Root, p string, e fs.DirEntry) error {
	top, rest, below := strings.Cut(p, "/")
	if e.IsDir() {
		if p == "." || top == filesFolder || !below && strings.HasSuffix(top, ".d") {
			return nil
		}
		return fmt.Errorf("this folder is neither UNIT.d nor below %s/", filesFolder)
	}
	if ignored(e.Name()) {
		return nil
	}
	if top == filesFolder && below {
		content, err := readFile(root, p, bundle.MaxFile)
		if err != nil {
			return err
		}
		info, err := root.Lstat(p)
		if err != nil {
			return err
		}
		b.file(bundle.File{Path: "/" + rest, Mode: plainMode(info.Mode())}, content)
		return nil
	}
	data, err := readFile(root, p, maxUnit)
	if err != nil {
		return err
	}
	return b.text(p, data)
}

// plainMode is 0755 for what its owner may run, else 0644: other bits depend on where the
// folder was checked out.
func plainMode(m fs.FileMode) uint32 {
	if m&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

// ignored are the files that editors and version control leave, and what tells people about
// the folder.
func ignored(name string) bool {
	return strings.HasSuffix(name, "~") || strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".md")
}
