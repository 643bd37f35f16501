package agent

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/policy"
	"example.org/ctrl/internal/wire"
)

type jobState string

const (
	jobAsking  jobState = "asking"
	jobTaken   jobState = "taken"
	jobRunning jobState = "running"
	jobEnded   jobState = "ended"
)

var jobMachine = machine.Table[jobState]{
	Name: "Job (agent)",
	Moves: []machine.Move[jobState]{
		{From: machine.New, To: jobAsking, Why: "the manager asked for it, the node judges it and asks systemd"},
		{From: jobAsking, To: jobTaken, Why: "systemd has taken it"},
		{From: jobAsking, To: jobEnded, Why: "the node's policy or systemd refused it, or systemd gave no answer"},
		{From: jobTaken, To: jobRunning, Why: "systemd's job runs"},
		{From: jobTaken, To: jobEnded, Why: "JobRemoved"},
		{From: jobRunning, To: jobTaken, Why: "systemd has merged another job into it"},
		{From: jobRunning, To: jobEnded, Why: "JobRemoved"},
	},
}

// MaxJobs is how many jobs of the manager an agent has at a time, in systemd or on the way
// there. More are refused with wire.ErrLimitsExceeded.
const MaxJobs = 8192

// jobs are those of the present session. Systemd merges equal jobs, so one of its jobs may
// stand for many of the manager's.
type jobs struct {
	byID      map[uint32]*job
	bySystemd map[uint32]*systemdJob
}

type job struct {
	id      uint32 // the manager's
	req     JobRequest
	state   machine.State[jobState]
	systemd uint32
	began   time.Time     // when systemd was asked
	cancels []func(error) // asked for before systemd had answered
}

type systemdJob struct {
	jobs []*job
}

func newJobs() jobs {
	return jobs{byID: make(map[uint32]*job), bySystemd: make(map[uint32]*systemdJob)}
}

// current refuses what an old session asks.
func (a *Agent) current(s Session) error {
	if s != a.conn.session || a.conn.state.Is != sessionOnline {
		return wire.ErrDisconnected.With("this session has ended")
	}
	return nil
}

func (a *Agent) moveJob(j *job, to jobState, why string) bool {
	return j.state.Transition(&jobMachine, to, a.log, why,
		slog.String(keyUnit, j.req.Unit), slog.Uint64(keyJob, uint64(j.id)))
}

func (a *Agent) startJob(s Session, req JobRequest, reply func(error)) {
	if err := a.current(s); err != nil {
		reply(err)
		return
	}
	switch {
	case a.jobs.byID[req.ID] != nil:
		reply(wire.ErrInvalidArgs.With("job id %d is in use", req.ID))
	case len(a.jobs.byID) >= MaxJobs:
		reply(wire.ErrLimitsExceeded.With("this node has %d jobs already", len(a.jobs.byID)))
	default:
		a.askJob(s, req, reply)
	}
}

func (a *Agent) askJob(s Session, req JobRequest, reply func(error)) {
	j := &job{id: req.ID, req: req, state: machine.State[jobState]{Is: machine.New}}
	a.jobs.byID[j.id] = j
	a.moveJob(j, jobAsking, "the manager asked for it")
	act := actOfJob(&req)
	answered := func(id uint32, err error) {
		// A job of a lost session goes on in systemd, but nobody is told of it any more.
		if a.current(s) == nil && a.jobs.byID[j.id] == j {
			a.jobAnswered(j, id, err)
		}
		a.write(act, req.ID, actionlog.ResultQueued, err)
		reply(err)
		a.releaseCancels(j)
	}
	a.admit(act, func(err error) {
		if err == nil {
			err = a.current(s)
		}
		if err != nil {
			answered(0, err)
			return
		}
		j.began = time.Now()
		a.systemd.StartJob(req, a.cfg.CallTimeout, func(id uint32, err error) {
			a.later(func() { answered(id, err) })
		})
	})
}

func (a *Agent) jobAnswered(j *job, id uint32, err error) {
	if err != nil {
		delete(a.jobs.byID, j.id)
		a.moveJob(j, jobEnded, err.Error())
		return
	}
	j.systemd = id
	a.moveJob(j, jobTaken, "systemd has taken it")
	shared := a.jobs.bySystemd[id]
	if shared == nil {
		shared = &systemdJob{}
		a.jobs.bySystemd[id] = shared
	}
	running := slices.ContainsFunc(shared.jobs, func(o *job) bool { return o.state.Is == jobRunning })
	shared.jobs = append(shared.jobs, j)
	if running {
		a.reportRunning(j)
	}
	a.ownJobTaken(id)
}

func (a *Agent) reportRunning(j *job) {
	if j.state.Is == jobTaken && a.moveJob(j, jobRunning, "systemd's job runs") {
		a.conn.link.JobState(j.id, wire.JobRunning)
	}
}

func (a *Agent) jobStateChanged(id uint32, state string) {
	shared := a.jobs.bySystemd[id]
	if shared == nil {
		return // of somebody else
	}
	for _, j := range shared.jobs {
		switch {
		case state == wire.JobRunning:
			a.reportRunning(j)
		case state == wire.JobWaiting && j.state.Is == jobRunning && a.moveJob(j, jobTaken, "systemd's job waits again"):
			a.conn.link.JobState(j.id, wire.JobWaiting)
		}
	}
}

