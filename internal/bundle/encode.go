package bundle

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Canonical sorts what has no order of its own, drops what is there twice and fills in what
// a missing word means, so that two bundles that mean the same are equal.
func (b Bundle) Canonical() Bundle {
	b.Units = slices.Clone(b.Units)
	for i := range b.Units {
		b.Units[i].DropIns = slices.Clone(b.Units[i].DropIns)
		slices.SortFunc(b.Units[i].DropIns, func(x, y DropIn) int { return cmp.Compare(x.Name, y.Name) })
	}
	slices.SortFunc(b.Units, func(x, y Unit) int { return cmp.Compare(x.Name, y.Name) })
	b.Files = slices.Clone(b.Files)
	for i := range b.Files {
		f := &b.Files[i]
		f.Units = set(f.Units)
		f.OnChange = cmp.Or(f.OnChange, ChangeRestart)
		f.Owner, f.Group = cmp.Or(f.Owner, "root"), cmp.Or(f.Group, "root")
	}
	slices.SortFunc(b.Files, func(x, y File) int { return cmp.Compare(x.Path, y.Path) })
	b.Enable, b.Start = set(b.Enable), set(b.Start)
	return b
}

func set(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// Digest is the hexadecimal SHA-256 of the bundle's canonical JSON: equal for bundles that
// mean the same.
func (b Bundle) Digest() string { return Sum(b.encode()) }

func (b Bundle) encode() []byte { return mustJSON(b.Canonical()) }

// mustJSON encodes values of this package, which hold nothing that JSON cannot.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// Sum is the hexadecimal SHA-256 of data.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Encode is the package as it goes to a node: the same bytes for the same input.
func (p Package) Encode() []byte {
	p.Bundle = p.Bundle.Canonical()
	return mustJSON(p)
}

// DecodePackage reads an encoded package and checks it (Check), with its blobs: each file's
// content is there, nothing else is. Errors are of kind *Refusal.
func DecodePackage(data []byte) (Package, error) {
	var p Package
	if len(data) > MaxPackage {
		return p, refuse(CodeInvalid, "the package is %d bytes long; at most %d are allowed", len(data), MaxPackage)
	}
	if err := strict(data, &p); err != nil {
		return p, refuse(CodeInvalid, "cannot read the package: %v", err)
	}
	return p, p.Check()
}

// Check looks at the bundle and its blobs. Errors are of kind *Refusal.
func (p Package) Check() error {
	if err := p.Bundle.Check(); err != nil {
		return err
	}
	wanted := make(map[string]bool)
	for _, f := range p.Bundle.Files {
		content, ok := p.Blobs[f.SHA256]
		switch {
		case !ok:
			return refuse(CodeInvalid, "the content of %s (sha256 %s) is not in the package", f.Path, f.SHA256)
		case len(content) > MaxFile:
			return refuse(CodeInvalid, "%s is %d bytes long; a file may have %d", f.Path, len(content), MaxFile)
		case !wanted[f.SHA256] && Sum(content) != f.SHA256:
			return refuse(CodeInvalid, "the content of %s does not have the digest that the bundle names", f.Path)
		}
		wanted[f.SHA256] = true
	}
	if len(p.Blobs) != len(wanted) {
		return refuse(CodeInvalid, "the package holds contents that no file of its bundle has")
	}
	return nil
}

// DecodeRequest reads what a call was given.
func DecodeRequest(text string) (Request, error) {
	var r Request
	if err := strict([]byte(text), &r); err != nil {
		return r, refuse(CodeInvalid, "cannot read the request: %v", err)
	}
	if len(r.Actor) > 256 {
		return r, refuse(CodeInvalid, "the actor's name is longer than 256 bytes")
	}
	return r, CheckWorkload(r.Workload)
}

// strict decodes one JSON value, without unknown keys and without anything behind it.
func strict(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("there is more than one value")
	}
	return nil
}

// Refusal is an error with a code for programs.
type Refusal struct{ Code, Text string }

func (r *Refusal) Error() string { return r.Text }

func refuse(code, format string, args ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}
