package agentlink

import (
	"fmt"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// What agents report of proxies and targets. An error is a breach of the protocol.
var proxyReports = map[string]func(*link, *peer.Message) error{
	wire.MemberProxies: func(l *link, m *peer.Message) error {
		var rows []wire.ProxyRow
		var deps []string
		if err := peer.Decode(m.Body, &rows, &deps); err != nil {
			return err
		}
		all := make([]manager.ProxyReport, 0, len(rows))
		for _, r := range rows {
			all = append(all, manager.ProxyReport{Name: r.Proxy, Node: r.Node, Unit: r.Unit, Phase: r.Phase})
		}
		l.core.Proxies(l.session, all, deps)
		return nil
	},
	wire.MemberProxyNew: func(l *link, m *peer.Message) error {
		var r manager.ProxyReport
		if err := peer.Decode(m.Body, &r.Name, &r.Node, &r.Unit, &r.Phase); err != nil {
			return err
		}
		l.core.ProxyNew(l.session, r)
		return nil
	},
	wire.MemberProxyRemoved: func(l *link, m *peer.Message) error {
		var name string
		if err := peer.Decode(m.Body, &name); err != nil {
			return err
		}
		l.core.ProxyRemoved(l.session, name)
		return nil
	},
	wire.MemberTargetState: func(l *link, m *peer.Message) error {
		var unit, state string
		if err := peer.Decode(m.Body, &unit, &state); err != nil {
			return err
		}
		l.core.TargetState(l.session, unit, state)
		return nil
	},
	wire.MemberTargetLeaving: func(l *link, m *peer.Message) error {
		var unit string
		var restart bool
		if err := peer.Decode(m.Body, &unit, &restart); err != nil {
			return err
		}
		l.core.TargetLeaving(l.session, unit, restart)
		return nil
	},
	wire.MemberDepState: func(l *link, m *peer.Message) error {
		var unit string
		var active bool
		if err := peer.Decode(m.Body, &unit, &active); err != nil {
			return err
		}
		l.core.DepState(l.session, unit, active)
		return nil
	},
}

// handleProxyReport passes one on.
func (l *link) handleProxyReport(m *peer.Message) {
	report, known := proxyReports[m.Member]
	if !known || !l.isRegistered() {
		return
	}
	if err := report(l, m); err != nil {
		l.conn.Close(fmt.Errorf("agent breaks the protocol: signal %s: %w", m.Member, err))
	}
}

func (l *link) Targets(units []string) {
	if units == nil {
		units = []string{}
	}
	l.proxySignal(wire.MemberTargets, units)
}

func (l *link) ProxyState(proxy, state, text string) {
	l.proxySignal(wire.MemberProxyState, proxy, state, text)
}

func (l *link) ReleaseTarget(unit string) { l.proxySignal(wire.MemberReleaseTarget, unit) }

func (l *link) proxySignal(member string, args ...any) {
	if body, err := peer.Encode(args...); err == nil {
		l.conn.Signal(wire.InternalPath, wire.InternalProxyInterface, member, body)
	}
}

// Ordered asks which units start only after a proxy.
func (l *link) Ordered(proxy string, units []string, timeout time.Duration, done func([]string, error)) {
	body, err := peer.Encode(proxy, units)
	if err != nil {
		go done(nil, err)
		return
	}
	l.call(wire.MemberOrdered, body, timeout, func(m *peer.Message, err error) {
		var found []string
		if err == nil {
			err = peer.Decode(m.Body, &found)
		}
		done(found, err)
	})
}
