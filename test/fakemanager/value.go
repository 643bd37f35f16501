package fakemanager

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/godbus/dbus/v5"
)

// parseValue reads a property's value: a D-Bus signature, a blank, and the value as JSON,
// structs as arrays ("u 17", `a(sb) [["x", true]]`). A string may go without quotes.
func parseValue(text string) (dbus.Variant, error) {
	sig, value, _ := strings.Cut(text, " ")
	parsed, err := dbus.ParseSignature(sig)
	if err != nil {
		return dbus.Variant{}, err
	}
	if sig == "s" && !strings.HasPrefix(value, `"`) {
		return dbus.MakeVariant(value), nil
	}
	kind, rest, err := typeOf(sig)
	if err == nil && rest != "" {
		err = fmt.Errorf("signature %q is more than one type", sig)
	}
	if err != nil {
		return dbus.Variant{}, err
	}
	var raw any
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.UseNumber()
	if err := decoder.Decode(&raw); err != nil {
		return dbus.Variant{}, fmt.Errorf("value %q: %w", value, err)
	}
	into := reflect.New(kind).Elem()
	if err := fill(into, raw); err != nil {
		return dbus.Variant{}, fmt.Errorf("value %q: %w", value, err)
	}
	return dbus.MakeVariantWithSignature(into.Interface(), parsed), nil
}

var basic = map[byte]reflect.Type{
	'y': reflect.TypeFor[byte](), 'b': reflect.TypeFor[bool](), 'i': reflect.TypeFor[int32](), 'u': reflect.TypeFor[uint32](),
	'x': reflect.TypeFor[int64](), 't': reflect.TypeFor[uint64](), 's': reflect.TypeFor[string](), 'o': reflect.TypeFor[dbus.ObjectPath](),
}

// typeOf makes the Go type of the first type in a signature.
func typeOf(sig string) (kind reflect.Type, rest string, err error) {
	switch {
	case sig == "":
		return nil, "", fmt.Errorf("signature ends early")
	case basic[sig[0]] != nil:
		return basic[sig[0]], sig[1:], nil
	case sig[0] == 'a':
		if kind, rest, err = typeOf(sig[1:]); err != nil {
			return nil, "", err
		}
		return reflect.SliceOf(kind), rest, nil
	case sig[0] == '(':
		var fields []reflect.StructField
		for rest = sig[1:]; !strings.HasPrefix(rest, ")"); {
			if kind, rest, err = typeOf(rest); err != nil {
				return nil, "", err
			}
			fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", len(fields)), Type: kind})
		}
		return reflect.StructOf(fields), rest[1:], nil
	}
	return nil, "", fmt.Errorf("type %q is not supported here", sig[0])
}

func fill(v reflect.Value, raw any) error {
	list, isList := raw.([]any)
	switch v.Kind() {
	case reflect.Slice:
		if !isList {
			return fmt.Errorf("%v is no array", raw)
		}
		v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
		for i := range list {
			if err := fill(v.Index(i), list[i]); err != nil {
				return err
			}
		}
		return nil
	case reflect.Struct:
		if !isList || len(list) != v.NumField() {
			return fmt.Errorf("%v has not %d fields", raw, v.NumField())
		}
		for i := range list {
			if err := fill(v.Field(i), list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v.Addr().Interface())
}

// arguments writes a body for people: strings as they are, all else as JSON.
func arguments(body []any) string {
	var words []string
	for _, arg := range body {
		if s, ok := arg.(string); ok {
			words = append(words, s)
			continue
		}
		text, err := json.Marshal(bare(arg))
		if err != nil {
			text = []byte(err.Error())
		}
		words = append(words, string(text))
	}
	return strings.Join(words, " ")
}

// bare takes variants out of a value.
func bare(v any) any {
	switch v := v.(type) {
	case dbus.Variant:
		return bare(v.Value())
	case map[string]dbus.Variant:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = bare(value)
		}
		return out
	case []byte:
		return fmt.Sprintf("%x", v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = bare(v[i])
		}
		return out
	case [][]any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = bare(v[i])
		}
		return out
	}
	return v
}
