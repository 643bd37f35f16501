package manager

import (
	"errors"
	"maps"
	"slices"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// watching is what one session knows about the units that monitors want to see. It begins
// empty with each session, so nothing stale outlives a lost link.
type watching struct {
	watches   map[string]*watch      // what the agent was asked for, by pattern
	exact     map[string][]*interest // by the unit's name as subscribed
	globs     []*interest
	units     map[string]unitView
	primary   map[string]string // alias → the unit's primary name
	audiences map[string]audience
}

// watch is one subscription with the agent, shared by all interests in the same pattern.
type watch struct {
	pattern pattern
	users   int
	live    bool // the agent has answered with the present state
	waiting []*interest
}

// interest is one unit pattern of one subscription on one session. It is live once its
// first round was delivered; before that it gets no events, so none comes twice.
type interest struct {
	sub  *subscription
	unit pattern
	live bool
}

// unitView is what monitors were told about a unit last.
type unitView struct{ active, sub string }

// audience is who hears of one unit, kept until subscriptions change.
type audience struct {
	covered bool // some watch asked the agent for this unit
	to      []Audience
}

// MaxUnitsPerNode bounds what an agent may make the manager remember of its units.
const MaxUnitsPerNode = 1 << 16

const (
	stateInactive   = "inactive"
	subDead         = "dead"
	subAgentOffline = "agent-offline"
	stateActive     = "active"
	subRunning      = "running"
)

func newWatching() watching {
	return watching{
		watches: make(map[string]*watch), exact: make(map[string][]*interest),
		units: make(map[string]unitView), primary: make(map[string]string),
		audiences: make(map[string]audience),
	}
}

// attachAll gives a new session what all monitors want of its node.
func (m *Manager) attachAll(s *session) {
	for _, id := range slices.Sorted(maps.Keys(m.monitors)) {
		mon := m.monitors[id]
		for _, subID := range slices.Sorted(maps.Keys(mon.subs)) {
			if sub := mon.subs[subID]; sub.node.match(s.node.name) {
				m.attach(s, sub)
			}
		}
	}
}

func (m *Manager) attach(s *session, sub *subscription) {
	for _, p := range sub.units {
		i := &interest{sub: sub, unit: p}
		if p.glob == nil {
			s.watching.exact[p.text] = append(s.watching.exact[p.text], i)
		} else {
			s.watching.globs = append(s.watching.globs, i)
		}
		w := s.watching.watches[p.text]
		if w == nil {
			w = &watch{pattern: p}
			s.watching.watches[p.text] = w
			m.askWatch(s, w)
		}
		w.users++
		if w.live {
			m.round(s, i)
		} else {
			w.waiting = append(w.waiting, i)
		}
	}
}

// askWatch subscribes with the agent, whose answer is the present state. A watch that gets
// no answer would leave monitors with half the truth, so it ends the session: the next one
// begins with everything anew.
func (m *Manager) askWatch(s *session, w *watch) {
	call := s.begin(ignore)
	s.link.Subscribe(w.pattern.text, m.cfg.CallTimeout, func(rows []UnitRow, err error) {
		m.loop.Defer(func() {
			if !m.settle(s, call, err) || s.watching.watches[w.pattern.text] != w {
				return
			}
			if errors.Is(err, wire.ErrTimeout) {
				m.endSession(s, "no answer to a subscription within "+m.cfg.CallTimeout.String(), true)
				return
			}
			if err != nil {
				m.log.Warn("node refused a subscription", keyNode, s.node.name, keyUnit, w.pattern.text, keyErr, cleanReason(err.Error()))
				return
			}
			m.watchAnswered(s, w, rows)
		})
	})
}

func (m *Manager) watchAnswered(s *session, w *watch, rows []UnitRow) {
	clear(s.watching.audiences)
	w.live = true
	for _, row := range rows {
		if !m.acceptUnit(s, row.ID) {
			continue
		}
		if row.Asked != row.ID && w.pattern.glob == nil && row.Asked == w.pattern.text {
			s.watching.primary[row.Asked] = row.ID
		}
		m.learn(s, row)
	}
	waiting := w.waiting
	w.waiting = nil
	for _, i := range waiting {
		if i.sub.monitor.subs[i.sub.id] == i.sub {
			m.round(s, i)
		}
	}
}

// learn notes a unit's present state. Who is live already was told by events, which come in
// order; a difference is told all the same, for the truth is what the agent says last. So is
// a unit that systemd had no time to announce before: the agent does not tell it again.
func (m *Manager) learn(s *session, row UnitRow) {
	now := unitView{row.Active, row.Sub}
	before, known := s.watching.units[row.ID]
	s.watching.units[row.ID] = now
	if !known {
		m.tell(s, UnitEvent{Kind: UnitNew, Unit: row.ID, Reason: ReasonReal})
	}
	if before != now {
		m.tell(s, UnitEvent{Kind: UnitStateChanged, Unit: row.ID, Active: row.Active, Sub: row.Sub, Reason: ReasonReal})
	}
}

// acceptUnit checks a name that came from an agent, and bounds what is remembered.
func (m *Manager) acceptUnit(s *session, name string) bool {
	if !unit.Valid(name) {
		m.log.Debug("unit event dropped: no valid unit name", keyNode, s.node.name)
		return false
	}
	if _, known := s.watching.units[name]; known || len(s.watching.units) < MaxUnitsPerNode {
		return true
	}
	m.log.Warn("unit event dropped: the node has too many units", keyNode, s.node.name, "limit", MaxUnitsPerNode)
	return false
}

// round tells one interest the present state of what it asked for.
func (m *Manager) round(s *session, i *interest) {
	i.live = true
	clear(s.watching.audiences)
	to := []Audience{{Monitor: i.sub.monitor.id, To: i.sub.monitor.to}}
	virtual := func(name string, v unitView) {
		m.emit(s, to, UnitEvent{Kind: UnitNew, Unit: name, Reason: ReasonVirtual})
		m.emit(s, to, UnitEvent{Kind: UnitStateChanged, Unit: name, Active: v.active, Sub: v.sub, Reason: ReasonVirtual})
	}
	if i.unit.text == wildcard {
		virtual(wildcard, unitView{stateActive, subRunning})
	}
	if i.unit.glob == nil {
		name := s.watching.resolve(i.unit.text)
		if v, known := s.watching.units[name]; known {
			virtual(name, v)
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.watching.units)) {
		if i.unit.match(name) {
			virtual(name, s.watching.units[name])
		}
	}
}

// resolve is the primary name of a unit that was subscribed by an alias.
func (w *watching) resolve(name string) string {
	if primary, ok := w.primary[name]; ok {
		return primary
	}
	return name
}

// hears computes who hears of a unit.
func (w *watching) hears(name string) audience {
	if a, ok := w.audiences[name]; ok {
		return a
	}
	var a audience
	for _, watch := range w.watches {
		if watch.pattern.match(name) || watch.pattern.glob == nil && w.resolve(watch.pattern.text) == name {
			a.covered = true
			break
		}
	}
	seen := make(map[uint32]bool)
	add := func(interests []*interest) {
		for _, i := range interests {
			if mon := i.sub.monitor; i.live && !seen[mon.id] {
				seen[mon.id] = true
				a.to = append(a.to, Audience{Monitor: mon.id, To: mon.to})
			}
		}
	}
	add(w.exact[name])
	for alias, primary := range w.primary {
		if primary == name && alias != name {
			add(w.exact[alias])
		}
	}
	for _, i := range w.globs {
		if i.unit.match(name) {
			add([]*interest{i})
		}
	}
	slices.SortFunc(a.to, func(x, y Audience) int { return int(x.Monitor) - int(y.Monitor) })
	if len(w.audiences) < 2*MaxUnitsPerNode {
		w.audiences[name] = a
	}
	return a
}

// unitEvent takes an event from an agent.
func (m *Manager) unitEvent(id Session, e UnitEvent) {
	s := m.sessions[id]
	if s == nil || !m.acceptUnit(s, e.Unit) || !s.watching.hears(e.Unit).covered {
		return
	}
	switch e.Kind {
	case UnitNew:
		s.watching.units[e.Unit] = unitView{stateInactive, subDead}
	case UnitRemoved:
		delete(s.watching.units, e.Unit)
	case UnitStateChanged:
		s.watching.units[e.Unit] = unitView{e.Active, e.Sub}
	}
	m.tell(s, e)
}

// unitAlias notes that a subscribed name now means another unit, or none (ID ""), and tells
// those who asked by that name what the new unit is like.
func (m *Manager) unitAlias(id Session, row UnitRow) {
	s := m.sessions[id]
	if s == nil || s.watching.watches[row.Asked] == nil || row.ID != "" && !m.acceptUnit(s, row.ID) {
		return
	}
	delete(s.watching.primary, row.Asked)
	clear(s.watching.audiences)
	if row.ID == "" {
		return
	}
	// Those who asked by the name begin anew, so only others hear of what is learned here.
	var live []*interest
	for _, i := range s.watching.exact[row.Asked] {
		if i.live {
			live = append(live, i)
			i.live = false
		}
	}
	m.learn(s, row)
	if row.ID != row.Asked {
		s.watching.primary[row.Asked] = row.ID
	}
	for _, i := range live {
		m.round(s, i)
	}
}

func (m *Manager) tell(s *session, e UnitEvent) { m.emit(s, s.watching.hears(e.Unit).to, e) }

func (m *Manager) emit(s *session, to []Audience, e UnitEvent) {
	if len(to) > 0 {
		e.Node = s.node.name
		m.events.UnitEvent(e, to)
	}
}

// endWatching takes back what was reported of a node that is lost.
func (m *Manager) endWatching(s *session) {
	gone := func(to []Audience, name string, active bool) {
		if active {
			m.emit(s, to, UnitEvent{Kind: UnitStateChanged, Unit: name, Active: stateInactive, Sub: subAgentOffline, Reason: ReasonVirtual})
		}
		m.emit(s, to, UnitEvent{Kind: UnitRemoved, Unit: name, Reason: ReasonVirtual})
	}
	for _, name := range slices.Sorted(maps.Keys(s.watching.units)) {
		gone(s.watching.hears(name).to, name, s.watching.units[name].active != stateInactive)
	}
	gone(s.watching.everything(), wildcard, true)
	s.watching = newWatching()
}

// everything lists the monitors that asked for all units and were told of the pseudo-unit.
func (w *watching) everything() []Audience {
	var to []Audience
	for _, i := range w.globs {
		mon := i.sub.monitor
		if i.live && i.unit.text == wildcard && !slices.ContainsFunc(to, func(a Audience) bool { return a.Monitor == mon.id }) {
			to = append(to, Audience{Monitor: mon.id, To: mon.to})
		}
	}
	return to
}

// detachSubscription takes a subscription off a session, and its watches off the agent
// where nobody else uses them.
func (m *Manager) detachSubscription(s *session, sub *subscription) {
	if !sub.node.match(s.node.name) {
		return
	}
	w := &s.watching
	mine := func(i *interest) bool { return i.sub == sub }
	w.globs = slices.DeleteFunc(w.globs, mine)
	ended := false
	for _, p := range sub.units {
		if p.glob == nil {
			if w.exact[p.text] = slices.DeleteFunc(w.exact[p.text], mine); len(w.exact[p.text]) == 0 {
				delete(w.exact, p.text)
			}
		}
		watch := w.watches[p.text]
		if watch == nil {
			continue
		}
		watch.waiting = slices.DeleteFunc(watch.waiting, mine)
		if watch.users--; watch.users == 0 {
			delete(w.watches, p.text)
			delete(w.primary, p.text)
			s.link.Unsubscribe(p.text)
			ended = true
		}
	}
	clear(w.audiences)
	if ended {
		maps.DeleteFunc(w.units, func(name string, _ unitView) bool { return !w.hears(name).covered })
	}
}
