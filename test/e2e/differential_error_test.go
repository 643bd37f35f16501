package e2e

import (
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// asked is a call that is made to systemd itself on one node and through ctrl on the other.
type asked struct {
	method string
	args   []any // after the unit
}

var perUnit = []asked{
	{"GetUnitFileState", nil}, {"GetUnitProcesses", nil},
	{"ReloadUnit", []any{"replace"}}, {"TryRestartUnit", []any{"replace"}}, {"ReloadOrTryRestartUnit", []any{"replace"}},
	{"StartUnit", []any{"sideways"}}, {"StartUnit", []any{"isolate"}}, {"StopUnit", []any{"isolate"}},
	{"KillUnit", []any{"nobody", int32(15)}}, {"KillUnit", []any{"all", int32(0)}}, {"KillUnit", []any{"all", int32(999)}},
	{"SetUnitProperties", []any{true, []setting{{"NoSuchThing", dbus.MakeVariant("x")}}}},
	{"SetUnitProperties", []any{true, []setting{{"MemoryMax", dbus.MakeVariant("x")}}}},
	{"StartUnit", []any{"replace"}}, {"RestartUnit", []any{"replace"}}, {"ReloadOrRestartUnit", []any{"replace"}},
	{"ResetFailedUnit", nil}, {"KillUnit", []any{"control", int32(15)}}, {"StopUnit", []any{"replace"}},
}

type setting struct {
	Name  string
	Value dbus.Variant
}

var perFiles = []asked{
	{"EnableUnitFiles", []any{true, false}}, {"DisableUnitFiles", []any{true}}, {"MaskUnitFiles", []any{true, false}},
	{"UnmaskUnitFiles", []any{true}}, {"PresetUnitFiles", []any{true, false}},
}

// oddNames are no units at all. The empty name is not among them: systemd takes it for the
// caller's own unit, and GetUnitProcesses of systemd 252 ends PID 1 for a caller of another
// PID namespace. Ctrl refuses it.
var oddNames = []string{"a/b.service", "no-suffix", "a b.service", "a@@.service", "@.service", strings.Repeat("x", 300) + ".service", "ü.service"}

// TestDifferentialErrors makes the same calls over the bus, to systemd on one node and to ctrl
// for the other: the same errors come, by name and text.
func TestDifferentialErrors(t *testing.T) {
	d := newDiffer(t)
	copies := copiesFor("error", true, false)
	d.both(func(p *pid1) { p.prepare(t, copies) })
	bus, err := fleet.Bus(t.Context(), d.fleet.Boss)
	do(t, err)
	defer bus.Close()
	node := bus.Object(wire.BusName, dbus.ObjectPath(wire.NodePath("node1")))
	names := oddNames
	for _, c := range copies {
		if c.typed == "" && !c.hangs() {
			names = append(names, c.unitName())
		}
	}
	call := func(a asked, first any) {
		args := append([]any{first}, a.args...)
		ours := node.CallWithContext(within(t), wire.NodeInterface+"."+a.method, 0, args...).Err
		theirs := d.theirs.call(within(t), a.method, args...).Err
		if got, want := errorText(ours), errorText(theirs); got != want && !mayDiffer(got, want) {
			t.Errorf("%s%v\n     ctrl: %s\n  systemd: %s", a.method, args, got, want)
		}
	}
	for _, a := range perUnit {
		for _, name := range names {
			call(a, name)
		}
	}
	for _, a := range perFiles {
		for _, name := range names {
			call(a, []string{name})
		}
	}
}

// errorText is an error's name and text.
func errorText(err error) string {
	e, ok := err.(dbus.Error)
	if !ok || len(e.Body) == 0 {
		return errorName(err)
	}
	text, _ := e.Body[0].(string)
	return e.Name + ": " + text
}

// mayDiffer is where ctrl refuses by itself, as bad arguments, what systemd refuses too.
func mayDiffer(ours, theirs string) bool {
	return strings.HasPrefix(ours, wire.ErrInvalidArgs.Name) && theirs != ""
}
