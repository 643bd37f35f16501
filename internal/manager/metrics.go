package manager

import (
	"time"

	"example.org/ctrl/internal/wire"
)

// SetMetrics switches metrics on or off, on all agents too, also on those that connect
// later. Twice the same is no error. Error: ErrShuttingDown.
func (m *Manager) SetMetrics(on bool, reply func(error)) {
	m.post(func() {
		if m.metered != on {
			m.metered = on
			for _, n := range m.nodes {
				if n.session != nil {
					n.session.link.SetMetrics(on)
				}
			}
			m.events.MetricsChanged(on)
		}
		reply(nil)
	}, reply)
}

// Metrics tells whether metrics are on; they are off after the core has ended.
func (m *Manager) Metrics(reply func(on bool)) {
	m.post(func() { reply(m.metered) }, func(error) { reply(false) })
}

// JobMetrics is what session s says about one job of its systemd's: took is the time from
// asking systemd to JobRemoved.
func (m *Manager) JobMetrics(id Session, unit, method string, took time.Duration) {
	m.post(func() {
		s := m.sessions[id]
		if s == nil || !m.metered || !m.acceptUnit(s, unit) {
			return
		}
		if _, known := wire.NodeMethodByName(method); known {
			m.events.AgentJobMetrics(s.node.name, unit, method, took)
		}
	}, ignore)
}

// measure tells how long a start took, once the node has said how long the unit itself took
// to start. It holds nothing up: a node that does not answer costs its own figure only.
func (m *Manager) measure(j *job, info JobInfo) {
	if !m.metered || j.req.Verb != wire.Start || j.began.IsZero() || j.session.over || m.over {
		return
	}
	took := time.Since(j.began)
	var times [2]uint64
	open := len(times)
	for i, property := range []string{"InactiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic"} {
		m.pass(j.session, "GetUnitProperty", propertyArgs(j.req.Unit, property), m.cfg.QueryTimeout, func(body wire.Raw, err error) {
			if err == nil {
				times[i], _ = body.VariantUint64()
			}
			if open--; open > 0 {
				return
			}
			var start time.Duration
			if times[0] > 0 && times[1] >= times[0] {
				start = time.Duration(times[1]-times[0]) * time.Microsecond
			}
			m.events.StartJobMetrics(info, took, start)
		})
	}
}

// propertyArgs are the arguments of GetUnitProperty.
func propertyArgs(unit, property string) wire.Raw {
	return wire.Strings(unit, wire.SystemdUnitInterface, property)
}
