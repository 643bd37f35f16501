package bundle

import (
	"path"
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/unit"
)

// tombstones is how long the generation of a deleted workload is kept.
const tombstones = 30 * 24 * time.Hour

// Collect removes what nothing refers to: contents that no revision has, unit files with
// ctrl's mark of workloads that this node does not know (stopped and disabled first), and
// what is kept of workloads that were deleted long ago. With dry it only tells.
// Errors are of kind *Refusal or of the disk.
func (e *Engine) Collect(dry bool, reply func(Garbage, error)) {
	e.post(func() {
		if e.current != nil && !dry {
			reply(Garbage{}, refuse(CodeBusy, "an operation is under way on this node; try again when it is through"))
			return
		}
		g := Garbage{Blobs: e.garbage(), Orphans: e.orphans(), Forgotten: e.forgotten()}
		for _, id := range g.Blobs {
			g.Bytes += e.stored[id]
		}
		if dry || len(g.Blobs)+len(g.Orphans)+len(g.Forgotten) == 0 {
			reply(g, nil)
			return
		}
		e.collect(g, reply)
	}, func(err error) { reply(Garbage{}, err) })
}

func (e *Engine) forgotten() []string {
	var out []string
	for name, w := range e.workloads {
		if w.state.Current == 0 && w.state.Last == Deleted && e.cfg.Now().Sub(w.state.Changed) > tombstones {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (e *Engine) collect(g Garbage, reply func(Garbage, error)) {
	r := &run{e: e, op: &operation{}, w: &workload{}}
	e.current = r.op
	steps := orphanSteps(g.Orphans)
	for _, id := range g.Blobs {
		steps = append(steps, Step{Kind: StepDropContent, Path: id})
	}
	for _, name := range g.Forgotten {
		steps = append(steps, Step{Kind: StepForget, Workload: name})
	}
	end := func(err error) {
		if err == nil {
			for _, at := range g.Orphans {
				delete(e.marked, at)
			}
			for _, name := range g.Forgotten {
				delete(e.workloads, name)
			}
		}
		e.current = nil
		reply(g, err)
		e.next()
	}
	r.do(steps, func() { end(nil) }, end)
}

// orphanSteps end units whose workload nobody knows, and remove their files.
func orphanSteps(paths []string) []Step {
	var names []string
	var stops []Job
	var steps []Step
	for _, at := range paths {
		name := path.Base(at)
		if !unit.Valid(name) || strings.HasSuffix(path.Dir(at), ".d") {
			continue
		}
		names = append(names, name)
		if !unit.IsTemplate(name) {
			stops = append(stops, Job{"stop", name})
		}
	}
	if len(stops) > 0 {
		steps = append(steps, Step{Kind: StepJobs, Jobs: stops})
	}
	if len(names) > 0 {
		steps = append(steps, Step{Kind: StepDisable, Names: names})
	}
	for _, at := range paths {
		steps = append(steps, Step{Kind: StepRemove, Path: at, changes: each("remove", []string{at})})
	}
	if len(paths) > 0 {
		steps = append(steps, Step{Kind: StepReload})
	}
	return steps
}
