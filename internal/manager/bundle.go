package manager

import (
	"time"

	"example.org/ctrl/internal/wire"
)

// CallBundle passes a method of wire.BundleMethods to a node, arguments and answer unopened:
// what workloads are is package workload's to know. reply is called once.
// Errors: ErrNoSuchNode, ErrNodeOffline, ErrTimeout, ErrLimitsExceeded, the node's,
// ErrShuttingDown.
func (m *Manager) CallBundle(name, method string, args wire.Raw, limit time.Duration, reply func(wire.Raw, error)) {
	refuse := func(err error) { reply(wire.Raw{}, err) }
	m.post(func() {
		s, err := m.live(name)
		if err != nil {
			refuse(err)
			return
		}
		m.pass(s, method, args, limit, reply)
	}, refuse)
}
