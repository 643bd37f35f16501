package systemdtest

import (
	"context"
	"errors"
	"time"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Core is who hears of systemd; *agent.Agent is one.
type Core interface {
	SystemdUp(facts map[string]wire.Value)
	SystemdDown(err error)
	SystemdJobState(job uint32, state string)
	SystemdJobRemoved(job uint32, unit, result string)
	SystemdUnitNew(unit string)
	SystemdUnitRemoved(unit string)
	SystemdUnitChanged(unit, iface string, changed map[string]wire.Value)
	SystemdReloaded()
}

// session is one connection of a core: what is to be delivered, in order, and what has not
// been answered.
type session struct {
	queue []func(Core)
	wake  chan struct{}
	lost  error
	asked map[*ask]bool
}

// ask is one request that waits for its answer.
type ask struct {
	fail  func(error)
	timer *time.Timer
}

// Run serves one core until ctx ends. Another core, or the same, may be served afterwards:
// an agent that is restarted finds its units as they are.
func (s *Systemd) Run(ctx context.Context, core Core) {
	for ctx.Err() == nil {
		session := s.connect(ctx, core)
		if session == nil {
			return
		}
		err := s.deliver(ctx, session, core)
		s.disconnect(session, err)
		if ctx.Err() == nil {
			core.SystemdDown(err)
		}
	}
}

// connect waits until systemd is there.
func (s *Systemd) connect(ctx context.Context, core Core) *session {
	for {
		s.mu.Lock()
		if s.session != nil {
			s.mu.Unlock()
			panic("systemdtest: Run is called for two cores at a time")
		}
		if !s.away {
			break
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
	defer s.mu.Unlock()
	facts := s.facts
	s.session = &session{
		queue: []func(Core){func(c Core) { c.SystemdUp(facts) }},
		wake:  make(chan struct{}, 1), asked: make(map[*ask]bool),
	}
	return s.session
}

// deliver hands on answers and signals, in order, until the connection is lost.
func (s *Systemd) deliver(ctx context.Context, session *session, core Core) error {
	for {
		s.mu.Lock()
		lost, changed := session.lost, s.changed
		var next []func(Core)
		if !s.held {
			next, session.queue = session.queue, nil
		}
		s.mu.Unlock()
		for _, fn := range next {
			fn(core)
		}
		switch {
		case len(next) > 0:
			continue
		case lost != nil:
			return lost
		}
		select {
		case <-session.wake:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// disconnect fails what was not answered.
func (s *Systemd) disconnect(session *session, err error) {
	s.mu.Lock()
	s.session, s.wanted = nil, nil
	s.waiting = nil
	asked := session.asked
	session.asked = nil
	s.mu.Unlock()
	for a := range asked {
		a.timer.Stop()
		a.fail(wire.ErrDisconnected.With("connection to systemd lost: %v", err))
	}
}

// push queues what the core is to hear next. Nobody hears what happens without a connection.
func (s *Systemd) push(fn func(Core)) {
	if s.session == nil || s.session.lost != nil {
		return
	}
	s.session.queue = append(s.session.queue, fn)
	select {
	case s.session.wake <- struct{}{}:
	default:
	}
}

func (s *Systemd) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Systemd) loseLocked() {
	s.away = true
	if s.session != nil && s.session.lost == nil {
		s.session.lost = errors.New("connection reset by peer")
	}
	s.announce()
}

// Lose breaks the connection. Jobs and units go on; what they do is not heard.
func (s *Systemd) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked()
}

// Return lets the core connect again after Lose.
func (s *Systemd) Return() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = false
	s.announce()
}

// Restart is what daemon-reexec does: the connection is lost and can be made again after
// the given time, jobs and units stay.
func (s *Systemd) Restart(away time.Duration) {
	s.Lose()
	time.AfterFunc(away, s.Return)
}

// Hold stops systemd from reading and saying anything, as SIGSTOP would; the connection
// stays. What is asked meanwhile is carried out after Release.
func (s *Systemd) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

// Release ends Hold.
func (s *Systemd) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	waiting := s.waiting
	s.waiting = nil
	for _, fn := range waiting {
		fn()
	}
	s.announce()
}

// ask carries out a request and answers it once: with what carryOut returns, or with fail
// when the time is up, the connection is lost or there is none. carryOut runs with the lock
// held and returns the answer and what follows it; it may call push.
func (s *Systemd) ask(what string, timeout time.Duration, fail func(error), carryOut func() (answer func(), after func())) {
	s.mu.Lock()
	if s.session == nil || s.session.lost != nil {
		s.mu.Unlock()
		fail(wire.ErrDisconnected.With("there is no connection to systemd at the moment"))
		return
	}
	defer s.mu.Unlock()
	session, a := s.session, &ask{fail: fail}
	session.asked[a] = true
	a.timer = time.AfterFunc(timeout, func() {
		if s.settle(session, a) {
			fail(wire.ErrTimeout.With("systemd gave no answer within %v", timeout))
		}
	})
	handle := func() {
		if what != "Units "+unit.DependencyGlob { // comes with every connection
			s.requests = append(s.requests, what)
		}
		answer, after := carryOut()
		s.push(func(Core) {
			if s.settle(session, a) {
				a.timer.Stop()
				answer()
			}
		})
		if after != nil {
			after()
		}
	}
	if s.held {
		s.waiting = append(s.waiting, handle)
		return
	}
	handle()
}

// settle reports whether a request is still to be answered, and takes it off the list.
func (s *Systemd) settle(session *session, a *ask) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := session.asked[a]
	delete(session.asked, a)
	return waits
}

// Watch implements agent.Systemd.
func (s *Systemd) Watch(wanted func(string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = wanted
}
