package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/wire"
)

// Apply makes a package what the nodes of a placement should have, and brings it there. Nodes
// that had the workload and are no longer meant lose it. reply gets the operation's id when
// the wish is on the disk. Errors: ErrInvalidArgs, ErrNoSuchNode, ErrUnitBusy,
// ErrLimitsExceeded, ErrShuttingDown.
func (e *Engine) Apply(r Request, reply func(uint32, error)) {
	refuse := func(err error) { reply(0, err) }
	b, err := checkPackage(r)
	if err != nil {
		refuse(err)
		return
	}
	e.post(func() {
		release, err := e.reserve(r.Workload)
		if err != nil {
			refuse(err)
			return
		}
		next, err := e.wish(r, b)
		if err != nil {
			release()
			refuse(err)
			return
		}
		e.store.SavePackage(next.Package, r.Package, func(err error) {
			e.later(func() {
				if err != nil {
					release()
					refuse(err)
					return
				}
				e.wished(next, r, release, reply)
			})
		})
	}, refuse)
}

// checkPackage reads a package, on the caller's goroutine: it may be large.
func checkPackage(r Request) (bundle.Bundle, error) {
	p, err := bundle.DecodePackage(r.Package)
	if err != nil {
		return bundle.Bundle{}, wire.ErrInvalidArgs.With("%v", err)
	}
	if p.Bundle.Workload != r.Workload {
		return bundle.Bundle{}, wire.ErrInvalidArgs.With("the package is of workload %q, not %q", p.Bundle.Workload, r.Workload)
	}
	return p.Bundle, nil
}

// wish makes what is to be remembered of an apply.
func (e *Engine) wish(r Request, b bundle.Bundle) (*Spec, error) {
	nodes, err := e.place(r.Placement)
	if err != nil {
		return nil, err
	}
	before := e.specs[r.Workload]
	if before == nil && len(e.specs) >= MaxWorkloads {
		return nil, wire.ErrLimitsExceeded.With("there are %d workloads already", len(e.specs))
	}
	s := &Spec{
		Format: SpecFormat, Name: r.Workload, Bundle: b.Digest(), Package: bundle.Sum(r.Package),
		Generation: e.nextGeneration(r.Workload), Placement: r.Placement, Options: r.Options, Actor: r.Actor, Made: time.Now(),
		Targets: make(map[string]*Target),
	}
	if before != nil {
		s.Kept = slices.Clone(before.Kept)
		for name := range before.Targets {
			s.Targets[name] = &Target{Generation: s.Generation, Remove: true, Phase: Held, At: s.Made}
		}
	}
	s.keep()
	for _, name := range nodes {
		s.Targets[name] = s.newTarget()
	}
	return s, nil
}

// nextGeneration is above all that this manager and its nodes have seen of a workload.
func (e *Engine) nextGeneration(workload string) uint64 {
	seen := uint64(0)
	if s := e.specs[workload]; s != nil {
		seen = s.Generation
	}
	for _, n := range e.nodes {
		seen = max(seen, n.statuses[workload].Generation)
	}
	return seen + 1
}

// wished goes on when the package is on the disk.
func (e *Engine) wished(next *Spec, r Request, release func(), reply func(uint32, error)) {
	e.store.SaveSpec(next.clone(), func(err error) {
		e.later(func() {
			release()
			if err != nil {
				e.forgetPackages(next.Package)
				reply(0, err)
				return
			}
			var dropped []string
			if before := e.specs[next.Name]; before != nil {
				dropped = before.packages()
			}
			e.specs[next.Name] = next
			e.forgetPackages(dropped...)
			e.deliverAll(next, VerbApply, r, reply)
		})
	})
}

// deliverAll brings every node of a workload to its target: first those that get it, then those
// that lose it.
func (e *Engine) deliverAll(s *Spec, verb string, r Request, reply func(uint32, error)) {
	var gain, lose []string
	for _, name := range slices.Sorted(maps.Keys(s.Targets)) {
		if s.Targets[name].Remove {
			lose = append(lose, name)
		} else {
			gain = append(gain, name)
		}
	}
	e.start(s, verb, append(gain, lose...), r, func(name string, done func(bundle.Result, error)) {
		e.bring(s, name, done)
	}, reply)
}

