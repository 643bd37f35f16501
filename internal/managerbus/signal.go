package managerbus

import (
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// signal is an event as a signal of the Monitor interface. All recipients share it: it is
// encoded once, when the first of them is sent it, and once more for those that may not see
// secrets. Of the server's goroutine.
type signal struct {
	event manager.UnitEvent
	// properties are what the event's body holds, where that was opened or was never made.
	properties map[string]wire.Value
	own        int // bytes of properties that have no body

	full, shown encoding // for those that may see secrets, and for all others
}

// encoding is what is sent, or why nothing can be.
type encoding struct {
	done bool
	body wire.Raw
	err  error
}

// headerBytes is about what a signal takes beside its text.
const headerBytes = 200

// size is about how many bytes it takes.
func (s *signal) size() int {
	e := &s.event
	return headerBytes + len(e.Node) + len(e.Unit) + len(e.Active) + len(e.Sub) + len(e.Interface) + len(e.Properties.Data) + s.own
}

func (s *signal) name() string {
	return [...]string{"UnitNew", "UnitRemoved", "UnitStateChanged", "UnitPropertiesChanged"}[s.event.Kind]
}

// encode gives the arguments for a recipient that is trusted to see secrets or not, which is
// asked only where there can be some.
func (s *signal) encode(trusted func() bool) (wire.Raw, error) {
	e, conceal := &s.full, false
	if s.event.Kind == manager.UnitPropertiesChanged && !trusted() {
		e, conceal = &s.shown, true
	}
	if !e.done {
		e.done = true
		e.body, e.err = s.arguments(conceal)
	}
	return e.body, e.err
}

func (s *signal) arguments(conceal bool) (wire.Raw, error) {
	e := &s.event
	switch e.Kind {
	case manager.UnitNew, manager.UnitRemoved:
		return peer.Encode(e.Node, e.Unit, e.Reason)
	case manager.UnitStateChanged:
		return peer.Encode(e.Node, e.Unit, e.Active, e.Sub, e.Reason)
	}
	head, err := peer.Encode(e.Node, e.Unit, e.Interface)
	properties := e.Properties
	if err == nil && properties.Sig == "" {
		properties, err = peer.Encode(s.properties)
	}
	if err == nil && conceal {
		properties, err = hideAll(properties)
	}
	if err != nil {
		return wire.Raw{}, err
	}
	return peer.JoinBody(head, properties)
}

// open gives the properties of an event.
func (s *signal) open() (map[string]wire.Value, error) {
	if s.properties == nil {
		if err := peer.Decode(s.event.Properties, &s.properties); err != nil {
			return nil, err
		}
	}
	return s.properties, nil
}

// mergeProperties is what one gets to know by both signals, of one interface of one unit:
// the last value of each property. before may be nil. One that was merged already belongs to
// one recipient and is used again; others are shared and stay as they are.
func mergeProperties(before, s *signal) *signal {
	if before == nil {
		return s
	}
	old, err := before.open()
	if err != nil {
		return s // it would not have been sent either
	}
	now, err := s.open()
	if err != nil {
		return before
	}
	merged := before
	if before.event.Properties.Sig != "" {
		merged = &signal{event: s.event, properties: make(map[string]wire.Value, max(len(old), len(now)))}
		merged.event.Properties = wire.Raw{}
		merged.set(old)
	}
	merged.set(now)
	return merged
}

// set takes the values of some properties.
func (s *signal) set(values map[string]wire.Value) {
	for name, v := range values {
		if old, known := s.properties[name]; known {
			s.own -= sizeOf(name, old)
		}
		s.own += sizeOf(name, v)
		s.properties[name] = v
	}
}

func sizeOf(name string, v wire.Value) int { return len(name) + len(v.Sig) + len(v.Data) + 16 }
