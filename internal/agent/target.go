package agent

import (
	"cmp"

	"example.org/ctrl/internal/wire"
)

// target is a unit of this node that units of others need.
type target struct {
	name    string // as the manager calls it
	primary string // the unit that it means, "" until that is known
	state   string // as it was told last, one of wire's Target…
	seen    bool   // this agent has seen it active, or becoming so
	job     uint32
	leaving wire.Verb // wire.Stop or wire.Restart: what its job does to it
	leaves  bool
	// commanded: a job that nobody was told of in time has taken it down.
	commanded bool
}

func (a *Agent) setTargets(names []string) {
	wanted := make(map[string]bool, len(names))
	var added []*target
	for _, name := range names[:min(len(names), MaxTargets)] {
		wanted[name] = true
		if a.deps.targets[name] == nil {
			t := &target{name: name}
			a.deps.targets[name] = t
			added = append(added, t)
		}
	}
	for name := range a.deps.targets {
		if !wanted[name] {
			delete(a.deps.targets, name)
			a.releaseHold(name)
		}
	}
	a.systemd.Watch(a.watchFilter())
	for _, t := range added {
		a.lookAtTarget(t)
	}
	for _, t := range a.sortedTargets() {
		if t.state != "" { // known from an earlier session, but this manager may not know it
			a.tellTarget(t)
		}
	}
}

// lookAtTarget asks systemd for the present state.
func (a *Agent) lookAtTarget(t *target) {
	up := a.ups
	a.systemd.Units(t.name, a.cfg.CallTimeout, func(rows []UnitRow, err error) {
		a.later(func() {
			if a.ups != up || a.deps.targets[t.name] != t {
				return
			}
			if err != nil {
				a.loop.After(resyncPause, func() {
					if a.ups == up && a.deps.targets[t.name] == t {
						a.lookAtTarget(t)
					}
				})
				return
			}
			if len(rows) == 0 {
				a.targetGone(t)
				return
			}
			if t.primary != rows[0].ID {
				t.primary = rows[0].ID
				a.systemd.Watch(a.watchFilter())
				if t.primary != t.name {
					a.lookAtTarget(t) // its signals were not wanted until now
				}
			}
			a.targetState(t, rows[0].Active, rows[0].Sub)
		})
	})
}

// targetChanged takes what systemd says of a target.
func (a *Agent) targetChanged(t *target, changed map[string]wire.Value) {
	t.primary = cmp.Or(t.primary, t.name)
	active, known := changed["ActiveState"].AsString()
	sub, _ := changed["SubState"].AsString()
	if job, ok := changed["Job"].JobID(); ok && job != t.job {
		t.job = job
		if job != 0 {
			a.classify(t, job)
		}
	}
	switch {
	case known && (active == "failed" || active == "inactive") && t.seen && !t.leaves && !t.down():
		a.confirmEnd(t)
	case known:
		a.targetState(t, active, sub)
	}
	if t.leaves && t.job == 0 {
		// Its job is over: so is what dependents were told of it.
		t.leaves = false
		a.tellTarget(t)
		a.releaseHold(t.name)
	}
}

// down reports whether the end of a target was told.
func (t *target) down() bool {
	return t.state == wire.TargetStopped || t.state == wire.TargetExited || t.state == wire.TargetFailed
}

// confirmEnd asks once more for the state of a target that has ended without a job. One that
// systemd restarts by itself passes through failed, or inactive, and is past that when it
// answers.
func (a *Agent) confirmEnd(t *target) {
	if t.state != wire.TargetDeactivating {
		t.state = wire.TargetDeactivating
		a.tellTarget(t)
	}
	a.lookAtTarget(t)
}

