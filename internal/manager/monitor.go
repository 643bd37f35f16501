package manager

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Bounds of monitors. More is refused with wire.ErrLimitsExceeded.
const (
	MaxMonitorsPerOwner        = 1024
	MaxSubscriptionsPerMonitor = 4096
	MaxPeersPerMonitor         = 64
	// MaxUnitsPerSubscription is how many units one SubscribeList may name.
	MaxUnitsPerSubscription = 4096
)

// monitor is one client's view of units of the fleet.
type monitor struct {
	id    uint32
	owner string // unique bus name
	subs  map[uint32]*subscription
	peers []monitorPeer
	to    []string // the owner, then the peers in order of addition
}

type monitorPeer struct {
	id   uint32
	name string
}

// subscription is one wish of a monitor: some units of some nodes.
type subscription struct {
	id      uint32
	monitor *monitor
	node    pattern
	units   []pattern
}

// pattern is a name, or a glob that matches names.
type pattern struct {
	text string
	glob *unit.Glob // nil for a name
}

// wildcard matches every node or unit. As a unit it is also the name of the pseudo-unit
// that stands for the node's agent.
const wildcard = "*"

func (p pattern) match(s string) bool {
	if p.glob == nil {
		return p.text == s
	}
	return p.glob.Match(s)
}

func compile(text string) (pattern, error) {
	if !unit.HasGlob(text) {
		return pattern{text: text}, nil
	}
	glob, err := unit.CompileGlob(text)
	return pattern{text: text, glob: &glob}, err
}

func nodePattern(text string) (pattern, error) {
	p, err := compile(text)
	if err == nil && p.glob == nil && !wire.ValidNodeName(text) {
		return p, wire.ErrInvalidArgs.With("node name %s is not valid: %s", quoted(text), wire.NodeNameRule)
	}
	if err != nil {
		return p, wire.ErrInvalidArgs.With("node %v", err)
	}
	return p, nil
}

func unitPattern(text string) (pattern, error) {
	p, err := compile(text)
	if err == nil && p.glob == nil {
		err = unit.CheckInstance(text)
	}
	if err != nil {
		return p, wire.ErrInvalidArgs.With("%v", err)
	}
	return p, nil
}

// next gives the next free id of a counter, never 0.
func next[V any](last *uint32, used map[uint32]V) uint32 {
	for {
		*last++
		if _, taken := used[*last]; *last != 0 && !taken {
			return *last
		}
	}
}

func (m *Manager) createMonitor(owner string) (uint32, error) {
	owned := 0
	for _, mon := range m.monitors {
		if mon.owner == owner {
			owned++
		}
	}
	if owned >= MaxMonitorsPerOwner {
		return 0, wire.ErrLimitsExceeded.With("%s has %d monitors already; close some", owner, owned)
	}
	mon := &monitor{
		id: next(&m.lastMonitor, m.monitors), owner: owner,
		subs: make(map[uint32]*subscription), to: []string{owner},
	}
	m.monitors[mon.id] = mon
	return mon.id, nil
}

// owned finds a monitor for its owner; nobody else may use it.
func (m *Manager) owned(owner string, id uint32) (*monitor, error) {
	mon := m.monitors[id]
	switch {
	case mon == nil:
		return nil, wire.ErrNoSuchMonitor.With("there is no monitor %d; it may have been closed", id)
	case mon.owner != owner:
		return nil, wire.ErrAccessDenied.With("monitor %d belongs to %s; only its owner may use it", id, mon.owner)
	}
	return mon, nil
}

func (m *Manager) subscribe(owner string, id uint32, node string, units []string, reply func(uint32, error)) {
	mon, err := m.owned(owner, id)
	if err != nil {
		reply(0, err)
		return
	}
	sub, err := newSubscription(mon, node, units)
	if err != nil {
		reply(0, err)
		return
	}
	m.lastSubscription++
	for m.subscriptionUsed(m.lastSubscription) {
		m.lastSubscription++
	}
	sub.id = m.lastSubscription
	mon.subs[sub.id] = sub
	reply(sub.id, nil)
	for _, n := range m.nodes {
		if n.session != nil && sub.node.match(n.name) {
			m.attach(n.session, sub)
		}
	}
}

func newSubscription(mon *monitor, node string, units []string) (*subscription, error) {
	if len(mon.subs) >= MaxSubscriptionsPerMonitor {
		return nil, wire.ErrLimitsExceeded.With("monitor %d has %d subscriptions already", mon.id, len(mon.subs))
	}
	if len(units) == 0 || len(units) > MaxUnitsPerSubscription {
		return nil, wire.ErrInvalidArgs.With("a subscription names 1 to %d units, not %d", MaxUnitsPerSubscription, len(units))
	}
	nodes, err := nodePattern(node)
	if err != nil {
		return nil, err
	}
	sub := &subscription{monitor: mon, node: nodes}
	for _, text := range slices.Compact(slices.Sorted(slices.Values(units))) {
		p, err := unitPattern(text)
		if err != nil {
			return nil, err
		}
		sub.units = append(sub.units, p)
	}
	return sub, nil
}

