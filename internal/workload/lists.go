package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// askFor is how long nodes have to say what has become of their workloads; who does not answer
// is shown as it was.
const askFor = 2 * time.Second

// refresh asks those nodes that have workloads.
func (e *Engine) refresh(there func(string) bool, then func()) {
	open, over := 1, false
	var timer *loop.Timer
	done := func() {
		if open--; open <= 0 && !over {
			over = true
			timer.Stop()
			then()
		}
	}
	for name, n := range e.nodes {
		if there(name) && n.online && n.able && n.listed && len(n.statuses) > 0 {
			open++
			e.askListing(n, done)
		}
	}
	timer = e.loop.After(askFor, func() { open = 1; done() })
	done()
}

// List shows workloads on nodes, by workload and node; patterns are globs of either, and none
// is all. Nodes that are online are asked, and have two seconds to answer.
func (e *Engine) List(workloads, nodes []string, reply func([]Row, error)) {
	wanted, err := filter(workloads)
	if err != nil {
		reply(nil, err)
		return
	}
	there, err := filter(nodes)
	if err != nil {
		reply(nil, err)
		return
	}
	e.post(func() {
		e.refresh(there, func() { reply(e.rows(wanted, there), nil) })
	}, func(err error) { reply(nil, err) })
}

func (e *Engine) rows(wanted, there func(string) bool) (rows []Row) {
	for _, name := range slices.Sorted(maps.Keys(e.specs)) {
		if !wanted(name) {
			continue
		}
		s := e.specs[name]
		for _, at := range slices.Sorted(maps.Keys(s.Targets)) {
			if there(at) {
				rows = append(rows, e.row(s, at))
			}
		}
	}
	return append(rows, e.orphans(wanted, there)...)
}

// filter makes one test of globs; none lets everything pass.
func filter(patterns []string) (func(string) bool, error) {
	var globs []unit.Glob
	for _, p := range patterns {
		g, err := unit.CompileGlob(p)
		if err != nil {
			return nil, wire.ErrInvalidArgs.With("%v", err)
		}
		globs = append(globs, g)
	}
	return func(name string) bool {
		return len(globs) == 0 || slices.ContainsFunc(globs, func(g unit.Glob) bool { return g.Match(name) })
	}, nil
}

func (e *Engine) row(s *Spec, at string) Row {
	t, n := s.Targets[at], e.nodes[at]
	r := Row{Workload: s.Name, Node: at, Desired: wire.DesiredPresent, Revision: t.Revision, Generation: t.Generation, Since: t.At, Note: t.Error}
	if t.Remove {
		r.Desired = wire.DesiredAbsent
	}
	var have bundle.Status
	if n != nil {
		have = n.statuses[s.Name]
	}
	if have.Revision != 0 {
		r.Revision, r.Ready, r.State = have.Revision, ready(have), have.State
	}
	switch {
	case n == nil || !n.online:
		last := "never heard of"
		if r.State != "" {
			last = "last known: " + r.State
		}
		r.State, r.Note = wire.WorkloadUnreachable, last
	case t.Phase == Pending:
		r.State = wire.WorkloadPending
	case t.Phase == Held:
		r.State, r.Note = wire.WorkloadHeld, "its turn has not come: an apply has failed or ended before this node; apply again"
	case t.Phase == Broken && have.Revision == 0:
		r.State = wire.WorkloadRefused
	}
	if len(have.Drift) > 0 && r.Note == "" {
		r.Note = fmt.Sprintf("%d files are not as delivered", len(have.Drift))
	}
	return r
}

// ready counts the units that are as they should be.
func ready(s bundle.Status) string {
	up := 0
	for _, u := range s.Units {
		if u.Active == "active" || u.Active == "reloading" {
			up++
		}
	}
	return strconv.Itoa(up) + "/" + strconv.Itoa(len(s.Units))
}

// orphans are workloads on nodes that this manager knows nothing of.
func (e *Engine) orphans(wanted, there func(string) bool) (rows []Row) {
	for _, at := range slices.Sorted(maps.Keys(e.nodes)) {
		if !there(at) {
			continue
		}
		n := e.nodes[at]
		for _, name := range slices.Sorted(maps.Keys(n.statuses)) {
			st := n.statuses[name]
			if s := e.specs[name]; st.Deleted || !wanted(name) || s != nil && s.Targets[at] != nil {
				continue
			}
			rows = append(rows, Row{
				Workload: name, Node: at, State: wire.WorkloadOrphan, Ready: ready(st), Revision: st.Revision, Generation: st.Generation,
				Note: "not applied through this manager; it stays until somebody applies or deletes it",
			})
		}
	}
	return rows
}

// Describe gives all that is known of one workload.
func (e *Engine) Describe(name string, reply func(Detail, error)) {
	refuse := func(err error) { reply(Detail{}, err) }
	e.post(func() {
		e.refresh(func(at string) bool {
			s := e.specs[name]
			return s == nil || s.Targets[at] != nil
		}, func() { e.describe(name, reply) })
	}, refuse)
}

