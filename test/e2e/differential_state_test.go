package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// pid1 is the systemd of a node, spoken to over the node's bus, past ctrl.
type pid1 struct {
	node *lab.Node
	bus  *dbus.Conn
	wake chan *dbus.Signal
}

func pid1Of(t *testing.T, n *lab.Node) *pid1 {
	t.Helper()
	bus, err := fleet.Bus(t.Context(), n)
	do(t, err)
	p := &pid1{node: n, bus: bus, wake: make(chan *dbus.Signal, 1<<16)}
	t.Cleanup(func() { bus.Close() })
	bus.Signal(p.wake)
	do(t, bus.AddMatchSignal(dbus.WithMatchSender(wire.SystemdName)))
	do(t, p.call(t.Context(), "Subscribe").Err)
	return p
}

// call calls a method of systemd's Manager.
func (p *pid1) call(ctx context.Context, method string, args ...any) *dbus.Call {
	return p.bus.Object(wire.SystemdName, dbus.ObjectPath(wire.SystemdPath)).CallWithContext(ctx, wire.SystemdManagerInterface+"."+method, 0, args...)
}

// property reads a property of a unit as text, "" where it has none.
func (p *pid1) property(ctx context.Context, path dbus.ObjectPath, iface, name string) string {
	var v dbus.Variant
	if p.bus.Object(wire.SystemdName, path).CallWithContext(ctx, wire.PropertiesInterface+".Get", 0, iface, name).Store(&v) != nil {
		return ""
	}
	return fmt.Sprint(v.Value())
}

// unitNow is what is compared of a unit.
type unitNow struct {
	Load, Active, Sub, Result, Freezer, Job, File string
}

// units reads the states of units; whole is all of unitNow, for the rest of which each unit
// has to be asked; files is also what systemd finds on disk, which takes it long.
func (p *pid1) units(names []string, whole, files bool) (map[string]unitNow, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var rows []wire.UnitStatus
	if err := p.call(ctx, "ListUnitsByNames", names).Store(&rows); err != nil {
		return nil, fmt.Errorf("%s: %w", p.node.Name, err)
	}
	now := make(map[string]unitNow, len(rows))
	for _, r := range rows {
		u := unitNow{Load: r.LoadState, Active: r.ActiveState, Sub: r.SubState, Job: r.JobType}
		if whole {
			kind := unit.TypeOf(r.Name)
			path := dbus.ObjectPath(wire.UnitPath(r.Name))
			u.Result = p.property(ctx, path, wire.SystemdName+"."+strings.ToUpper(kind[:1])+kind[1:], "Result")
			u.Freezer = p.property(ctx, path, wire.SystemdUnitInterface, "FreezerState")
		}
		if whole && files {
			if err := p.call(ctx, "GetUnitFileState", r.Name).Store(&u.File); err != nil {
				u.File = errorName(err)
			}
		}
		now[r.Name] = u
	}
	return now, nil
}

func errorName(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := err.(dbus.Error); ok {
		return e.Name
	}
	return err.Error()
}

// settle waits until units are the same on both nodes and returns where they are not, at
// the deadline.
func settle(ctx context.Context, ours, theirs *pid1, names []string, files bool) (a, b map[string]unitNow, err error) {
	wake := make(chan *dbus.Signal, 1<<16) // its own: several wait at a time
	for _, p := range []*pid1{ours, theirs} {
		p.bus.Signal(wake)
		defer p.bus.RemoveSignal(wake)
	}
	for {
		drain(wake)
		for _, whole := range []bool{false, true} {
			if a, err = ours.units(names, whole, files); err != nil {
				return a, b, err
			}
			if b, err = theirs.units(names, whole, files); err != nil {
				return a, b, err
			}
			if !maps.Equal(a, b) {
				break
			}
			if whole {
				return a, b, nil
			}
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return a, b, nil
		}
	}
}

func drain(c chan *dbus.Signal) {
	for {
		select {
		case <-c:
		default:
			return
		}
	}
}

// reach waits until units of a node have the states "active sub" that they should. It looks
// once and then goes by systemd's signals.
func (p *pid1) reach(t *testing.T, want map[string]string) {
	t.Helper()
	ctx := within(t)
	drain(p.wake)
	var rows []wire.UnitStatus
	do(t, p.call(ctx, "ListUnitsByNames", slices.Sorted(maps.Keys(want))).Store(&rows))
	now := make(map[string]string)
	missing := make(map[string]bool)
	note := func(name, state string) {
		if want[name] != "" {
			now[name] = state
			if missing[name] = state != want[name]; !missing[name] {
				delete(missing, name)
			}
		}
	}
	for _, r := range rows {
		note(r.Name, r.ActiveState+" "+r.SubState)
	}
	for len(missing) > 0 {
		select {
		case s := <-p.wake:
			if name, ok := wire.ParseUnitPath(wire.ObjectPath(s.Path)); ok && len(s.Body) == 3 && s.Body[0] == wire.SystemdUnitInterface {
				changed, _ := s.Body[1].(map[string]dbus.Variant)
				if active, ok := changed["ActiveState"]; ok {
					note(name, fmt.Sprint(active.Value(), " ", changed["SubState"].Value()))
				}
			}
		case <-ctx.Done():
			var list []string
			for name := range missing {
				list = append(list, fmt.Sprintf("%s is %q, not %q", name, now[name], want[name]))
			}
			t.Fatalf("on %s: %s", p.node.Name, strings.Join(list, "; "))
		}
	}
}
