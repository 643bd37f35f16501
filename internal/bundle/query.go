package bundle

import (
	"maps"
	"slices"

	"example.org/ctrl/internal/unit"
)

// Plan tells what an apply of an uploaded package would do; it changes nothing.
func (e *Engine) Plan(req Request, reply func(PlanResult, error)) {
	e.post(func() { e.planned(req, reply) }, func(err error) { reply(PlanResult{}, err) })
}

func (e *Engine) planned(req Request, reply func(PlanResult, error)) {
	p, err := e.uploads.get(req)
	if err != nil {
		reply(PlanResult{}, err)
		return
	}
	w := e.workloads[req.Workload]
	if w == nil {
		w = &workload{}
	}
	r := &run{e: e, op: &operation{workload: req.Workload}, w: w}
	refused := func(err error) {
		code := CodeIO
		if refusal, ok := err.(*Refusal); ok {
			code = refusal.Code
		}
		reply(PlanResult{Outcome: Failed, Code: code, Error: err.Error()}, nil)
	}
	if err := e.judge(p.Bundle); err != nil {
		refused(err)
		return
	}
	in := Input{Layout: e.cfg.Layout, FilePaths: e.cfg.FilePaths, Before: r.present(), New: p.Bundle, Blobs: p.Blobs, Options: req.Options,
		Stale: w.state.Stale, Stopped: w.state.Stopped, Had: w.state.Current != 0, Claims: e.claims(req.Workload)}
	e.look(req.Workload, append(slices.Clone(in.Before), in.New), func(facts Facts, err error) {
		if err != nil {
			refused(err)
			return
		}
		in.Facts = facts
		plan, err := MakePlan(in)
		if err != nil {
			refused(err)
			return
		}
		reply(PlanResult{Outcome: plan.Outcome, Changes: plan.Changes(), Diffs: plan.Diffs, Notes: plan.Notes}, nil)
	})
}

// History tells the revisions of a workload. Errors are of kind *Refusal.
func (e *Engine) History(name string, reply func(History, error)) {
	e.post(func() {
		w := e.workloads[name]
		if w == nil {
			reply(History{}, unknownWorkload(name))
			return
		}
		reply(History{w.state.Current, slices.Clone(w.state.Revisions)}, nil)
	}, func(err error) { reply(History{}, err) })
}

// Revision gives a revision's bundle; 0 is the present one.
func (e *Engine) Revision(name string, number uint64, reply func(Bundle, error)) {
	e.post(func() {
		w := e.workloads[name]
		if w == nil || w.state.Current == 0 {
			reply(Bundle{}, unknownWorkload(name))
			return
		}
		if number == 0 || number == w.state.Current {
			reply(w.bundle, nil)
			return
		}
		if _, ok := w.state.revision(number); !ok {
			reply(Bundle{}, refuse(CodeUnknown, "workload %s has no revision %d on this node", name, number))
			return
		}
		e.files.Revision(name, number, func(b Bundle, err error) { e.loop.Defer(func() { reply(b, err) }) })
	}, func(err error) { reply(Bundle{}, err) })
}

