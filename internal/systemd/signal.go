package systemd

import (
	"errors"
	"strings"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// received takes what comes unasked, on the reader goroutine. Most of it concerns nobody,
// so the header decides first.
func (s *Systemd) received(c *connection, conn *peer.Conn, m *peer.Message) {
	switch {
	case m.Type != peer.TypeSignal:
		conn.ReplyError(m, peer.UnknownMethod(m))
	case c.destination == "" || c.isOwner(m.Sender):
		s.signal(m)
	case m.Sender == wire.DBusName && m.Interface == wire.DBusInterface && m.Member == "NameOwnerChanged":
		// Systemd was replaced, and its jobs and our subscription have gone with it.
		conn.Close(errors.New("systemd has left the bus"))
	}
}

func (c *connection) isOwner(sender string) bool {
	owner := c.owner.Load()
	return owner != nil && sender == *owner
}

func (s *Systemd) signal(m *peer.Message) {
	switch {
	case m.Interface == wire.SystemdManagerInterface && m.Path == wire.SystemdPath:
		s.managerSignal(m)
	case m.Interface == wire.PropertiesInterface && m.Member == "PropertiesChanged":
		s.propertiesChanged(m)
	}
}

func (s *Systemd) managerSignal(m *peer.Message) {
	switch m.Member {
	case "JobNew":
		var job uint32
		var path wire.ObjectPath
		var unit string
		if peer.Decode(m.Body, &job, &path, &unit) == nil {
			s.memory.jobNew(job, unit)
		}
	case "JobRemoved":
		var job uint32
		var path wire.ObjectPath
		var unit, result string
		if peer.Decode(m.Body, &job, &path, &unit, &result) == nil {
			s.memory.jobRemoved(job)
			s.core.SystemdJobRemoved(job, unit, result)
		}
	case "UnitNew", "UnitRemoved":
		if s.wanted.Load() == nil {
			return
		}
		var name string
		var path wire.ObjectPath
		if peer.Decode(m.Body, &name, &path) != nil || !s.wants(name) {
			return
		}
		if m.Member == "UnitNew" {
			s.core.SystemdUnitNew(name)
		} else {
			s.core.SystemdUnitRemoved(name)
		}
	case "Reloading":
		var begins bool
		if peer.Decode(m.Body, &begins) == nil && !begins && s.wanted.Load() != nil {
			s.core.SystemdReloaded()
		}
	}
}

func (s *Systemd) wants(unit string) bool {
	wanted := s.wanted.Load()
	return wanted != nil && (*wanted)(unit)
}

func (s *Systemd) propertiesChanged(m *peer.Message) {
	if strings.HasPrefix(string(m.Path), wire.SystemdJobPrefix) {
		s.jobChanged(m)
		return
	}
	if !strings.HasPrefix(string(m.Path), wire.SystemdUnitPrefix) {
		return
	}
	unit, ok := wire.ParseUnitPath(m.Path)
	if !ok {
		return
	}
	wanted, remembered := s.wants(unit), s.memory.expects(unit)
	if !wanted && !remembered {
		return
	}
	var iface string
	var changed map[string]wire.Value
	var invalidated []string
	if peer.Decode(m.Body, &iface, &changed, &invalidated) != nil {
		return
	}
	if remembered {
		s.memory.note(unit, iface, changed)
	}
	if wanted {
		s.core.SystemdUnitChanged(unit, iface, changed)
	}
}

func (s *Systemd) jobChanged(m *peer.Message) {
	job, ok := wire.ParseSystemdJobPath(m.Path)
	if !ok {
		return
	}
	var iface string
	var changed map[string]wire.Value
	var invalidated []string
	if peer.Decode(m.Body, &iface, &changed, &invalidated) != nil || iface != wire.SystemdJobInterface {
		return
	}
	if state, ok := changed["State"].AsString(); ok {
		s.core.SystemdJobState(job, state)
	}
}
