package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// Words for results besides systemd's own.
const (
	resultRefused    = "refused"     // no job was made
	resultOffline    = "offline"     // the node was lost; nobody knows
	resultUnknown    = "unknown"     // the manager was lost; nobody knows
	resultWaiting    = "waiting"     // ctl stopped waiting, the job goes on
	resultNotStarted = "not-started" // a condition was not met, or there was nothing to do
	resultNotTried   = "not-tried"   // an earlier node failed
)

// jobResult is how one job ended.
type jobResult struct {
	Node    string `col:"NODE"`
	Unit    string `col:"UNIT,cut"`
	Job     uint32 `col:"JOB"`
	Result  string `col:"RESULT"`
	Message string `col:"MESSAGE,wide"`

	err  error
	note string
}

// Style implements render.Styled.
func (r jobResult) Style(column string) render.Style {
	switch {
	case column != "RESULT":
	case r.err != nil:
		return render.Bad
	case r.Result == wire.ResultDone:
		return render.Good
	}
	return render.Plain
}

// jobPath is a job that was made and is not waited for.
type jobPath struct {
	Node string `col:"NODE"`
	Unit string `col:"UNIT,cut"`
	Job  uint32 `col:"JOB"`
	Path string `col:"PATH"`
}

var (
	errGaveUp      = errors.New("gave up waiting")
	errInterrupted = errors.New("interrupted")
)

// jobRun is one command that makes jobs on nodes.
type jobRun struct {
	a    *app
	make maker
	f    jobFlags

	ctx      context.Context // ends at --timeout, and when the user interrupts
	progress progress

	mu        sync.Mutex
	unmatched map[string]int // globs, and on how many nodes they matched nothing
}

func giveUpAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errGaveUp)
}

// runJobs makes jobs for units on nodes, waits for them and says how they ended.
func (a *app) runJobs(nodes, units []string, m maker, f jobFlags) error {
	r := &jobRun{a: a, make: m, f: f, ctx: a.ctx, unmatched: make(map[string]int)}
	if f.timeout > 0 {
		ctx, cancel := a.deadline(a.ctx, f.timeout)
		defer cancel()
		r.ctx = ctx
	}
	if f.noWait {
		return r.queueAll(nodes, units)
	}
	r.progress.start(a, m.word())
	results := r.all(nodes, units)
	r.progress.stop()
	return r.finish(nodes, results)
}

// all works on all nodes and returns the results in their order.
func (r *jobRun) all(nodes, units []string) []jobResult {
	perNode := make([][]jobResult, len(nodes))
	var stopped string // the node whose failure ends a serial run
	each(nodes, r.f.limit(), func(i int, node string) {
		if r.f.serial && stopped != "" {
			perNode[i] = []jobResult{{Node: node, Result: resultNotTried, Message: "stopped after " + stopped + " failed"}}
			return
		}
		perNode[i] = r.node(node, units)
		for _, res := range perNode[i] {
			if res.err != nil && r.f.serial {
				stopped = node
			}
		}
	})
	var all []jobResult
	for _, list := range perNode {
		all = append(all, list...)
	}
	return all
}

// node makes the jobs of one node in order, as systemctl does, and waits for all of them.
func (r *jobRun) node(node string, typed []string) []jobResult {
	units, err := r.prepare(node, typed)
	if err != nil {
		return r.refuseAll(node, typed, err)
	}
	results := make([]jobResult, len(units))
	var wg sync.WaitGroup
	for i, u := range units {
		res := &results[i]
		*res = jobResult{Node: node, Unit: u}
		r.progress.add(node, u)
		job, err := r.make.follow(r.ctx, node, u)
		r.progress.answered()
		if err != nil {
			if r.make.spares(err) {
				res.Result, res.Message = resultNotStarted, err.Error()
			} else {
				r.refuse(res, err)
			}
			r.progress.done(node, u)
			continue
		}
		res.Job = job.ID
		wg.Go(func() {
			defer r.progress.done(node, u)
			r.wait(res, job)
		})
	}
	wg.Wait()
	return results
}

