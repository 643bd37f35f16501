package agentlink

import (
	"sync"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Enrolment is the authority that issues nodes' certificates. All methods are safe from any
// goroutine. Check and Outdated never block; the others may wait for the disk. Errors of the
// kinds AccessDenied, InvalidArgs and LimitsExceeded are for the peer.
type Enrolment interface {
	// Join lets the bearer of a token, who connects from an address, be a node, and says which.
	// certificate and ca are PEM.
	Join(from, node, token string, csr []byte) (joined string, certificate, ca []byte, err error)
	// Renew issues the next certificate of a node.
	Renew(node string, generation uint64, csr []byte) (certificate, ca []byte, notAfter time.Time, err error)
	// Check refuses a certificate that was revoked.
	Check(node string, generation uint64) error
	// Outdated reports whether the node should renew without waiting for its time.
	Outdated(node string) bool
}

// enrolled is the authority that this peer's certificate comes from, nil where there is none.
func (l *link) enrolled() Enrolment {
	if !l.pending.secured {
		return nil
	}
	return l.pending.settings.Enrolment
}

func (l *link) checkGeneration() error {
	if e := l.enrolled(); e != nil {
		return e.Check(l.pending.proof.Node, l.pending.proof.Generation)
	}
	return nil
}

// askToRenew tells the agent to renew where its certificate is not what it should be.
func (l *link) askToRenew() {
	if e := l.enrolled(); e != nil && e.Outdated(l.pending.proof.Node) {
		l.conn.Signal(wire.InternalPath, wire.InternalManagerInterface, wire.MemberRenewNow, wire.Raw{})
	}
}

// drop ends a session at once: the core is told first, so what the peer says from now on is
// nobody's word any more, and the peer hears why.
func (l *link) drop(why string) {
	l.mu.Lock()
	session := l.session
	l.mu.Unlock()
	l.core.Closed(session, why)
	l.Close(why)
}

// renew answers Renew, in the background, for one call at a time.
func (l *link) renew(m *peer.Message) {
	e := l.enrolled()
	if e == nil {
		l.conn.ReplyError(m, wire.ErrFailed.With("this manager issues no certificates: those of its nodes come from elsewhere (CertFile=)"))
		return
	}
	var csr []byte
	if err := peer.Decode(m.Body, &csr); err != nil {
		l.refuse(m, err)
		return
	}
	wait, ok := l.expiry.begin(time.Now())
	if !ok {
		l.conn.ReplyError(m, wire.ErrLimitsExceeded.With("a certificate is being issued to this node already"))
		return
	}
	m = m.CloneHeader()
	l.pending.server.links.Go(func() {
		defer l.expiry.end()
		if !l.pause(wait) {
			return
		}
		certificate, ca, notAfter, err := e.Renew(l.pending.proof.Node, l.pending.proof.Generation, csr)
		if err != nil {
			l.pending.server.log.Warn("certificate was not renewed", "node", l.pending.proof.Node, "address", l.pending.name, "err", err)
			l.conn.ReplyError(m, forPeer(err))
			return
		}
		l.conn.Reply(m, peer.MustEncode(certificate, ca))
		l.watchExpiry(notAfter)
	})
}

// pause waits, and reports whether the connection is still there.
func (l *link) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.conn.Done():
		return false
	}
}

// remember and forget keep the list of those who have registered.
func (s *Server) remember(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[l] = true
}

func (s *Server) forget(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, l)
}

// Recheck ends the sessions of nodes whose certificates were revoked, and asks those to renew
// that should.
func (s *Server) Recheck() {
	s.mu.Lock()
	all := make([]*link, 0, len(s.live))
	for l := range s.live {
		all = append(all, l)
	}
	s.mu.Unlock()
	for _, l := range all {
		if err := l.checkGeneration(); err != nil {
			l.drop(err.Error())
			continue
		}
		l.askToRenew()
	}
}

// Times around the end of a certificate.
const (
	// warnBefore is how long before the end of a certificate the log says that the agent, which
	// should have renewed it long before, has not.
	warnBefore = 14 * 24 * time.Hour
	// renewPause is the least time between two renewals of one session. Who asks sooner waits.
	renewPause = time.Second
)

// expiry watches the end of one session's certificate, and its renewals.
type expiry struct {
	mu       sync.Mutex
	timer    *time.Timer
	over     bool
	renewing bool
	last     time.Time
}

// begin says when a renewal may begin, unless one is under way.
func (e *expiry) begin(now time.Time) (wait time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.renewing {
		return 0, false
	}
	if !e.last.IsZero() {
		wait = max(0, renewPause-now.Sub(e.last))
	}
	e.renewing, e.last = true, now.Add(wait)
	return wait, true
}

func (e *expiry) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.renewing = false
}

func (e *expiry) set(d time.Duration, do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timer != nil {
		e.timer.Stop()
	}
	if !e.over {
		e.timer = time.AfterFunc(d, do)
	}
}

func (e *expiry) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	if e.timer != nil {
		e.timer.Stop()
	}
}

// watchExpiry ends the session when the certificate does, with a warning before. Without that
// a node whose renewals fail would stay for as long as its connection holds.
func (l *link) watchExpiry(notAfter time.Time) {
	if l.enrolled() == nil || notAfter.IsZero() {
		return
	}
	node, end := l.pending.proof.Node, notAfter.UTC().Format(time.RFC3339)
	expire := func() {
		l.drop("the certificate of node " + node + " expired at " + end + ", and the agent has not renewed it")
	}
	if left := time.Until(notAfter); left > warnBefore {
		l.expiry.set(left-warnBefore, func() { l.watchExpiry(notAfter) })
		return
	}
	l.pending.server.log.Warn("certificate of a node ends soon; the agent has not renewed it",
		"node", node, "expires", end)
	l.expiry.set(time.Until(notAfter), expire)
}
