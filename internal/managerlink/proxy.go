package managerlink

import (
	"fmt"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// What an agent says of proxies and targets, and what the manager makes of it.

// Proxies is the first report of a session.
func (l *link) Proxies(all []agent.Proxy, deps []string) {
	rows := make([]wire.ProxyRow, 0, len(all))
	for _, p := range all {
		rows = append(rows, wire.ProxyRow{Proxy: p.Name, Node: p.Node, Unit: p.Unit, Phase: p.Phase})
	}
	if deps == nil {
		deps = []string{}
	}
	l.proxySignal(wire.MemberProxies, rows, deps)
}

func (l *link) ProxyNew(p agent.Proxy) {
	l.proxySignal(wire.MemberProxyNew, p.Name, p.Node, p.Unit, p.Phase)
}

func (l *link) ProxyRemoved(name string) { l.proxySignal(wire.MemberProxyRemoved, name) }

func (l *link) TargetState(unit, state string) { l.proxySignal(wire.MemberTargetState, unit, state) }

func (l *link) TargetLeaving(unit string, restart bool) {
	l.proxySignal(wire.MemberTargetLeaving, unit, restart)
}

func (l *link) DepState(unit string, active bool) {
	l.proxySignal(wire.MemberDepState, unit, active)
}

func (l *link) proxySignal(member string, args ...any) {
	body, err := peer.Encode(args...)
	if err == nil {
		l.conn.Signal(wire.InternalPath, wire.InternalProxyInterface, member, body)
	}
}

// proxyWords are the manager's signals about dependencies. An error is a breach of the protocol.
var proxyWords = map[string]func(*link, *peer.Message) error{
	wire.MemberTargets: func(l *link, m *peer.Message) error {
		var units []string
		if err := peer.Decode(m.Body, &units); err != nil {
			return err
		}
		l.core.Targets(l.session, units)
		return nil
	},
	wire.MemberProxyState: func(l *link, m *peer.Message) error {
		var proxy, state, text string
		if err := peer.Decode(m.Body, &proxy, &state, &text); err != nil {
			return err
		}
		l.core.ProxyState(l.session, proxy, state, text)
		return nil
	},
	wire.MemberReleaseTarget: func(l *link, m *peer.Message) error {
		var unit string
		if err := peer.Decode(m.Body, &unit); err != nil {
			return err
		}
		l.core.ReleaseTarget(l.session, unit)
		return nil
	},
}

// handleProxyWord passes one of them on. Before the node has registered there is none.
func (l *link) handleProxyWord(m *peer.Message) {
	word, known := proxyWords[m.Member]
	if !known || !l.registered {
		return
	}
	if err := word(l, m); err != nil {
		l.conn.Close(fmt.Errorf("manager breaks the protocol: signal %s: %w", m.Member, err))
	}
}

// ordered passes the question what waits for a proxy on, and reports whether the call is it.
func (l *link) ordered(m *peer.Message) bool {
	if m.Member != wire.MemberOrdered {
		return false
	}
	var proxy string
	var units []string
	if err := peer.Decode(m.Body, &proxy, &units); err != nil {
		l.conn.ReplyError(m, err)
		return true
	}
	kept := m.CloneHeader()
	l.core.Ordered(l.session, proxy, units, func(found []string, err error) {
		if err != nil {
			l.conn.ReplyError(kept, err)
			return
		}
		if found == nil {
			found = []string{}
		}
		l.conn.Reply(kept, peer.MustEncode(found))
	})
	return true
}