func (r *jobRun) prepare(node string, typed []string) ([]string, error) {
	units, unmatched, err := r.a.expand(r.ctx, node, typed)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	for _, glob := range unmatched {
		r.unmatched[glob]++
	}
	r.mu.Unlock()
	if len(units) == 0 {
		return nil, nil
	}
	return units, r.make.before(r.ctx, node, units)
}

// refuseAll makes results for units that could not be asked about.
func (r *jobRun) refuseAll(node string, typed []string, err error) []jobResult {
	results := make([]jobResult, len(typed))
	for i, u := range typed {
		results[i] = jobResult{Node: node, Unit: u}
		r.refuse(&results[i], err)
	}
	return results
}

// refuse notes that there is no job.
func (r *jobRun) refuse(res *jobResult, err error) {
	res.Result = resultRefused
	if errors.Is(err, wire.ErrNodeOffline) {
		res.Result = resultOffline
	}
	r.fail(res, err)
}

func (r *jobRun) fail(res *jobResult, err error) {
	switch {
	case errors.Is(err, errGaveUp):
		res.Result = resultWaiting
		err = &gaveUp{after: r.f.timeout, job: res.Job}
	case r.a.ctx.Err() != nil:
		res.Result, res.Message, res.err = resultWaiting, errInterrupted.Error(), errInterrupted
		return
	}
	res.Message = err.Error()
	res.err = &failure{doing: fmt.Sprintf("cannot %s %s on %s", r.make.word(), res.Unit, res.Node), node: res.Node, unit: res.Unit, err: err}
}

// gaveUp is the end of a wait at its time limit: of kind Timeout, and errGaveUp.
type gaveUp struct {
	after time.Duration
	job   uint32 // the job that goes on
	unit  string // or the unit
}

func (g *gaveUp) Error() string {
	after := render.Span(uint64(g.after.Microseconds()), 1000)
	switch {
	case g.unit != "":
		return fmt.Sprintf("gave up after %s; the unit goes on", after)
	case g.job == 0:
		return fmt.Sprintf("no answer after %s", after)
	}
	return fmt.Sprintf("gave up waiting after %s; job %d goes on", after, g.job)
}

func (g *gaveUp) Is(target error) bool {
	return target == errGaveUp || wire.ErrTimeout.Is(target)
}

func (r *jobRun) wait(res *jobResult, job *client.Job) {
	result, err := job.Wait(r.ctx)
	if err != nil {
		res.Result = resultUnknown
		if errors.Is(err, wire.ErrNodeOffline) {
			res.Result = resultOffline
		}
		r.fail(res, err)
		return
	}
	res.Result = result
	switch result {
	case wire.ResultDone:
		r.judge(res, r.make.after(r.ctx, res.Node, res.Unit))
	case "skipped":
	default:
		r.judge(res, judgeResult(r.ctx, r.a.bus, res.Node, res.Unit, result))
	}
}

func (r *jobRun) judge(res *jobResult, v verdict) {
	if v.result != "" {
		res.Result = v.result
	}
	res.note = v.note
	if v.note != "" {
		res.Message = v.note
	}
	if v.failed != nil {
		res.Message = v.failed.Error()
		res.err = &failure{doing: fmt.Sprintf("cannot %s %s on %s", r.make.word(), res.Unit, res.Node), node: res.Node, unit: res.Unit, err: v.failed, log: v.log}
	}
}

// finish writes the results and makes the error of the command.
func (r *jobRun) finish(nodes []string, results []jobResult) error {
	if r.a.ctx.Err() != nil {
		return r.interrupted(results)
	}
	var errs []error
	var notTried []string
	for _, res := range results {
		errs = append(errs, res.err)
		if res.note != "" {
			r.a.note("%s on %s: %s", res.Unit, res.Node, res.note)
		}
		if res.Result == resultNotTried {
			notTried = append(notTried, res.Node)
		}
	}
	if len(notTried) > 0 {
		r.a.say("stopped after the first failure; not tried: %s", strings.Join(notTried, ", "))
	}
	errs = append(errs, noMatches(nodes, r.unmatched)...)
	if err := r.show(results); err != nil {
		return err
	}
	return join(errs)
}

