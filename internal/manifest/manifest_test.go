package manifest

import (
	"fmt"
	"strings"
	"testing"
)

func one(t *testing.T, text string) Value {
	t.Helper()
	docs, err := Documents("f.yaml", []byte(text))
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	return docs[0]
}

func TestDocuments(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "---\n": 0, "---\n---\n": 0, "# a comment\n": 0, "a: b\n": 1, "a: b\n---\nc: d\n": 2, "---\na: b\n---\n---\nc: d\n...\n": 2,
		`{"a": "b"}`: 1, "a: b\r\nc: d\r\n": 1, "\ufeffa: b\n": 1,
	} {
		docs, err := Documents("f.yaml", []byte(text))
		if err != nil || len(docs) != want {
			t.Errorf("%q: %d documents, %v; want %d", text, len(docs), err, want)
		}
	}
	for text, want := range map[string]string{
		"a: b\na: c\n":                        "f.yaml:2: a: the key is there twice; the first is in line 1",
		"a: &x 1\nb: *x\n":                    "f.yaml:1: a: anchors and aliases",
		"a: {<<: b}\n":                        "merge keys are not read",
		"a: !!binary eA==\n":                  "f.yaml:1: a: tags (!!binary) are not read",
		"a:\n\tb: c\n":                        "f.yaml: line",
		"[a: b":                               "f.yaml: line",
		"? {a: b}\n: c\n":                     "a key is a plain word",
		"a: \x00\n":                           "f.yaml:1: contains a NUL byte",
		strings.Repeat("[", 100):              "f.yaml",
		"a: " + strings.Repeat("x", MaxInput): "larger than",
		strings.Repeat("---\na: b\n", 1001):   "more than 1000 documents",
		strings.Repeat("[", 70) + strings.Repeat("]", 70): "nested deeper",
	} {
		if _, err := Documents("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"web": "web", `"8080"`: "8080", "'yes'": "yes", "1.2.3": "1.2.3", "a b": "a b", `"~"`: "~", "yesterday": "yesterday", `""`: "", "|\n  two\n  lines": "two\nlines",
		"8080": "!quote it: \"8080\"", "yes": "!quote it: \"yes\"", "On": "!quote it: \"On\"", "y": "!quote it", "true": "!quote it: \"true\"", "0755": "!quote it", "1e3": "!quote it",
		"~": "!quote it", "null": "!quote it", "1.5": "!quote it", "2020-01-01": "!quote it", "[a]": "!a text is meant", "{a: b}": "!a text is meant",
	} {
		doc := one(t, "v: "+text)
		fields, err := doc.Map("v")
		if err != nil {
			t.Fatal(err)
		}
		got, err := fields["v"].Text()
		if wrong, isError := strings.CutPrefix(want, "!"); isError {
			if err == nil || !strings.Contains(err.Error(), wrong) || !strings.HasPrefix(err.Error(), "f.yaml:1: v: ") {
				t.Errorf("%s: %q, %v; want %q", text, got, err, wrong)
			}
		} else if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestModesAndTruth(t *testing.T) {
	for text, want := range map[string]string{"0644": "644", "0o755": "755", `"0600"`: "600", "644": "644", "0888": "error", "rw": "error", "12345678": "error", "06440000000": "error", "[1]": "error"} {
		fields, _ := one(t, "v: "+text).Map()
		mode, err := fields["v"].Octal(0)
		got := fmt.Sprintf("%o", mode)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("mode %s: %s, %v; want %s", text, got, err, want)
		}
	}
	fields, _ := one(t, "a: true\nb: False\nc: yes\nd: 1\n").Map()
	for key, want := range map[string]string{"a": "true", "b": "false", "c": "error", "d": "error", "missing": "false"} {
		truth, err := fields[key].Bool()
		got := fmt.Sprint(truth)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

func TestPathsInErrors(t *testing.T) {
	doc := one(t, "spec:\n  units:\n    web.service: x\n  list:\n  - a\n  - 7\n")
	spec, err := doc.Map("spec")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spec["spec"].Map("units"); err == nil || err.Error() != "f.yaml:4: spec.list: the key is not known; known here: units" {
		t.Errorf("got %v", err)
	}
	fields, err := spec["spec"].Map("units", "list")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fields["list"].Texts(); err == nil || !strings.HasPrefix(err.Error(), "f.yaml:6: spec.list[1]: 7 is a number for YAML") {
		t.Errorf("got %v", err)
	}
	units, _ := fields["units"].Map()
	if err := units["web.service"].Errorf("no"); err.Error() != `f.yaml:3: spec.units["web.service"]: no` {
		t.Errorf("got %v", err)
	}
	if _, err := fields["units"].List(); err == nil {
		t.Error("a mapping is no list")
	}
	if _, err := units["web.service"].Map("a"); err == nil {
		t.Error("a text is no mapping")
	}
	if items, err := (Value{}).List(); items != nil || err != nil {
		t.Error("what is not there has items")
	}
}

func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{"a: b", "---\n- x\n- {y: 1}\n", "a: &x [*x]", "? a\n: b", "\xff", "a: |\n  b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := Documents("f", data)
		if err != nil {
			return
		}
		for _, d := range docs {
			walk(d)
		}
	})
}

func walk(v Value) {
	if fields, err := v.Map(); err == nil {
		for _, f := range fields {
			walk(f)
		}
	}
	if items, err := v.List(); err == nil {
		for _, i := range items {
			walk(i)
		}
	}
	_, _ = v.Text()
	_, _ = v.Octal(0)
	_, _ = v.Bool()
}
