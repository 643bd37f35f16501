package peer

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 255)
	tests := []struct {
		what      string
		valid     func(string) bool
		good, bad []string
	}{
		{
			"member", validMember[string],
			[]string{"a", "_", "StartUnit", "a1", "A_b", long},
			[]string{"", "1a", "a.b", "a-b", "a b", "a\x00", "é", long + "a"},
		},
		{
			"interface", validInterface[string],
			[]string{"a.b", "org.freedesktop.DBus", "_a._1", "a.b2", long[:253] + ".b"},
			[]string{"", "a", ".a", "a.", "a..b", "a.1", "1.a", "a-b.c", "a.b ", "a.é", long + ".b", ":a.b"},
		},
		{
			"bus name", validBusName[string],
			[]string{":1.0", ":1.42", ":a-b.1", "a.b", "a-b.c_d", "org.example.ctrl1", ":1." + long[:252]},
			[]string{"", ":", ":1", ":.1", ":1.", "a", "1.a", "a.1", "a..b", "a.b:", ":1." + long[:253]},
		},
		{
			"path", validPath[string],
			[]string{"/", "/a", "/a/b", "/_/0", "/org/example/ctrl1", "/" + strings.Repeat("a", 5000)},
			[]string{"", "a", "//", "/a/", "/a//b", "/a-b", "/a.b", "/é", "/a\x00", " /"},
		},
		{
			"text", func(s string) bool { return validText([]byte(s)) },
			[]string{"", "a", "12345678", "123456789", "äöü", "1234567ä", "\U0001F600", "a\x7f\x01", "\uFFFF"},
			[]string{"\x00", "1234567\x00", "12345678\x00", "\x00" + "2345678", "\xff", "1234567\xc3", "ä\x00", "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80"},
		},
	}
	for _, test := range tests {
		for _, s := range test.good {
			if !test.valid(s) {
				t.Errorf("%s %q was refused", test.what, s)
			}
		}
		for _, s := range test.bad {
			if test.valid(s) {
				t.Errorf("%s %q was accepted", test.what, s)
			}
		}
	}
}

func TestTextIsWhatUTF8Says(t *testing.T) {
	for pos := range 20 {
		for b := range 256 {
			s := []byte(strings.Repeat("x", 20))
			s[pos] = byte(b)
			if got, want := validText(s), b > 0 && b < 0x80; got != want {
				t.Fatalf("byte %#x at %d: got %v", b, pos, got)
			}
		}
	}
}

func TestSignatures(t *testing.T) {
	arrays32, structs32 := strings.Repeat("a", 32), strings.Repeat("(", 32)+"y"+strings.Repeat(")", 32)
	good := []string{
		"", "y", "ss", "as", "a{sv}", "a(ssssssouso)", "aaay", "(y)", "((y)a{s(ii)})", "a{ya{yy}}", "v", "hb",
		arrays32 + "y", structs32, arrays32 + structs32, strings.Repeat("y", 255),
	}
	bad := []string{
		"a", "z", "(", ")", "()", "(y", "y)", "a{s}", "a{sss}", "a{vs}", "a{(y)s}", "{ss}", "({ss})", "a{asv}", "aa", "a{s",
		"a{", "a{sv", "e", "r", "m", "\x00", "a" + arrays32 + "y", "(" + structs32 + ")", strings.Repeat("y", 256),
	}
	for _, s := range good {
		if err := checkSignature(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		for i := 0; i < len(s); {
			end := typeEnd(s, i)
			if err := checkSingle(s[i:end]); err != nil {
				t.Fatalf("%q: type at %d ends at %d: %v", s, i, end, err)
			}
			i = end
		}
	}
	for _, s := range bad {
		if checkSignature(s) == nil {
			t.Errorf("%q was accepted", s)
		}
	}
	for _, s := range []string{"", "ss", "a{sv}y", "a"} {
		if checkSingle(s) == nil {
			t.Errorf("%q was accepted as one type", s)
		}
	}
}

func TestInternerIsBounded(t *testing.T) {
	var names interner
	hot := []byte("org.example.Hot")
	for i := range 10000 {
		if _, ok := names.get(internInterface, hot); !ok {
			t.Fatal("valid name was refused")
		}
		cold := []byte("a.b" + strings.Repeat("c", i%200))
		if s, ok := names.get(internInterface, cold); !ok || s != string(cold) {
			t.Fatalf("%q came back as %q, %v", cold, s, ok)
		}
	}
	if n := testing.AllocsPerRun(100, func() { names.get(internInterface, hot) }); n != 0 {
		t.Errorf("a name that comes often is allocated again: %v", n)
	}
	long := []byte("/" + strings.Repeat("x", 60<<10))
	for range 2 {
		if _, ok := names.get(internPath, long); !ok {
			t.Fatal("long path was refused")
		}
	}
	for _, set := range names.sets {
		for _, slot := range set {
			if len(slot.s) > internLength {
				t.Errorf("a path of %d bytes is kept", len(slot.s))
			}
		}
	}
	if _, ok := names.get(internMember, hot); ok {
		t.Error("an interface name passed as a member")
	}
	if _, ok := names.get(internSig, []byte("a{")); ok {
		t.Error("a wrong signature passed")
	}
}
