package systemd

import (
	"errors"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// send makes a call on the present connection, or on the next one where that comes soon.
func (s *Systemd) send(make func(c *connection) peer.Call, timeout time.Duration, done func(*peer.Message, error)) {
	s.connected(timeout, func(c *connection) {
		if c == nil {
			done(nil, notConnected())
			return
		}
		c.Go(make(c), timeout, done)
	})
}

// sendMethod calls a method of systemd's Manager object.
func (s *Systemd) sendMethod(member string, body wire.Raw, timeout time.Duration, done func(*peer.Message, error)) {
	s.send(func(c *connection) peer.Call { return c.manager(member, body) }, timeout, done)
}

// StartJob queues a job of systemd.
func (s *Systemd) StartJob(req agent.JobRequest, timeout time.Duration, done func(uint32, error)) {
	member := req.Verb.Method()
	body, err := peer.Encode(req.Unit, req.Mode)
	if err == nil && req.Transient != nil {
		member = "StartTransientUnit"
		body, err = peer.JoinBody(body, *req.Transient)
	}
	if err != nil {
		done(0, err)
		return
	}
	if req.Verb != wire.Stop {
		s.memory.expect(req.Unit)
	}
	sent := false
	s.send(func(c *connection) peer.Call { sent = true; return c.manager(member, body) }, timeout, func(m *peer.Message, err error) {
		if sent && errors.Is(err, wire.ErrDisconnected) {
			err = wire.ErrDisconnected.With("the connection to systemd was lost before it answered; the job of %s may still be carried out", req.Unit)
		}
		if err != nil {
			done(0, err)
			return
		}
		var path wire.ObjectPath
		if err := peer.Decode(m.Body, &path); err != nil {
			done(0, err)
			return
		}
		job, ok := wire.ParseSystemdJobPath(path)
		if !ok {
			done(0, wire.ErrFailed.With("systemd answered with the job path %q", string(path)))
			return
		}
		if req.Verb != wire.Stop {
			s.memory.answered(req.Unit, job)
		}
		done(job, nil)
	})
}

// CancelJob cancels a job by systemd's id.
func (s *Systemd) CancelJob(job uint32, timeout time.Duration, done func(error)) {
	s.sendMethod("CancelJob", peer.MustEncode(job), timeout, func(_ *peer.Message, err error) { done(err) })
}

// Jobs lists systemd's queue.
func (s *Systemd) Jobs(timeout time.Duration, done func([]agent.QueuedJob, error)) {
	s.sendMethod("ListJobs", wire.Raw{}, timeout, func(m *peer.Message, err error) {
		var rows []struct {
			ID                uint32
			Unit, Type, State string
			Path, UnitPath    wire.ObjectPath
		}
		if err == nil {
			err = peer.Decode(m.Body, &rows)
		}
		queued := make([]agent.QueuedJob, 0, len(rows))
		for _, r := range rows {
			queued = append(queued, agent.QueuedJob{ID: r.ID, Unit: r.Unit, Type: r.Type, State: r.State})
		}
		done(queued, err)
	})
}

// JobType tells what a job does.
func (s *Systemd) JobType(job uint32, timeout time.Duration, done func(string, error)) {
	body := peer.MustEncode(wire.SystemdJobInterface, "JobType")
	s.send(func(c *connection) peer.Call { return c.properties(wire.SystemdJobPath(job), "Get", body) }, timeout, func(m *peer.Message, err error) {
		var v wire.Value
		if err == nil {
			err = peer.Decode(m.Body, &v)
		}
		kind, _ := v.AsString()
		done(kind, err)
	})
}
