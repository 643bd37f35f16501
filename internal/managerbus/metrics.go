package managerbus

import (
	"time"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

func (b *Bus) metricsClass() *busobject.Class {
	b.metricsIface = busobject.NewInterface(wire.MetricsInterface, nil, nil)
	return &busobject.Class{
		At:    func(p wire.ObjectPath) bool { return p == wire.MetricsPath },
		Below: wire.RootPath, // it comes and goes
		Load: func(_ wire.ObjectPath, reply func(any, error)) {
			b.core.Metrics(func(on bool) {
				if !on {
					reply(nil, wire.ErrUnknownObject.With("metrics are off; EnableMetrics of the manager switches them on"))
					return
				}
				reply(nil, nil)
			})
		},
		Interfaces: []*busobject.Interface{b.metricsIface},
	}
}

func (b *Bus) setMetrics(on bool) func(*busobject.Call) {
	return func(c *busobject.Call) { b.core.SetMetrics(on, answer(c)) }
}

func (b *Bus) metricsObject() busobject.Object {
	return busobject.Object{Path: wire.MetricsPath, Class: b.metrics}
}

// MetricsChanged implements manager.Events.
func (b *Bus) MetricsChanged(on bool) {
	if on {
		b.server.Added(b.metricsObject())
	} else {
		b.server.Removed(b.metricsObject())
	}
}

// StartJobMetrics implements manager.Events.
func (b *Bus) StartJobMetrics(j manager.JobInfo, took, unit time.Duration) {
	b.server.Emit(wire.MetricsPath, b.metricsIface, "StartUnitJobMetrics",
		j.Node, string(wire.JobPath(j.ID)), j.Unit, uint64(took.Microseconds()), uint64(unit.Microseconds()))
}

// AgentJobMetrics implements manager.Events.
func (b *Bus) AgentJobMetrics(node, unit, method string, took time.Duration) {
	b.server.Emit(wire.MetricsPath, b.metricsIface, "AgentJobMetrics", node, unit, method, uint64(took.Microseconds()))
}