// List tells all workloads, with what their units do and how far their files are from what
// was written.
func (e *Engine) List(reply func(Listing, error)) {
	e.post(func() {
		out := Listing{Workloads: []Status{}, Orphans: e.orphans()}
		for name, why := range e.broken {
			out.Workloads = append(out.Workloads, Status{Workload: name, State: StateUnknown, Last: Failed, LastError: why})
		}
		left := len(e.workloads)
		finish := func() {
			slices.SortFunc(out.Workloads, func(a, b Status) int { return cmpString(a.Workload, b.Workload) })
			reply(out, nil)
		}
		if left == 0 {
			finish()
			return
		}
		for _, w := range e.workloads {
			e.status(w, func(s Status) {
				out.Workloads = append(out.Workloads, s)
				if left--; left == 0 {
					finish()
				}
			})
		}
	}, func(err error) { reply(Listing{}, err) })
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// orphans are unit files with ctrl's mark of workloads that this node does not have.
func (e *Engine) orphans() []string {
	var out []string
	for at, name := range e.marked {
		if w := e.workloads[name]; e.broken[name] == "" && (w == nil || !slices.Contains(w.bundle.paths(e.cfg.Layout), at)) {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return out
}

// status looks at one workload.
func (e *Engine) status(w *workload, done func(Status)) {
	s := Status{
		Workload: w.state.Workload, Revision: w.state.Current, Generation: w.state.Generation, Deleted: w.state.Last == Deleted && w.state.Current == 0,
		Stopped: w.state.Stopped, Busy: w.state.Pending != nil || e.busy(w.state.Workload), Last: w.state.Last, LastError: w.state.LastError, State: StateNone,
	}
	if w.state.Current == 0 {
		done(s)
		return
	}
	b, stale := w.bundle, maps.Clone(w.state.Stale)
	s.Digest = b.Digest()
	e.look(s.Workload, []Bundle{b}, func(f Facts, err error) {
		if err != nil {
			s.State, s.LastError = StateUnknown, err.Error()
		} else {
			s.Units, s.State = unitStates(b, f, stale), overall(b, f, s.Stopped)
			s.Drift = drift(b, f, e.cfg.Layout)
		}
		done(s)
	})
}

func unitStates(b Bundle, f Facts, stale map[string]string) []UnitStatus {
	var out []UnitStatus
	for _, name := range slices.Sorted(maps.Keys(f.Units)) {
		u := f.Units[name]
		if _, ok := b.definition(name); !ok || unit.IsTemplate(name) {
			continue
		}
		out = append(out, UnitStatus{
			Name: name, Load: u.Load, Active: u.Active, Sub: u.Sub, FileState: u.FileState, Result: u.Result,
			NeedRestart: stale[name] != "" && stale[name] == u.Invocation,
		})
	}
	return out
}

// overall is the word for all units that the bundle starts.
func overall(b Bundle, f Facts, stopped bool) string {
	if len(b.Start) == 0 {
		return StateNone
	}
	count := make(map[string]int)
	for _, name := range b.Start {
		u := f.Units[name]
		switch {
		case u.Active == "failed" || u.Sub == "auto-restart":
			count[StateFailed]++
		case u.Active == "activating":
			count[StateStarting]++
		case u.running():
			count[StateRunning]++
		case u.Done:
			count[StateCompleted]++
		default:
			count[StateStopped]++
		}
	}
	all := len(b.Start)
	switch {
	case count[StateFailed] == all:
		return StateFailed
	case count[StateFailed] > 0 || count[StateStopped] > 0 && count[StateStopped] < all:
		return StateDegraded
	case count[StateStopped] == all && stopped:
		return StateStopped
	case count[StateStopped] == all:
		return StateStoppedOutside
	case count[StateStarting] > 0:
		return StateStarting
	case count[StateCompleted] == all:
		return StateCompleted
	}
	return StateRunning
}

// drift compares what is on the disk with what was written.
func drift(b Bundle, f Facts, l Layout) []Drift {
	var out []Drift
	add := func(at string, fact PathFact, right bool, foreign bool) {
		switch {
		case fact.Kind == "":
			out = append(out, Drift{at, "missing"})
		case fact.Kind != KindFile || foreign:
			out = append(out, Drift{at, "foreign"})
		case !right:
			out = append(out, Drift{at, "edited"})
		}
	}
	for _, t := range b.Render(l) {
		fact := f.Paths[t.Path]
		add(t.Path, fact, fact.Text == t.Text, Mark(fact.Text) != b.Workload)
	}
	for _, file := range b.Files {
		if file.Write {
			fact := f.Paths[file.Path]
			add(file.Path, fact, fact.ID == file.ContentID(), false)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.contents())) {
		if !f.Contents[id] {
			out = append(out, Drift{l.Store + "/" + id, "missing"})
		}
	}
	return out
}
