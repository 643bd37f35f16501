// Package render writes results: one struct per result, every format made from it.
//
// A row is a struct whose exported fields are columns, named by the tag `col`. The formats
// for programs are a contract: one array of flat objects, whose keys are the column names in
// lower case with "_" for "-", times in RFC 3339 in UTC with "" for none, nothing null, and
// the array empty where there is nothing.
package render

import (
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Format is how rows are written.
type Format uint8

// The formats.
const (
	Table Format = iota
	JSON
	YAML
)

// Formats are the words for the formats, in their order.
var Formats = []string{"table", "json", "yaml"}

// ParseFormat reads the word for a format.
func ParseFormat(word string) (Format, error) {
	for i, f := range Formats {
		if f == word {
			return Format(i), nil
		}
	}
	return 0, fmt.Errorf("output format %q is not known; use %s", word, strings.Join(Formats, ", "))
}

// Options say how rows are written. Those about terminals count for tables only.
type Options struct {
	Format Format
	Header bool // the line with the column names
	Full   bool // wide columns too, and nothing cut
	Width  int  // of the terminal, in cells; 0 is no terminal: nothing is cut
	Color  bool
	Marks  bool // a column with a mark per row, where rows have one
	UTF8   bool // the terminal shows more than ASCII
}

// Write writes all rows.
func Write[T any](w io.Writer, rows []T, o Options) error {
	switch o.Format {
	case JSON:
		return writeJSON(w, rows)
	case YAML:
		return writeYAML(w, rows)
	}
	return writeTable(w, rows, o)
}

// Styled is a row that is coloured: Style is asked per column name.
type Styled interface{ Style(column string) Style }

// Marked is a row with a mark before it.
type Marked interface{ Mark() Mark }

// Mark is a sign for a row, in the character sets of terminals.
type Mark struct {
	UTF8, ASCII string
	Style       Style
}

// column is one field of a row as a column.
type column struct {
	name  string // as the table shows it
	key   string // as programs see it
	field int
	cut   bool // may be cut to the terminal's width
	wide  bool // in tables only where Full is set
	right bool
}

// columnsOf reads the tags of a row type: `col:"NAME"`, then, after commas, "cut" for what
// may be shortened, "wide" for what a table shows in full only.
func columnsOf(t reflect.Type) []column {
	var out []column
	for i := range t.NumField() {
		tag, ok := t.Field(i).Tag.Lookup("col")
		if !ok {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		c := column{name: name, key: strings.ReplaceAll(strings.ToLower(name), "-", "_"), field: i,
			cut: strings.Contains(options, "cut"), wide: strings.Contains(options, "wide")}
		switch t.Field(i).Type.Kind() {
		case reflect.Uint32, reflect.Uint64, reflect.Int, reflect.Int64:
			c.right = true
		}
		out = append(out, c)
	}
	return out
}
