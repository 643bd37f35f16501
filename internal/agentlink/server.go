// Package agentlink lets agents in: it accepts their connections, bounds what those may cost
// that have not registered, and carries the manager's calls to those that have.
package agentlink

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/sockopt"
)

// Core is what the links need of the manager's core.
type Core interface {
	Register(r manager.Registration, reply func(manager.Welcome, error))
	Closed(s manager.Session, reason string)
	JobState(s manager.Session, job uint32, state string)
	JobDone(s manager.Session, job uint32, result string)
	UnitEvent(s manager.Session, e manager.UnitEvent)
	UnitAlias(s manager.Session, row manager.UnitRow)
	JobMetrics(s manager.Session, unit, method string, took time.Duration)
	Proxies(s manager.Session, all []manager.ProxyReport, deps []string)
	ProxyNew(s manager.Session, r manager.ProxyReport)
	ProxyRemoved(s manager.Session, name string)
	TargetState(s manager.Session, unit, state string)
	TargetLeaving(s manager.Session, unit string, restart bool)
	DepState(s manager.Session, unit string, active bool)
}

// Workloads hears what agents say about workloads. It may hold up the agent's connection.
type Workloads interface {
	Progress(node, text string)
	Changed(node, text string)
}

// Settings may change while the server runs; connections that are there keep what they have.
type Settings struct {
	// Secure makes TLS of a TCP connection, within ctx, and says who the peer has proved to
	// be. It leaves the connection open when it fails. nil: TLS=no.
	Secure func(ctx context.Context, nc net.Conn) (net.Conn, Proof, error)
	// Enrolment issues the certificates that Secure accepts; nil: they come from elsewhere.
	Enrolment Enrolment
	TCP       sockopt.TCP
	// User and Group may use a unix socket besides root: a uid, and a gid or NoGroup.
	User, Group int
	// Workloads may be nil: then nobody cares.
	Workloads Workloads
	// Session is what agents are told when they have registered.
	Session Session
}

// Proof is what a peer's certificate says.
type Proof struct {
	// Node is the name in it, "" where the peer has shown none: then it may only join.
	Node string
	// Generation and NotAfter are looked at where Settings.Enrolment is there, which has
	// issued the certificate.
	Generation uint64
	NotAfter   time.Time
}

// Session is the part of the answer to Register that is not the core's.
type Session struct {
	Features []string
	LogLevel string // "" leaves the agent's own
}

// Server accepts agents on any number of listeners. What one peer does, or fails to do,
// ends its own connection and nothing else.
type Server struct {
	core       Core
	log        *slog.Logger
	settings   atomic.Pointer[Settings]
	complaints *complaints
	guesses    guesses

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup // listeners, and connections that have not registered
	links   sync.WaitGroup // all that speak D-Bus

	mu        sync.Mutex
	listeners []net.Listener
	closed    bool
	live      map[*link]bool // that have registered
}

// New makes a server that accepts nothing yet.
func New(core Core, set Settings, log *slog.Logger) *Server {
	s := &Server{core: core, log: log, complaints: newComplaints(log), live: make(map[*link]bool)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.settings.Store(&set)
	return s
}

// Apply changes the settings for connections to come.
func (s *Server) Apply(set Settings) { s.settings.Store(&set) }

// Serve accepts agents on a TCP or unix listener until Close, in the background.
func (s *Server) Serve(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.Close()
		return
	}
	s.listeners = append(s.listeners, l)
	s.running.Go(func() { s.accept(l) })
}

// Close stops accepting, ends the connections that have not registered, and waits for all of
// it. The links of registered agents stay: they are the core's.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.listeners {
		l.Close()
	}
	s.listeners = nil
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
}

// Drain waits, after Close, until the links that the core has closed have said their last
// words, or until ctx ends.
func (s *Server) Drain(ctx context.Context) {
	gone := make(chan struct{})
	go func() {
		s.links.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
}

// The pause after an error of accept, which doubles each time. A process that has no file
// descriptor left gets one back when some connection ends, not sooner by trying.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

func (s *Server) accept(l net.Listener) {
	perAddress := maxPendingPerAddress
	if _, ok := l.(*net.UnixListener); ok {
		perAddress = 0 // those who may connect at all are trusted, and have no address
	}
	g := newGate(perAddress)
	pause, problem := time.Duration(0), ""
	for g.wait(s.ctx) {
		nc, err := l.Accept()
		if err == nil {
			pause, problem = 0, ""
			s.admit(g, nc)
			continue
		}
		if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		if text := acceptProblem(err); text != problem {
			problem = text
			s.log.Error("cannot accept agents; trying again", "address", l.Addr().String(), "err", text)
		}
		pause = min(max(2*pause, minAcceptPause), maxAcceptPause)
		if !s.sleep(pause) {
			return
		}
	}
}

func acceptProblem(err error) string {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return err.Error() + "; raise LimitNOFILE= of the manager's unit"
	}
	return err.Error()
}

func (s *Server) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// admit gives a new connection a place and a goroutine, or closes it.
func (s *Server) admit(g *gate, nc net.Conn) {
	p := &pending{server: s, nc: nc, settings: s.settings.Load()}
	p.address, p.name = peerAddress(nc)
	if unix, ok := nc.(*net.UnixConn); ok {
		// At once, so that those who may not connect cannot take the places of those who may.
		if err := p.settings.admitted(unix); err != nil {
			nc.Close()
			s.complaints.about(p.address, p.name, "connection refused", err)
			return
		}
	}
	ctx, cancel := context.WithTimeoutCause(s.ctx, registerTime, errNoRegister)
	evict, cancelCause := context.WithCancelCause(ctx)
	p.ticket = g.enter(p.address, func() { cancelCause(errMadeRoom) })
	if p.ticket == nil {
		cancelCause(nil)
		cancel()
		nc.Close()
		s.complaints.about(p.address, p.name, "connection refused", errTooMany)
		return
	}
	s.running.Go(func() {
		defer cancel()
		defer cancelCause(nil)
		defer p.ticket.leave()
		p.run(evict)
	})
}

// peerAddress is a peer's IP address as a key and for people.
func peerAddress(nc net.Conn) (netip.Addr, string) {
	tcp, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, "unix"
	}
	a := tcp.AddrPort().Addr().Unmap()
	return a, a.String()
}
