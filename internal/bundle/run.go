package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// run is the operation under way: where it stands between two answers of the ports.
type run struct {
	e    *Engine
	op   *operation
	w    *workload
	plan *Plan
	in   Input

	steps  []Step
	at     int
	then   func()      // after the last step
	failed func(error) // where a step fails

	target uint64 // the revision being made, or the present one
	fresh  bool   // target is a new revision
	result Result
	faults []string // what units did not do
	late   []string // units whose jobs had not ended in time
}

// begin begins an operation. What an earlier one has left half-done comes first.
func (e *Engine) begin(op *operation) {
	w := e.workloads[op.workload]
	if w == nil {
		w = &workload{state: State{Format: Format, Workload: op.workload}, contents: make(map[uint64][]string)}
	}
	r := &run{e: e, op: op, w: w}
	if w.state.Pending != nil && op.kind != opRecover {
		first := &run{e: e, op: &operation{kind: opRecover, workload: op.workload}, w: w}
		first.op.done = func(res Result) {
			if w.state.Pending != nil {
				r.refuse(refuse(CodeIO, "the operation before could not be brought to an end: %s", res.Error))
				return
			}
			e.current = op
			r.begin()
		}
		first.begin()
		return
	}
	r.begin()
}

func (r *run) begin() {
	switch r.op.kind {
	case opRecover:
		r.recover()
	case opApply:
		r.apply(r.op.pkg.Bundle, r.op.pkg.Blobs)
	case opRollback:
		r.rollback()
	case opDelete:
		r.delete()
	case opControl:
		r.control()
	}
}

// judge asks the node's policy about bundles that are to be acted on.
func (e *Engine) judge(bundles ...Bundle) error {
	for _, b := range bundles {
		if e.cfg.Judge == nil || len(b.Units)+len(b.Files) == 0 {
			continue
		}
		if err := e.cfg.Judge(b); err != nil {
			return refuse(CodeDenied, "%v", err)
		}
	}
	return nil
}

// present are the bundles of which the node has traces when nothing is under way.
func (r *run) present() []Bundle {
	if r.w.state.Current == 0 {
		return nil
	}
	return []Bundle{r.w.bundle}
}

// decide looks at the node and makes the plan, then goes on.
func (r *run) decide(in Input, then func()) {
	if in.Direction == Forward {
		if err := r.e.judge(append(slices.Clone(in.Before), in.New)...); err != nil {
			r.refuse(err)
			return
		}
	}
	r.e.look(r.op.workload, append(slices.Clone(in.Before), in.New), func(facts Facts, err error) {
		if err != nil && r.w.state.Pending != nil {
			r.stuck(err)
			return
		}
		if err != nil {
			r.refuse(err)
			return
		}
		in.Layout, in.FilePaths, in.Facts = r.e.cfg.Layout, r.e.cfg.FilePaths, facts
		in.Claims, in.Stale, in.Stopped = r.e.claims(r.op.workload), r.w.state.Stale, r.w.state.Stopped
		in.Had = r.w.state.Current != 0
		r.in = in
		if r.plan, err = MakePlan(in); err != nil {
			r.refuse(err)
			return
		}
		r.result.Notes = append(r.result.Notes, r.plan.Notes...)
		then()
	})
}

// apply goes to a bundle.
func (r *run) apply(b Bundle, blobs map[string][]byte) {
	in := Input{Before: r.present(), New: b, Blobs: blobs, Options: r.op.req.Options}
	r.decide(in, func() {
		r.target, r.fresh = r.w.state.Current, false
		if b.Digest() != r.digest() {
			r.target, r.fresh = r.w.state.next(), true
		}
		if r.plan.Outcome == Unchanged && r.fresh {
			r.plan.Outcome = Configured
		}
		if r.plan.Outcome == Unchanged || r.plan.Outcome == Started {
			r.do(r.plan.starts(), r.started, r.refuse)
			return
		}
		r.verify(func() { r.do(r.forward(), r.started, r.broken) })
	})
}

func (r *run) digest() string {
	if r.w.state.Current == 0 {
		return ""
	}
	return r.w.bundle.Digest()
}

// verify refuses texts of which systemd would ignore a line.
func (r *run) verify(then func()) {
	if r.op.req.Options.AllowUnknown || len(r.plan.Units) == 0 {
		then()
		return
	}
	r.e.files.Verify(r.in.New.Render(r.e.cfg.Layout), func(faults []string, err error) {
		r.e.loop.Defer(func() {
			switch {
			case err != nil:
				r.refuse(fmt.Errorf("cannot let systemd check the units: %w", err))
			case len(faults) > 0:
				r.refuse(refuse(CodeIgnored, "systemd on this node would not take this:\n%s\ncorrect it, or apply with --allow-unknown", strings.Join(faults, "\n")))
			default:
				then()
			}
		})
	})
}

// forward are all steps to the new bundle, up to where its revision is committed.
func (r *run) forward() []Step {
	steps := r.plan.prepare()
	if r.fresh {
		steps = append(steps, Step{Kind: StepRevision, Workload: r.op.workload, Number: r.target, Bundle: &r.in.New})
	}
	p := Pending{Phase: PhaseSwitch, Target: r.target, Back: r.w.state.Current, Touched: r.plan.Touched, Options: r.op.req.Options}
	steps = append(steps, r.journal(p))
	steps = append(steps, r.plan.stops()...)
	steps = append(steps, r.plan.replace()...)
	p.Phase = PhaseStart
	steps = append(steps, r.journal(p))
	return append(steps, r.plan.starts()...)
}

