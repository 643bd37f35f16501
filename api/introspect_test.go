package api

import (
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/wire"
)

// TestContract holds what every interface promises to its readers: each member documented,
// each argument named, each property saying when it changes, and each public method saying
// which right it needs.
func TestContract(t *testing.T) {
	for _, name := range Names() {
		i := Load(name)
		if i.Doc == "" {
			t.Errorf("%s has no documentation", name)
		}
		private := strings.Contains(name, ".internal.")
		for _, m := range i.Methods {
			where := name + "." + m.Name
			if m.Doc == "" {
				t.Errorf("method %s has no documentation", where)
			}
			if named := m.Action != "" && m.Verb != ""; named == private {
				t.Errorf("method %s has action %q and verb %q", where, m.Action, m.Verb)
			}
			checkArgs(t, where, append(append([]Arg{}, m.In...), m.Out...))
		}
		for _, s := range i.Signals {
			if s.Doc == "" {
				t.Errorf("signal %s.%s has no documentation", name, s.Name)
			}
			checkArgs(t, name+"."+s.Name, s.Args)
		}
		for _, p := range i.Properties {
			if p.Doc == "" || p.Emits == "" || p.Access != "read" || p.Type == "" {
				t.Errorf("property %s.%s: documentation, type, access or EmitsChangedSignal is missing: %+v", name, p.Name, p)
			}
		}
		if !strings.HasPrefix(i.XML, "<interface name=\""+name+"\">") || !strings.HasSuffix(i.XML, "</interface>") {
			t.Errorf("%s: the served element is %q", name, i.XML)
		}
	}
}

func checkArgs(t *testing.T, where string, args []Arg) {
	t.Helper()
	seen := make(map[string]bool)
	for _, a := range args {
		if a.Name == "" || a.Type == "" || seen[a.Name] {
			t.Errorf("%s: argument %+v has no name, no type or is there twice", where, a)
		}
		seen[a.Name] = true
	}
}

// TestNodeMethods holds the XML and the table that drives manager and agent against each
// other, both ways and in order.
func TestNodeMethods(t *testing.T) {
	node, agent := Load(wire.NodeInterface), Load(wire.InternalAgentInterface)
	for n, want := range wire.NodeMethods {
		if n >= len(node.Methods) || node.Methods[n].Name != want.Name {
			t.Fatalf("method %d of the Node interface is not %s", n, want.Name)
		}
		m := node.Methods[n]
		if in, out := Signature(m.In), Signature(m.Out); in != want.In || out != want.Out {
			t.Errorf("%s is %q → %q, the table says %q → %q", m.Name, in, out, want.In, want.Out)
		}
		if changes := m.Action != wire.ActionInspect; changes == (want.Kind == wire.QueryMethod) {
			t.Errorf("%s needs %s, which does not fit its kind", m.Name, m.Action)
		}
		if verb, ok := wire.VerbOfMethod(m.Name); ok && m.Verb != verb.String() {
			t.Errorf("%s has verb %q, want %q", m.Name, m.Verb, verb)
		}
		in, out := want.In, want.Out
		if want.Kind == wire.JobMethod {
			in, out = "u"+in, ""
		}
		inner, ok := agent.Method(want.Name)
		if !ok || Signature(inner.In) != in || Signature(inner.Out) != out {
			t.Errorf("%s between manager and agent is %+v, want %q → %q", want.Name, inner, in, out)
		}
	}
	if extra := len(node.Methods) - len(wire.NodeMethods); extra != 0 {
		t.Errorf("the Node interface has %d methods that the table lacks", extra)
	}
	for _, m := range agent.Methods[len(wire.NodeMethods):] {
		if _, twice := wire.NodeMethodByName(m.Name); twice || !slices.Contains(private, m.Name) {
			t.Errorf("the agent's method %s is not known", m.Name)
		}
	}
}

// private are the methods between manager and agent that are no methods of a node.
var private = []string{wire.MemberCancelJob, wire.MemberSubscribe, wire.MemberSetMetrics, wire.MemberOrdered, wire.MemberUnsubscribe, wire.MemberReadLog, wire.MemberCloseLog}

func TestParseRefuses(t *testing.T) {
	const head = `<node><interface name="a.b">`
	for text, want := range map[string]string{
		`<node><surprise/></node>`:                                                                                                  "unexpected element",
		head + `<method name="M"><arg name="x" type="s"/></method>`:                                                                 "direction",
		head + `<signal name="S"><arg name="x" type="s" direction="out"/></signal>`:                                                 "direction",
		head + `<method name="M"><annotation name="x" value="y"/></method>`:                                                         "annotation",
		head + `<property name="P" type="s" access="read"><annotation name="` + wire.AnnotationEmitsChanged + `" value="perhaps"/>`: "annotation",
		head + `<method name="M"><annotation name="` + wire.AnnotationAction + `" value="org.example.ctrl1.fly"/>`:                  "annotation",
		head + `text`: "unexpected text",
		head:          "unexpected EOF",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}