func (e *Engine) describe(name string, reply func(Detail, error)) {
	d := Detail{Nodes: make(map[string]bundle.Status)}
	if s := e.specs[name]; s != nil {
		d.Spec = s.clone()
	}
	for _, at := range slices.Sorted(maps.Keys(e.nodes)) {
		n := e.nodes[at]
		st, known := n.statuses[name]
		if known && !st.Deleted {
			d.Nodes[at] = st
		}
		if n.online && (known || d.Spec != nil && d.Spec.Targets[at] != nil) {
			d.Online = append(d.Online, at)
		}
	}
	if d.Spec == nil && len(d.Nodes) == 0 {
		reply(Detail{}, e.noWorkload(name))
		return
	}
	reply(d, nil)
}

// History asks the nodes of a workload, or some of them, for the revisions that they keep.
func (e *Engine) History(name string, nodes []string, reply func([]NodeHistory, error)) {
	e.post(func() {
		names, err := e.having(name, nodes)
		if err != nil {
			reply(nil, err)
			return
		}
		gather(e, names, func(i int, n *node, done func(NodeHistory)) {
			h := NodeHistory{Node: names[i]}
			if n == nil || !n.online {
				h.Error = offline(names[i]).Error()
				done(h)
				return
			}
			e.fleet.Ask(names[i], wire.MemberGetHistory, name, func(answer string, err error) {
				if err == nil {
					err = json.Unmarshal([]byte(answer), &h.History)
				}
				if err != nil {
					h.Error = err.Error()
				}
				e.later(func() { done(h) })
			})
		}, func(all []NodeHistory) { reply(all, nil) })
	}, func(err error) { reply(nil, err) })
}

// having are the nodes that have or should have a workload, or those of them that are named.
func (e *Engine) having(name string, named []string) ([]string, error) {
	var out []string
	for _, at := range slices.Sorted(maps.Keys(e.nodes)) {
		s, st := e.specs[name], e.nodes[at].statuses[name]
		if s != nil && s.Targets[at] != nil || st.Revision != 0 && !st.Deleted {
			out = append(out, at)
		}
	}
	if len(out) == 0 {
		return nil, e.noWorkload(name)
	}
	if len(named) == 0 {
		return out, nil
	}
	for _, at := range named {
		if !slices.Contains(out, at) {
			return nil, wire.ErrNoSuchWorkload.With("workload %s is not on node %.80q", name, at)
		}
	}
	return named, nil
}

// gather asks several nodes side by side and answers when all have.
func gather[T any](e *Engine, names []string, ask func(i int, n *node, done func(T)), reply func([]T)) {
	all := make([]T, len(names))
	open := len(names)
	if open == 0 {
		reply(all)
		return
	}
	for i, name := range names {
		ask(i, e.nodes[name], func(v T) {
			all[i] = v
			if open--; open == 0 {
				reply(all)
			}
		})
	}
}

// Revision gives a bundle of a node's history as JSON; number 0 is the present one.
func (e *Engine) Revision(at, name string, number uint64, reply func(string, error)) {
	e.post(func() {
		n := e.nodes[at]
		switch {
		case n == nil:
			reply("", wire.ErrNoSuchNode.With("node %.80q is not in the fleet", at))
		case !n.online:
			reply("", offline(at))
		default:
			e.fleet.Revision(at, name, number, reply)
		}
	}, func(err error) { reply("", err) })
}

// Collect lets nodes remove what no kept revision needs; patterns as in List.
func (e *Engine) Collect(nodes []string, dryRun bool, reply func([]NodeGarbage, error)) {
	there, err := filter(nodes)
	if err != nil {
		reply(nil, err)
		return
	}
	e.post(func() {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(e.nodes)), func(name string) bool { return !there(name) || !e.nodes[name].able })
		gather(e, names, func(i int, n *node, done func(NodeGarbage)) {
			g := NodeGarbage{Node: names[i]}
			if !n.online {
				g.Error = offline(names[i]).Error()
				done(g)
				return
			}
			e.fleet.Collect(names[i], dryRun, func(answer string, err error) {
				if err == nil {
					err = json.Unmarshal([]byte(answer), &g.Garbage)
				}
				if err != nil {
					g.Error = err.Error()
				}
				e.later(func() { done(g) })
			})
		}, func(all []NodeGarbage) { reply(all, nil) })
	}, func(err error) { reply(nil, err) })
}

// Operations lists what is under way.
func (e *Engine) Operations(reply func([]OperationInfo)) {
	e.post(func() {
		var list []OperationInfo
		for _, id := range slices.Sorted(maps.Keys(e.operations)) {
			list = append(list, e.operations[id].info)
		}
		reply(list)
	}, func(error) { reply(nil) })
}

// Check refuses what a damaged or foreign file holds, naming what is wrong.
func (s *Spec) Check() error {
	switch {
	case s.Format != SpecFormat:
		return fmt.Errorf("it has format %d, and this version knows format %d", s.Format, SpecFormat)
	case s.Targets == nil:
		return fmt.Errorf("it has no targets")
	case s.Made.After(time.Now().Add(100 * 365 * 24 * time.Hour)):
		return fmt.Errorf("its time %v cannot be", s.Made)
	}
	if err := bundle.CheckWorkload(s.Name); err != nil {
		return err
	}
	for name, t := range s.Targets {
		if !wire.ValidNodeName(name) || t == nil || !slices.Contains([]Phase{Held, Pending, Done, Broken}, t.Phase) {
			return fmt.Errorf("its target %.80q is damaged", name)
		}
	}
	return nil
}