// classify finds out what a new job does to a target. A stop of its dep unit goes before its
// own, so there is time to ask.
func (a *Agent) classify(t *target, job uint32) {
	// A job of our own is over before systemd can be asked, if the unit ends at once.
	if verb, ours := a.ownVerb(job); ours {
		a.targetLeaves(t, verb)
		return
	}
	from := t.state
	a.systemd.JobType(job, a.cfg.CallTimeout, func(kind string, err error) {
		a.later(func() {
			if a.deps.targets[t.name] != t {
				return
			}
			switch {
			case t.job != job:
				// The job is over before its kind is known: only a stop or a restart leaves a unit
				// that was active going down, or down. A start of a oneshot unit is over at once too,
				// and leaves it down, but begins where it is not active. Without a dep unit nothing
				// has held it up.
				wasUp := from == wire.TargetActive || from == wire.TargetDeactivating
				t.commanded = kind == "stop" || kind == "restart" || err != nil && wasUp && t.state != wire.TargetActive
				if t.job == 0 {
					a.releaseHold(t.name)
				}
			case err == nil && kind == "stop":
				a.targetLeaves(t, wire.Stop)
			case err == nil && kind == "restart":
				a.targetLeaves(t, wire.Restart)
			default:
				a.releaseHold(t.name)
			}
		})
	})
}

// ownVerb is what a job does to its unit, if it is one of the manager's that stops or restarts.
func (a *Agent) ownVerb(systemdJob uint32) (wire.Verb, bool) {
	shared := a.jobs.bySystemd[systemdJob]
	if shared == nil {
		return 0, false
	}
	for _, j := range shared.jobs {
		if j.req.Verb == wire.Stop || j.req.Verb == wire.Restart {
			return j.req.Verb, true
		}
	}
	return 0, false
}

// ownJobTaken tells the targets of a job whose id was not known when its signal came.
func (a *Agent) ownJobTaken(systemdJob uint32) {
	for _, t := range a.deps.targets {
		if t.job == systemdJob && !t.leaves {
			a.classify(t, systemdJob)
		}
	}
}

func (a *Agent) targetLeaves(t *target, verb wire.Verb) {
	t.leaves, t.leaving = true, verb
	if !a.reporting() || t.state != wire.TargetActive && t.state != wire.TargetDeactivating && t.state != wire.TargetActivating && t.state != wire.TargetAutoRestart {
		a.releaseHold(t.name)
		return
	}
	a.conn.link.TargetLeaving(t.name, verb == wire.Restart)
}

// targetGone: systemd has not loaded it, so it is not active.
func (a *Agent) targetGone(t *target) { a.targetState(t, "inactive", "dead") }

func (a *Agent) targetState(t *target, active, sub string) {
	var now string
	switch active {
	case "active", "reloading":
		now = wire.TargetActive
	case "deactivating":
		now = wire.TargetDeactivating
	case "failed":
		now = wire.TargetFailed
	case "activating":
		now = wire.TargetActivating
		if sub == "auto-restart" {
			now = wire.TargetAutoRestart
		}
	default:
		now = t.downState()
	}
	switch {
	case now == wire.TargetFailed && !t.seen:
		now = wire.TargetUnknown
	case now == wire.TargetFailed && t.commanded:
		now = wire.TargetStopped
	case now == wire.TargetActive || now == wire.TargetActivating:
		t.commanded = false
	}
	if now != wire.TargetUnknown && now != wire.TargetFailed && now != wire.TargetStopped && now != wire.TargetExited {
		t.seen = true
	}
	if now == t.state {
		return
	}
	t.state = now
	a.tellTarget(t)
}

// downState says how a target that is inactive came to be so.
func (t *target) downState() string {
	switch {
	case !t.seen:
		return wire.TargetUnknown
	case t.down():
		return t.state
	case t.leaves || t.commanded:
		return wire.TargetStopped
	}
	return wire.TargetExited
}

func (a *Agent) tellTarget(t *target) {
	if a.reporting() {
		a.conn.link.TargetState(t.name, t.state)
	}
}

// hold lets the stop of a dep unit wait, if its target is about to be stopped and units of
// other nodes have to go first.
func (a *Agent) hold(name string, reply func()) {
	t := a.deps.targets[name]
	if t == nil || !a.reporting() || t.job == 0 || len(a.deps.holding[name]) >= maxWaiters {
		reply()
		return
	}
	a.deps.holding[name] = append(a.deps.holding[name], reply)
	if t.leaves {
		a.targetLeaves(t, t.leaving)
	} else {
		a.classify(t, t.job)
	}
}

func (a *Agent) releaseHold(name string) {
	waiting := a.deps.holding[name]
	delete(a.deps.holding, name)
	for _, reply := range waiting {
		reply()
	}
}