// jobRemoved ends all of the manager's jobs for which systemd's job stood.
func (a *Agent) jobRemoved(id uint32, result string) {
	shared := a.jobs.bySystemd[id]
	if shared == nil {
		return // of somebody else
	}
	delete(a.jobs.bySystemd, id)
	for _, j := range shared.jobs {
		delete(a.jobs.byID, j.id)
		a.moveJob(j, jobEnded, "JobRemoved")
		a.conn.link.JobDone(j.id, result)
		a.writeEnd(j, result, "")
		if a.metered {
			a.conn.link.JobMetrics(j.req.Unit, j.req.method(), time.Since(j.began))
		}
	}
}

// method is the D-Bus method by which the job was asked for.
func (r *JobRequest) method() string {
	if r.Transient != nil {
		return "StartTransientUnit"
	}
	return r.Verb.Method()
}

func (a *Agent) cancelJob(s Session, id uint32, reply func(error)) {
	if err := a.current(s); err != nil {
		reply(err)
		return
	}
	j := a.jobs.byID[id]
	switch {
	case j == nil:
		reply(noSuchJob(id))
	default:
		act := policy.Act{Method: policy.CancelJob, Units: []string{j.req.Unit}}
		a.admit(act, func(err error) {
			a.cancelAdmitted(s, j, err, func(err error) {
				a.write(act, id, "", err)
				reply(err)
			})
		})
	}
}

func (a *Agent) cancelAdmitted(s Session, j *job, err error, reply func(error)) {
	if err == nil {
		err = a.current(s)
	}
	switch {
	case err != nil:
		reply(err)
	case a.jobs.byID[j.id] != j:
		reply(noSuchJob(j.id))
	case j.state.Is == jobAsking:
		j.cancels = append(j.cancels, reply)
	default:
		a.sendCancel(j, reply)
	}
}

func noSuchJob(id uint32) error {
	return wire.ErrNoSuchJob.With("this node has no job %d; it may have ended", id)
}

func (a *Agent) sendCancel(j *job, reply func(error)) {
	a.systemd.CancelJob(j.systemd, a.cfg.CallTimeout, func(err error) {
		a.loop.Defer(func() {
			if errors.Is(err, wire.ErrSystemdNoSuchJob) {
				err = noSuchJob(j.id)
			}
			reply(err)
		})
	})
}

// releaseCancels carries out the cancellations that had to wait for systemd's answer.
func (a *Agent) releaseCancels(j *job) {
	cancels := j.cancels
	j.cancels = nil
	for _, reply := range cancels {
		if j.state.Is == jobTaken || j.state.Is == jobRunning {
			a.sendCancel(j, reply)
		} else {
			reply(noSuchJob(j.id))
		}
	}
}

// resyncJobs finds out what became of jobs while systemd was not reachable. Job ids outlive
// daemon-reexec; of a job that is no longer queued only the unit's state can tell.
func (a *Agent) resyncJobs() {
	if len(a.jobs.bySystemd) == 0 {
		return
	}
	session, up := a.conn.session, a.ups
	a.systemd.Jobs(a.cfg.CallTimeout, func(queued []QueuedJob, err error) {
		a.later(func() {
			switch {
			case !a.same(session, up):
			case err != nil:
				a.again(err, a.resyncJobs)
			default:
				a.findEnded(queued)
			}
		})
	})
}

func (a *Agent) findEnded(queued []QueuedJob) {
	states := make(map[uint32]string, len(queued))
	for _, q := range queued {
		states[q.ID] = q.State
	}
	for _, id := range slices.Sorted(maps.Keys(a.jobs.bySystemd)) {
		if state, ok := states[id]; ok {
			a.jobStateChanged(id, state)
			continue
		}
		a.judgeEnded(id, a.jobs.bySystemd[id].jobs[0].req)
	}
}

// judgeEnded ends the jobs for which a job of systemd's stood whose end nobody saw.
func (a *Agent) judgeEnded(id uint32, req JobRequest) {
	session, up := a.conn.session, a.ups
	a.systemd.Units(req.Unit, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
		a.later(func() {
			if !a.same(session, up) || errors.Is(err, wire.ErrDisconnected) {
				return // looked up again when systemd is back
			}
			result := wire.ResultCanceled
			if err == nil {
				active := "inactive" // what is not loaded is not active and has not failed
				if len(rows) > 0 {
					active = rows[0].Active
				}
				result = resultFromState(req.Verb, active)
			}
			a.jobRemoved(id, result)
		})
	})
}

// resultFromState judges a job by what its unit is like afterwards.
func resultFromState(verb wire.Verb, active string) string {
	down := active == "inactive" || active == "failed"
	switch {
	case verb == wire.Stop && !down, verb != wire.Stop && active == "deactivating":
		return wire.ResultCanceled
	case verb != wire.Stop && active == "failed":
		return wire.ResultFailed
	}
	return wire.ResultDone
}
