package manager

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"time"

	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

type jobState string

const (
	jobAsking  jobState = "asking"  // with systemd, which has not answered; not announced
	jobWaiting jobState = "waiting" // in the unit's queue, announced
	jobSent    jobState = "sent"    // was waiting; with systemd, which has not answered
	jobTaken   jobState = "taken"   // in systemd's queue
	jobRunning jobState = "running"
	jobRefused jobState = "refused" // never announced
	jobEnded   jobState = "ended"
)

var jobMachine = machine.Table[jobState]{
	Name: "Job (manager)",
	Moves: []machine.Move[jobState]{
		{From: machine.New, To: jobAsking, Why: "nothing to wait for"},
		{From: machine.New, To: jobWaiting, Why: "systemd has another job of the unit"},
		{From: jobAsking, To: jobTaken, Why: "systemd has taken it, so JobNew and the reply"},
		{From: jobAsking, To: jobRefused, Why: "an error, no answer, the node is lost, shutdown"},
		{From: jobWaiting, To: jobSent, Why: "systemd has no other job of the unit"},
		{From: jobWaiting, To: jobEnded, Why: "canceled, overruled, the node is lost, shutdown"},
		{From: jobSent, To: jobTaken, Why: "systemd has taken it"},
		{From: jobSent, To: jobEnded, Why: "refused, no answer, the node is lost, shutdown"},
		{From: jobTaken, To: jobRunning, Why: "JobState running"},
		{From: jobTaken, To: jobEnded, Why: "JobDone, the node is lost, shutdown"},
		{From: jobRunning, To: jobTaken, Why: "JobState waiting, systemd merged another job into it"},
		{From: jobRunning, To: jobEnded, Why: "JobDone, the node is lost, shutdown"},
	},
}

// Bounds of the queues. More is refused with wire.ErrLimitsExceeded.
const (
	// MaxJobsPerUnit is how many jobs one unit of one node may have, with systemd or waiting.
	MaxJobsPerUnit = 64
	// MaxJobsPerNode is how many jobs one node may have.
	MaxJobsPerNode = 4096
	// MaxCallersPerJob is how many callers may wait for the answer to one job.
	MaxCallersPerJob = 1024
)

// job is one job of one session's node.
type job struct {
	id      uint32
	session *session
	req     JobRequest
	state   machine.State[jobState]
	// callers wait for systemd's answer while the job is being asked for.
	callers []func(id uint32, err error)
	// began is when it was asked for, zero where metrics were off then.
	began time.Time
	// cancels are the cancellations that wait for it.
	cancels []uint64
}

// withSystemd reports whether the job has left for the node's systemd.
func (j *job) withSystemd() bool {
	switch j.state.Is {
	case jobAsking, jobSent, jobTaken, jobRunning:
		return true
	}
	return false
}

// accepted reports whether systemd has the job for certain.
func (j *job) accepted() bool { return j.state.Is == jobTaken || j.state.Is == jobRunning }

// announced reports whether JobNew was told, so that JobRemoved has to follow.
func (j *job) announced() bool {
	switch j.state.Is {
	case jobWaiting, jobSent, jobTaken, jobRunning:
		return true
	}
	return false
}

func (j *job) info() JobInfo {
	info := JobInfo{ID: j.id, Node: j.session.node.name, Unit: j.req.Unit, Type: j.req.Verb.String(), State: wire.JobWaiting, Caller: j.req.Caller}
	if j.state.Is == jobRunning {
		info.State = wire.JobRunning
	}
	return info
}

func (m *Manager) move(j *job, to jobState, why string) bool {
	return j.state.Transition(&jobMachine, to, m.log, why, slog.String(keyNode, j.session.node.name),
		slog.String(keyUnit, j.req.Unit), slog.Uint64(keyJob, uint64(j.id)))
}

// transientSignature is what follows the mode in StartTransientUnit.
const transientSignature wire.Signature = "a(sv)a(sa(sv))"

var knownVerbs = wire.Verbs()

func checkRequest(req JobRequest) error {
	if err := unit.CheckInstance(req.Unit); err != nil {
		return wire.ErrInvalidArgs.With("%v", err)
	}
	if !slices.Contains(knownVerbs, req.Verb) {
		return wire.ErrInvalidArgs.With("job verb %d is not known", req.Verb)
	}
	if req.Transient != nil && (req.Verb != wire.Start || req.Transient.Sig != transientSignature) {
		return wire.ErrInvalidArgs.With("a transient unit is started with arguments of type %q, not with %s and %q",
			transientSignature, req.Verb, req.Transient.Sig)
	}
	return wire.CheckJobMode(req.Mode)
}

