// Package manifest reads YAML and JSON documents that people write, strictly: what is not
// known, not text where text is meant, or there twice, is an error with file, line and path.
package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of what is read.
const (
	MaxInput     = 1 << 20 // bytes of all documents of one input
	MaxDocuments = 1000
	maxDepth     = 64
)

// Value is one value of a document, with where it stands.
type Value struct {
	file string
	path string
	node *yaml.Node
}

// Documents reads all documents of an input; file names it in errors. Empty documents are
// left out.
func Documents(file string, data []byte) ([]Value, error) {
	switch {
	case len(data) > MaxInput:
		return nil, fmt.Errorf("%s is larger than %d KiB", file, MaxInput>>10)
	case bytes.IndexByte(data, 0) >= 0:
		return nil, fmt.Errorf("%s:%d: contains a NUL byte", file, 1+bytes.Count(data[:bytes.IndexByte(data, 0)], []byte("\n")))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var out []Value
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].Tag == "!!null" && doc.Content[0].Value == "" {
			continue
		}
		v := Value{file: file, node: doc.Content[0]}
		if err := v.check(0); err != nil {
			return nil, err
		}
		if out = append(out, v); len(out) > MaxDocuments {
			return nil, fmt.Errorf("%s holds more than %d documents", file, MaxDocuments)
		}
	}
}

// check refuses what documents of ours never need, and what makes others than the reader see
// something else: aliases, tags, keys that are there twice.
func (v Value) check(depth int) error {
	n := v.node
	switch {
	case depth > maxDepth:
		return v.Errorf("it is nested deeper than %d levels", maxDepth)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return v.Errorf("anchors and aliases (& and *) are not read; write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		return v.Errorf("tags (%s) are not read", n.Tag)
	case n.Kind == yaml.SequenceNode:
		for i := range n.Content {
			if err := v.item(i).check(depth + 1); err != nil {
				return err
			}
		}
	case n.Kind == yaml.MappingNode:
		return v.checkMap(depth)
	}
	return nil
}

func (v Value) checkMap(depth int) error {
	seen := make(map[string]int)
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.node.Content[i]
		at := Value{v.file, v.join(key.Value), key}
		switch {
		case key.Value == "<<":
			return at.Errorf("merge keys are not read; write the values out")
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str" && key.Tag != "!!int" && key.Tag != "!!bool" && key.Tag != "!!float":
			return at.Errorf("a key is a plain word")
		case seen[key.Value] > 0:
			return at.Errorf("the key is there twice; the first is in line %d", seen[key.Value])
		}
		seen[key.Value] = key.Line
		if err := (Value{v.file, v.join(key.Value), v.node.Content[i+1]}).check(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

func (v Value) join(key string) string {
	if strings.ContainsAny(key, ". []") {
		return fmt.Sprintf("%s[%q]", v.path, key)
	}
	if v.path == "" {
		return key
	}
	return v.path + "." + key
}

func (v Value) item(i int) Value {
	return Value{v.file, fmt.Sprintf("%s[%d]", v.path, i), v.node.Content[i]}
}

// Errorf makes an error that names where the value stands.
func (v Value) Errorf(format string, args ...any) error {
	where := v.file
	if v.node != nil {
		where = fmt.Sprintf("%s:%d", v.file, v.node.Line)
	}
	if v.path != "" {
		where += ": " + v.path
	}
	return fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
}

// Line is the line that the value begins in, from 1; 0 for one that is not there.
func (v Value) Line() int {
	if v.node == nil {
		return 0
	}
	return v.node.Line
}

// Is reports whether the value is there.
func (v Value) Is() bool { return v.node != nil && v.node.Tag != "!!null" }

// Map is the value's fields; those that are not in known are an error. Without known all are
// taken. A value that is not there has none.
func (v Value) Map(known ...string) (map[string]Value, error) {
	out := make(map[string]Value)
	if !v.Is() {
		return out, nil
	}
	if v.node.Kind != yaml.MappingNode {
		return nil, v.Errorf("this is %s; a mapping (key: value) is meant", v.kind())
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.node.Content[i]
		if len(known) > 0 && !slices.Contains(known, key.Value) {
			return nil, Value{v.file, v.join(key.Value), key}.Errorf("the key is not known; known here: %s", strings.Join(known, ", "))
		}
		out[key.Value] = Value{v.file, v.join(key.Value), v.node.Content[i+1]}
	}
	return out, nil
}

// Keys are the value's keys in their order.
func (v Value) Keys() (keys []string) {
	if v.node == nil || v.node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		keys = append(keys, v.node.Content[i].Value)
	}
	return keys
}

// List is the value's items; a value that is not there has none.
func (v Value) List() ([]Value, error) {
	if !v.Is() {
		return nil, nil
	}
	if v.node.Kind != yaml.SequenceNode {
		return nil, v.Errorf("this is %s; a list is meant", v.kind())
	}
	out := make([]Value, len(v.node.Content))
	for i := range out {
		out[i] = v.item(i)
	}
	return out, nil
}

// Text is a text; "" where the value is not there. What YAML takes for a number, a truth value
// or nothing is refused: nobody can say which spelling of it was meant.
func (v Value) Text() (string, error) {
	if v.node == nil {
		return "", nil
	}
	if v.node.Kind != yaml.ScalarNode {
		return "", v.Errorf("this is %s; a text is meant", v.kind())
	}
	if v.node.Tag != "!!str" {
		return "", v.Errorf("%s is %s for YAML; quote it: %q", v.node.Value, v.kind(), v.node.Value)
	}
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if v.node.Style&quoted == 0 && slices.Contains([]string{"y", "yes", "n", "no", "on", "off"}, strings.ToLower(v.node.Value)) {
		return "", v.Errorf("%s is a truth value for some readers of YAML and a text for others; quote it: %q", v.node.Value, v.node.Value)
	}
	return v.node.Value, nil
}

// Texts is a list of texts.
func (v Value) Texts() ([]string, error) {
	items, err := v.List()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, item := range items {
		text, err := item.Text()
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// Bool is true or false, false where the value is not there.
func (v Value) Bool() (bool, error) {
	switch {
	case v.node == nil:
		return false, nil
	case v.node.Kind == yaml.ScalarNode && v.node.Tag == "!!bool":
		return strings.EqualFold(v.node.Value, "true"), nil
	}
	return false, v.Errorf("this is %s; true or false is meant", v.kind())
}

// Octal is a file mode, written 0644, 0o644 or "0644"; otherwise where the value is not there.
func (v Value) Octal(otherwise uint32) (uint32, error) {
	if v.node == nil {
		return otherwise, nil
	}
	digits := strings.TrimPrefix(v.node.Value, "0o")
	mode := uint32(0)
	for _, c := range digits {
		if c < '0' || c > '7' || mode > 0o7777 {
			return 0, v.Errorf("%.20q is no file mode; write it like 0644", v.node.Value)
		}
		mode = mode<<3 | uint32(c-'0')
	}
	if v.node.Kind != yaml.ScalarNode || len(digits) < 3 || digits[0] != '0' && digits == v.node.Value && len(digits) != 3 {
		return 0, v.Errorf("%.20q is no file mode; write it like 0644", v.node.Value)
	}
	return mode, nil
}

// kind names what the value is.
func (v Value) kind() string {
	switch v.node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch v.node.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a truth value"
	case "!!null":
		return "nothing"
	case "!!timestamp":
		return "a time"
	}
	return "a text"
}