// bring takes one node of an operation to its target.
func (e *Engine) bring(s *Spec, name string, done func(bundle.Result, error)) {
	t, n := s.Targets[name], e.nodes[name]
	t.Phase = Pending // from now on it is delivered also if the node goes away
	e.save(s)
	if n == nil {
		done(bundle.Result{}, offline(name))
		return
	}
	if st, known := n.statuses[s.Name]; t.Remove && n.online && n.listed && (!known || st.Deleted) {
		r := bundle.Result{Outcome: bundle.Deleted} // it never got there
		e.settle(s, name, t, r)
		done(r, nil)
		return
	}
	o := e.operationOf(s.Name)
	ended := func(r bundle.Result, err error) {
		if err != nil && !isOffline(err) {
			r, err = refused(err), nil
		}
		if err == nil && e.specs[s.Name] == s && s.Targets[name] == t {
			e.settle(s, name, t, r)
		}
		done(r, err)
	}
	if t.Remove {
		e.enqueue(n, s.removalTask(t, o.progress(name), ended))
		return
	}
	e.enqueue(n, s.deliveryTask(t, o.progress(name), ended))
}

// Delete removes a workload from its nodes, or from some of them; what is away loses it when
// it comes back. Errors: ErrNoSuchWorkload and those of Apply.
func (e *Engine) Delete(r Request, reply func(uint32, error)) {
	refuse := func(err error) { reply(0, err) }
	e.post(func() {
		s, nodes, err := e.existing(r)
		if err != nil {
			refuse(err)
			return
		}
		release, err := e.reserve(r.Workload)
		if err != nil {
			refuse(err)
			return
		}
		next := s.clone()
		next.Generation, next.Actor, next.Options = e.nextGeneration(s.Name), r.Actor, r.Options
		for _, name := range nodes {
			next.Targets[name] = &Target{Generation: next.Generation, Remove: true, Phase: Held, At: time.Now()}
		}
		if len(r.Nodes) == 0 {
			next.Bundle, next.Package, next.Placement, next.Kept = "", "", Placement{}, nil
		} else {
			next.Placement = Placement{Nodes: next.staying()}
		}
		e.store.SaveSpec(next.clone(), func(err error) {
			e.later(func() {
				release()
				if err != nil {
					refuse(err)
					return
				}
				e.specs[next.Name] = next
				e.forgetPackages(s.packages()...)
				e.start(next, VerbDelete, nodes, r, func(name string, done func(bundle.Result, error)) { e.bring(next, name, done) }, reply)
			})
		})
	}, refuse)
}

// staying are the nodes that keep a workload.
func (s *Spec) staying() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Targets)) {
		if !s.Targets[name].Remove {
			names = append(names, name)
		}
	}
	return names
}

// existing finds a workload and those of its nodes that a request is about.
func (e *Engine) existing(r Request) (*Spec, []string, error) {
	if err := bundle.CheckWorkload(r.Workload); err != nil {
		return nil, nil, wire.ErrInvalidArgs.With("%v", err)
	}
	s := e.specs[r.Workload]
	if s == nil {
		return nil, nil, e.noWorkload(r.Workload)
	}
	if err := e.mayOperate(r.Workload); err != nil {
		return nil, nil, err
	}
	if len(r.Nodes) == 0 {
		return s, slices.Sorted(maps.Keys(s.Targets)), nil
	}
	var nodes []string
	for _, name := range r.Nodes {
		if s.Targets[name] == nil {
			return nil, nil, wire.ErrNoSuchWorkload.With("workload %s is not on node %.80q; ctl workload list %s shows where it is", s.Name, name, s.Name)
		}
		if !slices.Contains(nodes, name) {
			nodes = append(nodes, name)
		}
	}
	return s, nodes, nil
}

func (e *Engine) noWorkload(name string) error {
	for _, n := range e.nodes {
		if st, ok := n.statuses[name]; ok && !st.Deleted {
			return wire.ErrNoSuchWorkload.With("workload %.80q was not applied through this manager, though node %s has it; apply it here, which takes it over, and then delete it", name, n.name)
		}
	}
	return wire.ErrNoSuchWorkload.With("there is no workload %.80q; ctl workload list shows which there are", name)
}

// Rollback makes nodes go back to an earlier revision that they have kept.
func (e *Engine) Rollback(r Request, reply func(uint32, error)) {
	e.control(r, VerbRollback, wire.MemberRollbackWorkload, reply)
}

