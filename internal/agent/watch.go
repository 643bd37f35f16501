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

// holdAbove is how many bytes may wait on the way to the manager. While there are more,
// changed properties gather here, the latest values of each unit: a manager that is slow
// gets fewer of them, and does not lose the session for it. The link ends at 8 MiB.
const holdAbove = 1 << 20

const reasonReal = "real"

// watched is what the present session's manager wants to hear of units, and what it was
// told last. It begins empty with each session.
type watched struct {
	exact map[string]*subscription
	globs map[string]*subscription
	// primaries counts the live exact names by the unit that they mean.
	primaries map[string]int
	units     map[string]*watchedUnit
	dirty     []*watchedUnit // with properties that wait, in order of their first change
	flush     *loop.Timer
	unsure    []*watchedUnit // new ones whose state may be another than that of new ones
	ask       *loop.Timer
}

type subscription struct {
	text    string
	glob    unit.Glob
	live    bool   // the manager has the present state, so events may follow
	primary string // what an exact name means at present, "" for nothing
	next    string // what it seems to mean from now on
}

type watchedUnit struct {
	name        string
	active, sub string
	told        bool                             // by systemd, since it is there
	pending     map[string]map[string]wire.Value // interface → property → latest value
}

func newWatched() watched {
	return watched{
		exact: make(map[string]*subscription), globs: make(map[string]*subscription),
		primaries: make(map[string]int), units: make(map[string]*watchedUnit),
	}
}

func (w *watched) live(name string) bool {
	if s := w.exact[name]; s != nil && s.live || w.primaries[name] > 0 {
		return true
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
		names[s.primary], names[s.next] = true, true
	}
	var globs []unit.Glob
	for _, s := range w.globs {
		globs = append(globs, s.glob)
	}
	return func(name string) bool {
		return names[name] || slices.ContainsFunc(globs, func(g unit.Glob) bool { return g.Match(name) })
	}
}

// mean notes which unit an exact name means, "" for none.
func (w *watched) mean(s *subscription, primary string) {
	if w.primaries[s.primary]--; w.primaries[s.primary] <= 0 {
		delete(w.primaries, s.primary)
	}
	s.primary = primary
	if primary != "" {
		w.primaries[primary]++
	}
}

func (a *Agent) subscribe(session Session, pattern string, reply func([]UnitRow, error)) {
	if err := a.current(session); err != nil {
		reply(nil, err)
		return
	}
	s, err := a.watched.add(pattern)
	if err != nil {
		reply(nil, err)
		return
	}
	a.watchSoon(func() { a.askPresent(session, s, reply) })
}

// watchSoon tells systemd which signals are wanted, once for many changes, and then does
// what must not be done before.
func (a *Agent) watchSoon(then func()) {
	a.watching = append(a.watching, then)
	if len(a.watching) == 1 {
		a.loop.Defer(a.watchNow)
	}
}

func (a *Agent) watchNow() {
	todo := a.watching
	a.watching = nil
	if !a.over {
		a.watched.sweep()
		a.systemd.Watch(a.watchFilter())
	}
	for _, then := range todo {
		then()
	}
}

// askPresent asks for the state with which a subscription begins.
func (a *Agent) askPresent(session Session, s *subscription, reply func([]UnitRow, error)) {
	over := func() bool {
		ended := a.over || a.current(session) != nil || !a.watched.has(s)
		if ended {
			reply(nil, wire.ErrDisconnected.With("this subscription has ended"))
		}
		return ended
	}
	if over() {
		return
	}
	a.systemd.Units(s.text, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
		a.loop.Defer(func() {
			switch {
			case over():
			case err != nil:
				if !s.live {
					a.unsubscribe(session, s.text)
				}
				reply(nil, err)
			case a.watched.misses(s, rows):
				a.watchSoon(func() { a.askPresent(session, s, reply) })
			default:
				a.goLive(s, rows)
				reply(rows, nil)
			}
		})
	})
}

// misses reports whether a name leads to a unit whose signals were not wanted when systemd
// was asked. Some may have been missed, so it must be asked once more.
func (w *watched) misses(s *subscription, rows []UnitRow) bool {
	if w.exact[s.text] != s || len(rows) == 0 {
		return false
	}
	id := rows[0].ID
	if id == s.text || id == s.primary || id == s.next {
		return false
	}
	s.next = id
	return true
}

