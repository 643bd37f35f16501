package systemdtest

import (
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Call implements agent.Systemd for the whole of wire.NodeMethods that is systemd's.
func (s *Systemd) Call(method string, args wire.Raw, timeout time.Duration, done func(wire.Raw, error)) {
	what := method
	if m, ok := wire.NodeMethodByName(method); ok && m.UnitArg {
		first, _ := args.FirstStrings()
		what += " " + first[0]
	}
	s.ask(what, timeout, func(err error) { done(wire.Raw{}, err) }, func() (func(), func()) {
		carryOut, ok := calls[method]
		if !ok {
			return func() { done(wire.Raw{}, wire.ErrUnknownMethod.With("systemd has no method %s", method)) }, nil
		}
		body, err := carryOut(s, args)
		return func() { done(body, err) }, nil
	})
}

var calls = map[string]func(*Systemd, wire.Raw) (wire.Raw, error){
	"KillUnit":          (*Systemd).killUnit,
	"FreezeUnit":        func(s *Systemd, args wire.Raw) (wire.Raw, error) { return s.freeze(args, true) },
	"ThawUnit":          func(s *Systemd, args wire.Raw) (wire.Raw, error) { return s.freeze(args, false) },
	"ResetFailedUnit":   (*Systemd).resetFailedUnit,
	"ResetFailed":       (*Systemd).resetFailed,
	"Reload":            (*Systemd).daemonReload,
	"GetUnitProperties": (*Systemd).unitProperties,
	"GetUnitProperty":   (*Systemd).unitProperty,
	"SetUnitProperties": (*Systemd).setUnitProperties,
	"EnableUnitFiles":   func(s *Systemd, args wire.Raw) (wire.Raw, error) { return s.enable(args, true) },
	"DisableUnitFiles":  func(s *Systemd, args wire.Raw) (wire.Raw, error) { return s.enable(args, false) },
	"PresetUnitFiles":   func(s *Systemd, args wire.Raw) (wire.Raw, error) { return s.enable(args, true) },
	"MaskUnitFiles":     func(s *Systemd, args wire.Raw) (wire.Raw, error) { return s.mask(args, true) },
	"UnmaskUnitFiles":   func(s *Systemd, args wire.Raw) (wire.Raw, error) { return s.mask(args, false) },
	"GetUnitFileState":  (*Systemd).unitFileState,
	"GetUnitProcesses":  (*Systemd).unitProcesses,
	"ReadUnitFiles":     (*Systemd).readUnitFiles,
	"ListUnits":         func(s *Systemd, _ wire.Raw) (wire.Raw, error) { return s.list(nil, nil) },
	"ListUnitsFiltered": (*Systemd).listFiltered,
	"ListUnitFiles":     (*Systemd).listFiles,
	"GetDefaultTarget":  func(s *Systemd, _ wire.Raw) (wire.Raw, error) { return peer.Encode(s.target) },
	"SetDefaultTarget":  (*Systemd).setDefaultTarget,
}

// loaded finds a unit for a request that does not load any.
func (s *Systemd) loaded(args wire.Raw) (*unitState, error) {
	first, _ := args.FirstStrings()
	if u := s.names[first[0]]; u != nil && u.loaded {
		return u, nil
	}
	return nil, wire.ErrSystemdNoSuchUnit.With("Unit %s not loaded.", first[0])
}

func (s *Systemd) killUnit(args wire.Raw) (wire.Raw, error) {
	var name, who string
	var signal int32
	if err := peer.Decode(args, &name, &who, &signal); err != nil {
		return wire.Raw{}, err
	}
	u, err := s.loaded(args)
	if err != nil {
		return wire.Raw{}, err
	}
	if u.active != "active" && u.active != "activating" && u.active != "reloading" {
		return wire.Raw{}, systemdError("NoSuchProcess", "No matching processes to kill")
	}
	const sigTerm = 15
	u.abort()
	u.end(signal != sigTerm)
	return wire.Raw{}, nil
}

func (s *Systemd) freeze(args wire.Raw, frozen bool) (wire.Raw, error) {
	u, err := s.loaded(args)
	if err != nil {
		return wire.Raw{}, err
	}
	if u.active != "active" {
		return wire.Raw{}, systemdError("UnitInactive", "Unit is not active")
	}
	u.frozen = frozen
	u.tell(wire.SystemdUnitInterface, map[string]wire.Value{"FreezerState": peer.MustValue(u.freezer())})
	return wire.Raw{}, nil
}

func (u *unitState) freezer() string {
	if u.frozen {
		return "frozen"
	}
	return "running"
}

func (s *Systemd) resetFailedUnit(args wire.Raw) (wire.Raw, error) {
	u, err := s.loaded(args)
	if err != nil {
		return wire.Raw{}, err
	}
	u.resetFailed()
	return wire.Raw{}, nil
}

func (s *Systemd) resetFailed(wire.Raw) (wire.Raw, error) {
	for _, name := range s.sorted() {
		s.units[name].resetFailed()
	}
	return wire.Raw{}, nil
}

func (u *unitState) resetFailed() {
	if u.active == "failed" {
		u.set("inactive", "dead")
		u.collect()
	}
}

func (s *Systemd) daemonReload(wire.Raw) (wire.Raw, error) {
	s.push(func(c Core) { c.SystemdReloaded() })
	return wire.Raw{}, nil
}

func (s *Systemd) sorted() []string { return slices.Sorted(maps.Keys(s.units)) }

// withUnit loads a unit for a query, as asking systemd for properties does, and lets go of
// it afterwards. Of a name that no unit has it makes one that is not found.
func (s *Systemd) withUnit(name string, fn func(*unitState) (wire.Raw, error)) (wire.Raw, error) {
	u := s.names[name]
	if u == nil {
		u = &unitState{systemd: s, name: name, active: "inactive", sub: "dead", spec: Spec{Load: "not-found"}}
	}
	u.touch()
	body, err := fn(u)
	u.collect()
	return body, err
}

// properties are those of a unit that clients look at most.
func (u *unitState) allProperties() map[string]wire.Value {
	all := map[string]wire.Value{
		"Id":            peer.MustValue(u.name),
		"Names":         peer.MustValue(append([]string{u.name}, u.spec.Aliases...)),
		"Description":   peer.MustValue(u.description()),
		"LoadState":     peer.MustValue(u.load()),
		"ActiveState":   peer.MustValue(u.active),
		"SubState":      peer.MustValue(u.sub),
		"UnitFileState": peer.MustValue(u.fileState()),
		"FreezerState":  peer.MustValue(u.freezer()),
		"CanReload":     peer.MustValue(!u.spec.NoReload),
		"Transient":     peer.MustValue(u.transient),
	}
	maps.Copy(all, u.properties)
	return all
}

func (u *unitState) description() string {
	if u.spec.Description != "" {
		return u.spec.Description
	}
	return u.name
}

func (u *unitState) fileState() string {
	switch {
	case u.spec.Load == "not-found":
		return ""
	case u.spec.Load == "masked":
		return "masked"
	case u.transient:
		return "transient"
	case u.spec.Enabled:
		return "enabled"
	}
	return "disabled"
}

func (s *Systemd) unitProperties(args wire.Raw) (wire.Raw, error) {
	var name, iface string
	if err := peer.Decode(args, &name, &iface); err != nil {
		return wire.Raw{}, err
	}
	return s.withUnit(name, func(u *unitState) (wire.Raw, error) { return peer.Encode(u.allProperties()) })
}

func (s *Systemd) unitProperty(args wire.Raw) (wire.Raw, error) {
	var name, iface, property string
	if err := peer.Decode(args, &name, &iface, &property); err != nil {
		return wire.Raw{}, err
	}
	return s.withUnit(name, func(u *unitState) (wire.Raw, error) {
		v, ok := u.allProperties()[property]
		if !ok {
			return wire.Raw{}, wire.ErrUnknownProperty.With("Unknown interface %s or property %s.", iface, property)
		}
		return peer.Encode(v)
	})
}

func (s *Systemd) setUnitProperties(args wire.Raw) (wire.Raw, error) {
	var name string
	var runtime bool
	var set []struct {
		Name  string
		Value wire.Value
	}
	if err := peer.Decode(args, &name, &runtime, &set); err != nil {
		return wire.Raw{}, err
	}
	u, err := s.loaded(args)
	if err != nil {
		return wire.Raw{}, err
	}
	changed := make(map[string]wire.Value, len(set))
	for _, p := range set {
		changed[p.Name] = p.Value
	}
	if u.properties == nil {
		u.properties = make(map[string]wire.Value)
	}
	maps.Copy(u.properties, changed)
	u.tell(wire.SystemdUnitInterface, changed)
	return wire.Raw{}, nil
}

func (s *Systemd) unitProcesses(args wire.Raw) (wire.Raw, error) {
	type process struct {
		Group   string
		PID     uint32
		Command string
	}
	u, err := s.loaded(args)
	if err != nil {
		return wire.Raw{}, err
	}
	list := []process{}
	if u.active == "active" && u.sub == "running" {
		list = append(list, process{"/system.slice/" + u.name, 1000, "/usr/bin/" + u.name})
	}
	return peer.Encode(list)
}

func (s *Systemd) list(states, patterns []string) (wire.Raw, error) {
	rows := []wire.UnitStatus{}
	for _, name := range s.sorted() {
		if u := s.units[name]; u.loaded && u.matches(patterns) && u.is(states) {
			rows = append(rows, u.row())
		}
	}
	return peer.Encode(rows)
}

func (s *Systemd) listFiltered(args wire.Raw) (wire.Raw, error) {
	var states, patterns []string
	if err := peer.Decode(args, &states, &patterns); err != nil {
		return wire.Raw{}, err
	}
	return s.list(states, patterns)
}

func (u *unitState) is(states []string) bool {
	return len(states) == 0 || slices.ContainsFunc(states, func(w string) bool { return w == u.active || w == u.sub || w == u.load() })
}

func (u *unitState) matches(patterns []string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		glob, err := unit.CompileGlob(p)
		return err == nil && glob.Match(u.name)
	})
}

