package bundle

import (
	"cmp"
	"slices"

	"example.org/ctrl/internal/unit"
)

// recover brings to an end what a crash has interrupted: before all files were in place
// that is the old bundle, from then on the new one.
func (r *run) recover() {
	p := r.w.state.Pending
	if p == nil {
		r.result.Outcome = Unchanged
		r.end()
		return
	}
	r.op.req.Options = p.Options
	if p.Delete {
		r.remove(Resume)
		return
	}
	made := func(b Bundle, err error) {
		if err != nil {
			r.stuck(err)
			return
		}
		if p.Phase == PhaseStart {
			r.resume(b)
			return
		}
		r.result.Code = cmp.Or(p.Code, CodeIO)
		r.result.Error = cmp.Or(p.Error, "the agent ended while it was replacing files")
		if p.Phase == PhaseBack {
			r.restore(b)
			return
		}
		back := *p
		back.Phase, back.Code, back.Error = PhaseBack, r.result.Code, r.result.Error
		r.do([]Step{r.journal(back)}, func() { r.restore(b) }, r.stuck)
	}
	if p.Target == p.Back {
		made(r.w.bundle, nil)
		return
	}
	r.e.files.Revision(r.op.workload, p.Target, func(b Bundle, err error) {
		r.e.loop.Defer(func() { made(b, err) })
	})
}

// resume goes on to the new bundle.
func (r *run) resume(b Bundle) {
	p := r.w.state.Pending
	r.target, r.fresh = p.Target, p.Target != p.Back
	in := Input{Direction: Resume, Before: append(r.present(), b), New: b, Options: p.Options, Touched: p.Touched}
	r.decide(in, func() {
		steps := slices.Concat(r.plan.prepare(), r.plan.stops(), r.plan.replace(), r.plan.starts())
		r.do(steps, r.started, r.stuck)
	})
}

// rollback applies the bundle of a revision again, as a new revision.
func (r *run) rollback() {
	s := r.w.state
	to := r.op.req.To
	if to == 0 {
		i := slices.IndexFunc(s.Revisions, func(v Revision) bool { return v.Number == s.Current })
		for i--; i >= 0 && (s.Revisions[i].Outcome == Failed || s.Revisions[i].Digest == r.digest()); i-- {
		}
		if i < 0 {
			r.refuse(refuse(CodeUnknown, "workload %s has no good revision before %d to go back to; see ctl workload history %s", r.op.workload, s.Current, r.op.workload))
			return
		}
		to = s.Revisions[i].Number
	}
	if _, ok := s.revision(to); !ok {
		r.refuse(refuse(CodeUnknown, "workload %s has no revision %d on this node; see ctl workload history %s", r.op.workload, to, r.op.workload))
		return
	}
	r.e.files.Revision(r.op.workload, to, func(b Bundle, err error) {
		r.e.loop.Defer(func() {
			if err != nil {
				r.refuse(err)
				return
			}
			r.op.of = to
			r.apply(b, nil)
		})
	})
}

// delete ends a workload. What it runs is stopped first: only what has stopped is removed.
func (r *run) delete() {
	if r.w.state.Current == 0 && len(r.w.state.Revisions) == 0 {
		r.absent()
		return
	}
	r.remove(Forward)
}

// absent records the generation of a workload that is not here, so that an older apply that
// is still on its way brings nothing back.
func (r *run) absent() {
	r.result.Outcome = Deleted
	s := r.w.state.clone()
	s.Generation, s.Last = r.op.req.Generation, Deleted
	if same(r.w.state, s) {
		r.end()
		return
	}
	s.Changed = r.e.cfg.Now().UTC()
	r.do([]Step{{Kind: StepState, Workload: r.op.workload, State: &s}}, r.end, r.refuse)
}

