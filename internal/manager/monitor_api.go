package manager

// CreateMonitor makes a monitor that belongs to the client with that unique bus name. It
// lives until CloseMonitor, or ClientGone for its owner.
// Errors: ErrLimitsExceeded, ErrShuttingDown.
func (m *Manager) CreateMonitor(owner string, reply func(id uint32, err error)) {
	m.post(func() { reply(m.createMonitor(owner)) }, func(err error) { reply(0, err) })
}

// Monitors lists all monitors by id; none after the core has ended.
func (m *Manager) Monitors(reply func([]MonitorInfo)) {
	m.post(func() { reply(m.listMonitors()) }, func(error) { reply(nil) })
}

// CloseMonitor ends a monitor. Errors: ErrNoSuchMonitor, ErrAccessDenied, ErrShuttingDown.
func (m *Manager) CloseMonitor(owner string, id uint32, reply func(error)) {
	m.post(func() {
		mon, err := m.owned(owner, id)
		if err == nil {
			m.closeMonitor(mon)
		}
		reply(err)
	}, reply)
}

// Subscribe adds units of nodes to a monitor; both may be globs, and need not exist yet.
// The reply comes first, then the present state of what is there, as virtual events.
// Errors: ErrNoSuchMonitor, ErrAccessDenied, ErrInvalidArgs, ErrLimitsExceeded,
// ErrShuttingDown.
func (m *Manager) Subscribe(owner string, monitor uint32, node string, units []string, reply func(id uint32, err error)) {
	m.post(func() { m.subscribe(owner, monitor, node, units, reply) }, func(err error) { reply(0, err) })
}

// Unsubscribe takes a subscription off a monitor, without events about it.
// Errors: ErrNoSuchMonitor, ErrNoSuchSubscription, ErrAccessDenied, ErrShuttingDown.
func (m *Manager) Unsubscribe(owner string, monitor, subscription uint32, reply func(error)) {
	m.post(func() { reply(m.unsubscribe(owner, monitor, subscription)) }, reply)
}

// AddPeer lets another client receive a monitor's events too.
// Errors: ErrNoSuchMonitor, ErrAccessDenied, ErrInvalidArgs, ErrLimitsExceeded,
// ErrShuttingDown.
func (m *Manager) AddPeer(owner string, monitor uint32, name string, reply func(id uint32, err error)) {
	m.post(func() { reply(m.addPeer(owner, monitor, name)) }, func(err error) { reply(0, err) })
}

// RemovePeer ends what AddPeer began; the peer is told the reason.
// Errors: ErrNoSuchMonitor, ErrAccessDenied, ErrInvalidArgs, ErrShuttingDown.
func (m *Manager) RemovePeer(owner string, monitor, peer uint32, reason string, reply func(error)) {
	m.post(func() { reply(m.removePeer(owner, monitor, peer, reason)) }, reply)
}

// ClientGone says that a unique name has left the bus: its monitors end, and it is no longer
// a peer of others. "" says that the bus itself is gone and all names with it; a new bus
// gives the same names to others.
func (m *Manager) ClientGone(name string) {
	m.post(func() { m.clientGone(name) }, ignore)
}

// LetGo takes a client off all monitors that does not read what it is sent: its own monitors
// end, and it is no longer a peer of others. It is told the reason by PeerRemoved, also where
// it was the owner.
func (m *Manager) LetGo(name, reason string) {
	m.post(func() { m.letGo(name, reason) }, ignore)
}

// UnitEvent is an event of a unit of session s. Events for which no monitor asked are
// dropped. Node is filled in by the core.
func (m *Manager) UnitEvent(s Session, e UnitEvent) {
	m.post(func() { m.unitEvent(s, e) }, ignore)
}

// UnitAlias says that the name row.Asked, to which session s has an exact subscription, now
// means the unit row.ID in the state given, or none where ID is "".
func (m *Manager) UnitAlias(s Session, row UnitRow) {
	m.post(func() { m.unitAlias(s, row) }, ignore)
}
