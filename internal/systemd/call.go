package systemd

import (
	"errors"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// send makes a call on the present connection, or on the next one where that comes soon.
func (s *Systemd) send(make func(c *connection) peer.Call, timeout time.Duration, done func(*peer.Message, error)) {
	s.connected(timeout, func(c *connection) {
		if c == nil {
			done(nil, notConnected())
			return
		}
		c.Go(make(c), timeout, done)
	})
}

// StartJob queues a job of systemd.
func (s *Systemd) StartJob(req agent.JobRequest, timeout time.Duration, done func(uint32, error)) {
	member, body := req.Verb.Method(), peer.MustEncode(req.Unit, req.Mode)
	if req.Transient != nil {
		var err error
		member = "StartTransientUnit"
		if body, err = peer.JoinBody(body, *req.Transient); err != nil {
			done(0, err)
			return
		}
	}
	if req.Verb != wire.Stop {
		s.memory.expect(req.Unit)
	}
	s.send(func(c *connection) peer.Call { return c.manager(member, body) }, timeout, func(m *peer.Message, err error) {
		if err != nil {
			done(0, err)
			return
		}
		var path wire.ObjectPath
		if err := peer.Decode(m.Body, &path); err != nil {
			done(0, err)
			return
		}
		job, ok := wire.ParseSystemdJobPath(path)
		if !ok {
			done(0, wire.ErrFailed.With("systemd answered with the job path %q", string(path)))
			return
		}
		done(job, nil)
	})
}

// CancelJob cancels a job by systemd's id.
func (s *Systemd) CancelJob(job uint32, timeout time.Duration, done func(error)) {
	s.send(func(c *connection) peer.Call { return c.manager("CancelJob", peer.MustEncode(job)) }, timeout,
		func(_ *peer.Message, err error) { done(err) })
}

// Jobs lists systemd's queue.
func (s *Systemd) Jobs(timeout time.Duration, done func([]agent.QueuedJob, error)) {
	s.send(func(c *connection) peer.Call { return c.manager("ListJobs", wire.Raw{}) }, timeout, func(m *peer.Message, err error) {
		var rows []struct {
			ID                uint32
			Unit, Type, State string
			Path, UnitPath    wire.ObjectPath
		}
		if err == nil {
			err = peer.Decode(m.Body, &rows)
		}
		queued := make([]agent.QueuedJob, 0, len(rows))
		for _, r := range rows {
			queued = append(queued, agent.QueuedJob{ID: r.ID, State: r.State})
		}
		done(queued, err)
	})
}

// Call carries out a query or change. Most methods are systemd's own, arguments and answer
// unopened; the others are in the table.
func (s *Systemd) Call(method string, args wire.Raw, timeout time.Duration, done func(wire.Raw, error)) {
	if method == "ReadUnitFiles" {
		s.readUnitFiles(args, timeout, done)
		return
	}
	var failed error
	s.send(func(c *connection) peer.Call {
		if special, ok := translations[method]; ok {
			call, err := special(c, args)
			failed = err
			return call
		}
		return c.manager(method, args)
	}, timeout, func(m *peer.Message, err error) {
		if failed != nil {
			err = failed
		}
		if err != nil {
			done(wire.Raw{}, err)
			return
		}
		body := peer.CloneRaw(m.Body)
		if method == "GetUnitProperties" {
			var name, iface string
			if peer.Decode(args, &name, &iface) == nil {
				body = s.memory.complete(name, iface, body)
			}
		}
		done(body, nil)
	})
}

// translations are the methods that are not one of systemd's Manager by the same name.
var translations = map[string]func(*connection, wire.Raw) (peer.Call, error){
	"ListUnitsFiltered": func(c *connection, args wire.Raw) (peer.Call, error) {
		return c.manager("ListUnitsByPatterns", args), nil
	},
	"GetUnitProperties": func(c *connection, args wire.Raw) (peer.Call, error) {
		var name, iface string
		err := peer.Decode(args, &name, &iface)
		return c.properties(name, "GetAll", iface), err
	},
	"GetUnitProperty": func(c *connection, args wire.Raw) (peer.Call, error) {
		var name, iface, property string
		err := peer.Decode(args, &name, &iface, &property)
		if iface == "" {
			iface = wire.SystemdUnitInterface
		}
		return c.properties(name, "Get", iface, property), err
	},
}

// properties asks a unit's object, which systemd loads for it, whatever its name: an alias
// leads to the unit behind it.
func (c *connection) properties(unitName, member string, args ...any) peer.Call {
	body, err := peer.Encode(args...)
	if err != nil {
		body = wire.Raw{}
	}
	return peer.Call{
		Destination: c.destination, Path: wire.UnitPath(unitName),
		Interface: wire.PropertiesInterface, Member: member, Body: body,
	}
}

// Units tells the present state of units that are loaded, without loading any.
func (s *Systemd) Units(pattern string, timeout time.Duration, done func([]agent.UnitRow, error)) {
	if unit.HasGlob(pattern) {
		s.unitsByGlob(pattern, timeout, done)
		return
	}
	s.unitByName(pattern, timeout, done)
}

func (s *Systemd) unitsByGlob(pattern string, timeout time.Duration, done func([]agent.UnitRow, error)) {
	body := peer.MustEncode([]string{}, []string{pattern})
	s.send(func(c *connection) peer.Call { return c.manager("ListUnitsByPatterns", body) }, timeout, func(m *peer.Message, err error) {
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

// unitByName goes by GetUnit, which knows aliases and gives the path of the unit behind.
func (s *Systemd) unitByName(name string, timeout time.Duration, done func([]agent.UnitRow, error)) {
	s.connected(timeout, func(c *connection) {
		if c == nil {
			done(nil, notConnected())
			return
		}
		c.unitByName(name, timeout, done)
	})
}

func (c *connection) unitByName(name string, timeout time.Duration, done func([]agent.UnitRow, error)) {
	c.Go(c.manager("GetUnit", peer.MustEncode(name)), timeout, func(m *peer.Message, err error) {
		if errors.Is(err, wire.ErrSystemdNoSuchUnit) {
			done(nil, nil)
			return
		}
		var path wire.ObjectPath
		if err == nil {
			err = peer.Decode(m.Body, &path)
		}
		id, ok := wire.ParseUnitPath(path)
		if err == nil && !ok {
			err = wire.ErrFailed.With("systemd answered with the unit path %q", string(path))
		}
		if err != nil {
			done(nil, err)
			return
		}
		c.unitState(agent.UnitRow{Asked: name, ID: id}, path, timeout, done)
	})
}

// unitState asks for both words of a unit's state, one right after the other, so that no
// change comes between.
func (c *connection) unitState(row agent.UnitRow, path wire.ObjectPath, timeout time.Duration, done func([]agent.UnitRow, error)) {
	var failed error
	take := func(into *string, m *peer.Message, err error) {
		var v wire.Value
		if err == nil {
			err = peer.Decode(m.Body, &v)
		}
		*into, _ = v.AsString()
		if failed == nil {
			failed = err
		}
	}
	c.Go(c.property(path, wire.SystemdUnitInterface, "ActiveState"), timeout,
		func(m *peer.Message, err error) { take(&row.Active, m, err) })
	c.Go(c.property(path, wire.SystemdUnitInterface, "SubState"), timeout, func(m *peer.Message, err error) {
		take(&row.Sub, m, err)
		if failed != nil {
			done(nil, failed)
			return
		}
		done([]agent.UnitRow{row}, nil)
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
