package workload

import (
	"maps"
	"slices"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/wire"
)

// Verbs of operations.
const (
	VerbApply    = "apply"
	VerbDelete   = "delete"
	VerbRollback = "rollback"
)

// operation is one thing that a caller wants for a workload on several nodes, node by node.
// It stops at the first failure: what works on no node of three should not be tried on the
// other ninety-seven.
type operation struct {
	e       *Engine
	info    OperationInfo
	spec    *Spec
	max     int
	waiting []string        // nodes that are not begun
	running map[string]bool // nodes under way
	missed  map[string]bool // nodes that came back, or said something, meanwhile
	begin   func(node string, done func(bundle.Result, error))
	failed  bool
	pending bool
	over    bool
	stopped bool // by CancelOperation
}

// operationOn finds the operation of a workload that has a node on its list, so that nobody
// else delivers there at the same time.
func (e *Engine) operationOn(workload, node string) *operation {
	if o := e.operationOf(workload); o != nil && slices.Contains(o.info.Nodes, node) {
		return o
	}
	return nil
}

func (e *Engine) operationOf(workload string) *operation {
	for _, o := range e.operations {
		if o.info.Workload == workload {
			return o
		}
	}
	return nil
}

// mayOperate refuses a second operation on a workload.
func (e *Engine) mayOperate(workload string) error {
	if len(e.operations) >= MaxOperations {
		return wire.ErrLimitsExceeded.With("%d operations are under way already", len(e.operations))
	}
	if e.reserved[workload] {
		return wire.ErrWorkloadBusy.With("workload %s is busy: another operation begins at this moment", workload)
	}
	if o := e.operationOf(workload); o != nil {
		return wire.ErrWorkloadBusy.With("workload %s is busy: operation %d (%s) is under way", workload, o.info.ID, o.info.Verb)
	}
	return nil
}

// reserve keeps others from a workload until release, while something is being saved.
func (e *Engine) reserve(workload string) (release func(), err error) {
	if err := e.mayOperate(workload); err != nil {
		return nil, err
	}
	e.reserved[workload] = true
	return func() { delete(e.reserved, workload) }, nil
}

// start begins an operation and answers its id, before anything can be told about it.
func (e *Engine) start(s *Spec, verb string, nodes []string, r Request, begin func(string, func(bundle.Result, error)), reply func(uint32, error)) {
	e.lastID++
	o := &operation{
		e: e, spec: s, info: OperationInfo{ID: e.lastID, Workload: s.Name, Verb: verb, Nodes: slices.Clone(nodes), Actor: r.Actor},
		max: max(1, r.MaxUnavailable), waiting: slices.Clone(nodes), running: make(map[string]bool), missed: make(map[string]bool), begin: begin,
	}
	e.operations[o.info.ID] = o
	e.events.OperationNew(o.info)
	reply(o.info.ID, nil)
	o.advance()
}

// advance begins as many nodes as may be under way, and ends when none is left.
func (o *operation) advance() {
	for !o.over && !o.failed && !o.stopped && len(o.waiting) > 0 && len(o.running) < o.max {
		name := o.waiting[0]
		o.waiting = o.waiting[1:]
		o.running[name] = true
		o.begin(name, func(r bundle.Result, err error) { o.nodeDone(name, r, err) })
	}
	if o.over || len(o.running) > 0 {
		return
	}
	for _, name := range o.waiting {
		o.tell(name, bundle.Result{Outcome: wire.OutcomeSkipped, Error: "an earlier node has failed"})
	}
	result := wire.ResultDone
	switch {
	case o.stopped:
		result = wire.ResultCanceled
	case o.failed:
		result = wire.ResultFailed
	case o.pending:
		result = wire.ResultPending
	}
	o.end(result)
}

func (o *operation) nodeDone(name string, r bundle.Result, err error) {
	if o.over {
		return
	}
	delete(o.running, name)
	switch {
	case isOffline(err):
		o.pending = true
		r = bundle.Result{Outcome: wire.OutcomePending, Error: err.Error()}
	case err != nil:
		r = refused(err)
	}
	if !r.OK() && r.Outcome != wire.OutcomePending {
		o.failed = true
	}
	o.tell(name, r)
	o.advance()
}

func (o *operation) tell(name string, r bundle.Result) {
	o.e.events.NodeResult(o.info, NodeResult{Node: name, Result: r})
}

func (o *operation) end(result string) {
	o.over = true
	delete(o.e.operations, o.info.ID)
	o.e.events.OperationRemoved(o.info, result)
	for _, name := range slices.Sorted(maps.Keys(o.missed)) {
		if n := o.e.nodes[name]; n != nil && n.online && n.listed && o.e.specs[o.spec.Name] == o.spec {
			o.e.reconcileOne(n, o.spec)
		}
	}
}

// abandon ends an operation whose nodes go on without it.
func (o *operation) abandon(result string) {
	if o.over {
		return
	}
	for _, name := range append(slices.Sorted(maps.Keys(o.running)), o.waiting...) {
		o.tell(name, bundle.Result{Outcome: wire.OutcomePending, Error: "the operation has ended before this node"})
	}
	o.over = true
	delete(o.e.operations, o.info.ID)
	o.e.events.OperationRemoved(o.info, result)
}

func (o *operation) progress(name string) func(bundle.Event) {
	return func(ev bundle.Event) {
		if !o.over {
			o.e.events.NodeProgress(o.info.ID, name, ev)
		}
	}
}

// CancelOperation begins no further node; those under way end by themselves.
func (e *Engine) CancelOperation(id uint32, reply func(error)) {
	e.post(func() {
		o := e.operations[id]
		if o == nil {
			reply(wire.ErrNoSuchOperation.With("there is no operation %d; it may have ended", id))
			return
		}
		o.stopped = true
		reply(nil)
		o.advance()
	}, reply)
}
