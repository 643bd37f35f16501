package manager

import (
	"errors"

	"example.org/ctrl/internal/wire"
)

func (m *Manager) cancelJob(id uint32, reply func(error)) {
	j := m.jobs[id]
	if j == nil || !j.announced() {
		reply(noSuchJob(id))
		return
	}
	if j.state.Is == jobWaiting {
		m.end(j, wire.ResultCanceled, "canceled by a caller")
		reply(nil)
		return
	}
	if err := j.session.checkRoom(); err != nil {
		reply(err)
		return
	}
	call := j.session.begin(reply)
	if j.state.Is == jobSent {
		j.cancels = append(j.cancels, call)
		return
	}
	m.sendCancel(j, call)
}

func noSuchJob(id uint32) error {
	return wire.ErrNoSuchJob.With("there is no job %d; it may have ended", id)
}

func (m *Manager) sendCancel(j *job, call uint64) {
	s := j.session
	reply := s.calls[call]
	s.link.CancelJob(j.id, m.cfg.CallTimeout, func(err error) {
		m.loop.Defer(func() {
			if m.settle(s, call, err) {
				reply(m.cancelAnswered(j, err))
			}
		})
	})
}

// cancelAnswered makes the caller's answer of the node's. Reports come in order, so a node
// that does not know a job whose end it has not reported will never report it.
func (m *Manager) cancelAnswered(j *job, err error) error {
	if errors.Is(err, wire.ErrNoSuchJob) && j.accepted() {
		m.log.Warn("node has lost a job", keyNode, j.req.Node, keyUnit, j.req.Unit, keyJob, j.id)
		m.end(j, wire.ResultCanceled, "the node does not know it")
		return nil
	}
	if errors.Is(err, wire.ErrTimeout) {
		return wire.ErrTimeout.With("node %q did not answer within %v to the cancellation of job %d",
			j.req.Node, m.cfg.CallTimeout, j.id)
	}
	return err
}

// failCancels answers cancellations that waited for a job that systemd then did not take.
// At shutdown they are answered with all other calls.
func (m *Manager) failCancels(j *job) {
	if m.over {
		return
	}
	for _, call := range j.cancels {
		if reply, open := j.session.calls[call]; open {
			delete(j.session.calls, call)
			reply(noSuchJob(j.id))
		}
	}
	j.cancels = nil
}