func (m *Manager) startJob(req JobRequest, reply func(uint32, error)) {
	err := checkRequest(req)
	if err != nil {
		reply(0, err)
		return
	}
	s, err := m.live(req.Node)
	if err != nil {
		reply(0, err)
		return
	}
	v := admit(s.units[req.Unit], req)
	switch {
	case v.action == busy:
		reply(0, wire.ErrUnitBusy.With("unit %s on node %q has a %s job (%d); wait for it, cancel it or use mode replace",
			req.Unit, req.Node, v.with.req.Verb, v.with.id))
	case v.action == share:
		m.share(v.with, reply)
	default:
		m.addJob(s, req, v.action, reply)
	}
}

// share gives a second caller the job of the first.
func (m *Manager) share(j *job, reply func(uint32, error)) {
	switch {
	case j.state.Is != jobAsking:
		reply(j.id, nil)
	case len(j.callers) >= MaxCallersPerJob:
		reply(0, wire.ErrLimitsExceeded.With("%d callers wait for the same job of unit %s on node %q already; try again later",
			len(j.callers), j.req.Unit, j.req.Node))
	default:
		j.callers = append(j.callers, reply)
	}
}

func (m *Manager) addJob(s *session, req JobRequest, a action, reply func(uint32, error)) {
	if n := len(s.units[req.Unit]); n >= MaxJobsPerUnit {
		reply(0, wire.ErrLimitsExceeded.With("unit %s on node %q has %d jobs already; wait for them or cancel some", req.Unit, req.Node, n))
		return
	}
	if s.jobs >= MaxJobsPerNode {
		reply(0, wire.ErrLimitsExceeded.With("node %q has %d jobs already; wait for them or cancel some", req.Node, s.jobs))
		return
	}
	j := &job{id: m.newJobID(), session: s, req: req, state: machine.State[jobState]{Is: machine.New}}
	if m.metered {
		j.began = time.Now()
	}
	if a == wait {
		m.move(j, jobWaiting, "systemd has another job of the unit")
		m.keep(j)
		m.events.JobNew(j.info())
		reply(j.id, nil)
		return
	}
	m.move(j, jobAsking, "nothing to wait for")
	m.keep(j)
	j.callers = append(j.callers, reply)
	m.ask(j)
}

// newJobID gives the next free id. Ids begin at 1 and are used up by refused jobs too.
func (m *Manager) newJobID() uint32 {
	for {
		m.lastJob++
		if _, used := m.jobs[m.lastJob]; m.lastJob != 0 && !used {
			return m.lastJob
		}
	}
}

func (m *Manager) keep(j *job) {
	m.jobs[j.id] = j
	j.session.units[j.req.Unit] = append(j.session.units[j.req.Unit], j)
	j.session.jobs++
}

// drop takes a job out of all tables.
func (m *Manager) drop(j *job) {
	s := j.session
	delete(m.jobs, j.id)
	s.jobs--
	queue := slices.DeleteFunc(s.units[j.req.Unit], func(o *job) bool { return o == j })
	if len(queue) == 0 {
		delete(s.units, j.req.Unit)
		return
	}
	s.units[j.req.Unit] = queue
}

// ask hands a job to the node.
func (m *Manager) ask(j *job) {
	s := j.session
	call := s.begin(func(err error) { m.refuse(j, err) })
	s.link.StartJob(j.id, j.req, m.cfg.CallTimeout, func(err error) {
		m.loop.Defer(func() {
			if m.settle(s, call, err) {
				m.answered(j, err)
			}
		})
	})
}

// answered is the node's answer to ask. A report about the job may have overtaken it and
// said the same already (see taken).
func (m *Manager) answered(j *job, err error) {
	if j.state.Is != jobAsking && j.state.Is != jobSent {
		return
	}
	if err == nil {
		m.take(j, "systemd has taken it")
		return
	}
	if errors.Is(err, wire.ErrTimeout) {
		err = wire.ErrTimeout.With("node %q did not answer within %v whether its systemd took the %s job of %s; it may still be carried out",
			j.req.Node, m.cfg.CallTimeout, j.req.Verb, j.req.Unit)
		// Nobody knows whether a stop was taken, so what it would have overruled must not
		// come after it.
		m.overrule(j)
	}
	m.refuse(j, err)
}

