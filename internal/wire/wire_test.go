package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestEscapeLabel(t *testing.T) {
	tests := map[string]string{
		"":          "_",
		"node1":     "node1",
		"node-1":    "node_2d1",
		"1a":        "_31a",
		"a_b":       "a_5fb",
		"a.b":       "a_2eb",
		"Lab_Pi3":   "Lab_5fPi3",
		"ü":         "_c3_bc",
		"a@b.mount": "a_40b_2emount",
	}
	for s, want := range tests {
		got := EscapeLabel(s)
		if got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
		if back, ok := UnescapeLabel(got); !ok || back != s {
			t.Errorf("%q: came back as %q, %v", s, back, ok)
		}
	}
	for _, label := range []string{"", "_2", "_2D", "_61", "1a", "a_", "a_5", "a-b", "__", "_zz"} {
		if s, ok := UnescapeLabel(label); ok {
			t.Errorf("label %q was accepted as %q", label, s)
		}
	}
}

func FuzzLabel(f *testing.F) {
	f.Add("node-1")
	f.Add("_5f")
	f.Fuzz(func(t *testing.T, s string) {
		if back, ok := UnescapeLabel(EscapeLabel(s)); !ok || back != s {
			t.Fatalf("%q came back as %q, %v", s, back, ok)
		}
		if plain, ok := UnescapeLabel(s); ok && EscapeLabel(plain) != s {
			t.Fatalf("label %q has a second form %q", s, EscapeLabel(plain))
		}
	})
}

func TestPaths(t *testing.T) {
	if p := NodePath("node-1"); p != "/org/example/ctrl1/node/node_2d1" {
		t.Errorf("node path %s", p)
	}
	if name, ok := ParseNodePath("/org/example/ctrl1/node/node_2d1"); !ok || name != "node-1" {
		t.Errorf("node path parsed as %q, %v", name, ok)
	}
	if id, ok := ParseJobPath(JobPath(4294967295)); !ok || id != 4294967295 {
		t.Errorf("job path parsed as %d, %v", id, ok)
	}
	for _, p := range []ObjectPath{
		"/org/example/ctrl1/job/", "/org/example/ctrl1/job/0", "/org/example/ctrl1/job/01",
		"/org/example/ctrl1/job/+1", "/org/example/ctrl1/job/4294967296", "/org/example/ctrl1/job/1/x",
		"/org/example/ctrl1/monitor/1",
	} {
		if id, ok := ParseJobPath(p); ok {
			t.Errorf("%s was accepted as job %d", p, id)
		}
	}
	if u, ok := ParseUnitPath(UnitPath("foo@bar.service")); !ok || u != "foo@bar.service" {
		t.Errorf("unit path parsed as %q, %v", u, ok)
	}
}

func TestValidNodeName(t *testing.T) {
	for _, s := range []string{"a", "1", "node1", "node-1", "a.b_c-D", "Lab_Pi3", strings.Repeat("x", 64)} {
		if !ValidNodeName(s) {
			t.Errorf("%q was refused", s)
		}
	}
	for _, s := range []string{"", "-a", ".a", "_a", "a/b", "a b", "a\n", "a,b", "*", "ü", "a\x00", strings.Repeat("x", 65)} {
		if ValidNodeName(s) {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestErrorKinds(t *testing.T) {
	err := fmt.Errorf("cannot start: %w", ErrNodeOffline.With("node1 is offline"))
	if !errors.Is(err, ErrNodeOffline) || errors.Is(err, ErrNoSuchNode) {
		t.Errorf("kind of %v not found", err)
	}
	if e := AsError(err); e.Name != ErrNodeOffline.Name || e.Text != "node1 is offline" {
		t.Errorf("AsError gave %+v", e)
	}
	if e := AsError(errors.New("plain")); !errors.Is(e, ErrFailed) || e.Text != "plain" {
		t.Errorf("AsError of a plain error gave %+v", e)
	}
	if AsError(nil) != nil {
		t.Error("AsError(nil) is not nil")
	}
}

func TestVerbs(t *testing.T) {
	for _, v := range Verbs() {
		m, ok := NodeMethodByName(v.Method())
		if !ok || m.Kind != JobMethod || !m.UnitArg {
			t.Errorf("%s: method %s is not a job method of the Node interface", v, v.Method())
		}
		if back, ok := VerbOfMethod(v.Method()); !ok || back != v {
			t.Errorf("%s: found again as %v, %v", v, back, ok)
		}
		if v.Conflicts(Stop) != (v != Stop) || Stop.Conflicts(v) != (v != Stop) {
			t.Errorf("%s: conflict with stop is wrong", v)
		}
	}
	if err := CheckJobMode("replace"); err != nil {
		t.Error(err)
	}
	if err := CheckJobMode("Replace"); !errors.Is(err, ErrInvalidArgs) {
		t.Errorf("a wrong mode gave %v", err)
	}
}
