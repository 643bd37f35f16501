package agent

import (
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// MaxPatterns is how many subscriptions the manager may have on one agent.
const MaxPatterns = 4096

// flushDelay is how long changed properties wait for further changes of the same unit. A
// started oneshot unit alone gives about 15 changes within a few milliseconds.
const flushDelay = 50 * time.Millisecond

const reasonReal = "real"

// watched is what the present session's manager wants to hear of units, and what it was
// told last. It begins empty with each session.
type watched struct {
	exact map[string]*subscription
	globs map[string]*subscription
	units map[string]*watchedUnit
	dirty []*watchedUnit // with properties that wait, in order of their first change
	flush *loop.Timer
}

type subscription struct {
	text    string
	glob    unit.Glob
	live    bool   // the manager has the present state, so events may follow
	primary string // what an exact name means at present, "" for nothing
}

type watchedUnit struct {
	name        string
	active, sub string
	pending     map[string]map[string]wire.Value // interface → property → latest value
}

func newWatched() watched {
	return watched{
		exact: make(map[string]*subscription), globs: make(map[string]*subscription),
		units: make(map[string]*watchedUnit),
	}
}

func (w *watched) live(name string) bool {
	if s := w.exact[name]; s != nil && s.live {
		return true
	}
	for _, s := range w.exact {
		if s.live && s.primary == name {
			return true
		}
	}
	for _, s := range w.globs {
		if s.live && s.glob.Match(name) {
			return true
		}
	}
	return false
}

// filter is the present wish as a function that may be called from any goroutine. It is
// wider than what is live: between asking for the present state and the answer, signals
// must not be lost that come right after it.
func (w *watched) filter() func(string) bool {
	if len(w.exact)+len(w.globs) == 0 {
		return nil
	}
	names := make(map[string]bool, len(w.exact))
	for text, s := range w.exact {
		names[text] = true
		if s.primary != "" {
			names[s.primary] = true
		}
	}
	var globs []unit.Glob
	for _, s := range w.globs {
		globs = append(globs, s.glob)
	}
	return func(name string) bool {
		return names[name] || slices.ContainsFunc(globs, func(g unit.Glob) bool { return g.Match(name) })
	}
}

func (a *Agent) subscribe(session Session, pattern string, reply func([]UnitRow, error)) {
	if err := a.current(session); err != nil {
		reply(nil, err)
		return
	}
	s, table, err := a.watched.add(pattern)
	if err != nil {
		reply(nil, err)
		return
	}
	a.systemd.Watch(a.watched.filter())
	a.systemd.Units(pattern, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
		a.loop.Defer(func() {
			if a.over || a.current(session) != nil || table[pattern] != s {
				reply(nil, wire.ErrDisconnected.With("this subscription has ended"))
				return
			}
			if err != nil {
				a.unsubscribe(session, pattern)
				reply(nil, err)
				return
			}
			a.goLive(s, rows)
			reply(rows, nil)
		})
	})
}

func (w *watched) add(pattern string) (*subscription, map[string]*subscription, error) {
	s, table := &subscription{text: pattern}, w.exact
	var err error
	if unit.HasGlob(pattern) {
		table = w.globs
		s.glob, err = unit.CompileGlob(pattern)
	} else {
		err = unit.CheckInstance(pattern)
	}
	if err != nil {
		return nil, nil, wire.ErrInvalidArgs.With("%v", err)
	}
	if len(w.exact)+len(w.globs) >= MaxPatterns && table[pattern] == nil {
		return nil, nil, wire.ErrLimitsExceeded.With("this session has %d subscriptions already", MaxPatterns)
	}
	table[pattern] = s
	return s, table, nil
}

func (a *Agent) goLive(s *subscription, rows []UnitRow) {
	s.live = true
	for _, row := range rows {
		if a.watched.exact[s.text] == s {
			s.primary = row.ID
		}
		w := a.watched.unit(row.ID)
		w.active, w.sub = row.Active, row.Sub
	}
	if s.primary != "" && s.primary != s.text {
		a.systemd.Watch(a.watched.filter())
	}
}

func (w *watched) unit(name string) *watchedUnit {
	u := w.units[name]
	if u == nil {
		u = &watchedUnit{name: name}
		w.units[name] = u
	}
	return u
}

func (a *Agent) unsubscribe(session Session, pattern string) {
	if a.current(session) != nil {
		return
	}
	w := &a.watched
	delete(w.exact, pattern)
	delete(w.globs, pattern)
	maps.DeleteFunc(w.units, func(name string, _ *watchedUnit) bool { return !w.live(name) })
	w.dirty = slices.DeleteFunc(w.dirty, func(u *watchedUnit) bool { return w.units[u.name] != u })
	a.systemd.Watch(w.filter())
}

// endWatched forgets everything with the session.
func (a *Agent) endWatched() {
	a.watched.flush.Stop()
	a.watched = newWatched()
	a.systemd.Watch(nil)
}

