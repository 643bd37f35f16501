package manager

import (
	"fmt"
	"slices"
	"strings"

	"example.org/ctrl/internal/wire"
)

// A cycle of dependencies over nodes would wait for itself without end. It is looked for when a
// proxy begins to start: first among nodes, which costs nothing and finds nothing in most fleets,
// and where nodes do wait for each other by asking them which of their units wait for which
// proxies. The proxy that closes a cycle is refused.

// cycleSearch collects, for all proxies that may be part of a cycle, what waits for them.
type cycleSearch struct {
	first   *proxy
	proxies []*proxy
	waits   map[*proxy][]string // units of a proxy's node that start after it
	open    int
}

// seekCycle begins to look for a cycle that p closes.
func (m *Manager) seekCycle(p *proxy) {
	starting := m.startingProxies()
	if !nodesWait(starting, p.target.node, p.owner.name) {
		return
	}
	c := &cycleSearch{first: p, proxies: starting, waits: make(map[*proxy][]string)}
	for _, q := range starting {
		wanted := targetsOn(starting, q.owner.name)
		s := q.owner.session
		if len(wanted) == 0 || s == nil || s.checkRoom() != nil {
			continue
		}
		c.open++
		call := s.begin(func(error) { c.open-- })
		s.link.Ordered(q.name, wanted, m.cfg.CallTimeout, func(units []string, err error) {
			m.loop.Defer(func() {
				if !m.settle(s, call, err) {
					return
				}
				c.waits[q] = units
				if c.open--; c.open == 0 {
					m.judgeCycle(c)
				}
			})
		})
	}
}

// startingProxies lists the proxies that wait for their targets' start.
func (m *Manager) startingProxies() []*proxy {
	var all []*proxy
	for _, n := range m.nodes {
		for _, p := range n.proxiesByName() {
			if p.state.Is == proxyStarting {
				all = append(all, p)
			}
		}
	}
	return all
}

// nodesWait reports whether one node waits for the other, over any number between them.
func nodesWait(starting []*proxy, from, to string) bool {
	seen := map[string]bool{from: true}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		if next[0] == to {
			return true
		}
		for _, p := range starting {
			if p.owner.name == next[0] && !seen[p.target.node] {
				seen[p.target.node] = true
				next = append(next, p.target.node)
			}
		}
	}
	return false
}

func targetsOn(starting []*proxy, node string) []string {
	var units []string
	for _, p := range starting {
		if p.target.node == node {
			units = append(units, p.target.unit)
		}
	}
	slices.Sort(units)
	return slices.Compact(units)
}

func (m *Manager) judgeCycle(c *cycleSearch) {
	p := c.first
	if p.owner.deps.proxies[p.name] != p || p.state.Is != proxyStarting {
		return
	}
	if cycle := findCycle(p, c.proxies, c.waits); cycle != nil {
		m.refuseProxy(p, wire.ErrFailed.With("units of several nodes wait for each other in a cycle: %s; take After= or the dependency out of one of them", cycleText(cycle)))
	}
}

// findCycle finds proxies, of which each one's target waits for the next, from first back to
// first.
func findCycle(first *proxy, all []*proxy, waits map[*proxy][]string) []*proxy {
	seen := make(map[*proxy]bool)
	var follow func(p *proxy) []*proxy
	follow = func(p *proxy) []*proxy {
		for _, q := range all {
			if q.owner.name != p.target.node || !slices.Contains(waits[q], p.target.unit) {
				continue
			}
			if q == first {
				return []*proxy{p}
			}
			if seen[q] {
				continue
			}
			seen[q] = true
			if rest := follow(q); rest != nil {
				return append([]*proxy{p}, rest...)
			}
		}
		return nil
	}
	return follow(first)
}

func cycleText(cycle []*proxy) string {
	var parts []string
	for _, p := range append(slices.Clone(cycle), cycle[0]) {
		parts = append(parts, fmt.Sprintf("%s on node %q", p.target.unit, p.target.node))
	}
	return strings.Join(parts, " needs ")
}
