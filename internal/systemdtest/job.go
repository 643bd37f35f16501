package systemdtest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/wire"
)

// kind is what a job does. The rules for kinds are those of systemd's job.c.
type kind string

const (
	kindStart         kind = "start"
	kindStop          kind = "stop"
	kindReload        kind = "reload"
	kindRestart       kind = "restart"
	kindReloadOrStart kind = "reload-or-start"
	kindNop           kind = "nop"
)

type job struct {
	id           uint32
	unit         *unitState
	kind         kind
	running      bool
	told         string // the state that was told last
	irreversible bool
}

// merge is the one kind that does what both do; false for a conflict (job_merging_table).
func merge(a, b kind) (kind, bool) {
	switch {
	case a == b:
		return a, true
	case a == kindStop || b == kindStop:
		return "", false
	case a == kindRestart || b == kindRestart:
		return kindRestart, true
	}
	return kindReloadOrStart, true // of start, reload, and either with this one
}

// collapse makes a kind definite for the unit's present state (job_type_collapse).
func collapse(k kind, u *unitState) kind {
	switch {
	case k != kindReloadOrStart:
		return k
	case u.active == "active" || u.active == "reloading":
		return kindReload
	}
	return kindStart // also of one that is activating: the reload is part of the start then
}

func (u *unitState) down() bool {
	return u.active == "inactive" || u.active == "failed" || u.active == "deactivating"
}

// kindOf is the kind of job that a verb makes (bus_unit_queue_job and job_type_collapse).
func kindOf(v wire.Verb, u *unitState) kind {
	reload := !u.spec.NoReload
	switch v {
	case wire.Start:
		return kindStart
	case wire.Stop:
		return kindStop
	case wire.Reload:
		return kindReload
	case wire.Restart:
		return kindRestart
	case wire.ReloadOrRestart:
		if reload {
			return collapse(kindReloadOrStart, u)
		}
		return kindRestart
	}
	switch { // the two that only try
	case u.down():
		return kindNop
	case v == wire.TryReloadOrRestart && reload:
		return kindReload
	}
	return kindRestart
}

// Error names of systemd that only this package makes.
func systemdError(name, format string, args ...any) error {
	return &wire.Error{Name: wire.SystemdName + "." + name, Text: fmt.Sprintf(format, args...)}
}

// StartJob implements agent.Systemd.
func (s *Systemd) StartJob(req agent.JobRequest, timeout time.Duration, done func(uint32, error)) {
	method := req.Verb.Method()
	if req.Transient != nil {
		method = "StartTransientUnit"
	}
	s.ask(method+" "+req.Unit+" "+req.Mode, timeout, func(err error) { done(0, err) }, func() (func(), func()) {
		j, err := s.accept(req)
		if err != nil {
			return func() { done(0, err) }, nil
		}
		return func() { done(j.id, nil) }, func() { s.run(j) }
	})
}

// accept checks a request and puts its job into the queue.
func (s *Systemd) accept(req agent.JobRequest) (*job, error) {
	if req.Transient != nil {
		if u := s.names[req.Unit]; u != nil && (u.loaded || !u.transient) {
			return nil, systemdError("UnitExists", "Unit %s was already loaded or has a fragment file.", req.Unit)
		}
		u := &unitState{systemd: s, name: req.Unit, transient: true, active: "inactive", sub: "dead", spec: Spec{NoReload: true}}
		s.units[req.Unit], s.names[req.Unit] = u, u
	}
	u := s.names[req.Unit]
	if err := acceptable(u, req); err != nil {
		return nil, err
	}
	k := kindOf(req.Verb, u)
	if j := u.job; j != nil && k != kindNop {
		if _, ok := merge(j.kind, k); !ok && (req.Mode == "fail" || j.irreversible) {
			return nil, systemdError("TransactionIsDestructive",
				"Transaction for %s/%s is destructive (%s has '%s' job queued, but '%s' is included in transaction).",
				u.name, k, u.name, j.kind, k)
		}
	}
	u.touch()
	return s.install(u, k, req.Mode == "replace-irreversibly"), nil
}

func acceptable(u *unitState, req agent.JobRequest) error {
	stop := req.Verb == wire.Stop
	switch {
	case u == nil && stop, u != nil && stop && u.load() != "loaded" && u.load() != "masked" && u.active == "inactive":
		return wire.ErrSystemdNoSuchUnit.With("Unit %s not loaded.", req.Unit)
	case u == nil, !stop && u.load() == "not-found":
		return wire.ErrSystemdNoSuchUnit.With("Unit %s not found.", req.Unit)
	case stop:
		return nil
	case u.load() == "masked":
		return wire.ErrSystemdUnitMasked.With("Unit %s is masked.", u.name)
	case u.load() == "bad-setting":
		return systemdError("BadUnitSetting", "Unit %s has a bad unit file setting.", u.name)
	case u.load() != "loaded":
		return systemdError("LoadFailed", "Unit %s failed to load properly, please adjust/correct and reload service manager", u.name)
	case req.Verb == wire.Reload && u.spec.NoReload:
		return systemdError("JobTypeNotApplicable", "Job type reload is not applicable for unit %s.", u.name)
	}
	return nil
}

