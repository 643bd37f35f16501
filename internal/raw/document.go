package raw

import (
	"fmt"
	"os"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/manifest"
)

const (
	apiVersion = "ctrl/v1"
	kindUnits  = "Units"
)

// documents makes workloads of documents. root is the folder that {file: …} is looked up in, nil
// for standard input.
func documents(from string, root *os.Root, data []byte, name string) ([]Workload, error) {
	if name != "" {
		return nil, fmt.Errorf("%s holds documents, which name their workloads themselves: leave --name out", from)
	}
	docs, err := manifest.Documents(from, data)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("%s holds no document", from)
	}
	var out []Workload
	seen := make(map[string]int)
	for _, d := range docs {
		w, err := document(d, root)
		if err != nil {
			return nil, err
		}
		w.Source = from
		name := w.Package.Bundle.Workload
		if line := seen[name]; line > 0 {
			return nil, d.Errorf("workload %s is there already, in line %d", name, line)
		}
		seen[name] = d.Line()
		out = append(out, w)
	}
	return out, nil
}

func document(d manifest.Value, root *os.Root) (Workload, error) {
	top, err := d.Map("apiVersion", "kind", "metadata", "spec")
	if err != nil {
		return Workload{}, err
	}
	version, err := top["apiVersion"].Text()
	if err != nil {
		return Workload{}, err
	}
	kind, err := top["kind"].Text()
	switch {
	case err != nil:
		return Workload{}, err
	case kind != kindUnits:
		return Workload{}, d.Errorf("kind: %q is not known; this version reads kind: %s", kind, kindUnits)
	case version != apiVersion:
		return Workload{}, d.Errorf("apiVersion: %q is not known for kind %s; it is %s", version, kind, apiVersion)
	}
	meta, err := top["metadata"].Map("name")
	if err != nil {
		return Workload{}, err
	}
	name, err := meta["name"].Text()
	if err != nil {
		return Workload{}, err
	}
	if err := bundle.CheckWorkload(name); err != nil {
		return Workload{}, d.Errorf("metadata.name: %v", err)
	}
	return spec(d, top["spec"], name, root)
}

// spec reads what the workload is.
func spec(d, v manifest.Value, name string, root *os.Root) (Workload, error) {
	f, err := v.Map("nodes", "nodeSelector", "units", "files", "enable", "start", "allowForeign", "runtime")
	if err != nil {
		return Workload{}, err
	}
	b := newBuilder(name)
	var w Workload
	var enable, start []string
	var foreign bool
	for _, step := range []func() error{
		func() (err error) { w.Nodes, err = f["nodes"].Texts(); return err },
		func() (err error) { w.Selector, err = labels(f["nodeSelector"]); return err },
		func() error { return b.readUnits(f["units"], root) },
		func() error { return b.readFiles(f["files"], root) },
		func() (err error) { enable, err = f["enable"].Texts(); return err },
		func() (err error) { start, err = f["start"].Texts(); return err },
		func() (err error) { foreign, err = f["allowForeign"].Bool(); return err },
		func() (err error) { b.p.Bundle.Runtime, err = f["runtime"].Bool(); return err },
	} {
		if err := step(); err != nil {
			return Workload{}, err
		}
	}
	w.Package, err = b.finish(foreign, enable, start, f["enable"].Is(), f["start"].Is())
	if err != nil {
		return Workload{}, d.Errorf("workload %s: %v", name, err)
	}
	return w, nil
}

func labels(v manifest.Value) (map[string]string, error) {
	fields, err := v.Map()
	if err != nil || len(fields) == 0 {
		return nil, err
	}
	out := make(map[string]string, len(fields))
	for key, value := range fields {
		if out[key], err = value.Text(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readUnits reads unit files and drop-ins.
func (b *builder) readUnits(v manifest.Value, root *os.Root) error {
	fields, err := v.Map()
	if err != nil {
		return err
	}
	for _, name := range v.Keys() {
		data, err := content(fields[name], root, maxUnit)
		if err != nil {
			return err
		}
		if err := b.text(name, data); err != nil {
			return fields[name].Errorf("%v", err)
		}
	}
	return nil
}

// content is a text, or {file: PATH} beside the document.
func content(v manifest.Value, root *os.Root, limit int64, more ...string) ([]byte, error) {
	if text, err := v.Text(); err == nil {
		return []byte(text), nil
	}
	f, err := v.Map(append([]string{"file"}, more...)...)
	if err != nil {
		return nil, err
	}
	name, err := f["file"].Text()
	switch {
	case err != nil:
		return nil, err
	case name == "":
		return nil, v.Errorf("a text is meant, or {file: PATH}")
	case root == nil:
		return nil, v.Errorf("a document from standard input has no folder in which %q could be", name)
	}
	data, err := readFile(root, name, limit)
	if err != nil {
		return nil, v.Errorf("%s: %v", name, reason(err))
	}
	return data, nil
}

// readFiles reads configuration: paths on the node, each with a text, or with its content and what
// is to be done with it.
func (b *builder) readFiles(v manifest.Value, root *os.Root) error {
	fields, err := v.Map()
	if err != nil {
		return err
	}
	for _, path := range v.Keys() {
		if err := b.oneFile(path, fields[path], root); err != nil {
			return err
		}
	}
	return nil
}

var fileKeys = []string{"text", "mode", "owner", "group", "units", "write", "onChange"}

func (b *builder) oneFile(path string, v manifest.Value, root *os.Root) error {
	out := bundle.File{Path: path, Mode: 0o644}
	if text, err := v.Text(); err == nil {
		b.file(out, []byte(text))
		return nil
	}
	f, err := v.Map(append([]string{"file"}, fileKeys...)...)
	if err != nil {
		return err
	}
	var data []byte
	switch {
	case f["text"].Is() == f["file"].Is():
		return v.Errorf("one of text and file is needed")
	case f["text"].Is():
		var text string
		text, err = f["text"].Text()
		data = []byte(text)
	default:
		data, err = content(v, root, bundle.MaxFile, fileKeys...)
	}
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() (err error) { out.Mode, err = f["mode"].Octal(0o644); return err },
		func() (err error) { out.Owner, err = f["owner"].Text(); return err },
		func() (err error) { out.Group, err = f["group"].Text(); return err },
		func() (err error) { out.Units, err = f["units"].Texts(); return err },
		func() (err error) { out.Write, err = f["write"].Bool(); return err },
		func() (err error) { out.OnChange, err = f["onChange"].Text(); return err },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	b.file(out, data)
	return nil
}
