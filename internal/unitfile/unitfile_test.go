package unitfile

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	text := "\xef\xbb\xbf# comment\r\n" +
		"[Unit]\r\n" +
		"Description = a  b \r\n" +
		"\n" +
		"; another\n" +
		"[Service]\n" +
		"ExecStart=/bin/a \\\n" +
		"# in between\n" +
		"  b \\\n" +
		"\tc\n" +
		"Environment=A=1\n" +
		"Environment=\n" +
		"Environment=B=%h C=x=y\n" +
		`ExecStop=/bin/x \\` + "\n" +
		"[Install]\n"
	f, err := Parse("a.service", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Section{
		{"Unit", 2, []Entry{{"Description", "a  b", 3}}},
		{"Service", 6, []Entry{
			{"ExecStart", "/bin/a    b  \tc", 7},
			{"Environment", "A=1", 11}, {"Environment", "", 12}, {"Environment", "B=%h C=x=y", 13},
			{"ExecStop", `/bin/x \\`, 14},
		}},
		{"Install", 15, nil},
	}
	if !reflect.DeepEqual(f.Sections, want) {
		t.Errorf("got  %+v\nwant %+v", f.Sections, want)
	}
	if got := f.Values("Service", "Environment"); !reflect.DeepEqual(got, []string{"B=%h C=x=y"}) {
		t.Errorf("Values gave %q: an empty assignment resets the list", got)
	}
	if v, ok := f.Value("Unit", "Description"); v != "a  b" || !ok {
		t.Errorf("Value gave %q, %v", v, ok)
	}
	if _, ok := f.Value("Unit", "After"); ok || !f.Has("Install") || f.Has("Timer") {
		t.Error("absent and present are confused")
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct {
		text, want string
		line       int
	}{
		{"Description=x\n", "before the first [Section]", 1},
		{"[Unit]\nfoo\n", "expected KEY=VALUE", 2},
		{"[Unit\n", "expected [Section]", 1},
		{"[]\n", "expected [Section]", 1},
		{"[Unit]\n=x\n", "no key", 2},
		{"[Unit]\nA B=x\n", "contains a blank", 2},
		{"[Unit]\nA=\x00\n", "NUL", 2},
		{"[Unit]\nA=\xff\n", "UTF-8", 2},
		{"[Unit]\nA=b \\\n", "nothing follows", 2},
		{"[Unit]\n" + strings.Repeat("#", MaxSize), "may have", 0},
		{"[Unit]\nDescription=a\r[Service]\r\n", "carriage return", 2},
	}
	for _, tt := range tests {
		_, err := Parse("x.service", []byte(tt.text))
		var fault *Error
		if !errors.As(err, &fault) || fault.Line != tt.line || !strings.Contains(fault.Text, tt.want) {
			t.Errorf("%.30q: got %v, want line %d and %q", tt.text, err, tt.line, tt.want)
		}
	}
}

func TestBytesRefusesWhatWouldReadBackOtherwise(t *testing.T) {
	bad := []Entry{
		{Key: "Description", Value: "a\n[Service]"}, {Key: "Description", Value: `a\`}, {Key: "Description", Value: " a"},
		{Key: "Description", Value: "\x00"}, {Key: "Description", Value: "\xff"},
		{Key: "", Value: "a"}, {Key: "[X", Value: "a"}, {Key: "#a", Value: "b"}, {Key: "a b", Value: "c"},
	}
	for _, e := range bad {
		f := File{Sections: []Section{{Name: "Unit", Entries: []Entry{e}}}}
		if out, err := f.Bytes(); err == nil {
			t.Errorf("%+v was written as %q", e, out)
		}
	}
	for _, name := range []string{"", "a]b", "a\nb"} {
		f := File{Sections: []Section{{Name: name}}}
		if _, err := f.Bytes(); err == nil {
			t.Errorf("section %q was written", name)
		}
	}
}

func TestQuoteArg(t *testing.T) {
	tests := map[string]string{
		"":         `""`,
		"plain":    "plain",
		"a b":      `"a b"`,
		`a"b`:      `"a\"b"`,
		`back\`:    `"back\\"`,
		"100%":     "100%%",
		"%h":       "%%h",
		"$FOO":     "$FOO",
		"'":        `"'"`,
		";":        `";"`,
		"a\nb\tc":  `"a\nb\tc"`,
		"\x01\xff": `"\x01\xff"`,
		"ü":        `"ü"`,
	}
	for arg, want := range tests {
		if got, err := QuoteArg(arg); err != nil || got != want {
			t.Errorf("%q: got %s (%v), want %s", arg, got, err, want)
		}
	}
	if got, _ := QuoteArgExpanded("$FOO $$"); got != `"$$FOO $$$$"` {
		t.Errorf("with expansion: %s", got)
	}
	if _, err := QuoteArg("a\x00"); err == nil {
		t.Error("NUL was accepted")
	}
}

func TestQuoteEnv(t *testing.T) {
	if got, err := QuoteEnv("A", `x # y\`); err != nil || got != `"A=x # y\\"` {
		t.Errorf("got %s, %v", got, err)
	}
	for _, bad := range [][2]string{{"1A", "x"}, {"", "x"}, {"A-B", "x"}, {"A", "\x01"}, {"A", "\xff"}, {"A", "\x00"}, {"A", "\r"}} {
		if got, err := QuoteEnv(bad[0], bad[1]); err == nil {
			t.Errorf("%q was written as %s", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("[Unit]\nDescription=a \\\n b\n\n[Service]\nExecStart=/bin/x \"%h\"\n"))
	f.Add([]byte("\xef\xbb\xbf[A]\r\nB=\\\\\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := Parse("x", data)
		if err != nil {
			return
		}
		out, err := first.Bytes()
		if err != nil {
			if strings.Contains(err.Error(), "ends in a backslash") {
				return // it was followed by a blank, which is cut: nothing that is written so
			}
			t.Fatalf("what was read cannot be written: %v\n%q", err, data)
		}
		again, err := Parse("x", out)
		if err != nil {
			t.Fatalf("canonical text is refused: %v\n%s", err, out)
		}
		second, err := again.Bytes()
		if err != nil || string(second) != string(out) {
			t.Fatalf("canonical text is not stable (%v):\n%q\n%q", err, out, second)
		}
	})
}
