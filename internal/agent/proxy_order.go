package agent

import (
	"slices"

	"example.org/ctrl/internal/wire"
)

// maxOrdered is how many units are looked at to find out what waits for a proxy.
const maxOrdered = 512

// Ordered is the manager asking which of some units of this node start only after a proxy,
// directly or by way of others. What is not found among maxOrdered units counts as not waiting.
// Errors: ErrDisconnected for an old session, ErrShuttingDown.
func (a *Agent) Ordered(s Session, proxy string, units []string, reply func([]string, error)) {
	a.post(func() {
		if err := a.current(s); err != nil {
			reply(nil, err)
			return
		}
		o := &ordering{wanted: make(map[string]string), seen: map[string]bool{proxy: true}, next: []string{proxy}, reply: reply}
		for _, u := range units[:min(len(units), MaxTargets)] {
			o.wanted[u] = u
			if t := a.deps.targets[u]; t != nil && t.primary != "" {
				o.wanted[t.primary] = u
			}
		}
		a.followOrder(o)
	}, func(err error) { reply(nil, err) })
}

// ordering is one search through what starts after a proxy.
type ordering struct {
	wanted map[string]string // primary name → the name that was asked for
	seen   map[string]bool
	next   []string
	found  []string
	reply  func([]string, error)
}

// followOrder asks systemd about one unit after the other.
func (a *Agent) followOrder(o *ordering) {
	if len(o.next) == 0 || len(o.seen) > maxOrdered {
		slices.Sort(o.found)
		o.reply(slices.Compact(o.found), nil)
		return
	}
	name := o.next[0]
	o.next = o.next[1:]
	a.systemd.Call("GetUnitProperty", wire.Strings(name, "Unit", "Before"), a.cfg.CallTimeout, func(body wire.Raw, err error) {
		a.loop.Defer(func() {
			after, _ := body.VariantStrings()
			for _, u := range after {
				if asked, ok := o.wanted[u]; ok {
					o.found = append(o.found, asked)
				}
				if !o.seen[u] {
					o.seen[u] = true
					o.next = append(o.next, u)
				}
			}
			a.followOrder(o)
		})
	})
}