// Control starts, stops or restarts the units of a workload: r.Verb.
func (e *Engine) Control(r Request, reply func(uint32, error)) {
	if !slices.Contains([]string{"start", "stop", "restart"}, r.Verb) {
		reply(0, wire.ErrInvalidArgs.With("verb %.40q is not one of start, stop, restart", r.Verb))
		return
	}
	e.control(r, r.Verb, wire.MemberControlWorkload, reply)
}

func (e *Engine) control(r Request, verb, method string, reply func(uint32, error)) {
	e.post(func() {
		s, nodes, err := e.existing(r)
		if err != nil {
			reply(0, err)
			return
		}
		nodes = slices.DeleteFunc(nodes, func(name string) bool { return s.Targets[name].Remove })
		e.start(s, verb, nodes, r, func(name string, done func(bundle.Result, error)) {
			n, t := e.nodes[name], s.Targets[name]
			if n == nil || !n.online {
				// Nothing is remembered of it, so it is a failure and not pending.
				done(bundle.Result{Outcome: bundle.Failed, Error: offline(name).Error(), Code: wire.CodeOffline}, nil)
				return
			}
			o := e.operationOf(s.Name)
			e.enqueue(n, &task{
				method: method, progress: o.progress(name),
				request: bundle.Request{Workload: s.Name, To: r.To, Verb: r.Verb, Actor: r.Actor, Options: r.Options},
				done: func(result bundle.Result, err error) {
					if isOffline(err) {
						result, err = bundle.Result{Outcome: bundle.Failed, Error: err.Error(), Code: wire.CodeOffline}, nil
					}
					if verb == VerbRollback && err == nil && result.OK() && s.Targets[name] == t {
						e.settle(s, name, t, result)
					}
					done(result, err)
				},
			})
		}, reply)
	}, func(err error) { reply(0, err) })
}

// Plan says what Apply would do on each node, without doing it.
func (e *Engine) Plan(r Request, reply func([]NodePlan, error)) {
	refuse := func(err error) { reply(nil, err) }
	b, err := checkPackage(r)
	if err != nil {
		refuse(err)
		return
	}
	e.post(func() {
		next, err := e.wish(r, b)
		if err != nil {
			refuse(err)
			return
		}
		e.store.SavePackage(next.Package, r.Package, func(err error) {
			e.later(func() {
				if err != nil {
					refuse(err)
					return
				}
				e.planAll(next, r, reply)
			})
		})
	}, refuse)
}

func (e *Engine) planAll(next *Spec, r Request, reply func([]NodePlan, error)) {
	names := slices.Sorted(maps.Keys(next.Targets))
	plans := make([]NodePlan, len(names))
	open := len(names)
	for i, name := range names {
		plans[i].Node = name
		done := func(p bundle.PlanResult) {
			plans[i].Plan = p
			if open--; open == 0 {
				e.forgetPackages(next.Package)
				reply(plans, nil)
			}
		}
		n, t := e.nodes[name], next.Targets[name]
		switch {
		case n == nil || !n.online:
			done(bundle.PlanResult{Outcome: wire.OutcomePending, Notes: []string{"the node is offline; it gets this when it is back"}})
		case t.Remove:
			done(bundle.PlanResult{Outcome: bundle.Deleted, Notes: []string{"the workload is on this node and would be removed: the node is no longer named"}})
		default:
			e.planOne(n, next, r, done)
		}
	}
}

func (e *Engine) planOne(n *node, next *Spec, r Request, done func(bundle.PlanResult)) {
	var plan bundle.PlanResult
	e.enqueue(n, &task{
		method: wire.MemberPlanBundle, pack: next.Package,
		request: bundle.Request{Workload: next.Name, Generation: next.Generation, Actor: r.Actor, Options: r.Options},
		answered: func(answer string) {
			if err := json.Unmarshal([]byte(answer), &plan); err != nil {
				plan = bundle.PlanResult{Error: fmt.Sprintf("the node's answer cannot be read: %v", err)}
			}
		},
		done: func(_ bundle.Result, err error) {
			if err != nil {
				plan = bundle.PlanResult{Outcome: bundle.Failed, Error: err.Error()}
			}
			done(plan)
		},
	})
}
