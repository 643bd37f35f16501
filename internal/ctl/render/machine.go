package render

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"time"

	"sigs.k8s.io/yaml"
)

// writeJSON writes one row a line, so that the array can be read by eye and by grep too.
func writeJSON[T any](w io.Writer, rows []T) error {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, row := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		if err := object(&b, row); err != nil {
			return err
		}
	}
	if len(rows) > 0 {
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	_, err := w.Write(b.Bytes())
	return err
}

// Line writes one row as one JSON object on one line, for streams.
func Line(w io.Writer, row any) error {
	var b bytes.Buffer
	if err := object(&b, row); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

func object(b *bytes.Buffer, row any) error {
	v := reflect.ValueOf(row)
	b.WriteByte('{')
	for i, c := range columnsOf(v.Type()) {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := scalar(b, c.key); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := scalar(b, machineValue(v.Field(c.field).Interface())); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func scalar(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the newline
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

func writeYAML[T any](w io.Writer, rows []T) error {
	var b bytes.Buffer
	if err := writeJSON(&b, rows); err != nil {
		return err
	}
	text, err := yaml.JSONToYAML(b.Bytes())
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