// install adds a job, or merges it into the one that the unit has (job_install).
func (s *Systemd) install(u *unitState, k kind, irreversible bool) *job {
	if have := u.job; have != nil && k != kindNop {
		merged, ok := merge(have.kind, k)
		if !ok {
			s.finish(have, wire.ResultCanceled)
		} else {
			late := have.running && k != kindReload && merged == have.kind
			have.irreversible = have.irreversible || irreversible
			if !late {
				have.kind, have.running = collapse(merged, u), false
				s.tellState(have, wire.JobWaiting)
			}
			return have
		}
	}
	s.lastJob++
	j := &job{id: s.lastJob, unit: u, kind: k, told: wire.JobWaiting, irreversible: irreversible}
	s.jobs[j.id] = j
	if k != kindNop {
		u.job = j
	}
	return j
}

// run begins a job that waits (job_run_and_invalidate).
func (s *Systemd) run(j *job) {
	u := j.unit
	if j.running || s.jobs[j.id] != j {
		return
	}
	j.running = true
	switch {
	case j.kind == kindNop:
		s.finish(j, wire.ResultDone)
	case j.kind == kindReload && u.active != "active" && u.active != "reloading":
		s.finish(j, "invalid")
	case (j.kind == kindStart || j.kind == kindReload) && u.active == "deactivating",
		j.kind == kindReload && u.active == "reloading":
		j.running = false // again when the unit has settled
	case j.kind == kindStart && (u.active == "active" || u.active == "reloading"):
		s.finish(j, wire.ResultDone)
	case j.kind == kindStart && u.active == "activating", j.kind.stops() && u.active == "deactivating":
		s.tellState(j, wire.JobRunning)
	case j.kind == kindStart:
		s.tellRunningIfSlow(j, u.spec.Start)
		u.start()
	case j.kind.stops() && (u.active == "inactive" || u.active == "failed"):
		u.settled(wire.ResultDone)
	case j.kind.stops():
		s.tellRunningIfSlow(j, u.spec.Stop)
		u.stop()
	default:
		s.tellRunningIfSlow(j, u.spec.Reload)
		u.reload()
	}
}

func (k kind) stops() bool { return k == kindStop || k == kindRestart }

// tellRunningIfSlow leaves the word out for a job that ends in the same moment, as systemd
// does, whose signals are put together.
func (s *Systemd) tellRunningIfSlow(j *job, r Run) {
	if r.Takes > 0 || r.Ends == Hangs {
		s.tellState(j, wire.JobRunning)
	}
}

func (s *Systemd) tellState(j *job, state string) {
	if j.told != state {
		j.told = state
		s.push(func(c Core) { c.SystemdJobState(j.id, state) })
	}
}

// settled is called when the unit is in a state that a job may have waited for, with the
// result for it (unit_notify).
func (u *unitState) settled(result string) {
	s, j := u.systemd, u.job
	switch {
	case j == nil:
	case !j.running:
		s.run(j)
	case j.kind == kindRestart && u.down():
		j.kind, j.running = kindStart, false
		s.run(j)
	case !j.kind.stops() && u.active == "failed" && result == wire.ResultDone:
		s.finish(j, wire.ResultFailed) // it went down instead
	default:
		s.finish(j, result)
	}
	u.collect()
}

// finish ends a job.
func (s *Systemd) finish(j *job, result string) {
	if s.jobs[j.id] != j {
		return
	}
	delete(s.jobs, j.id)
	if j.unit.job == j {
		j.unit.job = nil
	}
	name := j.unit.name
	s.push(func(c Core) { c.SystemdJobRemoved(j.id, name, result) })
	j.unit.collect()
}

// CancelJob implements agent.Systemd. What goes on in the unit is not stopped by it.
func (s *Systemd) CancelJob(id uint32, timeout time.Duration, done func(error)) {
	s.ask(fmt.Sprintf("CancelJob %d", id), timeout, done, func() (func(), func()) {
		j := s.jobs[id]
		if j == nil {
			return func() { done(wire.ErrSystemdNoSuchJob.With("Job %d does not exist.", id)) }, nil
		}
		// The signal comes before the answer: job_finish_and_invalidate runs within the call.
		s.finish(j, wire.ResultCanceled)
		return func() { done(nil) }, nil
	})
}

// Jobs implements agent.Systemd.
func (s *Systemd) Jobs(timeout time.Duration, done func([]agent.QueuedJob, error)) {
	s.ask("ListJobs", timeout, func(err error) { done(nil, err) }, func() (func(), func()) {
		queued := []agent.QueuedJob{}
		for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
			state := wire.JobWaiting
			if s.jobs[id].running {
				state = wire.JobRunning
			}
			queued = append(queued, agent.QueuedJob{ID: id, Unit: s.jobs[id].unit.name, Type: string(s.jobs[id].kind), State: state})
		}
		return func() { done(queued, nil) }, nil
	})
}

// JobType implements agent.Systemd.
func (s *Systemd) JobType(id uint32, timeout time.Duration, done func(string, error)) {
	s.ask(fmt.Sprintf("JobType %d", id), timeout, func(err error) { done("", err) }, func() (func(), func()) {
		j := s.jobs[id]
		if j == nil {
			return func() { done("", wire.ErrUnknownObject.With("Unknown object.")) }, nil
		}
		k := string(j.kind)
		return func() { done(k, nil) }, nil
	})
}
