package systemd

import (
	"errors"
	"strings"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Call carries out a query or change. Most methods are systemd's own by the same name,
// arguments and answer unopened; the others are in the table.
func (s *Systemd) Call(method string, args wire.Raw, timeout time.Duration, done func(wire.Raw, error)) {
	if carryOut, ok := translated[method]; ok {
		carryOut(s, args, timeout, done)
		return
	}
	s.sendMethod(method, args, timeout, passOn(done))
}

// passOn keeps an answer's body as it is.
func passOn(done func(wire.Raw, error)) func(*peer.Message, error) {
	return func(m *peer.Message, err error) {
		if err != nil {
			done(wire.Raw{}, err)
			return
		}
		done(peer.CloneRaw(m.Body), nil)
	}
}

type carryOut func(*Systemd, wire.Raw, time.Duration, func(wire.Raw, error))

// translated are the methods that are not one of systemd's Manager by the same name.
var translated = map[string]carryOut{
	"ListUnitsFiltered": func(s *Systemd, args wire.Raw, timeout time.Duration, done func(wire.Raw, error)) {
		s.sendMethod("ListUnitsByPatterns", args, timeout, passOn(done))
	},
	"FreezeUnit":        freezer("FreezeUnit", "Freeze"),
	"ThawUnit":          freezer("ThawUnit", "Thaw"),
	"GetUnitProperties": (*Systemd).unitProperties,
	"GetUnitProperty":   (*Systemd).unitProperty,
	"ReadUnitFiles":     (*Systemd).readUnitFiles,
}

// unitProperties asks a unit's object, which systemd loads for it, whatever its name: an
// alias leads to the unit behind it. No interface means all.
func (s *Systemd) unitProperties(args wire.Raw, timeout time.Duration, done func(wire.Raw, error)) {
	var name, iface string
	if err := peer.Decode(args, &name, &iface); err != nil {
		done(wire.Raw{}, err)
		return
	}
	iface = fullInterface(iface)
	body := peer.MustEncode(iface)
	s.send(func(c *connection) peer.Call { return c.properties(wire.UnitPath(name), "GetAll", body) }, timeout,
		passOn(func(body wire.Raw, err error) {
			if err == nil {
				body = s.memory.complete(name, iface, body)
			}
			done(body, err)
		}))
}

// unitProperty is the same for one property. Without an interface it is looked for in what
// all units have, and then in what units of that type have.
func (s *Systemd) unitProperty(args wire.Raw, timeout time.Duration, done func(wire.Raw, error)) {
	var name, iface, property string
	if err := peer.Decode(args, &name, &iface, &property); err != nil {
		done(wire.Raw{}, err)
		return
	}
	get := func(iface string, done func(wire.Raw, error)) {
		body := peer.MustEncode(iface, property)
		s.send(func(c *connection) peer.Call { return c.properties(wire.UnitPath(name), "Get", body) }, timeout, passOn(done))
	}
	if iface != "" {
		get(fullInterface(iface), done)
		return
	}
	get(wire.SystemdUnitInterface, func(body wire.Raw, err error) {
		kind := unit.TypeOf(name)
		if kind == "" || !errors.Is(err, wire.ErrUnknownProperty) {
			done(body, err)
			return
		}
		get(fullInterface(strings.ToUpper(kind[:1])+kind[1:]), done)
	})
}

// fullInterface also takes systemd's interfaces by their last word: "Service".
func fullInterface(iface string) string {
	if iface == "" || strings.Contains(iface, ".") {
		return iface
	}
	return wire.SystemdName + "." + iface
}