func (u *unitState) row() wire.UnitStatus {
	row := wire.UnitStatus{
		Name: u.name, Description: u.description(), LoadState: u.load(), ActiveState: u.active, SubState: u.sub,
		Path: wire.UnitPath(u.name), JobPath: "/",
	}
	if j := u.job; j != nil {
		row.JobID, row.JobType, row.JobPath = j.id, string(j.kind), wire.SystemdJobPath(j.id)
	}
	return row
}

// Names implements agent.Systemd.
func (s *Systemd) Names(name string, timeout time.Duration, done func([]string, error)) {
	s.ask("Names "+name, timeout, func(err error) { done(nil, err) }, func() (func(), func()) {
		names := []string{name}
		if u := s.names[name]; u != nil {
			names = append([]string{u.name}, u.spec.Aliases...)
		}
		return func() { done(names, nil) }, nil
	})
}

// Units implements agent.Systemd.
func (s *Systemd) Units(pattern string, timeout time.Duration, done func([]agent.UnitRow, error)) {
	s.ask("Units "+pattern, timeout, func(err error) { done(nil, err) }, func() (func(), func()) {
		rows := []agent.UnitRow{}
		if !unit.HasGlob(pattern) {
			if u := s.names[pattern]; u != nil && u.loaded {
				rows = append(rows, agent.UnitRow{Asked: pattern, ID: u.name, Active: u.active, Sub: u.sub})
			}
			return func() { done(rows, nil) }, nil
		}
		for _, name := range s.sorted() {
			if u := s.units[name]; u.loaded && u.matches([]string{pattern}) {
				rows = append(rows, agent.UnitRow{Asked: name, ID: name, Active: u.active, Sub: u.sub})
			}
		}
		return func() { done(rows, nil) }, nil
	})
}
