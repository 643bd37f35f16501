package unit

import (
	"os/exec"
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	valid := []string{
		"a.service", "foo@bar.service", "foo@.service", "dbus-org.bluez.service",
		`dev-disk-by\x2duuid.device`, "-.mount", "A:b_c.timer", "a@b@c.service",
		strings.Repeat("x", MaxName-8) + ".service",
	}
	for _, name := range valid {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	invalid := map[string]string{
		"":               "empty",
		"foo":            "unit type",
		"foo.bar":        "unit type",
		".service":       "unit type",
		"@x.service":     "nothing before the @",
		"a/b.service":    "contains",
		"a\nb.service":   "contains",
		"a b.service":    "contains",
		"a\xffb.service": "contains",
		"é.service":      "contains",
		"*.service":      "contains",
		strings.Repeat("x", MaxName-7) + ".service": "256 bytes",
	}
	for name, want := range invalid {
		if err := CheckName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want a text with %q", name, err, want)
		}
	}
}

func TestCheckInstance(t *testing.T) {
	err := CheckInstance("foo@.service")
	if err == nil || !strings.Contains(err.Error(), "foo@NAME.service") {
		t.Errorf("template: got %v, want an example", err)
	}
	for _, name := range []string{"foo@bar.service", "foo.service"} {
		if err := CheckInstance(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSplitAndSuffix(t *testing.T) {
	tests := []struct{ name, prefix, instance, kind string }{
		{"foo.service", "foo", "", "service"},
		{"foo@bar.socket", "foo", "bar", "socket"},
		{"foo@a@b.timer", "foo", "a@b", "timer"},
		{"a.b.target", "a.b", "", "target"},
	}
	for _, tt := range tests {
		if p, i, k := Split(tt.name); p != tt.prefix || i != tt.instance || k != tt.kind {
			t.Errorf("%s: got %q %q %q", tt.name, p, i, k)
		}
	}
	for typed, want := range map[string]string{
		"foo": "foo.service", "foo.bar": "foo.bar.service", "foo.timer": "foo.timer",
		"org.example.print": "org.example.print.service",
	} {
		if got := WithSuffix(typed); got != want {
			t.Errorf("%s: got %s", typed, got)
		}
	}
}

func TestMangle(t *testing.T) {
	tests := []struct {
		typed, want string
		globs       bool
	}{
		{"foo", "foo.service", false},
		{"foo.bar", "foo.bar.service", false},
		{"/dev/sda", "dev-sda.device", false},
		{"/srv/my data/", `srv-my\x20data.mount`, false},
		{"/", "-.mount", false},
		{"a b", `a\x20b.service`, false},
		{"web-*", "web-*", true},
		{"web-*", `web-\x2a.service`, false},
		{`x\x2dy.service`, `x\x2dy.service`, false},
	}
	for _, tt := range tests {
		if got := Mangle(tt.typed, tt.globs); got != tt.want {
			t.Errorf("Mangle(%q, %v) = %q, want %q", tt.typed, tt.globs, got, tt.want)
		}
	}
}

func TestEscapeAgreesWithSystemdEscape(t *testing.T) {
	inputs := []string{"a-b", "a/b", ".hidden", "a b", "ü", `back\slash`, "x:y_z.1", "tab\there"}
	tool, err := exec.LookPath("systemd-escape")
	for _, s := range inputs {
		escaped := Escape(s)
		if back, ok := Unescape(escaped); !ok || back != s {
			t.Errorf("%q: round trip gave %q, %v", s, back, ok)
		}
		if err != nil {
			continue
		}
		out, err := exec.Command(tool, "--", s).Output()
		if err != nil || strings.TrimSuffix(string(out), "\n") != escaped {
			t.Errorf("%q: got %q, systemd-escape says %q (%v)", s, escaped, out, err)
		}
	}
	for _, bad := range []string{`\x0`, `a\`, `\x00`, `\y20`, `\xzz`} {
		if _, ok := Unescape(bad); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestGlob(t *testing.T) {
	tests := []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "anything", true}, {"a*", "b", false},
		{"web-*", "web-1.service", true}, {"*.timer", "a.timer", true}, {"*.timer", "a.timers", false},
		{"?", "a", true}, {"?", "", false}, {"?", "ü", true}, {"??", "a", false},
		{"[a-c]x", "bx", true}, {"[a-c]x", "dx", false}, {"[!a-c]x", "dx", true}, {"[^a]", "a", false},
		{"[]]", "]", true}, {"[-a]", "-", true}, {"[a-]", "-", true},
		{`a\*`, `a\b`, true}, {"a*b*c", "aXbYbZc", true}, {"a*b*c", "aXbYbZ", false},
		{"node[12]", "node2", true}, {"**", "x", true}, {"a**", "a", true},
	}
	for _, tt := range tests {
		g, err := CompileGlob(tt.pattern)
		if err != nil {
			t.Errorf("%q: %v", tt.pattern, err)
			continue
		}
		if got := g.Match(tt.name); got != tt.want {
			t.Errorf("%q on %q: got %v", tt.pattern, tt.name, got)
		}
	}
	for _, bad := range []string{"", "[a", "a[", "[]", "\xff", strings.Repeat("a", maxGlob+1)} {
		if _, err := CompileGlob(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("a*b[c-d]?", "axxbcz")
	f.Add("[!]]*", "\xff\xfe")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		g, err := CompileGlob(pattern)
		if err != nil {
			return
		}
		matched := g.Match(name)
		if star, _ := CompileGlob("*"); !star.Match(name) {
			t.Fatalf("* does not match %q", name)
		}
		if !HasGlob(pattern) && matched != (pattern == name) {
			t.Fatalf("plain %q on %q: %v", pattern, name, matched)
		}
	})
}
