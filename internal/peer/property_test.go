package peer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// flavour is one side's Go types for D-Bus types that Go does not have.
type flavour struct {
	path, signature, variant reflect.Type
	value                    func(reflect.Value) reflect.Value // of a variant's content
}

var (
	ours = flavour{pathType, signatureType, valueType, func(v reflect.Value) reflect.Value {
		return reflect.ValueOf(MustValue(v.Interface()))
	}}
	theirs = flavour{
		reflect.TypeFor[dbus.ObjectPath](), reflect.TypeFor[dbus.Signature](), reflect.TypeFor[dbus.Variant](),
		func(v reflect.Value) reflect.Value { return reflect.ValueOf(dbus.MakeVariant(v.Interface())) },
	}
	basicTypes = map[byte]reflect.Type{
		'y': reflect.TypeFor[byte](), 'b': reflect.TypeFor[bool](), 'n': reflect.TypeFor[int16](),
		'q': reflect.TypeFor[uint16](), 'i': reflect.TypeFor[int32](), 'u': reflect.TypeFor[uint32](),
		'x': reflect.TypeFor[int64](), 't': reflect.TypeFor[uint64](), 'd': reflect.TypeFor[float64](),
		's': reflect.TypeFor[string](),
	}
)

// typeOf is the Go type of the single complete type sig.
func (f *flavour) typeOf(sig string) reflect.Type {
	switch sig[0] {
	case 'o':
		return f.path
	case 'g':
		return f.signature
	case 'v':
		return f.variant
	case 'a':
		if sig[1] == '{' {
			return reflect.MapOf(f.typeOf(sig[2:3]), f.typeOf(sig[3:len(sig)-1]))
		}
		return reflect.SliceOf(f.typeOf(sig[1:]))
	case '(':
		var fields []reflect.StructField
		for i := 1; sig[i] != ')'; i = typeEnd(sig, i) {
			fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: f.typeOf(sig[i:typeEnd(sig, i)])})
		}
		return reflect.StructOf(fields)
	}
	return basicTypes[sig[0]]
}

const basicCodes = "ybnqiuxtdsog"

// randomType writes a random single complete type.
func randomType(r *rand.Rand, depth int) string {
	pick := r.IntN(len(basicCodes) + 8)
	if pick < len(basicCodes) || depth == 0 {
		return basicCodes[pick%len(basicCodes) : pick%len(basicCodes)+1]
	}
	switch pick % 4 {
	case 0:
		return "v"
	case 1:
		const keys = "ynqiuxtdso" // godbus has no dictionaries by "b" and "g"
		key := r.IntN(len(keys))
		return "a{" + keys[key:key+1] + randomType(r, depth-1) + "}"
	case 2:
		var s strings.Builder
		for range 1 + r.IntN(4) {
			s.WriteString(randomType(r, depth-1))
		}
		return "(" + s.String() + ")"
	}
	return "a" + randomType(r, depth-1)
}

// randomPair makes the same random value of type sig in both flavours.
func randomPair(r *rand.Rand, sig string, depth int) (mine, other reflect.Value) {
	mine, other = reflect.New(ours.typeOf(sig)).Elem(), reflect.New(theirs.typeOf(sig)).Elem()
	switch sig[0] {
	case 'b':
		b := r.IntN(2) == 1
		mine.SetBool(b)
		other.SetBool(b)
	case 'n', 'i', 'x':
		n := r.Int64() >> (64 - mine.Type().Bits())
		mine.SetInt(n)
		other.SetInt(n)
	case 'y', 'q', 'u', 't':
		n := r.Uint64() >> (64 - mine.Type().Bits())
		mine.SetUint(n)
		other.SetUint(n)
	case 'd':
		d := r.NormFloat64()
		mine.SetFloat(d)
		other.SetFloat(d)
	case 's':
		s := strings.Repeat("ä", r.IntN(3)) + strings.Repeat("x", r.IntN(9))
		mine.SetString(s)
		other.SetString(s)
	case 'o':
		p := wire.UnitPath(strings.Repeat("u", r.IntN(9)))
		mine.SetString(string(p))
		other.SetString(string(p))
	case 'g':
		g := randomType(r, 2)
		mine.SetString(g)
		other.Set(reflect.ValueOf(dbus.ParseSignatureMust(g)))
	case 'v':
		a, b := randomPair(r, randomType(r, depth), max(depth-1, 0))
		mine.Set(ours.value(a))
		other.Set(theirs.value(b))
	case '(':
		for i, k := 1, 0; sig[i] != ')'; i, k = typeEnd(sig, i), k+1 {
			a, b := randomPair(r, sig[i:typeEnd(sig, i)], depth)
			mine.Field(k).Set(a)
			other.Field(k).Set(b)
		}
	case 'a':
		fillContainer(r, mine, other, sig, depth)
	}
	return mine, other
}

func fillContainer(r *rand.Rand, mine, other reflect.Value, sig string, depth int) {
	if sig[1] == '{' {
		mine.Set(reflect.MakeMap(mine.Type()))
		other.Set(reflect.MakeMap(other.Type()))
		for range r.IntN(2) { // one entry: godbus writes maps in any order
			ka, kb := randomPair(r, sig[2:3], depth)
			va, vb := randomPair(r, sig[3:len(sig)-1], depth)
			mine.SetMapIndex(ka, va)
			other.SetMapIndex(kb, vb)
		}
		return
	}
	n := r.IntN(4)
	mine.Set(reflect.MakeSlice(mine.Type(), n, n))
	other.Set(reflect.MakeSlice(other.Type(), n, n))
	for i := range n {
		a, b := randomPair(r, sig[1:], depth)
		mine.Index(i).Set(a)
		other.Index(i).Set(b)
	}
}

