package agentd

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"example.org/ctrl/internal/backoff"
	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/wire"
)

// renewal keeps the certificate that this node has joined with alive: it asks the manager for
// a new one, with a new key, when two thirds of its life are over, or when the manager says so.
type renewal struct {
	state   pki.NodeState
	store   *pki.Store
	ask     func(request []byte, reply func(certificate, authorities []byte, err error)) // agent.Renew
	log     *slog.Logger
	wanted  daemon.Latch // by the manager
	online  daemon.Latch // a session has begun
	backoff backoff.Backoff
}

func newRenewal(state pki.NodeState, store *pki.Store, log *slog.Logger) *renewal {
	return &renewal{
		state: state, store: store, log: log, wanted: daemon.NewLatch(), online: daemon.NewLatch(),
		backoff: backoff.Backoff{Min: renewRetryMin, Max: renewRetryMax},
	}
}

const (
	renewRetryMin = 10 * time.Second
	renewRetryMax = time.Hour
	// lookAgain bounds a wait: the clock may be set, and the files may be replaced.
	lookAgain = time.Hour
)

// run goes on until ctx ends.
func (r *renewal) run(ctx context.Context) {
	failures := 0
	for {
		due := time.Until(r.store.RenewAt())
		if failures > 0 {
			due = r.backoff.Delay(failures, rand.Float64())
		}
		timer := time.NewTimer(min(max(due, 0), lookAgain))
		wanted := false
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-r.online:
		case <-r.wanted:
			wanted = true
		}
		timer.Stop()
		if !wanted && time.Until(r.store.RenewAt()) > 0 {
			failures = 0
			continue
		}
		err := r.renew(ctx)
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() != nil:
			return
		default:
			failures++
			r.complain(err)
		}
	}
}

func (r *renewal) complain(err error) {
	if errors.Is(err, wire.ErrDisconnected) {
		r.log.Debug("the certificate is due to be renewed, as soon as there is a session", "expires", r.store.Expires())
		return
	}
	r.log.Warn("certificate cannot be renewed; it is tried again", "err", err, "expires", r.store.Expires().UTC().Format(time.RFC3339))
}

// renew gets one new certificate and puts it in the place of the old one.
func (r *renewal) renew(ctx context.Context) error {
	unlock, err := r.state.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	key, request, err := r.state.NewRequest(r.store.Name())
	if err != nil {
		return err
	}
	type answer struct {
		certificate, authorities []byte
		err                      error
	}
	answered := make(chan answer, 1)
	r.ask(request, func(certificate, authorities []byte, err error) { answered <- answer{certificate, authorities, err} })
	var got answer
	select {
	case got = <-answered:
	case <-ctx.Done():
		select {
		case got = <-answered: // what has come is not thrown away
		default:
			return ctx.Err()
		}
	}
	if got.err != nil {
		return got.err
	}
	issued, err := pki.CheckIssued(r.store.Name(), key, got.certificate, got.authorities)
	if err != nil {
		return err
	}
	if err := r.state.Write(key, issued); err != nil {
		return err
	}
	r.log.Info("certificate was renewed", "expires", issued.NotAfter.UTC().Format(time.RFC3339))
	return nil
}

// keepRenewal runs a renewal where certificates come from the manager, and only there.
func (s *service) keepRenewal(ctx context.Context) {
	wanted := s.store != nil && joined(s.cfg)
	if s.renewing != nil && (!wanted || s.renewal.Load().store != s.store) {
		s.renewing.End(ctx)
		s.renewing = nil
		s.renewal.Store(nil)
	}
	if wanted && s.renewing == nil {
		r := newRenewal(nodeState(s.cfg), s.store, s.log)
		r.ask = s.core.Renew
		s.renewal.Store(r)
		s.renewing = daemon.Go(r.run)
	}
}

// renewNow and renewIfDue wake the renewal, if there is one. They do not block.
func (s *service) renewNow() {
	if r := s.renewal.Load(); r != nil {
		r.wanted.Set()
	}
}

func (s *service) renewIfDue() {
	if r := s.renewal.Load(); r != nil {
		r.online.Set()
	}
}