// take notes that systemd has the job: its answer said so, or a report about the job did.
func (m *Manager) take(j *job, why string) {
	asked := j.state.Is == jobAsking
	if !m.move(j, jobTaken, why) {
		return
	}
	if asked {
		m.events.JobNew(j.info())
		for _, reply := range j.callers {
			reply(j.id, nil)
		}
		j.callers = nil
	}
	for _, call := range j.cancels {
		m.sendCancel(j, call)
	}
	j.cancels = nil
	m.overrule(j)
}

func (m *Manager) overrule(j *job) {
	for _, w := range overruled(j.session.units[j.req.Unit], j) {
		m.end(w, wire.ResultCanceled, "overruled by a later job")
	}
}

// refuse ends a job that systemd did not take. Before it was announced that is an answer to
// its callers, afterwards it is the job's end.
func (m *Manager) refuse(j *job, err error) {
	switch j.state.Is {
	case jobAsking:
		m.move(j, jobRefused, err.Error())
		m.drop(j)
		for _, reply := range j.callers {
			reply(0, err)
		}
		j.callers = nil
		m.dispatch(j.session, j.req.Unit)
	case jobSent:
		if j.session.over || m.over {
			return // the job ends with all others of its node
		}
		result := wire.ResultFailed
		if errors.Is(err, wire.ErrTimeout) {
			result = wire.ResultTimeout
		}
		m.log.Info("a job that had waited was refused", keyNode, j.req.Node, keyUnit, j.req.Unit, keyJob, j.id, keyErr, err)
		m.end(j, result, err.Error())
	}
}

// end ends an announced job and lets the next one of its unit go.
func (m *Manager) end(j *job, result, why string) {
	info := j.info()
	if !m.move(j, jobEnded, why) {
		return
	}
	m.drop(j)
	m.events.JobRemoved(info, result)
	m.depJobEnded(info.ID, result)
	m.failCancels(j)
	m.dispatch(j.session, j.req.Unit)
	m.measure(j, info)
}

// dispatch hands the next waiting job of a unit to systemd where systemd has none.
func (m *Manager) dispatch(s *session, unitName string) {
	if s.over || m.over {
		return
	}
	if j := nextJob(s.units[unitName]); j != nil {
		m.move(j, jobSent, "systemd has no other job of the unit")
		m.ask(j)
	}
}

// reported finds the job that a report of session id is about. Reports from old sessions,
// and about jobs that the node was never asked for, are dropped.
func (m *Manager) reported(id Session, number uint32, what string) *job {
	j := m.jobs[number]
	if j == nil || j.session.id != id || !j.withSystemd() {
		m.log.Debug("report dropped: no such job with this session", keySession, id, keyJob, number, "report", what)
		return nil
	}
	if !j.accepted() {
		// The node would not know the job if its systemd had not taken it.
		m.take(j, "a report came before the answer")
	}
	return j
}

func (m *Manager) jobState(id Session, number uint32, word string) {
	to := jobTaken
	switch word {
	case wire.JobRunning:
		to = jobRunning
	case wire.JobWaiting:
	default:
		m.log.Debug("report dropped: unknown job state", keySession, id, keyJob, number, "report", cleanReason(word))
		return
	}
	j := m.reported(id, number, word)
	if j == nil || j.state.Is == to {
		return
	}
	if m.move(j, to, "reported by the node") {
		m.events.JobState(j.info())
	}
}

func (m *Manager) jobDone(id Session, number uint32, result string) {
	if j := m.reported(id, number, result); j != nil {
		m.end(j, resultWord(result), "reported by the node")
	}
}

// resultWord passes systemd's words on and anything that cannot be one as failed.
func resultWord(word string) string {
	if word == "" || len(word) > 32 {
		return wire.ResultFailed
	}
	for _, c := range []byte(word) {
		if (c < 'a' || c > 'z') && c != '-' {
			return wire.ResultFailed
		}
	}
	return word
}

// cancelJobs ends announced jobs whose node or manager goes away.
func (m *Manager) cancelJobs(jobs []*job, why string) {
	for _, j := range jobs {
		if j.announced() {
			m.end(j, wire.ResultCanceled, why)
		}
	}
}

// allJobs lists a session's jobs by id.
func (s *session) allJobs() []*job {
	all := make([]*job, 0, s.jobs)
	for _, queue := range s.units {
		all = append(all, queue...)
	}
	slices.SortFunc(all, func(a, b *job) int { return cmp.Compare(a.id, b.id) })
	return all
}

func (m *Manager) listJobs() []JobInfo {
	all := make([]JobInfo, 0, len(m.jobs))
	for _, j := range m.jobs {
		if j.announced() {
			all = append(all, j.info())
		}
	}
	slices.SortFunc(all, func(a, b JobInfo) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
