package busobject

import (
	"time"

	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Sender sends to single clients of one connection to the bus. On the next bus their names
// belong to others, so it is not used there. Two are equal when they are of the same
// connection. Its methods are for the server's goroutine.
type Sender struct {
	server *Server
	conn   *peer.Conn
}

// Sender is for the bus that is connected now; ok is false while there is none.
func (s *Server) Sender() (_ Sender, ok bool) {
	conn := s.conn.Load()
	return Sender{s, conn}, conn != nil
}

// Signal sends one client a signal.
func (s Sender) Signal(t Target, iface *Interface, signal string, args wire.Raw) {
	err := matches(iface, signal, args.Sig)
	if err == nil {
		err = s.conn.SignalTo(t.To, t.Path, iface.Spec.Name, signal, args)
	}
	if err != nil {
		s.server.dropped(signal, iface.Spec.Name, err)
	}
}

// pingLimit is as good as none: a client that is stopped may go on after days.
const pingLimit = 365 * 24 * time.Hour

// Trusted is Authorizer's, for a client of this bus.
func (s Sender) Trusted(to string) bool { return s.server.authorizer.Trusted(s.conn, to) }

// Ping asks a client for a sign of life, which says that it has read all that was sent to it
// before. Libraries answer by themselves while a program reads its messages. done is called
// once, on the server's goroutine, unless the server has ended: with nil also for an error
// that the client itself answers. Other errors are the bus's own: ErrAccessDenied by its
// policy, ErrLimitsExceeded when too many of our calls wait for answers.
func (s Sender) Ping(to string, done func(error)) {
	s.conn.Go(peer.Call{
		Destination: to, Path: "/", Interface: wire.PeerInterface, Member: "Ping", Flags: peer.FlagNoAutoStart,
	}, pingLimit, func(m *peer.Message, err error) {
		// Not Do: it may drop, and each answer was asked for by this goroutine.
		s.server.loop.Defer(func() { done(err) })
	})
}

// After runs fn on the server's goroutine after d.
func (s *Server) After(d time.Duration, fn func()) *loop.Timer { return s.loop.After(d, fn) }

// Queue is Do for who bounds by other means what waits: nothing is dropped while the server
// runs, which is what it reports.
func (s *Server) Queue(fn func()) bool { return s.loop.Defer(fn) }

// Dropped logs that a signal could not be sent.
func (s Sender) Dropped(iface *Interface, signal string, err error) {
	s.server.dropped(signal, iface.Spec.Name, err)
}
