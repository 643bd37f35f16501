package busobject

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"example.org/ctrl/internal/backoff"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// defaultRetry is how long to wait before a bus that is gone is tried again.
var defaultRetry = backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}

// Time limits: a local bus answers at once or is not well.
const (
	connectTimeout = 5 * time.Second
	endTimeout     = 2 * time.Second
	// steadyAfter is how long a connection must have lived to count as a good one.
	steadyAfter = 10 * time.Second
)

// Connect reaches the bus and makes the name ours. Calls wait until Run. The error says
// what to do about it: no bus, no right to own the name, or another process that has it.
func (s *Server) Connect(ctx context.Context) error {
	_, err := s.connect(ctx)
	return err
}

// Run serves until ctx ends; it connects again whenever the bus is gone, and also at first
// where Connect was not called. At the end it sends what was given to it before, releases
// the name and returns. Objects whose core has ended answer that by themselves, so the core
// is ended first.
func (s *Server) Run(ctx context.Context) {
	go s.loop.Run(context.Background())
	defer func() {
		s.loop.Stop()
		<-s.loop.Done()
	}()
	conn, attempt := s.conn.Load(), 0
	for {
		if conn == nil {
			if conn, attempt = s.reconnect(ctx, attempt); conn == nil {
				return
			}
		}
		since := time.Now()
		select {
		case <-conn.Done():
			s.log.Warn("connection to the bus is lost", "bus", s.address, "err", conn.Err())
			conn = nil
			s.forget(ctx)
			// A bus that lets us in and throws us out at once is as good as none.
			if attempt++; time.Since(since) >= steadyAfter {
				attempt = 0
			}
		case <-ctx.Done():
			s.finish(conn)
			return
		}
	}
}

// forget waits until nothing knows names of the old bus any more.
func (s *Server) forget(ctx context.Context) {
	forgotten := make(chan struct{})
	s.loop.Defer(func() { s.busGone(func() { close(forgotten) }) })
	select {
	case <-forgotten:
	case <-ctx.Done():
	}
}

// reconnect tries until the name is ours, or gives nil when ctx ends. A reason is logged
// once. attempt counts failures in a row.
func (s *Server) reconnect(ctx context.Context, attempt int) (*peer.Conn, int) {
	said := ""
	for ; ; attempt++ {
		select {
		case <-time.After(s.retry.Delay(attempt, rand.Float64())):
		case <-ctx.Done():
			return nil, attempt
		}
		conn, err := s.connect(ctx)
		if err == nil {
			s.log.Info("connected to the bus", "bus", s.address, "name", s.name)
			return conn, attempt
		}
		if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			s.log.Error("bus cannot be used; it is tried again", "err", err)
		}
	}
}

func (s *Server) connect(ctx context.Context) (*peer.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := peer.DialBus(ctx, s.address, peer.Options{
		Handler: s.receive, OnClose: s.closed, Log: s.log,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot reach the D-Bus daemon at %s: %w; is dbus.service running?", s.address, err)
	}
	// What happens from now on is told on this connection: whoever sees the name appear and
	// then reads the state misses nothing.
	s.conn.Store(conn)
	if err := s.own(ctx, conn); err != nil {
		s.conn.CompareAndSwap(conn, nil)
		conn.Close(err)
		return nil, err
	}
	return conn, nil
}

// nameOwnerRule matches names that leave the bus.
var nameOwnerRule = fmt.Sprintf("type='signal',sender='%s',path='%s',interface='%s',member='%s',arg2=''",
	wire.DBusName, wire.DBusPath, wire.DBusInterface, memberNameOwnerChanged)

const memberNameOwnerChanged = "NameOwnerChanged"

// own asks for what the bus is to send and makes the name ours.
func (s *Server) own(ctx context.Context, conn *peer.Conn) error {
	if err := conn.AddMatch(ctx, nameOwnerRule); err != nil {
		return fmt.Errorf("cannot watch who leaves the bus at %s: %w", s.address, err)
	}
	reply, err := conn.RequestName(ctx, s.name, peer.NameDoNotQueue)
	switch {
	case errors.Is(err, wire.ErrAccessDenied):
		return fmt.Errorf("the bus at %s does not let this user own the name %s (%w); install its D-Bus policy file %s.conf or run as the user that it names",
			s.address, s.name, err, s.name)
	case err != nil:
		return fmt.Errorf("cannot own the name %s on the bus at %s: %w", s.name, s.address, err)
	case reply == peer.NameExists:
		return fmt.Errorf("the name %s on the bus at %s is taken by %s; stop that one first", s.name, s.address, owner(ctx, conn, s.name))
	}
	return nil
}

// owner says who owns a name, as far as the bus does.
func owner(ctx context.Context, conn *peer.Conn, name string) string {
	unique, err := conn.NameOwner(ctx, name)
	if err != nil {
		return "another process"
	}
	var pid uint32
	m, err := conn.Call(ctx, peer.Call{
		Destination: wire.DBusName, Path: wire.DBusPath, Interface: wire.DBusInterface,
		Member: "GetConnectionUnixProcessID", Body: peer.MustEncode(unique),
	})
	if err == nil {
		err = peer.Decode(m.Body, &pid)
	}
	if err != nil {
		return unique
	}
	return fmt.Sprintf("process %d (%s)", pid, unique)
}

// receive takes a message on the connection's own goroutine; while the server has too much
// to do, the bus is not read.
func (s *Server) receive(conn *peer.Conn, m *peer.Message) {
	switch {
	case m.Type == peer.TypeCall:
		m = m.Clone()
		s.loop.Post(func() { s.call(conn, m) })
	case m.Type == peer.TypeSignal && m.Sender == wire.DBusName && m.Member == memberNameOwnerChanged:
		// Only the bus itself can have this sender; anyone may send a signal that looks alike.
		var name, before, after string
		if err := peer.Decode(m.Body, &name, &before, &after); err == nil && after == "" {
			s.loop.Post(func() { s.left(conn, name) })
		}
	}
}

func (s *Server) closed(conn *peer.Conn, _ error) {
	s.conn.CompareAndSwap(conn, nil)
	s.loop.Defer(func() { s.left(conn, "") })
}

// finish sends what is still queued, gives the name up and closes the connection. The
// bus's answer proves that it has read all that came before.
func (s *Server) finish(conn *peer.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	queued := make(chan struct{})
	s.loop.Defer(func() {
		s.authorizer.Left(conn, "") // nobody is asked for a password any more
		close(queued)
	})
	select {
	case <-queued:
	case <-ctx.Done():
	}
	if err := conn.ReleaseName(ctx, s.name); err != nil {
		s.log.Debug("name is not released", slog.String("name", s.name), slog.Any("err", err))
	}
	conn.Close(errors.New("the daemon ends"))
}
