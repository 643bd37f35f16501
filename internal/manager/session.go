package manager

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/wire"
)

// session is one registered connection of one agent, and everything that dies with it.
type session struct {
	id       Session
	node     *node
	link     AgentLink
	identity Identity
	pulse    pulse

	calls    map[uint64]func(error) // calls under way by number: how to answer them when the session ends
	lastCall uint64
	units    map[string][]*job // per unit: its jobs in order of admission
	jobs     int               // jobs in units
	watching watching
	over     bool
}

// MaxCallsPerNode is how many calls may be under way to one node at a time. More are
// refused with wire.ErrLimitsExceeded. Asking for jobs is bounded by MaxJobsPerNode.
const MaxCallsPerNode = 4096

// Bounds of what an agent may say about itself in Register.
const (
	MaxFacts     = 64
	MaxFactBytes = 64 << 10
)

func (m *Manager) register(r Registration, reply func(Welcome, error)) {
	n, err := m.admitNode(r)
	if err != nil {
		reply(Welcome{}, err)
		return
	}
	if old := n.session; old != nil {
		why, ok := m.mayReplace(old, r)
		if !ok {
			reply(Welcome{}, wire.ErrNodeExists.With(
				"node %q is connected from %s already; if that connection is dead it ends within the heartbeat threshold",
				n.name, old.identity.Address))
			return
		}
		m.endSession(old, why, true)
	}
	m.noteMachine(n, r)
	s := m.openSession(n, r)
	reply(Welcome{
		Session: s.id, HeartbeatInterval: s.pulse.interval, HeartbeatThreshold: s.pulse.threshold, Metrics: m.metered,
	}, nil)
	m.depsOnline(n)
	m.attachAll(s)
	m.updateStatus()
}

// admitNode decides who may be which node, before it matters whether the name is in use.
func (m *Manager) admitNode(r Registration) (*node, error) {
	if !wire.ValidNodeName(r.Node) {
		return nil, wire.ErrInvalidArgs.With("node name %s is not valid: %s", quoted(r.Node), wire.NodeNameRule)
	}
	if r.Identity.Node != "" && r.Identity.Node != r.Node {
		return nil, wire.ErrNodeNotAllowed.With(
			"the certificate is for node %s, so it cannot register as %q; set NodeName= to the certificate's name",
			quoted(r.Identity.Node), r.Node)
	}
	n, ok := m.byName[r.Node]
	if !ok {
		return nil, wire.ErrNodeNotAllowed.With(
			"node %q is not in the fleet; on the manager: `ctl node add %s`, or AllowedNodeNames=", r.Node, r.Node)
	}
	return n, checkFacts(r)
}

func checkFacts(r Registration) error {
	size := 0
	for key, value := range r.Facts {
		size += len(key) + len(value.Sig) + len(value.Data)
	}
	if len(r.Facts) > MaxFacts || size > MaxFactBytes {
		return wire.ErrInvalidArgs.With("node %q gave %d facts of %d bytes; at most %d of %d bytes together are allowed",
			r.Node, len(r.Facts), size, MaxFacts, MaxFactBytes)
	}
	return nil
}

// mayReplace decides whether a registration takes the name of a live session over
// (transport.md, "Session protocol"): the old one has been silent for more than one and a
// half heartbeat intervals, or the new one proves by certificate to be this node and names
// the same machine. Without the machine, copies of one certificate would throw each other
// out for ever.
func (m *Manager) mayReplace(old *session, r Registration) (why string, ok bool) {
	if silent := m.silence(old, time.Now()); old.pulse.interval > 0 && silent > old.pulse.interval*3/2 {
		return "replaced by a new connection after " + silent.Round(time.Millisecond).String() + " of silence", true
	}
	if r.Identity.Node == r.Node && sameMachine(old.node.facts, r.Facts) {
		return "replaced by a new connection of the same machine", true
	}
	return "", false
}

// sameMachine compares the machine id as it stands on the wire; a missing one is never equal.
func sameMachine(a, b map[string]wire.Value) bool {
	x, y := a[wire.FactMachineID], b[wire.FactMachineID]
	const emptyString = 5 // a length of four bytes and the final NUL
	return x.Sig == "s" && y.Sig == "s" && len(x.Data) > emptyString && string(x.Data) == string(y.Data)
}

