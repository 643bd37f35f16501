package unitfile

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWords(t *testing.T) {
	tests := map[string][]string{
		"":                       nil,
		"  \t ":                  nil,
		"/bin/a b\tc":            {"/bin/a", "b", "c"},
		`"a b" 'c "d' e"f"'g'`:   {"a b", `c "d`, "efg"},
		`"" ''`:                  {"", ""},
		`\x41\101\u00e4\s\n`:     {"AAä \n"},
		`"\"\\\'" ; %h $X ${Y}z`: {`"\'`, ";", "%h", "$X", "${Y}z"},
	}
	for value, want := range tests {
		if got, err := Words(value); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", value, got, err, want)
		}
	}
	for value, want := range map[string]string{
		`'test\.com'`: `\\.com`, `a\`: "nothing follows", `"a`: "not closed", `'a"`: "not closed",
		`\x4`: "escape", `\x00`: "escape", `\400`: "escape", `\ud800`: "escape", `\U00110000`: "escape", `\x+1`: "escape",
	} {
		if got, err := Words(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v, want an error with %q", value, got, err, want)
		}
	}
}

// FuzzQuote: whatever is quoted comes back from a line of a file that holds it.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", " ", ";", "a b", `\`, `"`, "'", "%h", "$X", "\n[Service]\nExecStart=/bin/sh", "ü\xff", "-@:+!", "#a", "a\rb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		quoted, err := QuoteArg(arg)
		if err != nil {
			if !strings.Contains(arg, "\x00") {
				t.Fatal(err)
			}
			return
		}
		file := File{Sections: []Section{{Name: "Service", Entries: []Entry{{Key: "ExecStart", Value: ":/bin/x " + quoted + " end"}}}}}
		text, err := file.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse("x.service", text)
		if err != nil {
			t.Fatal(err)
		}
		value, _ := back.Value("Service", "ExecStart")
		words, err := Words(value)
		if err != nil || len(words) != 3 || strings.ReplaceAll(words[1], "%%", "%") != arg {
			t.Fatalf("%q was written as %q and read as %q, %v", arg, quoted, words, err)
		}
		if !utf8.Valid(text) || strings.Count(string(text), "\n") != 2 {
			t.Fatalf("%q has broken the file: %q", arg, text)
		}
	})
}
