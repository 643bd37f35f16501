package systemd

import (
	"errors"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// freezer carries out FreezeUnit or ThawUnit. Systemd's method knows only units that are
// loaded: of all others it says so, although what is wrong is that they are inactive, masked
// or not there. systemctl loads the unit for that; the unit's object does the same for us.
func freezer(method, ofUnit string) carryOut {
	return func(s *Systemd, args wire.Raw, timeout time.Duration, done func(wire.Raw, error)) {
		var name string
		if err := peer.Decode(args, &name); err != nil {
			done(wire.Raw{}, err)
			return
		}
		s.sendMethod(method, args, timeout, passOn(func(body wire.Raw, err error) {
			if !errors.Is(err, wire.ErrSystemdNoSuchUnit) {
				done(body, err)
				return
			}
			s.onObject(name, ofUnit, timeout, done)
		}))
	}
}

// onObject calls a method of a unit's object, which loads the unit, unless it cannot be
// loaded: then the answer is why.
func (s *Systemd) onObject(name, method string, timeout time.Duration, done func(wire.Raw, error)) {
	s.loadError(name, timeout, func(err error) {
		if err != nil {
			done(wire.Raw{}, err)
			return
		}
		s.send(func(c *connection) peer.Call {
			return peer.Call{Destination: c.destination, Path: wire.UnitPath(name), Interface: wire.SystemdUnitInterface, Member: method}
		}, timeout, passOn(done))
	})
}

// loadError is why a unit cannot be loaded, nil where it can.
func (s *Systemd) loadError(name string, timeout time.Duration, done func(error)) {
	body := peer.MustEncode(wire.SystemdUnitInterface, "LoadError")
	s.send(func(c *connection) peer.Call { return c.properties(wire.UnitPath(name), "Get", body) }, timeout, func(m *peer.Message, err error) {
		var v wire.Value
		if err == nil {
			err = peer.Decode(m.Body, &v)
		}
		var why struct{ Name, Text string }
		if err == nil {
			err = peer.DecodeValue(v, &why)
		}
		if err == nil && why.Name != "" {
			err = &wire.Error{Name: why.Name, Text: why.Text}
		}
		done(err)
	})
}
