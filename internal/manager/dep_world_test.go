package manager

import "time"

func (l *link) Targets(units []string) { l.w.note("%s< targets %v", l.name, units) }
func (l *link) ProxyState(proxy, state, text string) {
	l.w.note("%s< proxy %s %s %s", l.name, proxy, state, text)
}
func (l *link) ReleaseTarget(unit string) { l.w.note("%s< release %s", l.name, unit) }

// Ordered says that everything waits for every proxy.
func (l *link) Ordered(proxy string, units []string, _ time.Duration, done func([]string, error)) {
	l.w.note("%s< ordered %s %v", l.name, proxy, units)
	go done(units, nil)
}