// show writes a table where there is more than one result; one alone is silent, as with
// systemctl.
func (r *jobRun) show(results []jobResult) error {
	if r.a.opt.format == render.Table && (len(results) < 2 || r.a.opt.quiet) {
		return nil
	}
	return render.Write(r.a.out, results, r.a.options())
}

// interrupted says what goes on, or ends it where the user wants that.
func (r *jobRun) interrupted(results []jobResult) error {
	var open []jobResult
	asked := 0 // and no answer was read
	for _, res := range results {
		switch {
		case res.Result == resultWaiting && res.Job != 0:
			open = append(open, res)
		case res.Result == resultWaiting:
			asked++
		}
	}
	switch {
	case len(open) == 0 && asked > 0:
		r.a.say("interrupted: a job may have been made; see ctl list-jobs")
	case len(open) == 0:
		r.a.say("interrupted: no job is under way")
	case r.f.cancelOnInterrupt:
		r.cancel(open)
	case len(open) == 1:
		r.a.say("interrupted: job %d (%s %s on %s) goes on; to end it: ctl cancel %d", open[0].Job, r.make.word(), open[0].Unit, open[0].Node, open[0].Job)
	default:
		r.a.say("interrupted: %d jobs go on; see ctl list-jobs", len(open))
	}
	return exit(exitInterrupted)
}

// cancelLimit is how long an interrupted ctl tries to cancel its jobs.
const cancelLimit = 10 * time.Second

func (r *jobRun) cancel(open []jobResult) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.a.ctx), cancelLimit)
	defer cancel()
	errs := make([]error, len(open))
	each(open, maxNodesAtOnce, func(i int, res jobResult) {
		if err := r.a.bus.CancelJob(ctx, res.Job); err != nil && !errors.Is(err, wire.ErrNoSuchJob) {
			errs[i] = &failure{doing: fmt.Sprintf("cannot cancel job %d (%s on %s)", res.Job, res.Unit, res.Node), node: res.Node, err: err}
		}
	})
	err := join(errs)
	r.a.report(err)
	if err == nil {
		r.a.say("interrupted: %s canceled", count(len(open), "job"))
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// queueAll makes jobs and prints their paths.
func (r *jobRun) queueAll(nodes, units []string) error {
	perNode := make([][]jobPath, len(nodes))
	errs := make([]error, len(nodes))
	each(nodes, r.f.limit(), func(i int, node string) {
		perNode[i], errs[i] = r.queueNode(node, units)
	})
	var made []jobPath
	for _, list := range perNode {
		made = append(made, list...)
	}
	errs = append(errs, noMatches(nodes, r.unmatched)...)
	if len(made) == 1 && len(errs) == 1 && r.a.opt.format == render.Table {
		fmt.Fprintln(r.a.out, made[0].Path)
		return join(errs)
	}
	if len(made) > 0 || r.a.opt.format != render.Table {
		if err := render.Write(r.a.out, made, r.a.options()); err != nil {
			return err
		}
	}
	return join(errs)
}

func (r *jobRun) queueNode(node string, typed []string) (made []jobPath, _ error) {
	units, err := r.prepare(node, typed)
	if err != nil {
		return nil, &failure{doing: fmt.Sprintf("cannot %s %s on %s", r.make.word(), strings.Join(typed, ", "), node), node: node, err: err}
	}
	var errs []error
	for _, u := range units {
		id, err := r.make.queue(r.ctx, node, u)
		if err != nil {
			if r.make.spares(err) {
				continue
			}
			errs = append(errs, &failure{doing: fmt.Sprintf("cannot %s %s on %s", r.make.word(), u, node), node: node, unit: u, err: err})
			continue
		}
		made = append(made, jobPath{node, u, id, string(wire.JobPath(id))})
	}
	return made, join(errs)
}