// godbusMessage writes a signal with a body as godbus does, and returns all of it.
func godbusMessage(t *testing.T, order binary.ByteOrder, args []any) []byte {
	t.Helper()
	m := dbus.Message{Type: dbus.TypeSignal, Flags: dbus.FlagNoReplyExpected, Body: args, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/a/b")),
		dbus.FieldInterface: dbus.MakeVariant("a.b"),
		dbus.FieldMember:    dbus.MakeVariant("C"),
	}}
	if len(args) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(args...))
	}
	var buf bytes.Buffer
	if err := m.EncodeTo(&buf, order); err != nil {
		t.Fatalf("godbus cannot encode %v: %v", args, err)
	}
	b := buf.Bytes()
	order.PutUint32(b[8:], 1) // godbus gives a serial when it sends
	return b
}

// parse reads one whole message.
func parse(b []byte) (*Message, error) {
	if len(b) < fixedHeader {
		return nil, io.ErrUnexpectedEOF
	}
	f, err := parseFrame(b)
	if err != nil {
		return nil, err
	}
	if f.total() != uint64(len(b)) {
		return nil, fmt.Errorf("message has %d bytes, not %d", len(b), f.total())
	}
	var m Message
	if err := new(interner).parseHeader(&m, &f, b[:f.header]); err != nil {
		return nil, err
	}
	return &m, parseBody(&m, &f, b[f.header:])
}

// TestCodecAgreesWithGodbus holds encoder, decoder and both byte orders against another
// implementation, on random types and values.
func TestCodecAgreesWithGodbus(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var mine, other []any
		for range r.IntN(5) {
			a, b := randomPair(r, randomType(r, 3), 2)
			mine, other = append(mine, a.Interface()), append(other, b.Interface())
		}
		want, err := Encode(mine...)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			m, err := parse(godbusMessage(t, order, other))
			if err != nil {
				t.Fatalf("seed %d, %v, %q: %v", seed, order, want.Sig, err)
			}
			if m.Path != "/a/b" || m.Interface != "a.b" || m.Member != "C" || m.Type != TypeSignal || !m.NoReply() {
				t.Fatalf("seed %d: header came as %+v", seed, m)
			}
			if m.Body.Sig != want.Sig || !bytes.Equal(m.Body.Data, want.Data) {
				t.Fatalf("seed %d, %v, %q: got % x\nwant % x", seed, order, want.Sig, m.Body.Data, want.Data)
			}
		}
		readBack(t, seed, want, mine)
	}
}

// readBack wants the values again from our decoder and from godbus'.
func readBack(t *testing.T, seed uint64, body wire.Raw, mine []any) {
	t.Helper()
	var dst []any
	for i := range mine {
		dst = append(dst, reflect.New(reflect.TypeOf(mine[i])).Interface())
	}
	if err := Decode(body, dst...); err != nil {
		t.Fatalf("seed %d, %q: %v", seed, body.Sig, err)
	}
	b := appendMessage(nil, &Message{Type: TypeSignal, Path: "/a", Interface: "a.b", Member: "C", Body: body}, 7)
	m, err := dbus.DecodeMessage(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("seed %d, %q: godbus cannot read it: %v", seed, body.Sig, err)
	}
	got, err := BodyAny(body)
	if err != nil {
		t.Fatalf("seed %d, %q: %v", seed, body.Sig, err)
	}
	if a, b := plain(reflect.ValueOf(got)), plain(reflect.ValueOf(m.Body)); len(mine) > 0 && !reflect.DeepEqual(a, b) {
		t.Fatalf("seed %d, %q: godbus read %#v, want %#v", seed, body.Sig, b, a)
	}
	for i := range mine {
		if got := reflect.ValueOf(dst[i]).Elem().Interface(); !reflect.DeepEqual(got, mine[i]) {
			t.Fatalf("seed %d, %q: got %#v, want %#v", seed, body.Sig, got, mine[i])
		}
	}
	again, err := Encode(derefAll(dst)...)
	if err != nil || !bytes.Equal(again.Data, body.Data) {
		t.Fatalf("seed %d, %q: encoded again as % x, %v", seed, body.Sig, again.Data, err)
	}
}

// plain makes values of both sides comparable.
func plain(v reflect.Value) any {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case dbus.Variant:
		return []any{"variant", x.Signature().String(), plain(reflect.ValueOf(x.Value()))}
	case dbus.Signature:
		return x.String()
	case wire.Value:
		content, err := ValueAny(x)
		if err != nil {
			panic(err)
		}
		return []any{"variant", string(x.Sig), plain(reflect.ValueOf(content))}
	}
	switch v.Kind() {
	case reflect.Slice:
		list := []any{}
		for i := range v.Len() {
			list = append(list, plain(v.Index(i)))
		}
		return list
	case reflect.Map:
		m := map[any]any{}
		for k, e := range v.Seq2() {
			m[plain(k)] = plain(e)
		}
		return m
	case reflect.String:
		return v.String()
	}
	return v.Interface()
}

func derefAll(ptrs []any) []any {
	var out []any
	for _, p := range ptrs {
		out = append(out, reflect.ValueOf(p).Elem().Interface())
	}
	return out
}
