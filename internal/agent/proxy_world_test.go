package agent

import (
	"fmt"
	"strings"
	"time"

	"example.org/ctrl/internal/unit"
)

// The part of the world that dependencies need. What is told of none is not noted.

func (w *world) JobType(job uint32, limit time.Duration, done func(string, error)) {
	w.ask(fmt.Sprintf("JobType %d", job), limit, func(v any, err error) { kind, _ := v.(string); done(kind, err) })
}

// listed answers the question for all proxies and dep units, which comes with every connection.
func (w *world) listed(pattern string, done func([]UnitRow, error)) bool {
	if pattern != unit.DependencyGlob {
		return false
	}
	w.mu.Lock()
	rows := w.units
	w.mu.Unlock()
	go done(rows, nil)
	return true
}

func (l *link) Proxies(all []Proxy, deps []string) {
	if len(all)+len(deps) > 0 {
		l.w.note("Proxies %v %v", all, deps)
	}
}
func (l *link) ProxyNew(p Proxy)               { l.w.note("ProxyNew %s %s", p.Name, p.Phase) }
func (l *link) ProxyRemoved(name string)       { l.w.note("ProxyRemoved %s", name) }
func (l *link) TargetState(u, state string)    { l.w.note("TargetState %s %s", u, state) }
func (l *link) DepState(u string, active bool) { l.w.note("DepState %s %v", u, active) }
func (l *link) TargetLeaving(u string, restart bool) {
	l.w.note("TargetLeaving %s %s", u, strings.TrimPrefix(fmt.Sprintf("restart=%v", restart), ""))
}