// noteMachine warns when a known name comes from another machine than last time.
func (m *Manager) noteMachine(n *node, r Registration) {
	if _, known := n.facts[wire.FactMachineID]; known && !sameMachine(n.facts, r.Facts) {
		m.log.Warn("node registers from another machine than before",
			keyNode, n.name, "address", r.Identity.Address)
	}
}

func (m *Manager) openSession(n *node, r Registration) *session {
	m.lastSession++
	s := &session{
		id: m.lastSession, node: n, link: r.Link, identity: r.Identity,
		calls: make(map[uint64]func(error)), units: make(map[string][]*job), watching: newWatching(),
	}
	now := time.Now()
	s.pulse = m.newPulse(s.id, now)
	m.setSession(n, s)
	n.facts, n.reason, n.lastSeen = maps.Clone(r.Facts), "", now
	m.sessions[s.id] = s
	n.state.Transition(&nodeMachine, nodeOnline, m.log, "registered",
		slog.String(keyNode, n.name), slog.Uint64(keySession, uint64(s.id)))
	m.log.Info("node is online", keyNode, n.name, keySession, s.id, "address", r.Identity.Address)
	m.events.NodeChanged(n.info())
	return s
}

func (m *Manager) closed(id Session, reason string) {
	if s, ok := m.sessions[id]; ok {
		m.endSession(s, reason, false)
	}
}

// endSession ends a session and everything that belongs to it, in the order that api.md
// promises: the node's Status, the calls under way, the jobs, what monitors were told of its
// units, the fleet's status.
func (m *Manager) endSession(s *session, reason string, closeLink bool) {
	m.detach(s, reason, closeLink)
	m.events.NodeChanged(s.node.info())
	s.failCalls(s.node.offlineError())
	m.cancelJobs(s.allJobs(), "node is offline")
	m.endWatching(s)
	m.depsOffline(s.node)
	m.updateStatus()
}

// detach makes the node offline without telling anybody yet.
func (m *Manager) detach(s *session, reason string, closeLink bool) {
	n := s.node
	s.over = true
	delete(m.sessions, s.id)
	n.lastSeen, n.reason = s.lastReceived(), cleanReason(reason)
	m.setSession(n, nil)
	n.state.Transition(&nodeMachine, nodeOffline, m.log, n.reason,
		slog.String(keyNode, n.name), slog.Uint64(keySession, uint64(s.id)))
	m.log.Info("node is offline", keyNode, n.name, keySession, s.id, keyReason, n.reason)
	if closeLink {
		s.link.Close(n.reason)
	}
}

// lastReceived is the last sign of life, which at the earliest was Register itself.
func (s *session) lastReceived() time.Time {
	if t := s.link.LastReceived(); t.After(s.node.lastSeen) {
		return t
	}
	return s.node.lastSeen
}

// checkRoom refuses one more call where too many are under way.
func (s *session) checkRoom() error {
	if len(s.calls) < MaxCallsPerNode {
		return nil
	}
	return wire.ErrLimitsExceeded.With("%d calls to node %q are under way already; try again later",
		len(s.calls), s.node.name)
}

// begin notes a call under way. fail is called if the session ends before settle.
func (s *session) begin(fail func(error)) (call uint64) {
	s.lastCall++
	s.calls[s.lastCall] = fail
	return s.lastCall
}

// settle ends a call and reports whether it still wants an answer. An answer of kind
// NodeOffline is the link's own word that it is dead. It may come before Closed, and the
// Status change comes before the answer to the call, so the session ends here.
func (m *Manager) settle(s *session, call uint64, err error) bool {
	if _, open := s.calls[call]; !open {
		return false
	}
	if errors.Is(err, wire.ErrNodeOffline) {
		m.endSession(s, wire.AsError(err).Text, true)
		return false
	}
	delete(s.calls, call)
	return true
}

// failCalls answers all calls under way, in the order in which they began.
func (s *session) failCalls(err error) {
	calls := s.calls
	s.calls = nil
	for _, number := range slices.Sorted(maps.Keys(calls)) {
		calls[number](err)
	}
}
