package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"time"
)

// machine writes rows for programs. It is made once per output, since a fleet has many rows.
type machine struct {
	b       bytes.Buffer
	encoder *json.Encoder
	columns []column
}

func newMachine(row reflect.Type) *machine {
	m := &machine{columns: columnsOf(row)}
	m.encoder = json.NewEncoder(&m.b)
	m.encoder.SetEscapeHTML(false)
	return m
}

// scalar writes one value as JSON, which is YAML too where no control characters are left in
// it: JSON allows those from DEL to U+009F, YAML does not, and a terminal acts on them.
func (m *machine) scalar(v any) error {
	start := m.b.Len()
	if err := m.encoder.Encode(v); err != nil {
		return err
	}
	m.b.Truncate(m.b.Len() - 1) // the newline
	written := m.b.Bytes()[start:]
	if bytes.IndexByte(written, 0x7f) < 0 && bytes.IndexByte(written, 0xc2) < 0 {
		return nil
	}
	text := string(written)
	m.b.Truncate(start)
	for _, r := range text {
		if r >= 0x7f && r < 0xa0 {
			fmt.Fprintf(&m.b, `\u%04x`, r)
		} else {
			m.b.WriteRune(r)
		}
	}
	return nil
}

func (m *machine) object(row any) error {
	v := reflect.ValueOf(row)
	for i, c := range m.columns {
		m.b.WriteByte("{,"[min(i, 1)])
		m.b.WriteString(`"` + c.key + `":`)
		if err := m.scalar(machineValue(v.Field(c.field).Interface())); err != nil {
			return err
		}
	}
	m.b.WriteByte('}')
	return nil
}

// writeJSON writes one row a line, so that the array can be read by eye and by grep too.
func writeJSON[T any](w io.Writer, rows []T) error {
	m := newMachine(reflect.TypeFor[T]())
	for i, row := range rows {
		m.b.WriteString([]string{"[\n", ",\n"}[min(i, 1)])
		if err := m.object(row); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		m.b.WriteByte('[')
	} else {
		m.b.WriteByte('\n')
	}
	m.b.WriteString("]\n")
	_, err := w.Write(m.b.Bytes())
	return err
}

// Line writes one row as one JSON object on one line, for streams.
func Line(w io.Writer, row any) error {
	m := newMachine(reflect.TypeOf(row))
	if err := m.object(row); err != nil {
		return err
	}
	m.b.WriteByte('\n')
	_, err := w.Write(m.b.Bytes())
	return err
}

// Item writes one row as one item of a YAML list, for streams.
func Item(w io.Writer, row any) error {
	m := newMachine(reflect.TypeOf(row))
	if err := m.item(row); err != nil {
		return err
	}
	_, err := w.Write(m.b.Bytes())
	return err
}

func (m *machine) item(row any) error {
	v := reflect.ValueOf(row)
	for i, c := range m.columns {
		m.b.WriteString([]string{"- ", "  "}[min(i, 1)] + c.key + ": ")
		if err := m.scalar(machineValue(v.Field(c.field).Interface())); err != nil {
			return err
		}
		m.b.WriteByte('\n')
	}
	return nil
}

// machineValue is a field's value as programs see it.
func machineValue(v any) any {
	switch v := v.(type) {
	case Moment:
		return machineValue(v.Time)
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.UTC().Format(time.RFC3339Nano)
	case []string:
		if v == nil {
			return []string{}
		}
	}
	return v
}

// writeYAML writes the same. All strings are quoted, as JSON quotes them: then none is taken
// for a number, a date or a yes.
func writeYAML[T any](w io.Writer, rows []T) error {
	m := newMachine(reflect.TypeFor[T]())
	for _, row := range rows {
		if err := m.item(row); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		m.b.WriteString("[]\n")
	}
	_, err := w.Write(m.b.Bytes())
	return err
}
