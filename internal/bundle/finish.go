package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// started looks once more at the units that were to come up: a job that is done says of a
// simple service only that its process was made.
func (r *run) started() {
	var names []string
	for _, j := range r.plan.Jobs {
		names = append(names, j.Unit)
	}
	if len(names) == 0 || r.op.req.Options.NoWait {
		r.judge()
		return
	}
	r.e.systemd.Look(names, nil, func(units map[string]UnitFact, err error) {
		r.e.loop.Defer(func() {
			for _, name := range names {
				u := units[name]
				if err == nil && (u.Active == "failed" || u.Sub == "auto-restart") && !r.mentioned(name) {
					r.faults = append(r.faults, fmt.Sprintf("%s has failed right after it was started (%s)", name, cmp.Or(u.Result, u.Sub)))
				}
			}
			r.judge()
		})
	})
}

// mentioned reports whether a unit's job has failed already.
func (r *run) mentioned(name string) bool {
	return slices.ContainsFunc(r.result.Changes, func(c Change) bool {
		return c.Name == name && c.Result != "" && c.Result != "done" && c.Result != "skipped"
	})
}

// judge goes back where that was asked for and something failed, and commits otherwise.
func (r *run) judge() {
	trouble := r.trouble()
	switch {
	case trouble == "":
	case r.in.Direction == Restore:
		r.result.Notes = append(r.result.Notes, "after going back: "+trouble)
	default:
		r.result.Code, r.result.Error = r.code(), trouble
	}
	p := r.w.state.Pending
	if trouble != "" && r.in.Direction != Restore && p != nil && !p.Delete && p.Options.RollbackOnFailure {
		r.back(errors.New(trouble), r.code())
		return
	}
	r.commit()
}

// commit makes what the node has now its state.
func (r *run) commit() {
	before := r.w.state
	s := before.clone()
	p := s.Pending
	s.Pending = nil
	if r.in.Direction != Restore {
		s.Stale = maps.Clone(r.plan.Stale)
	}
	if len(s.Stale) == 0 {
		s.Stale = nil
	}
	outcome := r.plan.Outcome
	if r.op.kind == opApply {
		s.Generation = max(s.Generation, r.op.req.Generation)
	}
	switch {
	case r.op.kind == opRollback:
		outcome = RolledBack
	case r.in.Direction == Restore:
		outcome = RolledBack
		s.Current = p.Back
		if p.Code == CodeIO {
			outcome = Failed
		}
	case r.in.Direction == Resume:
		outcome = Configured
	case r.result.Error != "":
		outcome = Failed
	}
	if r.in.Direction != Restore && r.target != 0 {
		s.Current = r.target
	}
	if _, known := s.revision(r.target); !known && r.target != 0 {
		s.Revisions = append(s.Revisions, Revision{
			Number: r.target, Digest: r.madeDigest(), Generation: s.Generation, Made: r.e.cfg.Now().UTC(),
			Actor: r.op.req.Actor, Outcome: r.recorded(outcome), Error: r.result.Error, Of: r.op.of,
		})
	}
	r.result.Outcome = outcome
	if outcome != Unchanged || s.LastError != "" {
		s.Last, s.LastError = outcome, r.result.Error
	}
	dropped := s.trim()
	if same(before, s) {
		r.committed()
		return
	}
	s.Changed = r.e.cfg.Now().UTC()
	steps := []Step{{Kind: StepState, Workload: r.op.workload, State: &s}}
	for _, number := range dropped {
		steps = append(steps, Step{Kind: StepDropRevision, Workload: r.op.workload, Number: number})
	}
	r.do(steps, r.committed, r.refuse)
}

// recorded is the outcome of the revision that was made: what a rollback on failure left
// has failed.
func (r *run) recorded(outcome Outcome) Outcome {
	if r.in.Direction == Restore {
		return Failed
	}
	return outcome
}

// madeDigest is the digest of the revision that was made.
func (r *run) madeDigest() string {
	if r.in.Direction == Restore {
		return r.in.Before[0].Digest()
	}
	return r.in.New.Digest()
}

// same compares two states in all that matters. An unchanged apply writes nothing.
func same(a, b State) bool {
	a.Changed = b.Changed
	return string(mustJSON(a)) == string(mustJSON(b))
}

func (r *run) committed() {
	r.w.bundle = r.in.New
	r.sweep(r.end)
}

// back restores the bundle before, after a failure past the point where nothing had changed.
func (r *run) back(cause error, code string) {
	r.e.log.Warn("going back to the bundle before", keyWorkload, r.op.workload, keyErr, cause)
	p := *r.w.state.Pending
	p.Phase, p.Error, p.Code = PhaseBack, cause.Error(), code
	r.result.Code, r.result.Error = code, cause.Error()
	r.faults, r.late = nil, nil
	made := r.in.New
	r.do([]Step{r.journal(p)}, func() { r.restore(made) }, r.stuck)
}

// broken is the answer to a step that failed: where the journal has begun, the old bundle is
// restored.
func (r *run) broken(err error) {
	if r.w.state.Pending == nil {
		r.refuse(err)
		return
	}
	code := CodeIO
	if len(r.faults)+len(r.late) > 0 {
		code = r.code()
	}
	r.back(err, code)
}

// restore goes from whatever is on the node to the bundle before, where made is what was
// being made.
func (r *run) restore(made Bundle) {
	p := r.w.state.Pending
	in := Input{Direction: Restore, Before: []Bundle{made}, New: Bundle{Format: Format, Workload: r.op.workload, Runtime: made.Runtime}, Touched: p.Touched}
	if p.Back != 0 {
		in.New = r.w.bundle
		in.Before = append(in.Before, r.w.bundle)
	}
	r.target = p.Target
	if p.Target == p.Back {
		r.target = 0
	}
	r.decide(in, func() {
		steps := slices.Concat(r.plan.prepare(), r.plan.stops(), r.plan.replace(), r.plan.starts())
		r.do(steps, r.started, r.stuck)
	})
}

// stuck ends an operation whose end must wait: the journal says what is left to do.
func (r *run) stuck(err error) {
	text := fmt.Sprintf("cannot bring workload %s to an end: %v; it is tried again before its next operation, and when the agent starts", r.op.workload, err)
	if r.result.Error != "" {
		text = r.result.Error + "; then: " + text
	}
	r.plan = nil
	r.refuse(errors.New(text))
}
