// Package nodeunits is bundle.Systemd: the units of workloads in this node's systemd, over
// the connection that the agent has to it.
package nodeunits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Systemd is what is needed of the connection; *systemd.Systemd is one. Methods that are not
// the Node interface's go to systemd's Manager object by their name.
type Systemd interface {
	StartJob(req agent.JobRequest, timeout time.Duration, done func(job uint32, err error))
	Jobs(timeout time.Duration, done func([]agent.QueuedJob, error))
	Call(method string, args wire.Raw, timeout time.Duration, done func(wire.Raw, error))
}

// Time limits for systemd's answers. A reload reads all unit files of the node.
const (
	callTimeout   = 30 * time.Second
	reloadTimeout = 5 * time.Minute
)

// Units is the adapter. Make one with New and run it with Run, and tell it what systemd
// says: SystemdUp, SystemdJobRemoved.
type Units struct {
	systemd Systemd
	loop    *loop.Loop
	awaited atomic.Int64 // jobs asked for and not ended: while there are none, signals are nobody's

	// Owned by the loop's goroutine.
	jobs map[uint32][]*job
}

type job struct {
	batch *batch
	index int
	ended bool
}

// batch are the jobs of one call of Jobs.
type batch struct {
	each  func(int, string)
	done  func()
	left  int
	jobs  []*job
	timer *loop.Timer
}

var _ bundle.Systemd = (*Units)(nil)

// New makes an adapter. It does nothing until Run.
func New(s Systemd) *Units {
	return &Units{systemd: s, loop: loop.New(1), jobs: make(map[uint32][]*job)}
}

// Run serves until ctx ends. Jobs that are awaited then go on in systemd.
func (u *Units) Run(ctx context.Context) { u.loop.Run(ctx) }

// SystemdJobRemoved is systemd's signal that a job has ended.
func (u *Units) SystemdJobRemoved(id uint32, result string) {
	if u.awaited.Load() > 0 {
		u.loop.Defer(func() { u.ended(id, result) })
	}
}

// SystemdUp says that there is a new connection. What ended meanwhile has sent no signal that
// arrived; how its unit is, the engine looks at anyway.
func (u *Units) SystemdUp() {
	if u.awaited.Load() == 0 {
		return
	}
	u.systemd.Jobs(callTimeout, func(queued []agent.QueuedJob, err error) {
		u.loop.Defer(func() {
			for id := range u.jobs {
				if err == nil && !slices.ContainsFunc(queued, func(q agent.QueuedJob) bool { return q.ID == id }) {
					u.ended(id, wire.ResultDone)
				}
			}
		})
	})
}

// Jobs implements bundle.Systemd.
func (u *Units) Jobs(jobs []bundle.Job, wait bool, timeout time.Duration, each func(int, string), done func()) {
	u.awaited.Add(int64(len(jobs)))
	b := &batch{each: each, done: done, left: len(jobs)}
	started := u.loop.Defer(func() {
		if len(jobs) == 0 {
			done()
			return
		}
		for i, j := range jobs {
			b.jobs = append(b.jobs, &job{batch: b, index: i})
			u.ask(b.jobs[i], j, wait)
		}
		b.timer = u.loop.After(timeout, func() {
			for _, j := range b.jobs {
				u.end(j, wire.ResultTimeout)
			}
		})
	})
	if !started {
		done()
	}
}

func (u *Units) ask(j *job, what bundle.Job, wait bool) {
	i := slices.IndexFunc(wire.Verbs(), func(v wire.Verb) bool { return v.String() == what.Verb })
	if i < 0 {
		u.loop.Defer(func() { u.end(j, "refused: "+what.Verb+" is no job") })
		return
	}
	req := agent.JobRequest{Unit: what.Unit, Verb: wire.Verbs()[i], Mode: "replace"}
	u.systemd.StartJob(req, callTimeout, func(id uint32, err error) {
		u.loop.Defer(func() {
			switch {
			case err != nil && what.Verb == "stop" && errors.Is(err, wire.ErrSystemdNoSuchUnit):
				u.end(j, wire.ResultDone) // it is not even loaded
			case err != nil:
				u.end(j, "refused: "+err.Error())
			case !wait:
				u.end(j, "queued")
			default:
				u.jobs[id] = append(u.jobs[id], j)
			}
		})
	})
}

// ended ends all that waited for one of systemd's jobs.
func (u *Units) ended(id uint32, result string) {
	waiting := u.jobs[id]
	delete(u.jobs, id)
	for _, j := range waiting {
		u.end(j, result)
	}
}

func (u *Units) end(j *job, result string) {
	if j.ended {
		return
	}
	j.ended = true
	u.awaited.Add(-1)
	b := j.batch
	b.each(j.index, result)
	if b.left--; b.left > 0 {
		return
	}
	b.timer.Stop()
	for id, waiting := range u.jobs {
		waiting = slices.DeleteFunc(waiting, func(j *job) bool { return j.ended })
		if u.jobs[id] = waiting; len(waiting) == 0 {
			delete(u.jobs, id)
		}
	}
	b.done()
}

// Do implements bundle.Systemd.
func (u *Units) Do(s bundle.Step, done func(error)) {
	call := func(method string, timeout time.Duration, args ...any) {
		body, err := peer.Encode(args...)
		if err != nil {
			done(err)
			return
		}
		u.systemd.Call(method, body, timeout, func(_ wire.Raw, err error) {
			if err != nil {
				err = fmt.Errorf("systemd: %s of %s: %w", method, strings.Join(s.Names, ", "), err)
			}
			done(err)
		})
	}
	switch s.Kind {
	case bundle.StepReload:
		call("Reload", reloadTimeout)
	case bundle.StepEnable:
		call("EnableUnitFiles", callTimeout, s.Names, s.Runtime, false)
	case bundle.StepDisable:
		call("DisableUnitFiles", callTimeout, s.Names, s.Runtime)
	case bundle.StepResetFailed:
		u.reset(s.Names, done)
	default:
		done(fmt.Errorf("step %s is none of systemd", s.Kind))
	}
}

// reset forgets failures; what is not loaded has none.
func (u *Units) reset(names []string, done func(error)) {
	if len(names) == 0 {
		done(nil)
		return
	}
	u.systemd.Call("ResetFailedUnit", wire.Strings(names[0]), callTimeout, func(_ wire.Raw, err error) {
		if err != nil && !errors.Is(err, wire.ErrSystemdNoSuchUnit) {
			done(err)
			return
		}
		u.reset(names[1:], done)
	})
}