// journal is the step that records how far the operation is.
func (r *run) journal(p Pending) Step {
	s := r.w.state.clone()
	s.Pending = &p
	return Step{Kind: StepState, Workload: r.op.workload, State: &s}
}

// do carries out steps, one after the other.
func (r *run) do(steps []Step, then func(), failed func(error)) {
	r.steps, r.at, r.then, r.failed = steps, 0, then, failed
	r.step()
}

func (r *run) step() {
	if r.at >= len(r.steps) {
		r.then()
		return
	}
	s := r.steps[r.at]
	if r.e.cfg.Fault != nil {
		r.e.cfg.Fault(true, s)
	}
	done := func(err error) { r.e.loop.Defer(func() { r.stepped(s, err) }) }
	switch {
	case s.Kind == StepJobs:
		r.jobs(s)
	case s.Kind.ForSystemd():
		r.e.systemd.Do(s, done)
	default:
		r.e.files.Do(s, done)
	}
}

func (r *run) stepped(s Step, err error) {
	if err != nil {
		r.e.log.Warn("a step of an operation has failed", keyWorkload, r.op.workload, keyStep, string(s.Kind), keyErr, err)
		r.failed(err)
		return
	}
	if r.e.cfg.Fault != nil {
		r.e.cfg.Fault(false, s)
	}
	r.at++
	r.noted(s)
	for _, c := range s.changes {
		r.changed(c)
	}
	r.step()
}

// noted keeps in memory what a step has put on the disk.
func (r *run) noted(s Step) {
	switch s.Kind {
	case StepState:
		r.w.state = *s.State
		r.e.workloads[r.op.workload] = r.w
	case StepRevision:
		var ids []string
		for id := range s.Bundle.contents() {
			ids = append(ids, id)
		}
		r.w.contents[s.Number] = ids
	case StepDropRevision:
		delete(r.w.contents, s.Number)
	case StepContent:
		r.e.stored[s.File.ContentID()] = int64(len(s.Data))
	case StepDropContent:
		delete(r.e.stored, s.Path)
	case StepUnit:
		if r.e.marked != nil {
			delete(r.e.marked, s.Path)
		}
	}
}

// changed tells of one change.
func (r *run) changed(c Change) {
	r.result.Changes = append(r.result.Changes, c)
	r.e.log.Info("workload changed", keyWorkload, r.op.workload, "what", c.What, "name", c.Name, "result", c.Result)
	r.e.events.Progress(Event{ID: r.op.req.ID, Workload: r.op.workload, Step: r.at, Steps: len(r.steps), Change: &c})
}

// jobs carries out a step of jobs. Stops are always awaited.
func (r *run) jobs(s Step) {
	wait := !r.op.req.Options.NoWait || !slices.ContainsFunc(s.Jobs, func(j Job) bool { return j.Verb != "stop" })
	each := func(i int, result string) {
		r.e.loop.Defer(func() { r.jobEnded(s.Jobs[i], result) })
	}
	r.e.systemd.Jobs(s.Jobs, wait, r.op.req.Options.Timeout(), each, func() {
		r.e.loop.Defer(func() {
			var err error
			if onlyStops(s.Jobs) && len(r.faults)+len(r.late) > 0 && r.op.kind != opControl {
				err = errors.New(r.trouble())
			}
			r.stepped(s, err)
		})
	})
}

func onlyStops(jobs []Job) bool {
	return !slices.ContainsFunc(jobs, func(j Job) bool { return j.Verb != "stop" })
}

func (r *run) jobEnded(j Job, result string) {
	r.changed(Change{What: j.Verb, Name: j.Unit, Result: result})
	switch result {
	case "done", "skipped", "queued":
	case "timeout":
		r.late = append(r.late, j.Unit)
	default:
		r.faults = append(r.faults, fmt.Sprintf("%s of %s: %s", j.Verb, j.Unit, result))
	}
}

// trouble says what units did not do, "" where they did everything.
func (r *run) trouble() string {
	faults := slices.Clone(r.faults)
	if len(r.late) > 0 {
		faults = append(faults, fmt.Sprintf("still under way after %s: %s", r.op.req.Options.Timeout(), strings.Join(r.late, ", ")))
	}
	return strings.Join(faults, "; ")
}

// code is the word for trouble.
func (r *run) code() string {
	if len(r.faults) == 0 {
		return CodeTimeout
	}
	return CodeUnits
}

// refuse ends the operation without a change of what the node has.
func (r *run) refuse(err error) {
	if staged := r.plan; staged != nil && len(staged.Stage) > 0 && r.at > 0 {
		stage := staged.Stage
		r.plan = nil
		r.do([]Step{{Kind: StepUnstage, Texts: stage}}, func() { r.refuse(err) }, func(error) { r.refuse(err) })
		return
	}
	var refusal *Refusal
	code := CodeIO
	if errors.As(err, &refusal) {
		code = refusal.Code
	}
	r.result.Outcome, r.result.Code, r.result.Error = Failed, cmp.Or(r.result.Code, code), err.Error()
	r.end()
}

// end ends the operation and begins the next one.
func (r *run) end() {
	r.result.Revision, r.result.Digest = r.w.state.Current, r.digest()
	for name := range r.w.state.Stale {
		r.result.NeedRestart = append(r.result.NeedRestart, name)
	}
	slices.Sort(r.result.NeedRestart)
	if r.e.current == r.op {
		r.e.current = nil
	}
	r.op.end(r.result)
	if r.e.workloads[r.op.workload] != nil {
		r.e.status(r.w, func(s Status) { r.e.events.Changed(s) })
	}
	r.e.next()
}