// remove stops, disables and removes everything.
func (r *run) remove(d Direction) {
	in := Input{Direction: d, Before: r.present(), New: Bundle{Format: Format, Workload: r.op.workload, Runtime: r.w.bundle.Runtime}}
	r.decide(in, func() {
		steps := r.plan.stops()
		failed := r.refuse
		if d == Forward {
			steps = append(steps, r.journal(Pending{Phase: PhaseStart, Back: r.w.state.Current, Delete: true}))
		}
		steps = append(steps, r.plan.replace()...)
		steps = append(steps, r.plan.starts()...)
		r.do(steps, r.removed, func(err error) {
			if r.w.state.Pending != nil {
				failed = r.stuck
			}
			failed(err)
		})
	})
}

func (r *run) removed() {
	s := State{
		Format: Format, Workload: r.op.workload, Generation: max(r.w.state.Generation, r.op.req.Generation),
		Last: Deleted, Changed: r.e.cfg.Now().UTC(),
	}
	steps := []Step{{Kind: StepState, Workload: r.op.workload, State: &s}}
	for _, v := range r.w.state.Revisions {
		steps = append(steps, Step{Kind: StepDropRevision, Workload: r.op.workload, Number: v.Number})
	}
	r.result.Outcome = Deleted
	r.do(steps, func() {
		r.w.bundle = Bundle{}
		r.sweep(r.end)
	}, r.refuse)
}

// control starts, stops or restarts what the workload has.
func (r *run) control() {
	if err := r.e.judge(r.w.bundle); err != nil {
		r.refuse(err)
		return
	}
	r.e.look(r.op.workload, r.present(), func(facts Facts, err error) {
		if err != nil {
			r.refuse(err)
			return
		}
		r.plan = &Plan{Stale: r.w.state.Stale}
		r.in = Input{New: r.w.bundle, Before: r.present(), Facts: facts}
		s := r.w.state.clone()
		s.Stopped = r.op.req.Verb == "stop"
		r.plan.Outcome = Started
		if s.Stopped {
			r.plan.Outcome = Stopped
		}
		var steps []Step
		if s.Stopped != r.w.state.Stopped {
			steps = append(steps, Step{Kind: StepState, Workload: r.op.workload, State: &s})
		}
		r.controlJobs(facts)
		if len(r.plan.Jobs) == 0 && len(steps) == 0 {
			r.plan.Outcome = Unchanged
		}
		r.do(append(steps, r.plan.starts()...), r.controlled, r.refuse)
	})
}

func (r *run) controlJobs(facts Facts) {
	names := make(map[string]bool)
	for name := range facts.Units {
		u, ok := r.w.bundle.definition(name)
		names[name] = ok && !u.Foreign && !unit.IsTemplate(name) && (facts.Units[name].running() || facts.Units[name].Active == "deactivating")
	}
	start := r.op.req.Verb != "stop"
	for _, name := range r.w.bundle.Start {
		names[name] = names[name] || start
	}
	for _, name := range keys(names) {
		f := facts.Units[name]
		switch {
		case !names[name] || r.op.req.Verb == "start" && f.running():
			continue
		case start && f.Active == "failed":
			r.plan.Reset = append(r.plan.Reset, name)
		}
		r.plan.Jobs = append(r.plan.Jobs, Job{r.op.req.Verb, name})
	}
}

// controlled looks at what was started; a stop is through with its jobs.
func (r *run) controlled() {
	for _, j := range r.plan.Jobs {
		if j.Verb == "restart" {
			r.plan.Stale = nil
		}
	}
	if r.op.req.Verb == "stop" {
		r.judge()
		return
	}
	r.started()
}

// sweep removes contents that no kept revision of any workload has.
func (r *run) sweep(then func()) {
	var steps []Step
	for _, id := range r.e.garbage() {
		steps = append(steps, Step{Kind: StepDropContent, Path: id})
	}
	r.do(steps, then, func(err error) {
		r.e.log.Warn("cannot remove what is no longer needed", keyErr, err)
		then()
	})
}

// garbage are the contents in the store that nothing refers to.
func (e *Engine) garbage() []string {
	kept := make(map[string]bool)
	for _, w := range e.workloads {
		for _, ids := range w.contents {
			for _, id := range ids {
				kept[id] = true
			}
		}
	}
	var out []string
	for id := range e.stored {
		if !kept[id] {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
