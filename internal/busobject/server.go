// Package busobject serves D-Bus objects under a well-known name of a bus that may go and
// come back.
//
// A Server has one goroutine. Calls reach their handlers on it, in the order in which they
// came, and everything that is sent leaves through it, in the order in which it was given:
// a core that announces a job, answers the call that made it and ends it, in this order,
// has said so on the bus in this order.
package busobject

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/backoff"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Options is what a Server needs to know.
type Options struct {
	Address    string // D-Bus address of the bus
	Name       string // well-known name to own
	Authorizer Authorizer
	Log        *slog.Logger
	// Root is the object that has an ObjectManager; Classes are all others.
	Root    *Class
	Classes []*Class
	// List gives all objects of Classes, as of one moment; nil: there are none. reply is
	// called once, from any goroutine.
	List func(reply func([]Object))
	// ClientGone is told of each unique name that leaves the bus. It must not block, except to
	// post to a core. nil: nobody wants to know.
	ClientGone func(name string)
	// BusGone is told that the bus is gone and all names with it. The next bus is not called
	// before done, which is called once, from any goroutine.
	BusGone func(done func())
	// Acted is told how calls ended that need more than the right to look or were refused, from
	// any goroutine.
	// It must not block. nil: nobody wants to know.
	Acted func(Outcome)
}

// Server serves objects. Make one with New, connect it with Connect, and run it with Run.
// Its other methods are safe from any goroutine and never block.
type Server struct {
	address    string
	name       string
	authorizer Authorizer
	log        *slog.Logger
	root       *Class
	classes    []*Class // root first
	list       func(func([]Object))
	clientGone func(string)
	busGone    func(func())
	acted      func(Outcome)
	standard   standard
	retry      backoff.Backoff

	loop    *loop.Loop
	lanes   map[caller]*lane          // owned by the loop's goroutine
	conn    atomic.Pointer[peer.Conn] // nil while the bus is gone
	backlog atomic.Int64              // what Do has queued
}

// Bounds.
const (
	// MaxAnswer is the largest answer, in bytes. dbus-daemon's limit on the system bus is
	// 32 MiB a message, headers included, and it cuts off who sends a larger one.
	MaxAnswer = 32<<20 - 64<<10
	// inbox is how many calls may wait for the server's goroutine; past it the bus is not
	// read.
	inbox = 4096
	// maxBacklog is how much may wait to be sent. A bus that is further behind is given up:
	// clients see the name's owner change and read everything again.
	maxBacklog = 1 << 17
)

var errBacklog = errors.New("more than 131072 messages wait to be sent")

// New makes a server. It does nothing until Connect.
func New(opt Options) *Server {
	s := &Server{
		address: opt.Address, name: opt.Name, authorizer: opt.Authorizer, log: opt.Log,
		root: opt.Root, classes: append([]*Class{opt.Root}, opt.Classes...), list: opt.List,
		clientGone: opt.ClientGone, busGone: opt.BusGone, acted: opt.Acted,
		retry: defaultRetry, loop: loop.New(inbox), lanes: make(map[caller]*lane),
	}
	if s.list == nil {
		s.list = func(reply func([]Object)) { reply(nil) }
	}
	if s.clientGone == nil {
		s.clientGone = func(string) {}
	}
	if s.busGone == nil {
		s.busGone = func(done func()) { done() }
	}
	s.makeStandard()
	return s
}

// Do runs fn on the server's goroutine, after all that was given to it before. It never
// blocks. While too much waits already, the bus is given up and fn is dropped: it must be
// for sending only.
func (s *Server) Do(fn func()) {
	if s.backlog.Add(1) > maxBacklog {
		s.backlog.Add(-1)
		if conn := s.conn.Load(); conn != nil {
			conn.Close(errBacklog)
		}
		return
	}
	ok := s.loop.Defer(func() {
		s.backlog.Add(-1)
		fn()
	})
	if !ok {
		s.backlog.Add(-1)
	}
}

// send sends a signal; on the server's goroutine.
func (s *Server) send(path wire.ObjectPath, iface, signal string, args ...any) {
	conn := s.conn.Load()
	if conn == nil {
		return
	}
	body, err := peer.Encode(args...)
	if err == nil {
		err = s.checkSignal(iface, signal, body.Sig)
	}
	if err == nil {
		err = conn.Signal(path, iface, signal, body)
	}
	if err != nil {
		s.dropped(signal, iface, err)
	}
}

// dropped logs a signal that could not be sent: a mistake of ours, or a connection that is
// closing, which says so by itself.
func (s *Server) dropped(signal, iface string, err error) {
	level := slog.LevelError
	if errors.Is(err, wire.ErrDisconnected) {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, "signal dropped", "signal", signal, "interface", iface, "err", err)
}

// checkSignal holds a signal against the XML.
func (s *Server) checkSignal(iface, signal string, sig wire.Signature) error {
	for _, class := range s.classes {
		if i := class.implementation(iface); i != nil {
			return matches(i, signal, sig)
		}
	}
	for _, i := range s.standard.root {
		if i.Spec.Name == iface {
			return matches(i, signal, sig)
		}
	}
	return errors.New("no object has this interface")
}

func matches(i *Interface, signal string, sig wire.Signature) error {
	spec, ok := i.Spec.Signal(signal)
	if !ok {
		return errors.New("the XML has no such signal")
	}
	if want := api.Signature(spec.Args); want != sig {
		return wire.ErrInvalidArgs.With("its arguments are of type %q instead of %q", sig, want)
	}
	return nil
}

// ErrTooLarge is the error for an answer that is larger than MaxAnswer.
func ErrTooLarge(method string) error {
	return wire.ErrLimitsExceeded.With("the answer to %s is larger than %d bytes, which is what a message on the bus can hold; ask for less, for example with ListUnitsFiltered",
		method, MaxAnswer)
}
