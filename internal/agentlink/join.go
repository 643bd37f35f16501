package agentlink

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// joinCall is Join as a peer without a certificate calls it.
type joinCall struct {
	m           *peer.Message
	node, token string
	csr         []byte
}

// anonymous reports whether the peer has proved to be nobody: it speaks TLS and has shown no
// certificate.
func (l *link) anonymous() bool { return l.pending.secured && l.identity.Node == "" }

// handleAnonymous takes one call of Join, and refuses everything else.
func (l *link) handleAnonymous(m *peer.Message) {
	join := m.Path == wire.InternalPath && m.Interface == wire.InternalJoinInterface && m.Member == wire.MemberJoin
	if !join || l.asked {
		l.refuse(m, wire.ErrAccessDenied.With("a peer without a certificate may call Join once and nothing else; "+
			"`ctl node add NAME` on the manager prints the line that gives a machine its certificate"))
		return
	}
	l.asked = true
	call := joinCall{}
	if err := peer.Decode(m.Body, &call.node, &call.token, &call.csr); err != nil {
		l.refuse(m, err)
		return
	}
	call.m = m.CloneHeader()
	l.joining <- call // has room for the one
}

var errJoined = errors.New("has its certificate")

// join answers Join and ends the connection, within ctx.
func (p *pending) join(ctx context.Context, l *link, call joinCall) {
	node, body, err := p.tryJoin(ctx, call)
	switch {
	case err == nil:
		p.server.log.Info("a machine has joined", "node", node, "address", p.name)
		l.conn.Reply(call.m, body)
		l.end(errJoined)
	case ctx.Err() != nil:
		l.giveUp(p.cause(ctx))
	default:
		l.conn.ReplyError(call.m, forPeer(err))
		l.end(err)
		p.server.complaints.about(p.address, p.name, "join refused", fmt.Errorf("as node %s: %w", quoted(call.node), err))
	}
	select {
	case <-l.conn.Done():
	case <-ctx.Done():
		l.giveUp(p.cause(ctx))
		<-l.conn.Done()
	}
}

// tryJoin asks the authority, after what wrong tokens from the same source cost.
func (p *pending) tryJoin(ctx context.Context, call joinCall) (node string, body wire.Raw, err error) {
	e := p.settings.Enrolment
	if e == nil {
		return "", body, wire.ErrFailed.With("this manager issues no certificates")
	}
	source := sourceOf(p.address)
	wait, err := p.server.guesses.admit(source, time.Now())
	if err != nil {
		return "", body, err
	}
	if err := sleep(ctx, wait); err != nil {
		return "", body, err
	}
	node, certificate, ca, err := e.Join(p.name, call.node, call.token, call.csr)
	if errors.Is(err, wire.ErrAccessDenied) {
		p.server.guesses.wrong(source, time.Now())
	}
	if err != nil {
		return "", body, err
	}
	return node, peer.MustEncode(certificate, ca), nil
}

// forPeer keeps to ourselves what went wrong on this machine.
func forPeer(err error) error {
	for _, kind := range []*wire.Error{wire.ErrAccessDenied, wire.ErrInvalidArgs, wire.ErrLimitsExceeded} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return wire.ErrFailed.With("the manager cannot issue a certificate now; its log says why. Nothing was used up: try again")
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// quoted shows what a peer has sent, cut where it is overlong.
func quoted(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// What wrong tokens cost a source. The delay doubles with each.
const (
	firstDelay = 250 * time.Millisecond
	maxDelay   = 30 * time.Second
	// maxJoinWait is the longest that a call is held back; who would have to wait longer is
	// refused at once. It is below registerTime.
	maxJoinWait = 8 * time.Second
	// guessMemory is how long a source is remembered after its last wrong token.
	guessMemory = 10 * time.Minute
	maxGuessers = 1024
)

// guesses slows those down who try tokens. It says nothing to anybody about the tokens
// themselves; 128 random bits are not found by trying, so this is about the work and the log.
type guesses struct {
	mu      sync.Mutex
	sources map[netip.Prefix]*guesser
}

type guesser struct {
	wrong int
	last  time.Time // wrong token
	next  time.Time // before which nothing from there is looked at
}

// sourceOf is an IPv4 address, or the IPv6 network that one site has.
func sourceOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits) // an address that is none gives the zero prefix
	return p
}

func (g *guesser) delay() time.Duration {
	if g.wrong > 8 {
		return maxDelay
	}
	return min(firstDelay<<(g.wrong-1), maxDelay)
}

// admit says how long a call from a source has to wait, and lets those behind it wait longer.
func (g *guesses) admit(source netip.Prefix, now time.Time) (time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sources[g.key(source)]
	if s == nil {
		return 0, nil
	}
	if now.Sub(s.last) > guessMemory {
		delete(g.sources, g.key(source))
		return 0, nil
	}
	at := s.next
	if at.Before(now) {
		at = now
	}
	wait := at.Sub(now)
	if wait > maxJoinWait {
		return 0, wire.ErrLimitsExceeded.With("wrong tokens came from there; try again in %v", wait.Round(time.Second))
	}
	s.next = at.Add(s.delay())
	return wait, nil
}

// wrong notes a wrong token.
func (g *guesses) wrong(source netip.Prefix, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sources == nil {
		g.sources = make(map[netip.Prefix]*guesser)
	}
	if g.sources[source] == nil && len(g.sources) >= maxGuessers {
		for p, s := range g.sources {
			if now.Sub(s.last) > guessMemory {
				delete(g.sources, p)
			}
		}
	}
	key := g.key(source)
	s := g.sources[key]
	if s == nil {
		s = &guesser{}
		g.sources[key] = s
	}
	s.wrong, s.last = s.wrong+1, now
	if next := now.Add(s.delay()); next.After(s.next) {
		s.next = next
	}
}

// key is where a source is noted: past the bound those that are new share one place.
func (g *guesses) key(source netip.Prefix) netip.Prefix {
	if g.sources[source] == nil && len(g.sources) >= maxGuessers {
		return netip.Prefix{}
	}
	return source
}
