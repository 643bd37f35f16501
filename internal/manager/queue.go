package manager

import (
	"slices"

	"example.org/ctrl/internal/wire"
)

// The queue of one unit on one node, decided. Everything in this file only looks.

type action uint8

const (
	// send hands the job to systemd now, beside whatever is there.
	send action = iota
	// wait keeps the job until systemd has no other job of the unit.
	wait
	// share answers with a job that is there already.
	share
	// busy refuses the job.
	busy
)

// verdict is what becomes of a request. with is the job that is shared or in the way.
type verdict struct {
	action action
	with   *job
}

// Job modes that the queue itself knows. What the others mean, only systemd can judge
// (org.freedesktop.systemd1(5), StartUnit).
const (
	modeReplace = "replace"
	modeFail    = "fail"
)

func plainMode(mode string) bool { return mode == modeReplace || mode == modeFail }

// admit decides about a request for a unit whose jobs, in order of admission, are queue.
func admit(queue []*job, req JobRequest) verdict {
	if req.Mode == modeFail {
		for _, j := range queue {
			if j.req.Verb.Conflicts(req.Verb) {
				return verdict{busy, j}
			}
		}
	}
	if j := equalJob(queue, req); j != nil {
		return verdict{share, j}
	}
	if !slices.ContainsFunc(queue, (*job).withSystemd) || atOnce(queue, req) {
		return verdict{action: send}
	}
	return verdict{action: wait}
}

// equalJob finds the job that already does what req asks for. A job that a later one
// conflicts with does not: it is about to be undone.
func equalJob(queue []*job, req JobRequest) *job {
	if req.Transient != nil || !plainMode(req.Mode) {
		return nil
	}
	for _, j := range slices.Backward(queue) {
		if j.req.Verb.Conflicts(req.Verb) {
			return nil
		}
		if j.req.Verb == req.Verb && joinable(j, req.Mode) {
			return j
		}
	}
	return nil
}

// joinable reports whether a second caller of the same verb gets all it asked for from j.
//
// Once a job has left for systemd only starts and stops are joined. A reload that runs may
// have read the old configuration already, and a restart that runs may have begun to start
// again with it (systemd's job_type_allows_late_merge and the patching of a running restart
// into a start). Before systemd has accepted the job, its mode still matters too, and a
// transient unit may be refused for reasons that do not concern a plain start.
func joinable(j *job, mode string) bool {
	late := j.req.Verb == wire.Start || j.req.Verb == wire.Stop
	switch {
	case !plainMode(j.req.Mode):
		return false
	case j.state.Is == jobWaiting:
		return j.req.Mode == mode
	case j.accepted():
		return late
	default:
		return late && j.req.Mode == mode && j.req.Transient == nil
	}
}

// atOnce reports whether a request does not wait for the jobs that systemd has: systemd
// itself cancels or merges them as the request demands, so that a start that hangs can be
// stopped or restarted, and a stop that hangs can be overruled.
func atOnce(queue []*job, req JobRequest) bool {
	if !plainMode(req.Mode) || req.Transient != nil || req.Verb == wire.Stop || restarts(req.Verb) {
		return true
	}
	return slices.ContainsFunc(queue, func(j *job) bool {
		return j.withSystemd() && (j.req.Verb == wire.Stop || j.req.Transient != nil && !j.accepted())
	})
}

func restarts(v wire.Verb) bool {
	switch v {
	case wire.Restart, wire.TryRestart, wire.ReloadOrRestart, wire.TryReloadOrRestart:
		return true
	}
	return false
}

// overruled lists the waiting jobs that j takes the ground from once systemd has accepted
// it: those that came before it and conflict with it.
func overruled(queue []*job, j *job) []*job {
	var out []*job
	for _, w := range queue {
		if w == j {
			break
		}
		if w.state.Is == jobWaiting && w.req.Verb.Conflicts(j.req.Verb) {
			out = append(out, w)
		}
	}
	return out
}

// nextJob is the job to hand to systemd now, nil while systemd still has one of the unit.
func nextJob(queue []*job) *job {
	if len(queue) == 0 || slices.ContainsFunc(queue, (*job).withSystemd) {
		return nil
	}
	return queue[0]
}