// subscriptionUsed guards ids after the counter has wrapped around.
func (m *Manager) subscriptionUsed(id uint32) bool {
	if id == 0 {
		return true
	}
	for _, mon := range m.monitors {
		if mon.subs[id] != nil {
			return true
		}
	}
	return false
}

func (m *Manager) unsubscribe(owner string, id, subID uint32) error {
	mon, err := m.owned(owner, id)
	if err != nil {
		return err
	}
	sub := mon.subs[subID]
	if sub == nil {
		return wire.ErrNoSuchSubscription.With("monitor %d has no subscription %d", id, subID)
	}
	m.dropSubscription(sub)
	return nil
}

func (m *Manager) dropSubscription(sub *subscription) {
	delete(sub.monitor.subs, sub.id)
	for _, s := range m.sessions {
		m.detachSubscription(s, sub)
	}
}

func (m *Manager) closeMonitor(mon *monitor) {
	for _, id := range slices.Sorted(maps.Keys(mon.subs)) {
		m.dropSubscription(mon.subs[id])
	}
	delete(m.monitors, mon.id)
	for _, p := range mon.peers {
		m.events.PeerRemoved(mon.id, p.name, "monitor closed")
	}
	m.events.MonitorRemoved(mon.id)
}

func (m *Manager) addPeer(owner string, id uint32, name string) (uint32, error) {
	mon, err := m.owned(owner, id)
	switch {
	case err != nil:
		return 0, err
	case !uniqueName(name):
		return 0, wire.ErrInvalidArgs.With("%s is not a unique bus name such as :1.42", quoted(name))
	case slices.Contains(mon.to, name):
		return 0, wire.ErrInvalidArgs.With("%s is a recipient of monitor %d already", name, id)
	case len(mon.peers) >= MaxPeersPerMonitor:
		return 0, wire.ErrLimitsExceeded.With("monitor %d has %d peers already", id, len(mon.peers))
	}
	m.lastPeer = max(m.lastPeer+1, 1)
	m.setPeers(mon, append(mon.peers, monitorPeer{m.lastPeer, name}))
	return m.lastPeer, nil
}

// setPeers makes a new list of recipients, since events under way still hold the old one.
func (m *Manager) setPeers(mon *monitor, peers []monitorPeer) {
	mon.peers = peers
	mon.to = []string{mon.owner}
	for _, p := range peers {
		mon.to = append(mon.to, p.name)
	}
	for _, s := range m.sessions {
		clear(s.watching.audiences)
	}
}

func (m *Manager) dropPeer(mon *monitor, i int) {
	m.setPeers(mon, slices.Delete(slices.Clone(mon.peers), i, i+1))
}

func (mon *monitor) peerNamed(name string) int {
	return slices.IndexFunc(mon.peers, func(p monitorPeer) bool { return p.name == name })
}

func (m *Manager) removePeer(owner string, id, peerID uint32, reason string) error {
	mon, err := m.owned(owner, id)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(mon.peers, func(p monitorPeer) bool { return p.id == peerID })
	if i < 0 {
		return wire.ErrInvalidArgs.With("monitor %d has no peer %d", id, peerID)
	}
	name := mon.peers[i].name
	m.dropPeer(mon, i)
	m.events.PeerRemoved(id, name, reason)
	return nil
}

// clientGone ends what belonged to a client that has left the bus, or to all for "".
func (m *Manager) clientGone(name string) {
	for _, id := range slices.Sorted(maps.Keys(m.monitors)) {
		mon := m.monitors[id]
		if name == "" {
			m.setPeers(mon, nil) // nobody is left to be told
		}
		if mon.owner == name || name == "" {
			m.log.Debug("monitor closed: its owner left the bus", slog.Uint64("monitor", uint64(id)))
			m.closeMonitor(mon)
			continue
		}
		if i := mon.peerNamed(name); i >= 0 {
			m.dropPeer(mon, i)
		}
	}
}

// letGo is clientGone for a client that is still there to be told.
func (m *Manager) letGo(name, reason string) {
	for _, id := range slices.Sorted(maps.Keys(m.monitors)) {
		mon := m.monitors[id]
		if !slices.Contains(mon.to, name) {
			continue
		}
		if mon.owner == name {
			m.closeMonitor(mon)
		} else {
			m.dropPeer(mon, mon.peerNamed(name))
		}
		m.events.PeerRemoved(id, name, reason)
	}
}

// uniqueName reports whether s is a unique connection name (D-Bus specification, "Bus
// names"): a colon, then at least two elements of [A-Za-z0-9_-].
func uniqueName(s string) bool {
	rest, ok := strings.CutPrefix(s, ":")
	if !ok || len(s) > 255 || !strings.Contains(rest, ".") {
		return false
	}
	for element := range strings.SplitSeq(rest, ".") {
		if element == "" {
			return false
		}
		for _, c := range []byte(element) {
			if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
				return false
			}
		}
	}
	return true
}

func (m *Manager) listMonitors() []MonitorInfo {
	all := make([]MonitorInfo, 0, len(m.monitors))
	for _, mon := range m.monitors {
		all = append(all, MonitorInfo{ID: mon.id, Owner: mon.owner})
	}
	slices.SortFunc(all, func(a, b MonitorInfo) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
