package workload

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/wire"
)

// askListing asks a node what it has, and then brings it what it should have. then is called
// when it has answered, or cannot.
func (e *Engine) askListing(n *node, then func()) {
	e.fleet.Ask(n.name, wire.MemberListWorkloads, "", func(answer string, err error) {
		e.later(func() {
			defer then()
			if e.nodes[n.name] != n || !n.online {
				return
			}
			var l bundle.Listing
			if err == nil {
				err = json.Unmarshal([]byte(answer), &l)
			}
			if err != nil {
				if !isOffline(err) {
					e.log.Warn("a node does not say which workloads it has; nothing is delivered to it until it comes back", keyNode, n.name, "err", err)
				}
				return
			}
			n.listed, n.orphans = true, l.Orphans
			n.statuses, n.sizes, n.size = make(map[string]bundle.Status, len(l.Workloads)), make(map[string]int), 0
			for _, s := range l.Workloads {
				n.remember(s, len(answer)/len(l.Workloads))
			}
			e.reconcile(n)
		})
	})
}

// maxStatusBytes bounds what one node may make this manager remember.
const maxStatusBytes = 8 << 20

// remember keeps what a node says about a workload, unless it has said too much.
func (n *node) remember(s bundle.Status, size int) bool {
	if next := n.size - n.sizes[s.Workload] + size; next <= maxStatusBytes {
		n.size, n.sizes[s.Workload] = next, size
		n.statuses[s.Workload] = s
		return true
	}
	return false
}

// Changed is a node's signal about the state of a workload. It waits while the core has much
// to do.
func (e *Engine) Changed(nodeName, text string) {
	e.post(func() {
		n := e.nodes[nodeName]
		var s bundle.Status
		if n == nil || !n.listed || json.Unmarshal([]byte(text), &s) != nil || bundle.CheckWorkload(s.Workload) != nil {
			return
		}
		if !n.remember(s, len(text)) {
			return
		}
		if spec := e.specs[s.Workload]; spec != nil {
			e.reconcileOne(n, spec)
		}
	}, ignore)
}

// reconcile brings a node what it should have and does not.
func (e *Engine) reconcile(n *node) {
	for _, name := range slices.Sorted(maps.Keys(e.specs)) {
		e.reconcileOne(n, e.specs[name])
	}
}

// step is what a node needs so that a target is met.
type step uint8

const (
	nothing step = iota
	met          // it is so already, and only the book does not say so
	deliver
	remove
)

// decide compares what a node should have with what it says that it has. have is nil where it
// has nothing and knows nothing of the workload.
func decide(t *Target, have *bundle.Status) step {
	present := have != nil && !have.Deleted
	switch {
	case have != nil && have.Busy:
		return nothing // it says when it has ended
	case t.Remove && !present:
		return met
	case t.Phase == Held && !t.Remove && present && have.Digest == t.Bundle && have.Generation >= t.Generation:
		return met // the manager ended before it could write down that this node was begun
	case t.Phase == Broken || t.Phase == Held:
		return nothing
	case t.Remove:
		return remove
	case !present, have.Generation < t.Generation && t.Phase == Done:
		return deliver // the node's disk is new, or of an earlier day
	case t.Phase == Done:
		return nothing
	case have.Digest == t.Bundle && have.Generation >= t.Generation:
		return met
	}
	return deliver
}

func (e *Engine) reconcileOne(n *node, s *Spec) {
	if o := e.operationOn(s.Name, n.name); o != nil {
		o.missed[n.name] = true // it is looked at when the operation has ended
		return
	}
	t := s.Targets[n.name]
	if t == nil && s.Placement.dynamic() && s.Placement.matches(n) {
		t = s.newTarget()
		t.Phase = Pending
		s.Targets[n.name] = t
	}
	if t == nil {
		return
	}
	var have *bundle.Status
	if status, ok := n.statuses[s.Name]; ok {
		have = &status
	}
	switch decide(t, have) {
	case met:
		e.settle(s, n.name, t, metResult(have))
	case deliver:
		if t.Package == "" {
			e.settle(s, n.name, t, refused(wire.ErrFailed.With("the node has lost the workload, and the package of the bundle that it was rolled back to is not kept here; apply it again")))
			return
		}
		if have != nil && have.Generation > t.Generation {
			e.outnumber(s, t, have.Generation)
		}
		t.Phase = Pending
		e.log.Info("delivering a workload to a node that has come back", keyWorkload, s.Name, keyNode, n.name)
		e.enqueue(n, s.deliveryTask(t, func(bundle.Event) {}, e.delivered(s, n, t)))
	case remove:
		e.log.Info("removing a deleted workload from a node that has come back", keyWorkload, s.Name, keyNode, n.name)
		e.enqueue(n, s.removalTask(t, func(bundle.Event) {}, e.delivered(s, n, t)))
	}
}

func metResult(have *bundle.Status) bundle.Result {
	if have == nil || have.Deleted {
		return bundle.Result{Outcome: bundle.Deleted}
	}
	return bundle.Result{Outcome: have.Last, Revision: have.Revision, Digest: have.Digest, Error: have.LastError}
}

// outnumber makes what is wanted newer than what a node has seen from a manager that knew
// more: who asks here has asked last.
func (e *Engine) outnumber(s *Spec, t *Target, seen uint64) {
	s.Generation = max(s.Generation, seen+1)
	t.Generation = s.Generation
}

