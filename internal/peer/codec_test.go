package peer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"example.org/ctrl/internal/wire"
)

// unhex reads bytes written as hexadecimal digits with spaces between.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type pairSU struct {
	Name string
	N    uint32
}

type named string

// Bytes made by hand after the D-Bus specification, "Marshaling (Wire Format)".
var codecTable = []struct {
	name string
	args []any
	sig  wire.Signature
	hex  string
}{
	{"nothing", nil, "", ""},
	{"byte", []any{byte(0xab)}, "y", "ab"},
	{"true", []any{true}, "b", "01000000"},
	{"false", []any{false}, "b", "00000000"},
	{"int16", []any{int16(-2)}, "n", "feff"},
	{"uint16", []any{uint16(0x1234)}, "q", "3412"},
	{"int32", []any{int32(-2)}, "i", "feffffff"},
	{"uint32", []any{uint32(0x12345678)}, "u", "78563412"},
	{"int64", []any{int64(-2)}, "x", "feffffffffffffff"},
	{"uint64", []any{uint64(0x1122334455667788)}, "t", "8877665544332211"},
	{"float64", []any{1.5}, "d", "000000000000f83f"},
	{"string", []any{"foo"}, "s", "03000000 666f6f 00"},
	{"empty string", []any{""}, "s", "00000000 00"},
	{"kind of another name", []any{named("x")}, "s", "01000000 78 00"},
	{"path", []any{wire.ObjectPath("/a")}, "o", "02000000 2f61 00"},
	{"signature", []any{wire.Signature("a{sv}")}, "g", "05 617b73767d 00"},
	{"padding between", []any{byte(1), uint64(2), byte(3), uint16(4), byte(5), uint32(6)}, "ytyqyu",
		"01 00000000000000 0200000000000000 03 00 0400 05 000000 06000000"},
	{"bytes", []any{[]byte{1, 2}}, "ay", "02000000 0102"},
	{"strings", []any{[]string{"a", "bc"}}, "as", "0f000000 01000000 6100 0000 02000000 626300"},
	{"empty array of 8-aligned", []any{[]uint64{}}, "at", "00000000 00000000"},
	{"array of 8-aligned", []any{[]uint64{1}}, "at", "08000000 00000000 0100000000000000"},
	{"struct", []any{byte(9), pairSU{"a", 7}}, "y(su)", "09 00000000000000 01000000 6100 0000 07000000"},
	{"array of structs", []any{[]pairSU{{"a", 1}, {"b", 2}}}, "a(su)",
		"1c000000 00000000 01000000 6100 0000 01000000 00000000 01000000 6200 0000 02000000"},
	{"map by key", []any{map[string]uint32{"b": 2, "a": 1}}, "a{su}",
		"1c000000 00000000 01000000 6100 0000 01000000 00000000 01000000 6200 0000 02000000"},
	{"map of numbers by key", []any{map[int16]byte{2: 20, -1: 10}}, "a{ny}", "0b000000 00000000 ffff 0a 0000000000 0200 14"},
	{"variant", []any{wire.Value{Sig: "u", Data: []byte{7, 0, 0, 0}}}, "v", "01 75 00 00 07000000"},
	{"variant that shifts", []any{wire.Value{Sig: "(yt)", Data: []byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}}}, "v",
		"04 28797429 00 0000 0100000000000000 0200000000000000"},
	{"properties", []any{map[string]wire.Value{"A": {Sig: "s", Data: []byte("\x01\x00\x00\x00x\x00")}}}, "a{sv}",
		"12000000 00000000 01000000 4100 01 7300 000000 01000000 7800"},
	{"arrays in arrays", []any{[][]uint16{{1}, {}, {2}}}, "aaq", "12000000 02000000 0100 0000 00000000 02000000 0200"},
}

func TestEncodeByHand(t *testing.T) {
	for _, test := range codecTable {
		raw, err := Encode(test.args...)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if want := unhex(t, test.hex); raw.Sig != test.sig || !bytes.Equal(raw.Data, want) {
			t.Errorf("%s: got %q % x\nwant %q % x", test.name, raw.Sig, raw.Data, test.sig, want)
		}
	}
}

