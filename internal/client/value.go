package client

import "github.com/godbus/dbus/v5"

// Value is a D-Bus value of any type. Data is a plain Go value: numbers, bool and string as
// their type codes say, object paths and signatures as string, arrays as slices (of []any
// where the elements are structs), structs as []any, dictionaries as maps, variants as Value.
type Value struct {
	Signature string
	Data      any
}

func valueOf(v dbus.Variant) Value {
	return Value{v.Signature().String(), plain(v.Value())}
}

func values(props map[string]dbus.Variant) map[string]Value {
	out := make(map[string]Value, len(props))
	for name, v := range props {
		out[name] = valueOf(v)
	}
	return out
}

// plain takes the types of the D-Bus library out of a value.
func plain(v any) any {
	switch v := v.(type) {
	case dbus.Variant:
		return valueOf(v)
	case dbus.ObjectPath:
		return string(v)
	case dbus.Signature:
		return v.String()
	case []dbus.ObjectPath:
		out := make([]string, len(v))
		for i, p := range v {
			out[i] = string(p)
		}
		return out
	case map[string]dbus.Variant:
		return values(v)
	case []any:
		out := make([]any, len(v))
		for i, field := range v {
			out[i] = plain(field)
		}
		return out
	case [][]any:
		out := make([][]any, len(v))
		for i, row := range v {
			out[i], _ = plain(row).([]any)
		}
		return out
	}
	return v
}

// Property is a unit's property with its new value. The D-Bus type is that of Value: Go
// structs are structs, slices arrays.
type Property struct {
	Name  string
	Value any
}

// wireProperty is a property as systemd's "(sv)".
type wireProperty struct {
	Name  string
	Value dbus.Variant
}

func wireProperties(props []Property) []wireProperty {
	out := make([]wireProperty, len(props))
	for i, p := range props {
		out[i] = wireProperty{p.Name, dbus.MakeVariant(p.Value)}
	}
	return out
}
