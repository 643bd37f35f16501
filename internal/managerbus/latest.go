package managerbus

import (
	"maps"
	"slices"

	"example.org/ctrl/internal/manager"
)

// latest is what waits for a slow recipient: per unit the events that bring one who has
// seen everything before to the present state, and no more. Units come out in the order of
// their first change that waits.
type latest struct {
	units map[unitKey]*changes
	order []unitKey // of units, and of some that are not in it any more
	head  int
	size  int // bytes
}

type unitKey struct {
	monitor    uint32
	node, unit string
}

// changes of one unit: removed, added, state, properties, in this order. What happened
// before a removal is of no use after it.
type changes struct {
	removed, added, state *signal
	properties            map[string]*signal // by interface
	// unseen says that the first of what waits is systemd loading the unit: the recipient
	// knows nothing of it, so if it goes away as well, there is nothing to tell.
	unseen bool
}

func newLatest() *latest { return &latest{units: make(map[unitKey]*changes)} }

func (l *latest) add(i item) {
	e := &i.signal.event
	key := unitKey{i.monitor, e.Node, e.Unit}
	c := l.units[key]
	if c == nil {
		c = &changes{unseen: e.Kind == manager.UnitNew && e.Reason == manager.ReasonReal}
		l.units[key] = c
		l.order = append(l.order, key)
	}
	l.size -= c.size()
	if c.add(i.signal) {
		l.size += c.size()
		return
	}
	delete(l.units, key)
	l.tidy()
}

// tidy bounds what units leave behind that came and went.
func (l *latest) tidy() {
	if len(l.order)-l.head <= 2*len(l.units)+1024 {
		return
	}
	seen := make(map[unitKey]bool, len(l.units))
	kept := make([]unitKey, 0, len(l.units))
	for _, key := range l.order[l.head:] {
		if l.units[key] != nil && !seen[key] {
			seen[key] = true
			kept = append(kept, key)
		}
	}
	l.order, l.head = kept, 0
}

// take gives the events of the next unit, nil where nothing waits.
func (l *latest) take() []item {
	for l.head < len(l.order) {
		key := l.order[l.head]
		l.head++
		if c := l.units[key]; c != nil {
			delete(l.units, key)
			l.size -= c.size()
			return c.items(key.monitor)
		}
	}
	return nil
}

func (l *latest) drop(monitor uint32) {
	for key, c := range l.units {
		if key.monitor == monitor {
			l.size -= c.size()
			delete(l.units, key)
		}
	}
	l.tidy()
}

// add takes one more event and reports whether anything is left to tell.
func (c *changes) add(s *signal) bool {
	switch s.event.Kind {
	case manager.UnitRemoved:
		if c.unseen {
			return false
		}
		*c = changes{removed: s}
	case manager.UnitNew:
		c.added = s
	case manager.UnitStateChanged:
		c.state = s
	case manager.UnitPropertiesChanged:
		if c.properties == nil {
			c.properties = make(map[string]*signal, 2)
		}
		iface := s.event.Interface
		c.properties[iface] = mergeProperties(c.properties[iface], s)
	}
	return true
}

func (c *changes) items(monitor uint32) []item {
	var all []item
	for _, s := range []*signal{c.removed, c.added, c.state} {
		if s != nil {
			all = append(all, item{monitor, s})
		}
	}
	for _, iface := range slices.Sorted(maps.Keys(c.properties)) {
		all = append(all, item{monitor, c.properties[iface]})
	}
	return all
}

func (c *changes) size() (n int) {
	for _, s := range []*signal{c.removed, c.added, c.state} {
		if s != nil {
			n += s.size()
		}
	}
	for _, s := range c.properties {
		n += s.size()
	}
	return n
}
