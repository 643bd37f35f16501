package peer

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"example.org/ctrl/internal/wire"
)

// Bodies that are not what their signature says. Where a byte order matters, big is the
// same mistake in big-endian; "" where the little-endian bytes show it just as well.
var badBodies = []struct {
	name, sig, hex, big string
}{
	{"nothing where a byte should be", "y", "", ""},
	{"a byte too many", "y", "0102", ""},
	{"bytes without a signature", "", "00", ""},
	{"bool 2", "b", "02000000", "00000002"},
	{"bool with a high byte", "b", "00000001", "01000000"},
	{"bool 2 in a list", "ab", "08000000 01000000 02000000", "00000008 00000001 00000002"},
	{"bool 2 as key and value", "a{bb}", "08000000 00000000 01000000 02000000", "00000008 00000000 00000001 00000002"},
	{"a list of bools that ends within one", "ab", "06000000 01000000 0000", "00000006 00000001 0000"},
	{"a number cut short", "u", "010000", ""},
	{"padding that is not zero", "yu", "01 000100 02000000", "01 000100 00000002"},
	{"padding before an array's elements", "at", "00000000 00000001", ""},
	{"padding in a variant", "v", "0175 00 01 07000000", "0175 00 01 00000007"},
	{"padding in a struct", "(yu)", "01 010000 07000000", "01 010000 00000007"},
	{"string without NUL", "s", "01000000 61 61", "00000001 61 61"},
	{"string cut short", "s", "02000000 61", "00000002 61"},
	{"string of 2 GiB", "s", "ffffff7f 61", "7fffffff 61"},
	{"string of 4 GiB", "s", "ffffffff 61", ""},
	{"string with NUL", "s", "01000000 00 00", "00000001 00 00"},
	{"string that is not UTF-8", "s", "01000000 ff 00", "00000001 ff 00"},
	{"overlong UTF-8", "s", "02000000 c080 00", "00000002 c080 00"},
	{"half of a surrogate pair", "s", "03000000 eda080 00", "00000003 eda080 00"},
	{"path that is none", "o", "01000000 61 00", "00000001 61 00"},
	{"empty path", "o", "00000000 00", ""},
	{"path with a slash at the end", "o", "03000000 2f612f 00", "00000003 2f612f 00"},
	{"path without NUL", "o", "01000000 2f 2f", "00000001 2f 2f"},
	{"signature that is none", "g", "01 7a 00", ""},
	{"signature cut short", "g", "05 61", ""},
	{"signature without NUL", "g", "01 75 75", ""},
	{"signature of an open struct", "g", "02 2875 00", ""},
	{"array longer than the body", "ay", "02000000 01", "00000002 01"},
	{"array of 2 GiB", "ay", "ffffff7f 01", "7fffffff 01"},
	{"array of 4 GiB", "ay", "ffffffff 01", ""},
	{"array over 64 MiB", "ay", "01000004 01", "04000001 01"},
	{"array that ends within an element", "au", "05000000 01000000 02", "00000005 00000001 02"},
	{"array that ends within a string", "as", "06000000 02000000 6162 00", "00000006 00000002 6162 00"},
	{"element longer than its array", "aay", "05000000 05000000 6162636465", "00000005 00000005 6162636465"},
	{"array that ends within a struct", "a(yu)", "04000000 00000000 01000000 02000000", "00000004 00000000 01000000 00000002"},
	{"variant of no type", "v", "00 00", ""},
	{"variant of two types", "v", "02 7575 00 01000000 02000000", "02 7575 00 00000001 00000002"},
	{"variant of an unknown type", "v", "01 7a 00 00", ""},
	{"variant of an entry", "v", "04 7b73737d 00", ""},
	{"variant cut short", "v", "01 75 00 00 0100", "01 75 00 00 0000"},
	{"variant without a value", "v", "01 79 00", ""},
	{"variant's bool 2", "v", "01 62 00 00 02000000", "01 62 00 00 00000002"},
	{"entry cut short", "a{yy}", "01000000 00000000 01", "00000001 00000000 01"},
}