func TestDecodeByHand(t *testing.T) {
	for _, test := range codecTable {
		body := wire.Raw{Sig: test.sig, Data: unhex(t, test.hex)}
		if err := checkBody(string(body.Sig), body.Data); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		dst := make([]any, len(test.args))
		for i, arg := range test.args {
			dst[i] = reflect.New(reflect.TypeOf(arg)).Interface()
		}
		if err := Decode(body, dst...); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		for i, arg := range test.args {
			if got := reflect.ValueOf(dst[i]).Elem().Interface(); !reflect.DeepEqual(got, arg) {
				t.Errorf("%s: argument %d is %#v, want %#v", test.name, i, got, arg)
			}
		}
		if len(body.Data) == 0 {
			continue
		}
		cut := wire.Raw{Sig: body.Sig, Data: body.Data[:len(body.Data)-1]}
		if err := Decode(cut, dst...); err == nil {
			t.Errorf("%s: a body that was cut short was decoded", test.name)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	type hidden struct{ a uint32 }
	type loop []loop
	deep := MustValue(uint32(1))
	for range 63 {
		deep = MustValue(deep)
	}
	tests := map[string]any{
		"nil":                    nil,
		"an int":                 7,
		"a pointer":              new(string),
		"a channel":              make(chan int),
		"a struct of nothing":    struct{}{},
		"a hidden field":         hidden{1},
		"a type within itself":   loop{},
		"a key that is no basic": map[pairSU]string{},
		"a variant as key":       map[[1]byte]string{},
		"text that is not UTF-8": "\xff",
		"text with a NUL":        "a\x00b",
		"text within a list":     []string{"ok", "\xff"},
		"text within a struct":   []pairSU{{"\xff", 1}},
		"text as key":            map[string]uint32{"\xff": 1},
		"a wrong path":           wire.ObjectPath("a"),
		"an empty path":          wire.ObjectPath(""),
		"a wrong signature":      wire.Signature("a"),
		"an empty value":         wire.Value{},
		"a value of two types":   wire.Value{Sig: "uu", Data: make([]byte, 8)},
		"a value cut short":      wire.Value{Sig: "u", Data: []byte{1}},
		"a value too long":       wire.Value{Sig: "y", Data: []byte{1, 2}},
		"a wrong bool":           wire.Value{Sig: "b", Data: []byte{2, 0, 0, 0}},
		"values nested too deep": []wire.Value{deep},
	}
	for name, arg := range tests {
		if raw, err := Encode("first", arg); !errors.Is(err, wire.ErrInvalidArgs) {
			t.Errorf("%s: got %v, %v", name, raw, err)
		}
		if v, err := ValueOf(arg); !errors.Is(err, wire.ErrInvalidArgs) {
			if name != "values nested too deep" || err != nil {
				t.Errorf("%s as a value: got %v, %v", name, v, err)
			}
		}
	}
	if _, err := Encode(deep); err != nil {
		t.Errorf("64 variants within each other: %v", err)
	}
	if _, err := Encode(make([]any, 256)...); err == nil {
		t.Error("256 arguments were encoded")
	}
	many := make([]any, 256)
	for i := range many {
		many[i] = byte(i)
	}
	if _, err := Encode(many...); err == nil || !strings.Contains(err.Error(), "255") {
		t.Errorf("256 bytes: %v", err)
	}
	if raw, err := Encode(many[:255]...); err != nil || len(raw.Sig) != 255 {
		t.Errorf("255 bytes: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	var s string
	var n uint32
	var m map[string]wire.Value
	body := MustEncode("a", uint32(1))
	for name, dst := range map[string][]any{
		"too few": {&s}, "too many": {&s, &n, &n}, "another type": {&n, &s}, "none": {}, "a part": {&s, &m},
	} {
		err := Decode(body, dst...)
		if !errors.Is(err, wire.ErrInvalidArgs) || !strings.Contains(err.Error(), `"su"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Decode(body, s, &n); err == nil {
		t.Error("decoded into a string that is no pointer")
	}
	if err := Decode(body, (*named)(nil), &n); err == nil {
		t.Error("decoded into a nil pointer")
	}
	if err := Decode(wire.Raw{Sig: "a{sv}", Data: []byte{255, 255, 255, 255}}, &m); err == nil {
		t.Error("a body that is no body was decoded")
	}
	if err := Decode(body, &s, &n); err != nil || s != "a" || n != 1 {
		t.Errorf("got %q %d, %v", s, n, err)
	}
}

func TestDecodeReplaces(t *testing.T) {
	list := []pairSU{{"old", 1}, {"old", 2}, {"old", 3}}
	m := map[string]uint32{"old": 1}
	if err := Decode(MustEncode([]pairSU{{"new", 0}}, map[string]uint32{"new": 0}), &list, &m); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(list, []pairSU{{"new", 0}}) || !reflect.DeepEqual(m, map[string]uint32{"new": 0}) {
		t.Errorf("got %v %v", list, m)
	}
}

func TestValueAny(t *testing.T) {
	tests := []struct {
		in   any
		want any
	}{
		{byte(1), byte(1)}, {true, true}, {int16(-1), int16(-1)}, {uint16(1), uint16(1)}, {int32(-1), int32(-1)},
		{uint32(1), uint32(1)}, {int64(-1), int64(-1)}, {uint64(1), uint64(1)}, {math.Pi, math.Pi}, {"s", "s"},
		{wire.ObjectPath("/"), wire.ObjectPath("/")}, {wire.Signature("as"), wire.Signature("as")},
		{[]byte{1, 2}, []byte{1, 2}}, {[]byte{}, []byte{}}, {[]string{"a"}, []any{"a"}}, {[]string{}, []any{}},
		{[]pairSU{{"a", 1}, {"b", 2}}, []any{[]any{"a", uint32(1)}, []any{"b", uint32(2)}}},
		{map[uint32][]string{1: {"x"}}, map[any]any{uint32(1): []any{"x"}}},
		{map[string]wire.Value{"k": MustValue("v")}, map[any]any{"k": MustValue("v")}},
		{MustValue(uint32(1)), MustValue(uint32(1))},
	}
	for _, test := range tests {
		v := MustValue(test.in)
		got, err := ValueAny(v)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%#v: got %#v, %v", test.in, got, err)
		}
		back := reflect.New(reflect.TypeOf(test.in))
		if err := DecodeValue(v, back.Interface()); err != nil || !reflect.DeepEqual(back.Elem().Interface(), test.in) {
			t.Errorf("%#v: decoded as %#v, %v", test.in, back.Elem(), err)
		}
	}
	all, err := BodyAny(MustEncode("a", uint32(1), []byte{2}))
	if err != nil || !reflect.DeepEqual(all, []any{"a", uint32(1), []byte{2}}) {
		t.Errorf("body: got %#v, %v", all, err)
	}
	if got, err := ValueAny(wire.Value{Sig: "h", Data: []byte{3, 0, 0, 0}}); err != nil || got != uint32(3) {
		t.Errorf("h: got %v, %v", got, err)
	}
	for _, bad := range []wire.Value{{}, {Sig: "a"}, {Sig: "s", Data: []byte{9, 0, 0, 0, 0}}, {Sig: "uu", Data: make([]byte, 8)}} {
		if _, err := ValueAny(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestValueIsAligned(t *testing.T) {
	// The same content, in a body where it must shift and in one where it need not.
	inner := MustValue([]uint64{1, 2})
	for _, body := range []wire.Raw{MustEncode(inner), MustEncode(byte(0), uint32(0), inner), MustEncode("abc", inner)} {
		all, err := BodyAny(body)
		if err != nil {
			t.Fatal(err)
		}
		got := all[len(all)-1].(wire.Value)
		if got.Sig != inner.Sig || !bytes.Equal(got.Data, inner.Data) {
			t.Errorf("%s: got % x, want % x", body.Sig, got.Data, inner.Data)
		}
		if again := MustEncode(got); !bytes.Equal(again.Data, MustEncode(inner).Data) {
			t.Errorf("%s: encoded again as % x", body.Sig, again.Data)
		}
	}
}