func (a *Agent) unitNew(name string) {
	if !a.watched.live(name) {
		return
	}
	u := a.watched.unit(name)
	u.active, u.sub = "inactive", "dead" // what a unit is when systemd loads it
	a.conn.link.UnitNew(name, reasonReal)
}

func (a *Agent) unitRemoved(name string) {
	if !a.watched.live(name) {
		return
	}
	if u := a.watched.units[name]; u != nil {
		a.flushUnit(u)
		delete(a.watched.units, name)
	}
	a.conn.link.UnitRemoved(name, reasonReal)
}

// unitChanged sends a change of state at once and lets properties wait for more. What
// changed before a change of state is sent before it.
func (a *Agent) unitChanged(name, iface string, changed map[string]wire.Value) {
	if !a.watched.live(name) {
		return
	}
	u := a.watched.unit(name)
	if iface == wire.SystemdUnitInterface {
		a.noteState(u, changed)
	}
	if u.pending == nil {
		u.pending = make(map[string]map[string]wire.Value)
		a.watched.dirty = append(a.watched.dirty, u)
		if len(a.watched.dirty) == 1 {
			a.watched.flush.Stop()
			a.watched.flush = a.loop.After(flushDelay, a.flushAll)
		}
	}
	if u.pending[iface] == nil {
		u.pending[iface] = make(map[string]wire.Value, len(changed))
	}
	maps.Copy(u.pending[iface], changed)
}

func (a *Agent) noteState(u *watchedUnit, changed map[string]wire.Value) {
	active, sub := u.active, u.sub
	if s, ok := changed["ActiveState"].AsString(); ok {
		active = s
	}
	if s, ok := changed["SubState"].AsString(); ok {
		sub = s
	}
	if active == u.active && sub == u.sub {
		return
	}
	a.flushUnit(u)
	u.active, u.sub = active, sub
	a.conn.link.UnitStateChanged(u.name, active, sub, reasonReal)
}

func (a *Agent) flushUnit(u *watchedUnit) {
	pending := u.pending
	u.pending = nil
	for _, iface := range slices.Sorted(maps.Keys(pending)) {
		a.conn.link.UnitPropertiesChanged(u.name, iface, pending[iface])
	}
	a.watched.dirty = slices.DeleteFunc(a.watched.dirty, func(o *watchedUnit) bool { return o == u })
}

func (a *Agent) flushAll() {
	for len(a.watched.dirty) > 0 {
		a.flushUnit(a.watched.dirty[0])
	}
}

// resyncUnits finds out what changed while systemd was not reachable.
func (a *Agent) resyncUnits() {
	session := a.conn.session
	for _, table := range []map[string]*subscription{a.watched.exact, a.watched.globs} {
		for _, text := range slices.Sorted(maps.Keys(table)) {
			s := table[text]
			if !s.live {
				continue
			}
			a.systemd.Units(text, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
				a.later(func() {
					if a.current(session) == nil && table[text] == s && err == nil {
						a.tellDifference(s, rows)
					}
				})
			})
		}
	}
	a.resolveNames()
}

func (a *Agent) tellDifference(s *subscription, rows []UnitRow) {
	present := make(map[string]bool, len(rows))
	for _, row := range rows {
		present[row.ID] = true
		u, known := a.watched.units[row.ID]
		if !known {
			u = a.watched.unit(row.ID)
			a.conn.link.UnitNew(row.ID, reasonReal)
		}
		if u.active != row.Active || u.sub != row.Sub {
			u.active, u.sub = row.Active, row.Sub
			a.conn.link.UnitStateChanged(row.ID, row.Active, row.Sub, reasonReal)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.watched.units)) {
		matches := s.primary == name || s.text == name
		if a.watched.globs[s.text] == s {
			matches = s.glob.Match(name)
		}
		if matches && !present[name] {
			a.unitRemoved(name)
		}
	}
}

// resolveNames finds out whether subscribed names mean other units than before.
func (a *Agent) resolveNames() {
	session := a.conn.session
	for _, name := range slices.Sorted(maps.Keys(a.watched.exact)) {
		s := a.watched.exact[name]
		if !s.live {
			continue
		}
		a.systemd.Units(name, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
			a.later(func() {
				if a.current(session) == nil && a.watched.exact[name] == s && err == nil {
					a.noteMeaning(s, rows)
				}
			})
		})
	}
}

func (a *Agent) noteMeaning(s *subscription, rows []UnitRow) {
	row := UnitRow{Asked: s.text}
	if len(rows) > 0 {
		row = rows[0]
	}
	// A name that is not loaded still means itself.
	if s.primary == row.ID || row.ID == "" && (s.primary == s.text || s.primary == "") {
		return
	}
	if before := a.watched.units[s.primary]; before != nil {
		a.flushUnit(before) // what is known of it still goes out under the old meaning
	}
	s.primary = row.ID
	if row.ID != "" {
		u := a.watched.unit(row.ID)
		u.active, u.sub = row.Active, row.Sub
	}
	a.systemd.Watch(a.watched.filter())
	a.conn.link.UnitAlias(row)
}