func TestBadBodies(t *testing.T) {
	for _, test := range badBodies {
		body := unhex(t, test.hex)
		if err := checkBody(test.sig, body); err == nil {
			t.Errorf("%s: accepted", test.name)
		}
		big := body
		if test.big != "" {
			big = unhex(t, test.big)
		}
		m := Message{Body: wire.Raw{Sig: wire.Signature(test.sig)}}
		if err := parseBody(&m, &frame{big: true}, big); err == nil {
			t.Errorf("%s in big-endian: accepted", test.name)
		}
	}
}

func TestArraySizeIsChecked(t *testing.T) {
	for length, ok := range map[uint32]bool{maxArrayBytes: true, maxArrayBytes + 1: false} {
		body := append(binary.LittleEndian.AppendUint32(nil, length), make([]byte, length)...)
		if err := checkBody("ay", body); (err == nil) != ok {
			t.Errorf("array of %d bytes: %v", length, err)
		}
	}
}

// nestedVariants is n variants within each other around a byte.
func nestedVariants(n int) []byte {
	return append(bytes.Repeat([]byte{1, 'v', 0}, n-1), 1, 'y', 0, 7)
}

func TestDepth(t *testing.T) {
	structs := strings.Repeat("(", 32) + "v" + strings.Repeat(")", 32)
	tests := []struct {
		name, sig string
		body      []byte
		ok        bool
	}{
		{"64 variants", "v", nestedVariants(64), true},
		{"65 variants", "v", nestedVariants(65), false},
		{"100,000 variants", "v", nestedVariants(100000), false},
		{"32 structs and 32 variants", structs, nestedVariants(32), true},
		{"32 structs and 33 variants", structs, nestedVariants(33), false},
		{"a struct and 63 variants", "(v)", nestedVariants(63), true},
		{"a struct and 64 variants", "(v)", nestedVariants(64), false},
	}
	for _, test := range tests {
		if err := checkBody(test.sig, test.body); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
		little, err := littleEndian(nil, test.sig, test.body)
		if (err == nil) != test.ok {
			t.Errorf("%s in big-endian: %v", test.name, err)
		}
		if err == nil && !bytes.Equal(little, test.body) {
			t.Errorf("%s in big-endian: came out as % x", test.name, little)
		}
	}
}

