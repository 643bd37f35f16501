package peer

import (
	"fmt"
	"reflect"

	"example.org/ctrl/internal/wire"
)

// Encode makes a body of Go values, one argument each. The types are bool, byte, int16,
// uint16, int32, uint32, int64, uint64, float64, string, wire.ObjectPath, wire.Signature,
// wire.Value (a variant), slices, maps with a basic key, and structs, which become D-Bus
// structs with all their fields in order. Types with another name go by their kind.
// Maps are written in the order of their keys. An error is of kind wire.ErrInvalidArgs.
func Encode(args ...any) (wire.Raw, error) {
	if len(args) == 0 {
		return wire.Raw{}, nil
	}
	e := Encoder{buf: make([]byte, 0, 64)}
	var sigs [maxSignature]byte
	sig := sigs[:0]
	for i, arg := range args {
		s, err := e.any(arg)
		if err == nil {
			err = e.err
		}
		if err == nil && len(sig)+len(s) > maxSignature {
			err = errSignatureLength
		}
		if err != nil {
			return wire.Raw{}, wire.ErrInvalidArgs.With("argument %d cannot be sent: %v", i+1, err)
		}
		sig = append(sig, s...)
	}
	return wire.Raw{Sig: wire.Signature(internSignature(sig)), Data: e.buf}, nil
}

// MustEncode is Encode for arguments that cannot be wrong; it panics where they are.
func MustEncode(args ...any) wire.Raw {
	raw, err := Encode(args...)
	if err != nil {
		panic("peer.MustEncode: " + err.Error())
	}
	return raw
}

// any appends one value of any type and returns its signature.
func (e *Encoder) any(arg any) (wire.Signature, error) {
	switch v := arg.(type) {
	case string:
		e.String(v)
		return "s", nil
	case wire.ObjectPath:
		e.ObjectPath(v)
		return "o", nil
	case uint32:
		e.Uint32(v)
		return "u", nil
	case uint64:
		e.Uint64(v)
		return "t", nil
	case int32:
		e.Int32(v)
		return "i", nil
	case int64:
		e.Int64(v)
		return "x", nil
	case bool:
		e.Bool(v)
		return "b", nil
	case wire.Value:
		e.Value(v)
		return "v", nil
	case []string:
		a := e.BeginArray('s')
		for _, s := range v {
			e.String(s)
		}
		e.EndArray(a)
		return "as", nil
	case nil:
		return "", fmt.Errorf("nil has no D-Bus type")
	}
	v := reflect.ValueOf(arg)
	p, err := planFor(v.Type())
	if err != nil {
		return "", err
	}
	p.encode(e, v)
	return p.sig, nil
}

// Decode reads a body into the variables that dst points to, all types as in Encode. The
// signature must match exactly, otherwise the error is of kind wire.ErrInvalidArgs and
// names both. Nothing that is decoded shares the body's memory.
func Decode(body wire.Raw, dst ...any) error {
	rest := string(body.Sig)
	for _, p := range dst {
		sig, err := destSignature(p)
		if err != nil {
			return err
		}
		if len(rest) < len(sig) || rest[:len(sig)] != string(sig) {
			return mismatch(body.Sig, dst)
		}
		rest = rest[len(sig):]
	}
	if rest != "" {
		return mismatch(body.Sig, dst)
	}
	d := NewDecoder(body)
	for _, p := range dst {
		d.into(p)
	}
	if d.err != nil {
		return wire.ErrInvalidArgs.With("body does not match its signature %q: %v", body.Sig, d.err)
	}
	return nil
}

func mismatch(got wire.Signature, dst []any) error {
	var want wire.Signature
	for _, p := range dst {
		sig, err := destSignature(p)
		if err != nil {
			return err
		}
		want += sig
	}
	return wire.ErrInvalidArgs.With("arguments have the signature %q, not %q", got, want)
}

func destSignature(dst any) (wire.Signature, error) {
	switch dst.(type) {
	case *string:
		return "s", nil
	case *wire.ObjectPath:
		return "o", nil
	case *uint32:
		return "u", nil
	case *uint64:
		return "t", nil
	case *bool:
		return "b", nil
	case *[]string:
		return "as", nil
	case *wire.Value:
		return "v", nil
	case *map[string]wire.Value:
		return "a{sv}", nil
	}
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return "", fmt.Errorf("cannot decode into %T: not a pointer", dst)
	}
	p, err := planFor(v.Type().Elem())
	if err != nil {
		return "", err
	}
	return p.sig, nil
}

