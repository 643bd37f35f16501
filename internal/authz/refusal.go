package authz

import (
	"errors"
	"strings"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/wire"
)

// Every refusal names the right, which clients make a hint of, and says what would help.

func onlyRoot(r busobject.Request, uid uint32) error {
	if uid == 0 {
		return nil
	}
	return wire.ErrAccessDenied.With("%s needs the right %s, which only uid 0 has; the caller is uid %d", r.Verb, r.Action, uid)
}

func unknownCaller(r busobject.Request, err error) error {
	return wire.ErrAccessDenied.With("the bus does not say who %s is, so it may not %s (%s): %v", r.Sender, r.Verb, r.Action, err)
}

func (q question) refuse(format string, args ...any) error {
	format = "%s%s needs the right %s, " + format
	return wire.ErrAccessDenied.With(format, append([]any{q.Verb, q.subject, q.Action}, args...)...)
}

func refused(q question) error {
	return q.refuse("which polkit does not give to uid %d", q.uid)
}

func unasked(q question) error {
	return q.refuse("which uid %d has only with an administrator's password, and this call does not allow to ask for one", q.uid)
}

func nobodyToAsk(q question) error {
	return q.refuse("which uid %d has only with an administrator's password, and no polkit agent of this session could ask for one", q.uid)
}

func dismissed(q question) error {
	return q.refuse("and the question for an administrator's password was closed")
}

func failed(q question) error {
	return q.refuse("and the password was not given")
}

func unheard(q question) error {
	return q.refuse("and nobody gave the administrator's password within %s", promptTimeout)
}

func tooManyPrompts(q question, whose string, limit int) error {
	return q.refuse("and %d questions for a password to %s are open already; answer them first", limit, whose)
}

// unanswered makes the refusal where polkit gave no answer. That there is no polkit is logged
// once, until there is one.
func (p *Polkit) unanswered(q question, err error) error {
	if !absent(err) {
		return q.refuse("and polkit, which was asked for it, gave no answer (%v); try again, and see: systemctl status polkit", err)
	}
	p.mu.Lock()
	first := !p.missing
	p.missing = true
	p.mu.Unlock()
	if first {
		p.log.Warn("polkit is not on the bus: only uid 0 may call methods until it is", "err", err)
	}
	return q.refuse("which only uid 0 has, as there is no polkit on the bus that could give it; the caller is uid %d", q.uid)
}

// absent reports that nobody is polkit and nobody can be started to be it.
func absent(err error) bool {
	return errors.Is(err, wire.ErrServiceUnknown) || errors.Is(err, wire.ErrNameHasNoOwner) ||
		errors.Is(err, wire.ErrSystemdNoSuchUnit) || errors.Is(err, wire.ErrSystemdUnitMasked) ||
		strings.HasPrefix(wire.AsError(err).Name, wire.DBusName+".Error.Spawn.")
}

// found notes that polkit answers.
func (p *Polkit) found() {
	p.mu.Lock()
	again := p.missing
	p.missing = false
	p.mu.Unlock()
	if again {
		p.log.Info("polkit is on the bus and decides about callers")
	}
}