func TestNoMemoryByClaim(t *testing.T) {
	// A length that the data does not bear out must not be believed.
	claims := map[string]string{"as": "ffffff03", "ay": "ffffff03", "a{sv}": "f8ffff03 00000000", "s": "ffffff7f", "at": "f8ffff03 00000000"}
	for sig, claim := range claims {
		body := wire.Raw{Sig: wire.Signature(sig), Data: unhex(t, claim)}
		var before, after uint64
		before = allocated()
		for range 100 {
			var list []string
			var data []byte
			var props map[string]wire.Value
			var text string
			var numbers []uint64
			Decode(body, &list)
			Decode(body, &data)
			Decode(body, &props)
			Decode(body, &text)
			Decode(body, &numbers)
			ValueAny(wire.Value(body))
			littleEndian(nil, sig, body.Data)
		}
		after = allocated()
		if after-before > 4<<20 {
			t.Errorf("%s: %d bytes allocated", sig, after-before)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, test := range codecTable {
		data, _ := Encode(test.args...)
		f.Add(string(test.sig), data.Data, false)
	}
	for _, test := range badBodies {
		f.Add(test.sig, unhex(f, test.hex), false)
		f.Add(test.sig, unhex(f, test.big), true)
	}
	f.Add("v", nestedVariants(64), true)
	f.Fuzz(func(t *testing.T, sig string, data []byte, big bool) {
		if checkSignature(sig) != nil {
			return
		}
		m := Message{Body: wire.Raw{Sig: wire.Signature(sig)}}
		if parseBody(&m, &frame{big: big}, data) != nil {
			decodeAnything(wire.Raw{Sig: m.Body.Sig, Data: data}) // must not panic
			return
		}
		body := m.Body
		if len(body.Data) != len(data) {
			t.Fatalf("%d bytes became %d", len(data), len(body.Data))
		}
		all, err := BodyAny(body)
		if err != nil {
			t.Fatalf("a checked body cannot be read: %v", err)
		}
		shifts(t, body, len(all))
		decodeAnything(body)
	})
}

// decodeAnything reads a body in ways that may fail but not panic.
func decodeAnything(body wire.Raw) {
	var props map[string]wire.Value
	var list []string
	var units []wire.UnitStatus
	var bytes []byte
	var v wire.Value
	var s string
	for _, dst := range []any{&props, &list, &units, &bytes, &v, &s} {
		Decode(body, dst)
	}
	BodyAny(body)
	SplitBody(body, 1)
	ArrayContent(body)
}

// shifts takes a body apart at each argument, moves it about, and wants it back unchanged.
func shifts(t *testing.T, body wire.Raw, args int) {
	for n := range args + 1 {
		head, tail, err := SplitBody(body, n)
		if err != nil {
			t.Fatalf("split at %d: %v", n, err)
		}
		for _, part := range []wire.Raw{head, tail} {
			if err := checkBody(string(part.Sig), part.Data); err != nil {
				t.Fatalf("split at %d: %q: %v", n, part.Sig, err)
			}
		}
		joined, err := JoinBody(head, tail)
		if err != nil || joined.Sig != body.Sig || !bytes.Equal(joined.Data, body.Data) {
			t.Fatalf("split at %d: joined %q % x, want %q % x, %v", n, joined.Sig, joined.Data, body.Sig, body.Data, err)
		}
	}
	if len(body.Sig)+1 > maxSignature {
		return
	}
	moved, err := JoinBody(MustEncode(byte(1)), body)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkBody(string(moved.Sig), moved.Data); err != nil {
		t.Fatalf("moved by a byte: %v", err)
	}
	_, back, err := SplitBody(moved, 1)
	if err != nil || !bytes.Equal(back.Data, body.Data) {
		t.Fatalf("moved there and back: % x, want % x, %v", back.Data, body.Data, err)
	}
}

func TestShifts(t *testing.T) {
	for _, test := range codecTable {
		shifts(t, MustEncode(test.args...), len(test.args))
	}
	units := MustEncode(uint32(7), []wire.UnitStatus{{Name: "a.service", Path: "/a", JobPath: "/"}}, "x")
	shifts(t, units, 3)
	head, tail, err := SplitBody(units, 1)
	if err != nil || head.Sig != "u" || tail.Sig != wire.UnitsSignature+"s" {
		t.Fatalf("split into %q and %q, %v", head.Sig, tail.Sig, err)
	}
	if _, _, err := SplitBody(units, 4); err == nil {
		t.Error("split behind an argument that is not there")
	}
	if _, _, err := SplitBody(wire.Raw{Sig: "us", Data: []byte{1, 0, 0, 0}}, 2); err == nil {
		t.Error("split a body that is none")
	}
	if _, _, err := SplitBody(wire.Raw{Sig: "yt", Data: []byte{1, 0}}, 1); err == nil {
		t.Error("split a body whose tail is missing")
	}
	if got, err := JoinBody(); err != nil || got.Sig != "" {
		t.Errorf("nothing joined is %v, %v", got, err)
	}
	if _, err := JoinBody(MustEncode(manyBytes(200)...), MustEncode(manyBytes(56)...)); err == nil {
		t.Error("joined more than a signature holds")
	}
}

func manyBytes(n int) []any {
	args := make([]any, n)
	for i := range args {
		args[i] = byte(i)
	}
	return args
}

func TestBigEndianByHand(t *testing.T) {
	var b []byte
	b = append(b, 1, 0)
	b = binary.BigEndian.AppendUint16(b, 0x0102)
	b = binary.BigEndian.AppendUint32(b, 3)
	b = binary.BigEndian.AppendUint64(b, 5)
	b = binary.BigEndian.AppendUint32(b, 3)
	b = append(b, "abc\x00"...)
	b = binary.BigEndian.AppendUint32(b, 8)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, 2)
	b = append(b, 1, 'i', 0, 0)
	b = binary.BigEndian.AppendUint32(b, 0xfffffffe)
	m := Message{Body: wire.Raw{Sig: "yqixsatv"}}
	if err := parseBody(&m, &frame{big: true}, b); err != nil {
		t.Fatal(err)
	}
	want := MustEncode(byte(1), uint16(0x0102), int32(3), int64(5), "abc", []uint64{2}, MustValue(int32(-2)))
	if want.Sig != m.Body.Sig || !bytes.Equal(want.Data, m.Body.Data) {
		t.Errorf("got % x, want % x", m.Body.Data, want.Data)
	}
}
