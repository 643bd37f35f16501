package managerlink

import (
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Events of units, for the monitors of the manager.

func (l *link) UnitNew(unit, reason string) { l.signal(wire.MemberUnitNew, unit, reason) }

func (l *link) UnitRemoved(unit, reason string) { l.signal(wire.MemberUnitRemoved, unit, reason) }

func (l *link) UnitStateChanged(unit, active, sub, reason string) {
	l.signal(wire.MemberUnitStateChanged, unit, active, sub, reason)
}

func (l *link) UnitPropertiesChanged(unit, iface string, changed map[string]wire.Value) {
	l.signal(wire.MemberUnitPropertiesChanged, unit, iface, changed)
}

func (l *link) UnitAlias(r agent.UnitRow) {
	l.signal(wire.MemberUnitAlias, r.Asked, r.ID, r.Active, r.Sub)
}

// subscriptions are the calls about them; they are no methods of a node.
var subscriptions = map[string]func(*link, *peer.Message, string){
	wire.MemberSubscribe: func(l *link, m *peer.Message, pattern string) {
		kept := m.CloneHeader()
		l.core.Subscribe(l.session, pattern, func(rows []agent.UnitRow, err error) {
			var body wire.Raw
			if err == nil {
				body, err = peer.Encode(rows)
			}
			if err != nil {
				l.conn.ReplyError(kept, err)
				return
			}
			l.conn.Reply(kept, body)
		})
	},
	wire.MemberUnsubscribe: func(l *link, m *peer.Message, pattern string) {
		l.core.Unsubscribe(l.session, pattern)
		l.conn.Reply(m, wire.Raw{})
	},
}

// subscription passes one of them on and reports whether the call is one.
func (l *link) subscription(m *peer.Message) bool {
	handle, ok := subscriptions[m.Member]
	if !ok {
		return false
	}
	var pattern string
	if err := peer.Decode(m.Body, &pattern); err != nil {
		l.conn.ReplyError(m, err)
		return true
	}
	handle(l, m, pattern)
	return true
}

// WorkloadEvent reports about workloads.
func (l *link) WorkloadEvent(member, text string) { l.signal(member, text) }

// JobMetrics tells how long one job took.
func (l *link) JobMetrics(unit, method string, took time.Duration) {
	l.signal(wire.MemberJobMetrics, unit, method, uint64(took.Microseconds()))
}

// setMetrics passes the switch on and reports whether the call is it.
func (l *link) setMetrics(m *peer.Message) bool {
	if m.Member != wire.MemberSetMetrics {
		return false
	}
	var on bool
	if err := peer.Decode(m.Body, &on); err != nil {
		l.conn.ReplyError(m, err)
		return true
	}
	l.core.SetMetrics(l.session, on)
	l.conn.Reply(m, wire.Raw{})
	return true
}
