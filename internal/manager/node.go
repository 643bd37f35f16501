package manager

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"

	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/wire"
)

type nodeState string

const (
	nodeOffline nodeState = wire.NodeOffline
	nodeOnline  nodeState = wire.NodeOnline
	nodeGone    nodeState = "removed"
)

var nodeMachine = machine.Table[nodeState]{
	Name: "Node session (manager)",
	Moves: []machine.Move[nodeState]{
		{From: machine.New, To: nodeOffline, Why: "the node is in the configuration"},
		{From: nodeOffline, To: nodeOnline, Why: "Register was accepted"},
		{From: nodeOnline, To: nodeOffline, Why: "the session ended"},
		{From: nodeOffline, To: nodeGone, Why: "the node left the configuration"},
	},
}

// node is one member of the fleet. It is online exactly while it has a session.
type node struct {
	name     string
	optional bool
	state    machine.State[nodeState]
	session  *session
	lastSeen time.Time // of the last session; while online the link knows better
	reason   string
	facts    map[string]wire.Value

	allowed      []string // AllowDependenciesOn=
	releaseAfter time.Duration
	deps         nodeDeps
}

func (m *Manager) newNode(name string) *node {
	n := &node{name: name, state: machine.State[nodeState]{Is: machine.New}}
	n.deps.init()
	n.state.Transition(&nodeMachine, nodeOffline, m.log, "configured", slog.String(keyNode, name))
	return n
}

func (n *node) online() bool { return n.session != nil }

func (n *node) info() NodeInfo {
	info := NodeInfo{
		Name: n.name, Status: string(n.state.Is), LastSeen: n.lastSeen, StatusSince: n.state.Since,
		DisconnectReason: n.reason, Facts: n.facts, Optional: n.optional,
	}
	if n.session != nil {
		info.Address = n.session.identity.Address
		info.LastSeen = n.session.lastReceived()
	} else {
		info.Status = wire.NodeOffline
	}
	return info
}

// offlineError says that the node cannot be asked, and what is known about when it could.
func (n *node) offlineError() error {
	if n.lastSeen.IsZero() {
		return wire.ErrNodeOffline.With("node %q is offline; it has not been seen since the manager started", n.name)
	}
	seen := n.lastSeen.UTC().Format(time.RFC3339)
	if n.reason == "" {
		return wire.ErrNodeOffline.With("node %q is offline; last seen %s", n.name, seen)
	}
	return wire.ErrNodeOffline.With("node %q is offline; last seen %s (%s)", n.name, seen, n.reason)
}

func (m *Manager) find(name string) (*node, error) {
	if n, ok := m.byName[name]; ok {
		return n, nil
	}
	return nil, wire.ErrNoSuchNode.With("node %s is not in the fleet; list the nodes to see which are", quoted(name))
}

// live finds the session of a node that is asked for something.
func (m *Manager) live(name string) (*session, error) {
	n, err := m.find(name)
	if err != nil {
		return nil, err
	}
	if n.session == nil {
		return nil, n.offlineError()
	}
	return n.session, nil
}

func infos(nodes []*node) []NodeInfo {
	all := make([]NodeInfo, len(nodes))
	for i, n := range nodes {
		all[i] = n.info()
	}
	return all
}

// setFleet makes the configured nodes the fleet, keeping those that were in it before, and
// returns the nodes that are new in it, in order, and those no longer in it, by name.
func (m *Manager) setFleet(configured []NodeConfig) (added, gone []*node) {
	before := m.byName
	m.nodes, m.byName = make([]*node, 0, len(configured)), make(map[string]*node, len(configured))
	for _, c := range configured {
		if !wire.ValidNodeName(c.Name) || m.byName[c.Name] != nil {
			m.log.Error("configured node skipped: its name is not valid or a repetition", slog.String(keyNode, c.Name))
			continue
		}
		n := before[c.Name]
		if n == nil {
			n = m.newNode(c.Name)
			added = append(added, n)
		}
		n.optional = c.Optional
		n.allowed, n.releaseAfter = c.AllowDependenciesOn, c.ReleaseAfter
		m.nodes = append(m.nodes, n)
		m.byName[c.Name] = n
	}
	for name, n := range before {
		if m.byName[name] == nil {
			gone = append(gone, n)
		}
	}
	m.tally = tallyOf(m.nodes)
	slices.SortFunc(gone, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	return added, gone
}

// tally counts the nodes of the fleet, so that a node that comes or goes costs the same in
// any fleet.
type tally struct {
	online  int
	missing int // that are offline and not optional
}

func tallyOf(nodes []*node) (t tally) {
	for _, n := range nodes {
		t.add(n, 1)
	}
	return t
}

// add counts a node as it is now, or with -1 takes it out as it is now.
func (t *tally) add(n *node, by int) {
	switch {
	case n.online():
		t.online += by
	case !n.optional:
		t.missing += by
	}
}

// status is the word for a fleet: "down" while no node is online, "up" while all nodes are
// that are not optional, else "degraded". An empty fleet is "down".
func (t tally) status() string {
	switch {
	case t.online == 0:
		return wire.StatusDown
	case t.missing > 0:
		return wire.StatusDegraded
	}
	return wire.StatusUp
}

// setSession makes a node online or offline.
func (m *Manager) setSession(n *node, s *session) {
	if m.byName[n.name] != n { // it has left the fleet
		n.session = s
		return
	}
	m.tally.add(n, -1)
	n.session = s
	m.tally.add(n, 1)
}

// updateStatus tells the status word if it is another one than before.
func (m *Manager) updateStatus() {
	if now := m.tally.status(); now != m.status {
		m.status = now
		m.events.StatusChanged(now)
	}
}

// quoted shows a string from outside in an error text, cut where it is overlong.
func quoted(s string) string {
	if len(s) > 80 {
		return fmt.Sprintf("%q…", s[:80])
	}
	return fmt.Sprintf("%q", s)
}

// maxReason bounds what is kept of the reason for a disconnect, in bytes.
const maxReason = 512

// cleanReason makes a text that may have come from a peer fit for properties and terminals.
func cleanReason(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}
