package bundle

import (
	"slices"
)

type opKind string

const (
	opRecover  opKind = "recover"
	opApply    opKind = "apply"
	opRollback opKind = "rollback"
	opDelete   opKind = "delete"
	opControl  opKind = "control"
)

// operation is one that is queued or under way.
type operation struct {
	kind     opKind
	workload string
	req      Request
	pkg      Package
	of       uint64 // the revision that a rollback takes
	done     func(Result)
	ended    bool
}

func (op *operation) end(r Result) {
	if !op.ended && op.done != nil {
		op.done(r)
	}
	op.ended = true
}

// Apply queues the apply of an uploaded package. reply says whether it is queued; its course
// comes as events. Errors are of kind *Refusal.
func (e *Engine) Apply(req Request, reply func(error)) {
	e.post(func() {
		p, err := e.uploads.take(req)
		if err != nil {
			reply(err)
			return
		}
		reply(e.submit(&operation{kind: opApply, workload: req.Workload, req: req, pkg: p}))
	}, reply)
}

// Rollback queues the way back to a revision: its bundle becomes a new revision.
func (e *Engine) Rollback(req Request, reply func(error)) {
	e.post(func() { reply(e.submit(&operation{kind: opRollback, workload: req.Workload, req: req})) }, reply)
}

// Delete queues the end of a workload: its units are stopped, disabled and removed.
func (e *Engine) Delete(req Request, reply func(error)) {
	e.post(func() { reply(e.submit(&operation{kind: opDelete, workload: req.Workload, req: req})) }, reply)
}

// Control queues a start, stop or restart of a workload's units.
func (e *Engine) Control(req Request, reply func(error)) {
	e.post(func() {
		if !slices.Contains([]string{"start", "stop", "restart"}, req.Verb) {
			reply(refuse(CodeInvalid, "a workload can be started, stopped and restarted, not %.40q", req.Verb))
			return
		}
		reply(e.submit(&operation{kind: opControl, workload: req.Workload, req: req}))
	}, reply)
}

// submit queues an operation, or refuses it.
func (e *Engine) submit(op *operation) error {
	w := e.workloads[op.workload]
	switch {
	case e.broken[op.workload] != "":
		return refuse(CodeIO, "the state of workload %s on this node cannot be used (%s); look at it there, and move it away", op.workload, e.broken[op.workload])
	case len(e.queue) >= MaxQueued:
		return refuse(CodeBusy, "%d operations are waiting on this node already; try again when they are through", len(e.queue))
	case w == nil && (op.kind == opApply || op.kind == opDelete) && len(e.workloads) >= MaxWorkloads:
		return refuse(CodeBusy, "this node has %d workloads already, those counted that were deleted less than 30 days ago; ctl workload gc forgets the others", len(e.workloads))
	case (op.kind == opApply || op.kind == opDelete) && w != nil && op.req.Generation < w.state.Generation:
		return refuse(CodeStale, "generation %d of workload %s is older than the one this node has seen, %d", op.req.Generation, op.workload, w.state.Generation)
	case (op.kind == opRollback || op.kind == opControl) && (w == nil || w.state.Current == 0):
		return unknownWorkload(op.workload)
	}
	op.done = func(r Result) {
		e.events.Progress(Event{ID: op.req.ID, Workload: op.workload, Done: true, Result: &r})
	}
	e.queue = append(e.queue, op)
	e.loop.Defer(e.next)
	return nil
}

func unknownWorkload(name string) error {
	return refuse(CodeUnknown, "there is no workload %s on this node; those that are: ctl workload list", name)
}

// busy reports whether something is queued or under way for a workload.
func (e *Engine) busy(name string) bool {
	is := func(op *operation) bool { return op.workload == name }
	return e.current != nil && is(e.current) || slices.ContainsFunc(e.queue, is)
}
