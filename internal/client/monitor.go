package client

import (
	"context"
	"sync"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// EventKind is what happened to a unit.
type EventKind uint8

// The events of a monitor.
const (
	UnitNew EventKind = iota
	UnitRemoved
	UnitStateChanged
	UnitPropertiesChanged
)

var eventKinds = map[string]EventKind{
	"UnitNew": UnitNew, "UnitRemoved": UnitRemoved, "UnitStateChanged": UnitStateChanged, "UnitPropertiesChanged": UnitPropertiesChanged,
}

// Event is something that happened to a unit of a node.
type Event struct {
	Kind       EventKind
	Node       string
	Unit       string // "*" stands for the node's agent
	Active     string // UnitStateChanged
	Sub        string // UnitStateChanged
	Reason     string // "real", or "virtual" where nothing happened but somebody began or ceased to see
	Interface  string // UnitPropertiesChanged
	Properties map[string]Value
}

// Monitor hears of what happens to units.
type Monitor struct {
	c    *Client
	path dbus.ObjectPath

	events chan Event
	quit   chan struct{} // Close was called
	over   chan struct{} // nothing more comes
	once   sync.Once
	err    error
}

// eventQueue is how many events may wait for their reader. Past it the connection is not read
// any more, which the manager notices; nothing is lost here.
const eventQueue = 1024

// Monitor makes a monitor. It lives until Close, or as long as the connection.
func (c *Client) Monitor(ctx context.Context) (*Monitor, error) {
	if err := c.listen(ctx); err != nil {
		return nil, err
	}
	path, err := only[dbus.ObjectPath](c.change(ctx, manager(), "CreateMonitor"))
	if err != nil {
		return nil, err
	}
	m := &Monitor{c: c, path: path, events: make(chan Event, eventQueue), quit: make(chan struct{}), over: make(chan struct{})}
	c.jobs.addMonitor(m)
	return m, nil
}

func (m *Monitor) target() target { return target{wire.BusName, m.path, wire.MonitorInterface} }

// Subscribe asks for the events of units of nodes; both may be globs. The present state comes
// first, as events whose reason is "virtual".
func (m *Monitor) Subscribe(ctx context.Context, node string, units []string) error {
	return second(m.c.change(ctx, m.target(), "SubscribeList", node, listOf(units)))
}

// Events are what happens, in its order per unit.
func (m *Monitor) Events() <-chan Event { return m.events }

// Over is closed when no event comes any more; Err says why.
func (m *Monitor) Over() <-chan struct{} { return m.over }

// Err is why the monitor has ended, after Over.
func (m *Monitor) Err() error { return m.err }

// Close ends the monitor.
func (m *Monitor) Close(ctx context.Context) error {
	close(m.quit)
	m.c.jobs.dropMonitor(m)
	return second(m.c.change(ctx, m.target(), "Close"))
}

func (m *Monitor) end(err error) {
	m.once.Do(func() {
		m.err = err
		close(m.over)
	})
}

// deliver hands an event over, on the connection's reading goroutine. It blocks while the
// reader is slow: then the manager's pings go unanswered and it sends no more than the latest
// state of each unit.
func (m *Monitor) deliver(member string, body []any) {
	if member == "PeerRemoved" { // to an owner: it was let go
		reason := "it gives no reason"
		if len(body) == 1 {
			take(body[0], &reason)
		}
		m.end(wire.ErrNoSuchMonitor.With("the manager has ended this monitor: %s", reason))
		m.c.jobs.dropMonitor(m)
		return
	}
	e, ok := eventOf(member, body)
	if !ok {
		return
	}
	select {
	case m.events <- e:
	case <-m.quit:
	case <-m.c.conn.Context().Done():
	}
}

func eventOf(member string, body []any) (Event, bool) {
	kind, known := eventKinds[member]
	e := Event{Kind: kind}
	if !known || len(body) < 3 || !take(body[0], &e.Node) || !take(body[1], &e.Unit) {
		return e, false
	}
	switch kind {
	case UnitNew, UnitRemoved:
		return e, len(body) == 3 && take(body[2], &e.Reason)
	case UnitStateChanged:
		return e, len(body) == 5 && take(body[2], &e.Active) && take(body[3], &e.Sub) && take(body[4], &e.Reason)
	}
	var props map[string]dbus.Variant
	if len(body) != 4 || !take(body[2], &e.Interface) || !take(body[3], &props) {
		return e, false
	}
	e.Properties = values(props)
	return e, true
}