// into reads one value into what dst points to; destSignature has accepted dst.
func (d *Decoder) into(dst any) {
	switch p := dst.(type) {
	case *string:
		*p = d.String()
	case *wire.ObjectPath:
		*p = d.ObjectPath()
	case *uint32:
		*p = d.Uint32()
	case *uint64:
		*p = d.Uint64()
	case *bool:
		*p = d.Bool()
	case *[]string:
		*p = d.strings()
	case *wire.Value:
		*p = d.Value()
	case *map[string]wire.Value:
		*p = d.properties()
	default:
		v := reflect.ValueOf(dst).Elem()
		if plan, err := planFor(v.Type()); err == nil {
			plan.decode(d, v)
		}
	}
}

func (d *Decoder) strings() []string {
	end := d.Array('s')
	out := make([]string, 0, min((end-d.pos)/8, 64))
	for d.More(end) {
		out = append(out, d.String())
	}
	return out
}

func (d *Decoder) properties() map[string]wire.Value {
	end := d.Array('{')
	m := make(map[string]wire.Value)
	for d.More(end) {
		d.Struct()
		key := d.String()
		m[key] = d.Value()
	}
	return m
}

// ValueOf makes the content of a variant of a Go value; types are those of Encode. An error
// is of kind wire.ErrInvalidArgs.
func ValueOf(v any) (wire.Value, error) {
	var e Encoder
	sig, err := e.any(v)
	if err == nil {
		err = e.err
	}
	if err != nil {
		return wire.Value{}, wire.ErrInvalidArgs.With("value cannot be sent: %v", err)
	}
	return wire.Value{Sig: sig, Data: e.buf}, nil
}

// MustValue is ValueOf for what cannot be wrong; it panics where it is.
func MustValue(v any) wire.Value {
	value, err := ValueOf(v)
	if err != nil {
		panic("peer.MustValue: " + err.Error())
	}
	return value
}

// DecodeValue reads a variant's content into the variable that dst points to, with Decode's
// rules.
func DecodeValue(v wire.Value, dst any) error {
	return Decode(wire.Raw(v), dst)
}

// ValueAny makes a tree of Go values of a variant's content, for printing and comparing:
// numbers, bool, string, wire.ObjectPath and wire.Signature as they are, "ay" as []byte,
// other arrays and structs as []any, dictionaries as map[any]any, "h" as uint32, and
// variants within as wire.Value.
func ValueAny(v wire.Value) (any, error) {
	sig := string(v.Sig)
	if err := checkVariant(sig, v.Data, 0); err != nil {
		return nil, wire.ErrInvalidArgs.With("value does not match its type %q: %v", clip(sig), err)
	}
	d := Decoder{data: v.Data}
	out, _ := d.tree(sig, 0)
	return out, d.err
}

// BodyAny is ValueAny for the arguments of a body.
func BodyAny(body wire.Raw) ([]any, error) {
	sig := string(body.Sig)
	err := checkSignature(sig)
	if err == nil {
		err = checkBody(sig, body.Data)
	}
	if err != nil {
		return nil, wire.ErrInvalidArgs.With("body does not match its signature %q: %v", clip(sig), err)
	}
	d := NewDecoder(body)
	out := []any{}
	for i := 0; i < len(sig); {
		var v any
		v, i = d.tree(sig, i)
		out = append(out, v)
	}
	return out, d.err
}

// tree reads the value whose type begins at sig[i].
func (d *Decoder) tree(sig string, i int) (any, int) {
	switch sig[i] {
	case 'y':
		return d.Byte(), i + 1
	case 'b':
		return d.Bool(), i + 1
	case 'n':
		return d.Int16(), i + 1
	case 'q':
		return d.Uint16(), i + 1
	case 'i':
		return d.Int32(), i + 1
	case 'u', 'h':
		return d.Uint32(), i + 1
	case 'x':
		return d.Int64(), i + 1
	case 't':
		return d.Uint64(), i + 1
	case 'd':
		return d.Float64(), i + 1
	case 's':
		return d.String(), i + 1
	case 'o':
		return d.ObjectPath(), i + 1
	case 'g':
		return d.Signature(), i + 1
	case 'v':
		return d.Value(), i + 1
	case '(':
		d.Struct()
		fields := []any{}
		for i++; sig[i] != ')'; {
			var f any
			f, i = d.tree(sig, i)
			fields = append(fields, f)
		}
		return fields, i + 1
	}
	return d.treeArray(sig, i)
}

func (d *Decoder) treeArray(sig string, i int) (any, int) {
	next := typeEnd(sig, i)
	end := d.Array(sig[i+1])
	switch sig[i+1] {
	case 'y':
		return append([]byte{}, d.take(end-d.pos, 1)...), next
	case '{':
		m := make(map[any]any)
		for d.More(end) {
			d.Struct()
			k, at := d.tree(sig, i+2)
			m[k], _ = d.tree(sig, at)
		}
		return m, next
	}
	list := []any{}
	for d.More(end) {
		e, _ := d.tree(sig, i+1)
		list = append(list, e)
	}
	return list, next
}
