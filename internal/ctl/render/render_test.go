package render

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

type row struct {
	Node  string    `col:"NODE"`
	Unit  string    `col:"UNIT,cut"`
	Job   uint32    `col:"JOB"`
	Seen  time.Time `col:"LAST-SEEN"`
	Ok    bool      `col:"OK"`
	Tags  []string  `col:"TAGS"`
	Note  string    `col:"NOTE,wide"`
	inner string
}

func (r row) Style(column string) Style {
	if column == "UNIT" && r.Unit == "bad" {
		return Bad
	}
	return Plain
}

func (r row) Mark() Mark {
	if r.Unit == "bad" {
		return Mark{UTF8: "●", ASCII: "*", Style: Bad}
	}
	return Mark{}
}

var rows = []row{
	{Node: "node1", Unit: "a<b>&.service", Job: 12, Seen: time.UnixMicro(1700000000123456), Ok: true, Tags: []string{"x", "y"}, inner: "hidden"},
	{Node: "n2", Unit: "bad", Note: "evil\x1b[2J\nü"},
}

func write(t *testing.T, rows []row, o Options) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, rows, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	local := time.Local
	t.Cleanup(func() { time.Local = local })
	time.Local = time.UTC
	tests := []struct {
		name string
		rows []row
		o    Options
		want string
	}{
		{"json", rows, Options{Format: JSON}, `[
{"node":"node1","unit":"a<b>&.service","job":12,"last_seen":"2023-11-14T22:13:20.123456Z","ok":true,"tags":["x","y"],"note":""},
{"node":"n2","unit":"bad","job":0,"last_seen":"","ok":false,"tags":[],"note":"evil\u001b[2J\nü"}
]
`},
		{"json of nothing", nil, Options{Format: JSON}, "[]\n"},
		{"yaml", rows[1:], Options{Format: YAML}, `- node: "n2"
  unit: "bad"
  job: 0
  last_seen: ""
  ok: false
  tags: []
  note: "evil\u001b[2J\nü"
`},
		{"yaml of nothing", nil, Options{Format: YAML}, "[]\n"},
		{"table", rows, Options{Header: true}, `
NODE   UNIT           JOB  LAST-SEEN            OK   TAGS
node1  a<b>&.service   12  2023-11-14 22:13:20  yes  x,y
n2     bad              -  -                    no   -
`},
		{"table without header", rows[1:], Options{}, "n2  bad  -  -  no  -\n"},
		{"full table", rows[1:], Options{Full: true, Header: true, Width: 10}, `
NODE  UNIT  JOB  LAST-SEEN  OK  TAGS  NOTE
n2    bad     -  -          no  -     evil\x1b[2J\x0aü
`},
		{"table of nothing", nil, Options{Header: true}, ""},
		{"cut", rows, Options{Header: true, Width: 54}, `
NODE   UNIT        JOB  LAST-SEEN            OK   TAGS
node1  a<b>&.ser…   12  2023-11-14 22:13:20  yes  x,y
n2     bad           -  -                    no   -
`},
		{"marks and colours", rows, Options{Marks: true, UTF8: true, Color: true}, "  node1  a<b>&.service  12  2023-11-14 22:13:20  yes  x,y\n" +
			"\x1b[1;31m●\x1b[0m n2     \x1b[1;31mbad\x1b[0m             -  -                    no   -\n"},
		{"marks in ASCII", rows[1:], Options{Marks: true}, "* n2  bad  -  -  no  -\n"},
		{"no mark, no column", rows[:1], Options{Marks: true}, "node1  a<b>&.service  12  2023-11-14 22:13:20  yes  x,y\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got, want := write(t, test.rows, test.o), strings.TrimPrefix(test.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestYAMLIsTheJSON reads both with a YAML parser.
func TestYAMLIsTheJSON(t *testing.T) {
	odd := append(rows, row{Node: "yes", Unit: "0755", Note: "- x: #y\u2028 'z' \"q\" \\ \U0001f600 \x7f", Tags: []string{"null", "~", "2024-01-01"}})
	var fromYAML, fromJSON []map[string]any
	if err := yaml.UnmarshalStrict([]byte(write(t, odd, Options{Format: YAML})), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(write(t, odd, Options{Format: JSON})), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(fromYAML, fromJSON) {
		t.Errorf("YAML is\n%v\nJSON is\n%v", fromYAML, fromJSON)
	}
	if fromYAML[2]["node"] != "yes" || fromYAML[2]["unit"] != "0755" {
		t.Errorf("strings became something else: %v", fromYAML[2])
	}
}

func TestLine(t *testing.T) {
	var b strings.Builder
	if err := Line(&b, struct {
		Node string `col:"NODE"`
	}{"x"}); err != nil {
		t.Fatal(err)
	}
	if b.String() != "{\"node\":\"x\"}\n" {
		t.Errorf("got %q", b.String())
	}
}

func TestParseFormat(t *testing.T) {
	for want, word := range Formats {
		if got, err := ParseFormat(word); got != Format(want) || err != nil {
			t.Errorf("%s: %v, %v", word, got, err)
		}
	}
	if _, err := ParseFormat("xml"); err == nil || !strings.Contains(err.Error(), "table, json, yaml") {
		t.Errorf("error %v", err)
	}
}

func TestClean(t *testing.T) {
	tests := map[string]string{
		"plain ü 日本":     "plain ü 日本",
		"a\x1b[31m":      `a\x1b[31m`,
		"tab\tnew\n":     `tab\x09new\x0a`,
		"\x7f\u0085":     `\x7f\u0085`,
		"bad\xffutf8":    `bad\xffutf8`,
		"\u202eevil":     `\u202eevil`,
		"real \ufffd ok": "real \ufffd ok",
	}
	for s, want := range tests {
		if got := Clean(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
	if got := CleanLines("a\tb\n\x1bc\r\n"); got != "a\tb\n\\x1bc\\x0d\n" {
		t.Errorf("lines: %q", got)
	}
}

func TestCut(t *testing.T) {
	tests := []struct {
		s     string
		cells int
		want  string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 4, "abc…"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"e\u0301e\u0301e", 2, "e\u0301…"},
	}
	for _, test := range tests {
		if got := Cut(test.s, test.cells); got != test.want || Width(got) > test.cells {
			t.Errorf("%q in %d: got %q of width %d, want %q", test.s, test.cells, got, Width(got), test.want)
		}
	}
}

func TestSpan(t *testing.T) {
	tests := []struct {
		us, accuracy uint64
		want         string
	}{
		{0, 0, "0"}, {Infinity, 0, "infinity"}, {90 * second, 0, "1min 30s"}, {100 * msec, 0, "100ms"}, {1500 * msec, 0, "1.500000s"},
		{1500 * msec, msec, "1.500s"}, {1500, 0, "1.500ms"}, {7, 0, "7us"}, {2*hour + 5*minute + 300*msec, second, "2h 5min"},
		{12*second + 500*msec, second, "12s"}, {3*day + hour, 0, "3d 1h"}, {year + month, 0, "1y 1month"},
		{minute + 1500*msec, 0, "1min 1.500000s"},
	}
	for _, test := range tests {
		if got := Span(test.us, test.accuracy); got != test.want {
			t.Errorf("%d us to %d: got %q, want %q", test.us, test.accuracy, got, test.want)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Unix(1700000000, 0)
	tests := map[time.Duration]string{
		0: "now", 900 * time.Millisecond: "now", 3 * time.Second: "3s ago", 61 * time.Second: "1min 1s ago", 7 * time.Minute: "7min ago",
		65 * time.Minute: "1h 5min ago", 7 * time.Hour: "7h ago", 26 * time.Hour: "1 day 2h ago", 50 * time.Hour: "2 days ago",
		8 * 24 * time.Hour: "1 week 1 day ago", 40 * 24 * time.Hour: "1 month 9 days ago", 800 * 24 * time.Hour: "2 years 2 months ago", -5 * time.Second: "5s left",
	}
	for d, want := range tests {
		if got := Ago(now.Add(-d), now); got != want {
			t.Errorf("%s: got %q, want %q", d, got, want)
		}
	}
	if Ago(time.Time{}, now) != "" || Stamp(time.Time{}) != "n/a" {
		t.Error("the zero time is some time")
	}
}
