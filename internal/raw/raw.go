// Package raw is the front end for plain unit files: it makes packages of a folder of them, or
// of documents of kind Units.
package raw

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/manifest"
	"example.org/ctrl/internal/unit"
)

// Workload is one workload as somebody describes it, and where it belongs.
type Workload struct {
	Package  bundle.Package
	Nodes    []string          // names and globs
	Selector map[string]string // labels
	Source   string            // the file or folder
}

// Stdin is the name that stands for standard input.
const Stdin = "-"

// Load reads a file, a folder, or standard input for "-". name is the workload's, for a folder
// only. What is read is checked (bundle.Package.Check); errors name file and line.
func Load(from, name string, stdin io.Reader) ([]Workload, error) {
	if from == Stdin {
		data, err := io.ReadAll(io.LimitReader(stdin, manifest.MaxInput+1))
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return documents("standard input", nil, data, name)
	}
	info, err := os.Stat(from)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		root, err := os.OpenRoot(path.Dir(from))
		if err != nil {
			return nil, err
		}
		defer root.Close()
		data, err := readFile(root, path.Base(from), manifest.MaxInput)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, reason(err))
		}
		return documents(from, root, data, name)
	}
	if name == "" {
		return nil, fmt.Errorf("%s is a folder: name its workload with --name", from)
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	w, err := folder(root, from, name)
	if err != nil {
		return nil, err
	}
	return []Workload{w}, nil
}

// readFile reads a regular file below a root; nothing leads out of it, and no link is followed.
func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, errors.New("it is a symbolic link; put the file itself there")
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no file")
	case info.Size() > limit:
		return nil, fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	return data, err
}

func reason(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// maxUnit bounds the text of a unit that is read; the check of the bundle has its own bound.
const maxUnit = 16 << 20

// builder gathers a package.
type builder struct {
	p     bundle.Package
	units map[string]*bundle.Unit
	names []string        // of units, as they came
	given map[string]bool // units whose file is there, if only an empty one
}

func newBuilder(name string) *builder {
	return &builder{
		p:     bundle.Package{Bundle: bundle.Bundle{Format: bundle.Format, Workload: name}, Blobs: make(map[string][]byte)},
		units: make(map[string]*bundle.Unit), given: make(map[string]bool),
	}
}

func (b *builder) unit(name string) *bundle.Unit {
	u := b.units[name]
	if u == nil {
		u = &bundle.Unit{Name: name}
		b.units[name] = u
		b.names = append(b.names, name)
	}
	return u
}

// text adds a unit file, or a drop-in where the name is NAME.d/FILE.conf.
func (b *builder) text(name string, data []byte) error {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	dir, file, dropIn := strings.Cut(name, "/")
	if !dropIn {
		if err := unit.CheckName(name); err != nil {
			return fmt.Errorf("%w; unit files end in .service, .socket, .timer, .path, .mount, .target …", err)
		}
		b.unit(name).Text = string(data)
		b.given[name] = true
		return nil
	}
	base, ok := strings.CutSuffix(dir, ".d")
	if !ok || strings.Contains(file, "/") || !strings.HasSuffix(file, ".conf") {
		return fmt.Errorf("%q is neither a unit file nor a drop-in, as UNIT.d/NAME.conf", name)
	}
	u := b.unit(base)
	u.DropIns = append(u.DropIns, bundle.DropIn{Name: file, Text: string(data)})
	return nil
}

// file adds a file of configuration.
func (b *builder) file(f bundle.File, content []byte) {
	f.SHA256 = bundle.Sum(content)
	b.p.Blobs[f.SHA256] = content
	b.p.Bundle.Files = append(b.p.Bundle.Files, f)
}

// finish completes what is left out: units without text are somebody else's where that is
// allowed, every unit with [Install] is enabled, and what is enabled is started.
func (b *builder) finish(foreign bool, enable, start []string, enableGiven, startGiven bool) (bundle.Package, error) {
	for _, name := range b.names {
		u := b.units[name]
		if !b.given[name] {
			if !foreign {
				return b.p, fmt.Errorf("there are drop-ins for %s but no unit file of that name; allowForeign: true lets a workload change units of others", name)
			}
			u.Foreign = true
		}
		b.p.Bundle.Units = append(b.p.Bundle.Units, *u)
	}
	if !enableGiven {
		for _, u := range b.p.Bundle.Units {
			if u.Enables() {
				enable = append(enable, u.Name)
			}
		}
	}
	if !startGiven {
		for _, name := range enable {
			if !unit.IsTemplate(name) {
				start = append(start, name)
			}
		}
	}
	slices.Sort(enable)
	slices.Sort(start)
	b.p.Bundle.Enable, b.p.Bundle.Start = enable, start
	if len(b.p.Bundle.Units) == 0 {
		return b.p, errors.New("there is no unit in it")
	}
	return b.p, b.p.Check()
}