// newTarget is what a node should have that is meant now.
func (s *Spec) newTarget() *Target {
	return &Target{Generation: s.Generation, Bundle: s.Bundle, Package: s.Package, Phase: Held, At: time.Now()}
}

func (s *Spec) deliveryTask(t *Target, progress func(bundle.Event), done func(bundle.Result, error)) *task {
	return &task{
		method: wire.MemberApplyBundle, pack: t.Package, progress: progress, done: done,
		request: bundle.Request{Workload: s.Name, Generation: t.Generation, Actor: s.Actor, Options: s.Options},
	}
}

func (s *Spec) removalTask(t *Target, progress func(bundle.Event), done func(bundle.Result, error)) *task {
	return &task{
		method: wire.MemberDeleteWorkload, progress: progress, done: done,
		request: bundle.Request{Workload: s.Name, Generation: t.Generation, Actor: s.Actor, Options: s.Options},
	}
}

// delivered takes the end of a delivery that nobody waits for.
func (e *Engine) delivered(s *Spec, n *node, t *Target) func(bundle.Result, error) {
	return func(r bundle.Result, err error) {
		if e.specs[s.Name] != s || s.Targets[n.name] != t {
			return // something newer is wanted meanwhile
		}
		if isOffline(err) {
			return // it stays pending
		}
		if err != nil {
			r = refused(err)
		}
		if !r.OK() {
			e.log.Warn("a workload could not be delivered", keyWorkload, s.Name, keyNode, n.name, "err", r.Error)
		}
		e.settle(s, n.name, t, r)
	}
}

func refused(err error) bundle.Result {
	r := bundle.Result{Outcome: bundle.Failed, Error: err.Error()}
	if errors.Is(err, wire.ErrAccessDenied) {
		r.Code = bundle.CodeDenied
	}
	return r
}

// settle notes how a delivery ended, and saves it.
func (e *Engine) settle(s *Spec, nodeName string, t *Target, r bundle.Result) {
	t.Outcome, t.Revision, t.Code, t.Error, t.At = r.Outcome, r.Revision, r.Code, r.Error, time.Now()
	if n := e.nodes[nodeName]; n != nil && n.listed && r.OK() {
		n.learn(s.Name, t, r)
	}
	switch {
	case t.Remove && r.OK():
		delete(s.Targets, nodeName)
	case r.OK():
		t.Phase = Done
		if r.Digest != "" && r.Digest != t.Bundle { // a rollback
			t.Bundle, t.Package = r.Digest, s.packageOf(r.Digest)
		}
	default:
		t.Phase = Broken
	}
	e.save(s)
}

// learn notes what a result says about the node, whose own word about it comes later.
func (n *node) learn(workload string, t *Target, r bundle.Result) {
	st := n.statuses[workload]
	st.Workload, st.Generation, st.Deleted, st.Busy = workload, max(st.Generation, t.Generation), t.Remove, false
	st.Last, st.Revision = r.Outcome, r.Revision
	if r.Digest != "" {
		st.Digest = r.Digest
	}
	n.statuses[workload] = st
}

// save keeps a workload on the disk, or takes it off when it is gone from everywhere.
func (e *Engine) save(s *Spec) {
	failed := func(err error) {
		if err != nil {
			e.log.Error("what is wanted of a workload could not be saved", keyWorkload, s.Name, "err", err)
		}
	}
	if len(s.Targets) == 0 && s.Bundle == "" {
		delete(e.specs, s.Name)
		e.store.RemoveSpec(s.Name, failed)
		e.forgetPackages(s.packages()...)
		return
	}
	e.store.SaveSpec(s.clone(), failed)
}

// packageOf finds the package of a bundle, "" where it is not kept.
func (s *Spec) packageOf(digest string) string {
	for _, k := range s.Kept {
		if k.Bundle == digest {
			return k.Package
		}
	}
	return ""
}

func (s *Spec) packages() (list []string) {
	for _, k := range s.Kept {
		list = append(list, k.Package)
	}
	return list
}

// keep notes the package that is wanted now.
func (s *Spec) keep() {
	s.Kept = slices.DeleteFunc(s.Kept, func(k Kept) bool { return k.Bundle == s.Bundle })
	s.Kept = append(s.Kept, Kept{s.Bundle, s.Package})
	s.Kept = slices.Clone(s.Kept[max(0, len(s.Kept)-MaxKept):])
}

// forgetPackages lets the store remove what no workload keeps.
func (e *Engine) forgetPackages(candidates ...string) {
	needed := make(map[string]bool)
	for _, s := range e.specs {
		for _, k := range s.Kept {
			needed[k.Package] = true
		}
		for _, t := range s.Targets {
			needed[t.Package] = true
		}
	}
	if gone := slices.DeleteFunc(candidates, func(digest string) bool { return needed[digest] }); len(gone) > 0 {
		e.store.Forget(gone)
	}
}

func (s *Spec) clone() *Spec {
	out := *s
	out.Kept = slices.Clone(s.Kept)
	out.Targets = make(map[string]*Target, len(s.Targets))
	for name, t := range s.Targets {
		copied := *t
		out.Targets[name] = &copied
	}
	return &out
}
