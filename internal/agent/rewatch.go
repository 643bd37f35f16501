package agent

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"example.org/ctrl/internal/wire"
)

// Watched units are looked at again when systemd has come back, and names when it has read
// its files again. One request is under way at a time: there may be thousands.

// resyncUnits finds out what changed while systemd was not reachable.
func (a *Agent) resyncUnits() {
	all := append(a.watched.liveIn(a.watched.exact), a.watched.liveIn(a.watched.globs)...)
	a.lookAgain(all, func(s *subscription, rows []UnitRow) {
		a.tellGone(s, rows)
		a.noteMeaning(s, rows)
		a.tellPresent(rows)
	})
}

// resolveNames finds out whether subscribed names mean other units than before.
func (a *Agent) resolveNames() {
	a.lookAgain(a.watched.liveIn(a.watched.exact), a.noteMeaning)
}

// liveIn lists the live ones of a table by text.
func (w *watched) liveIn(table map[string]*subscription) []*subscription {
	var live []*subscription
	for _, text := range slices.Sorted(maps.Keys(table)) {
		if s := table[text]; s.live {
			live = append(live, s)
		}
	}
	return live
}

func (w *watched) has(s *subscription) bool { return w.exact[s.text] == s || w.globs[s.text] == s }

// lookAgain asks systemd about one subscription after the other.
func (a *Agent) lookAgain(left []*subscription, found func(*subscription, []UnitRow)) {
	for len(left) > 0 && !a.watched.has(left[0]) {
		left = left[1:]
	}
	if len(left) == 0 {
		return
	}
	s, session, up := left[0], a.conn.session, a.ups
	a.systemd.Units(s.text, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
		a.later(func() {
			switch {
			case !a.same(session, up), errors.Is(err, wire.ErrDisconnected):
			case err != nil:
				a.again(err, func() { a.lookAgain(left, found) })
			case a.watched.misses(s, rows):
				a.watchSoon(func() { a.lookAgain(left, found) })
			default:
				if a.watched.has(s) {
					found(s, rows)
				}
				a.lookAgain(left[1:], found)
			}
		})
	})
}

// askUnsure asks for the state of new units of which no signal told it. A mount, a device or
// a scope may be active already when systemd announces it, and then no signal follows
// (systemd's bus_unit_send_change_signal sends either UnitNew or PropertiesChanged).
func (a *Agent) askUnsure() {
	w := &a.watched
	for len(w.unsure) > 0 && (w.unsure[0].told || w.units[w.unsure[0].name] != w.unsure[0]) {
		w.unsure = w.unsure[1:]
	}
	if len(w.unsure) == 0 {
		w.unsure = nil
		return
	}
	u, session, up := w.unsure[0], a.conn.session, a.ups
	a.systemd.Units(u.name, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
		a.later(func() {
			switch {
			case a.current(session) != nil:
				return
			case a.ups != up, errors.Is(err, wire.ErrDisconnected):
				a.watched.unsure = nil // when systemd is back all units are looked at
				return
			case err != nil:
				a.again(err, a.askUnsure)
				return
			}
			u.told = true // also where it is gone again: systemd says so by itself
			for _, row := range rows {
				if a.watched.units[row.ID] == u {
					a.present(row)
				}
			}
			a.askUnsure()
		})
	})
}

// tellGone reports the units of a subscription that are not loaded any more.
func (a *Agent) tellGone(s *subscription, rows []UnitRow) {
	w := &a.watched
	if w.exact[s.text] == s {
		means := cmp.Or(s.primary, s.text)
		// A name that now leads to another unit tells that its own unit is gone, but nothing
		// of the unit it led to before.
		if len(rows) == 0 || means == s.text && rows[0].ID != means {
			a.gone(means)
		}
		return
	}
	loaded := make(map[string]bool, len(rows))
	for _, row := range rows {
		loaded[row.ID] = true
	}
	for _, name := range slices.Sorted(maps.Keys(w.units)) {
		if s.glob.Match(name) && !loaded[name] {
			a.gone(name)
		}
	}
}

func (a *Agent) gone(name string) {
	if a.watched.units[name] != nil {
		a.unitRemoved(name)
	}
}

// tellPresent reports the units of a subscription that are new or have another state.
func (a *Agent) tellPresent(rows []UnitRow) {
	for _, row := range rows {
		if a.watched.units[row.ID] == nil {
			a.unitNew(row.ID)
		}
		a.present(row)
	}
}

// noteMeaning reports that an exact name means another unit than before. A name that is not
// loaded still means itself.
func (a *Agent) noteMeaning(s *subscription, rows []UnitRow) {
	w := &a.watched
	row := UnitRow{Asked: s.text}
	if len(rows) > 0 {
		row = rows[0]
	}
	means := cmp.Or(s.primary, s.text)
	if cmp.Or(row.ID, s.text) == means || w.exact[s.text] != s {
		return
	}
	if before := w.units[means]; before != nil {
		a.flushUnit(before) // what is known of it still goes out under the old meaning
	}
	w.mean(s, row.ID)
	if row.ID != "" {
		a.present(row)
	}
	a.watchSoon(func() {})
	a.conn.link.UnitAlias(row)
}
