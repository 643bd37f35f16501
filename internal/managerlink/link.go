package managerlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// link is one connection to a manager, agent.ManagerLink for the core.
type link struct {
	core       Core
	conn       *peer.Conn
	registered bool // of the reader goroutine

	mu      sync.Mutex
	session agent.Session
	known   bool  // session is known: Register was called
	reason  error // why this side closes, or why the connection has ended
	dead    bool
}

var _ agent.ManagerLink = (*link)(nil)

// newLink speaks D-Bus on a connection, within ctx, which it closes on an error.
func (d *Dialer) newLink(ctx context.Context, nc net.Conn) (*link, error) {
	l := &link{core: d.core}
	ready := make(chan struct{})
	conn, err := peer.Client(ctx, nc, peer.Options{
		Handler: func(_ *peer.Conn, m *peer.Message) { <-ready; l.handle(m) },
		OnClose: func(_ *peer.Conn, err error) {
			<-ready
			l.closed(err)
			d.links.Done()
		},
		Log: d.log,
	})
	if err != nil {
		return nil, err
	}
	l.conn = conn
	d.links.Add(1)
	close(ready)
	return l, nil
}

func (l *link) closed(err error) {
	l.mu.Lock()
	l.dead = true
	if l.reason == nil {
		l.reason = err
	}
	session, known, reason := l.session, l.known, l.reason
	l.mu.Unlock()
	if known {
		l.core.Closed(session, reason)
	}
}

// Register asks to become a node.
func (l *link) Register(session agent.Session, node string, facts map[string]wire.Value, timeout time.Duration, done func(agent.Welcome, error)) {
	l.mu.Lock()
	l.session, l.known = session, true
	dead, reason := l.dead, l.reason
	l.mu.Unlock()
	body, err := peer.Encode(node, facts)
	if dead {
		err = wire.ErrDisconnected.With("connection closed: %v", reason)
	}
	if err != nil {
		go func() {
			done(agent.Welcome{}, err)
			if dead {
				l.core.Closed(session, reason)
			}
		}()
		return
	}
	l.conn.Go(peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalManagerInterface, Member: wire.MemberRegister, Body: body,
	}, timeout, func(m *peer.Message, err error) {
		var w agent.Welcome
		if err == nil {
			w, err = decodeWelcome(m.Body)
		}
		// An answer comes on the reader goroutine, so before the first call of the manager.
		l.registered = err == nil
		done(w, err)
	})
}

func decodeWelcome(body wire.Raw) (agent.Welcome, error) {
	var w agent.Welcome
	var session map[string]wire.Value
	if err := peer.Decode(body, &session); err != nil {
		return w, fmt.Errorf("answer to Register: %w", err)
	}
	var interval, threshold uint64
	for key, dst := range map[string]any{
		wire.SessionID: &w.ManagerSession, wire.SessionFeatures: &w.Features,
		wire.SessionHeartbeatInterval: &interval, wire.SessionHeartbeatThreshold: &threshold,
		wire.SessionLogLevel: &w.LogLevel, wire.SessionMetrics: &w.Metrics,
	} {
		value, given := session[key]
		if !given && key == wire.SessionID {
			return w, fmt.Errorf("answer to Register has no %s", key)
		}
		if !given {
			continue // an older manager: the zero value is what it means
		}
		if err := peer.DecodeValue(value, dst); err != nil {
			return w, fmt.Errorf("answer to Register: %s: %w", key, err)
		}
	}
	w.HeartbeatInterval, w.HeartbeatThreshold = microseconds(interval), microseconds(threshold)
	return w, nil
}

// microseconds is a duration from the wire; what no clock will see is a day.
func microseconds(n uint64) time.Duration {
	const day = uint64(24 * time.Hour / time.Microsecond)
	return time.Duration(min(n, day)) * time.Microsecond
}

func (l *link) Heartbeat() { l.signal(wire.MemberHeartbeat) }

func (l *link) JobState(job uint32, state string) { l.signal(wire.MemberJobState, job, state) }

func (l *link) JobDone(job uint32, result string) { l.signal(wire.MemberJobDone, job, result) }

func (l *link) LastReceived() time.Time { return l.conn.LastReceived() }

func (l *link) Backlog() int { return l.conn.Backlog() }

// Close says why and closes, in the background.
func (l *link) Close(reason string) {
	l.signal(wire.MemberClosing, reason)
	err := errors.New(reason)
	l.mu.Lock()
	if l.reason == nil {
		l.reason = err
	}
	l.mu.Unlock()
	l.conn.CloseWhenSent(err)
}

// signal sends a report. What cannot be sent is lost with the session, which is over then,
// or was not valid and would be the same the next time.
func (l *link) signal(member string, args ...any) {
	body, err := peer.Encode(args...)
	if err == nil {
		l.conn.Signal(wire.InternalPath, wire.InternalAgentInterface, member, body)
	}
}