func (w *watched) add(pattern string) (*subscription, error) {
	table := w.exact
	if unit.HasGlob(pattern) {
		table = w.globs
	}
	if s := table[pattern]; s != nil {
		return s, nil // asked for again: what is live stays so
	}
	s := &subscription{text: pattern}
	var err error
	if unit.HasGlob(pattern) {
		s.glob, err = unit.CompileGlob(pattern)
	} else {
		err = unit.CheckInstance(pattern)
	}
	if err != nil {
		return nil, wire.ErrInvalidArgs.With("%v", err)
	}
	if len(w.exact)+len(w.globs) >= MaxPatterns {
		return nil, wire.ErrLimitsExceeded.With("this session has %d subscriptions already", MaxPatterns)
	}
	table[pattern] = s
	return s, nil
}

// goLive begins the events of a subscription. What its present state tells of units that
// other subscriptions watch is news to those: systemd's signal of it may still be to come,
// and would then be nothing new.
func (a *Agent) goLive(s *subscription, rows []UnitRow) {
	w := &a.watched
	s.live = true
	for _, row := range rows {
		if w.exact[s.text] == s {
			w.mean(s, row.ID)
		}
		a.present(row)
	}
}

// present takes the state of a unit that systemd was asked for.
func (a *Agent) present(row UnitRow) {
	if u := a.watched.units[row.ID]; u != nil {
		u.told = true
		a.setState(u, row.Active, row.Sub)
		return
	}
	a.watched.units[row.ID] = &watchedUnit{name: row.ID, active: row.Active, sub: row.Sub, told: true}
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
	if s := w.exact[pattern]; s != nil {
		w.mean(s, "")
	}
	delete(w.exact, pattern)
	delete(w.globs, pattern)
	a.watchSoon(func() {})
}

// sweep forgets the units that no subscription wants any more.
func (w *watched) sweep() {
	maps.DeleteFunc(w.units, func(name string, _ *watchedUnit) bool { return !w.live(name) })
	w.dirty = slices.DeleteFunc(w.dirty, func(u *watchedUnit) bool { return w.units[u.name] != u })
}

// endWatched forgets everything with the session.
func (a *Agent) endWatched() {
	a.watched.flush.Stop()
	a.watched.ask.Stop()
	a.watched = newWatched()
	a.systemd.Watch(a.watchFilter())
}

// unitNew tells of a unit that systemd has loaded. One that is known was in a list that was
// answered before systemd came to announce it.
func (a *Agent) unitNew(name string) {
	w := &a.watched
	if !w.live(name) || w.units[name] != nil {
		return
	}
	u := w.unit(name)
	u.active, u.sub = "inactive", "dead" // what most units are when systemd loads them
	a.conn.link.UnitNew(name, reasonReal)
	if w.unsure = append(w.unsure, u); len(w.unsure) == 1 {
		w.ask = a.loop.After(flushDelay, a.askUnsure)
	}
}

func (a *Agent) unitRemoved(name string) {
	if !a.watched.live(name) {
		return
	}
	if u := a.watched.units[name]; u != nil {
		a.flushUnit(u)
		a.watched.clean(u)
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
		u.told = true
	}
	if s, ok := changed["SubState"].AsString(); ok {
		sub = s
	}
	a.setState(u, active, sub)
}

func (a *Agent) setState(u *watchedUnit, active, sub string) {
	if active == u.active && sub == u.sub {
		return
	}
	a.flushUnit(u)
	u.active, u.sub = active, sub
	a.conn.link.UnitStateChanged(u.name, active, sub, reasonReal)
}

// behind reports whether the manager does not keep up.
func (a *Agent) behind() bool { return a.conn.link.Backlog() > holdAbove }

// flushUnit sends what waits of a unit. While the manager is behind it goes on waiting: the
// latest values are true also after a change of state.
func (a *Agent) flushUnit(u *watchedUnit) {
	if u.pending == nil || a.behind() {
		return
	}
	a.sendPending(u)
	a.watched.clean(u)
}

// clean notes that nothing of a unit waits.
func (w *watched) clean(u *watchedUnit) {
	u.pending = nil
	w.dirty = slices.DeleteFunc(w.dirty, func(o *watchedUnit) bool { return o == u })
}

// flushAll sends what waits, as far as the manager keeps up.
func (a *Agent) flushAll() {
	w := &a.watched
	sent := 0
	for _, u := range w.dirty {
		if a.behind() {
			break
		}
		a.sendPending(u)
		sent++
	}
	w.dirty = slices.Delete(w.dirty, 0, sent)
	if len(w.dirty) > 0 {
		w.flush = a.loop.After(flushDelay, a.flushAll)
	}
}

func (a *Agent) sendPending(u *watchedUnit) {
	pending := u.pending
	u.pending = nil
	for _, iface := range slices.Sorted(maps.Keys(pending)) {
		a.conn.link.UnitPropertiesChanged(u.name, iface, pending[iface])
	}
}
