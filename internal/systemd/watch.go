package systemd

import (
	"errors"
	"slices"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Units tells the present state of units that are loaded, without loading any.
func (s *Systemd) Units(pattern string, timeout time.Duration, done func([]agent.UnitRow, error)) {
	method, args := "GetUnit", []any{pattern}
	if unit.HasGlob(pattern) {
		method, args = "ListUnitsByPatterns", []any{[]string{}, []string{pattern}}
	}
	body, err := peer.Encode(args...)
	switch {
	case err != nil:
		done(nil, err)
	case method == "GetUnit":
		s.unitByName(pattern, body, timeout, done)
	default:
		s.listed(method, body, timeout, done)
	}
}

// listed asks for a list of units.
func (s *Systemd) listed(method string, body wire.Raw, timeout time.Duration, done func([]agent.UnitRow, error)) {
	s.sendMethod(method, body, timeout, func(m *peer.Message, err error) {
		var listed []wire.UnitStatus
		if err == nil {
			err = peer.Decode(m.Body, &listed)
		}
		rows := make([]agent.UnitRow, 0, len(listed))
		for _, u := range listed {
			rows = append(rows, agent.UnitRow{Asked: u.Name, ID: u.Name, Active: u.ActiveState, Sub: u.SubState})
		}
		done(rows, err)
	})
}

// unitByName goes by GetUnit, which knows aliases and loads nothing, and then lists the
// unit behind the name: that tells both words of its state as of one moment.
func (s *Systemd) unitByName(name string, body wire.Raw, timeout time.Duration, done func([]agent.UnitRow, error)) {
	s.sendMethod("GetUnit", body, timeout, func(m *peer.Message, err error) {
		var path wire.ObjectPath
		if err == nil {
			err = peer.Decode(m.Body, &path)
		}
		id, ok := wire.ParseUnitPath(path)
		switch {
		case errors.Is(err, wire.ErrSystemdNoSuchUnit):
			done(nil, nil)
		case err != nil:
			done(nil, err)
		case !ok:
			done(nil, wire.ErrFailed.With("systemd answered with the unit path %q", string(path)))
		default:
			s.listed("ListUnitsByNames", peer.MustEncode([]string{id}), timeout, func(rows []agent.UnitRow, err error) {
				for i := range rows {
					rows[i].Asked = name
				}
				done(rows, err)
			})
		}
	})
}

// Watch says which units' signals are wanted.
func (s *Systemd) Watch(wanted func(string) bool) {
	if wanted == nil {
		s.wanted.Store(nil)
		return
	}
	s.wanted.Store(&wanted)
}

// Names asks the unit's object, which systemd loads for it.
func (s *Systemd) Names(name string, timeout time.Duration, done func([]string, error)) {
	// Two questions: which of the names is the primary one is not the order's to say.
	get := func(property string, done func(wire.Raw, error)) {
		body := peer.MustEncode(wire.SystemdUnitInterface, property)
		s.send(func(c *connection) peer.Call { return c.properties(wire.UnitPath(name), "Get", body) }, timeout, passOn(done))
	}
	get("Id", func(id wire.Raw, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		get("Names", func(names wire.Raw, err error) { done(joinNames(id, names, err)) })
	})
}

func joinNames(id, names wire.Raw, err error) ([]string, error) {
	var (
		value   wire.Value
		primary string
		all     []string
	)
	if err == nil {
		err = peer.Decode(id, &value)
	}
	if err == nil {
		err = peer.DecodeValue(value, &primary)
	}
	if err == nil {
		err = peer.Decode(names, &value)
	}
	if err == nil {
		err = peer.DecodeValue(value, &all)
	}
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(all, func(name string) bool { return name == primary })
	return append([]string{primary}, others...), nil
}
