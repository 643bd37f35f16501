package peer

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"example.org/ctrl/internal/wire"
)

// The fan-out answer of the manager, made of agents' answers that stay unopened.
func TestEncoderBuildsAroundRawParts(t *testing.T) {
	nodes := []wire.NodeUnits{
		{Node: "a", Units: []wire.UnitStatus{{Name: "x.service", Path: "/x", JobPath: "/"}, {Name: "y", Path: "/y", JobPath: "/"}}},
		{Node: "bcd", Units: []wire.UnitStatus{}},
		{Node: "bcdefgh", Units: []wire.UnitStatus{{Name: "z", Path: "/z", JobPath: "/"}}},
	}
	var e Encoder
	all := e.BeginArray('{')
	want := map[string][]wire.UnitStatus{}
	for _, n := range nodes {
		e.BeginStruct()
		e.String(n.Node)
		e.Raw(MustEncode(n.Units))
		e.EndStruct()
		want[n.Node] = n.Units
	}
	e.EndArray(all)
	body, err := e.Body("a{s" + wire.UnitsSignature + "}")
	if err != nil {
		t.Fatal(err)
	}
	if expected := MustEncode(want); !bytes.Equal(body.Data, expected.Data) || body.Sig != expected.Sig {
		t.Fatalf("got % x\nwant % x", body.Data, expected.Data)
	}
	got := map[string][]wire.UnitStatus{}
	if err := Decode(body, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestEncoderJoinsArrays(t *testing.T) {
	tests := []struct {
		parts []any
		want  any
	}{
		{[]any{[]string{"a", "bcd"}, []string{}, []string{"e"}}, []string{"a", "bcd", "e"}},
		{[]any{[]pairSU{{"a", 1}}, []pairSU{{"bcdefghi", 2}}}, []pairSU{{"a", 1}, {"bcdefghi", 2}}},
		{[]any{[]uint64{1}, []uint64{2}}, []uint64{1, 2}},
		{[]any{[]byte{1}, []byte{2, 3}}, []byte{1, 2, 3}},
		{[]any{[]wire.Value{MustValue(byte(1)), MustValue(uint64(2))}, []wire.Value{MustValue("x"), MustValue(uint64(3))}},
			[]wire.Value{MustValue(byte(1)), MustValue(uint64(2)), MustValue("x"), MustValue(uint64(3))}},
	}
	for _, test := range tests {
		var e Encoder
		e.Byte(9) // so that nothing stands where it stood
		e.Uint32(9)
		want := MustEncode(byte(9), uint32(9), test.want)
		a := e.BeginArray(want.Sig[3])
		for _, part := range test.parts {
			elem, content, err := ArrayContent(MustEncode(part))
			if err != nil || elem != want.Sig[3:] {
				t.Fatalf("%v: content of type %q, %v", part, elem, err)
			}
			e.AppendElements(elem, content)
		}
		e.EndArray(a)
		body, err := e.Body(want.Sig)
		if err != nil || !bytes.Equal(body.Data, want.Data) {
			t.Errorf("%v: got % x\nwant % x, %v", test.want, body.Data, want.Data, err)
		}
	}
	for _, bad := range []wire.Raw{{}, MustEncode("a"), MustEncode([]string{}, "a"), MustEncode(map[string]string{}), {Sig: "as", Data: []byte{1, 0, 0, 0}}} {
		if elem, _, err := ArrayContent(bad); err == nil {
			t.Errorf("%q was taken for an array of %q", bad.Sig, elem)
		}
	}
}

func TestEncoderWritesEverything(t *testing.T) {
	var e Encoder
	e.Byte(1)
	e.Bool(true)
	e.Int16(-2)
	e.Uint16(3)
	e.Int32(-4)
	e.Uint32(5)
	e.Int64(-6)
	e.Uint64(7)
	e.Float64(8.5)
	e.String("nine")
	e.ObjectPath("/ten")
	e.Signature("a{sv}")
	e.Value(MustValue("twelve"))
	e.BeginVariant("(su)")
	e.BeginStruct()
	e.String("thirteen")
	e.Uint32(13)
	e.EndStruct()
	e.EndVariant()
	want := MustEncode(byte(1), true, int16(-2), uint16(3), int32(-4), uint32(5), int64(-6), uint64(7), 8.5, "nine",
		wire.ObjectPath("/ten"), wire.Signature("a{sv}"), MustValue("twelve"), MustValue(pairSU{"thirteen", 13}))
	body, err := e.Body(want.Sig)
	if err != nil || !bytes.Equal(body.Data, want.Data) || e.Len() != len(want.Data) {
		t.Fatalf("got % x\nwant % x, %v", body.Data, want.Data, err)
	}
	d := NewDecoder(body)
	got := []any{d.Byte(), d.Bool(), d.Int16(), d.Uint16(), d.Int32(), d.Uint32(), d.Int64(), d.Uint64(), d.Float64(),
		d.String(), d.ObjectPath(), d.Signature(), d.Value(), d.Value()}
	if d.Err() != nil || d.pos != len(body.Data) {
		t.Fatalf("decoding stopped at %d of %d: %v", d.pos, len(body.Data), d.Err())
	}
	again := MustEncode(got...)
	if !bytes.Equal(again.Data, want.Data) {
		t.Fatalf("read back as %v", got)
	}
	if d.Uint64() != 0 || d.String() != "" || d.More(10) || d.Err() == nil {
		t.Error("reading past the end gave something")
	}
	e.Reset()
	e.Byte(1)
	if body, err := e.Body("y"); err != nil || len(body.Data) != 1 {
		t.Errorf("after Reset: %v, %v", body, err)
	}
}

func TestEncoderErrorsStick(t *testing.T) {
	deep := wire.Raw{Sig: "v", Data: nestedVariants(64)}
	tests := map[string]func(*Encoder){
		"text":         func(e *Encoder) { e.String("\xff") },
		"path":         func(e *Encoder) { e.ObjectPath("x") },
		"signature":    func(e *Encoder) { e.Signature("z") },
		"value":        func(e *Encoder) { e.Value(wire.Value{}) },
		"variant":      func(e *Encoder) { e.BeginVariant("ss") },
		"raw":          func(e *Encoder) { e.Raw(wire.Raw{Sig: "z"}) },
		"raw data":     func(e *Encoder) { e.Byte(0); e.Raw(wire.Raw{Sig: "at", Data: []byte{9}}) },
		"array type":   func(e *Encoder) { e.BeginArray('z') },
		"elements":     func(e *Encoder) { e.AppendElements("z", []byte{1}) },
		"element data": func(e *Encoder) { e.Byte(0); e.AppendElements("v", []byte{1}) },
		"depth of raw": func(e *Encoder) { e.BeginStruct(); e.Raw(deep) },
		"depth": func(e *Encoder) {
			for range 65 {
				e.BeginStruct()
			}
		},
		"array size": func(e *Encoder) {
			a := e.BeginArray('y')
			e.buf = append(e.buf, make([]byte, maxArrayBytes+1)...)
			e.EndArray(a)
		},
	}
	for name, write := range tests {
		var e Encoder
		write(&e)
		e.Uint32(1)
		e.Raw(MustEncode("x"))
		if _, err := e.Body("su"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNothingIsAllocatedTwice(t *testing.T) {
	body := MustEncode(uint32(7), "nginx.service", "replace")
	var n uint32
	var a, b string
	var e Encoder
	tests := map[string]struct {
		most float64
		run  func()
	}{
		"Encode":  {1, func() { MustEncode(uint32(7), "nginx.service", "replace") }},
		"Decode":  {2, func() { Decode(body, &n, &a, &b) }},
		"Encoder": {0, func() { e.Reset(); e.Uint32(7); e.String("nginx.service"); e.Body("us") }},
		"Decoder": {0, func() { d := NewDecoder(body); d.Uint32(); d.StringBytes(); d.StringBytes() }},
		"check":   {0, func() { checkBody("uss", body.Data) }},
		"Split":   {0, func() { SplitBody(unmoved, 1) }},
	}
	for name, test := range tests {
		if got := testing.AllocsPerRun(200, test.run); got > test.most && !checkedBuild {
			t.Errorf("%s: %v allocations, want at most %v", name, got, test.most)
		}
	}
}

// unmoved is a body that splits without being moved.
var unmoved = MustEncode("abc", uint32(1), strings.Repeat("x", 100))
