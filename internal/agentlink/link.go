package agentlink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// link is one agent's connection: first a peer that may only register, then a
// manager.AgentLink.
type link struct {
	pending    *pending
	core       Core
	conn       *peer.Conn
	allowance  *allowance
	identity   manager.Identity
	node       string        // the name that the core has accepted; set before registered is closed
	registered chan struct{} // closed when the core has accepted the peer
	joining    chan joinCall // the one call of a peer without a certificate
	asked      bool          // of the reader goroutine: Register or Join was called
	expiry     expiry

	mu      sync.Mutex
	session manager.Session // 0 until accepted
	reason  error           // why this side closes, or why the connection has ended
	dead    bool            // has ended, or is about to
}

var _ manager.AgentLink = (*link)(nil)

// newLink speaks D-Bus on a connection, within ctx, which it closes on an error.
func newLink(ctx context.Context, p *pending, nc *allowance) (*link, error) {
	l := &link{
		pending: p, core: p.server.core, allowance: nc,
		identity:   manager.Identity{Node: p.proof.Node, Address: p.name},
		registered: make(chan struct{}), joining: make(chan joinCall, 1),
	}
	ready := make(chan struct{})
	conn, err := peer.Server(ctx, nc, peer.Options{
		Handler: func(_ *peer.Conn, m *peer.Message) { <-ready; l.handle(m) },
		OnClose: func(_ *peer.Conn, err error) { <-ready; l.closed(err) },
		Log:     p.server.log,
	})
	if err != nil {
		return nil, err
	}
	l.conn = conn
	p.server.links.Add(1)
	close(ready)
	return l, nil
}

// closed is called once, after everything that the peer has sent was handled.
func (l *link) closed(err error) {
	defer l.pending.server.links.Done()
	l.mu.Lock()
	l.dead = true
	if l.reason == nil {
		l.reason = err
	}
	session, reason := l.session, l.reason
	l.mu.Unlock()
	l.pending.server.forget(l)
	l.expiry.stop()
	if session != 0 {
		l.core.Closed(session, reason.Error())
	}
}

// end closes the connection once everything is sent. The peer answers by closing as well,
// which is not the reason then.
func (l *link) end(reason error) {
	l.mu.Lock()
	if l.reason == nil {
		l.reason = reason
	}
	l.mu.Unlock()
	l.conn.CloseWhenSent(reason)
}

// giveUp closes a connection whose time to register is over, unless the core has accepted it
// at the same moment.
func (l *link) giveUp(reason error) bool {
	l.mu.Lock()
	if l.session != 0 {
		l.mu.Unlock()
		return false
	}
	l.dead = true
	if l.reason == nil {
		l.reason = reason
	}
	l.mu.Unlock()
	l.conn.Close(reason)
	return true
}

// why is the reason of a connection that has ended.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// handle gets all calls and signals of the peer, on the reader goroutine.
func (l *link) handle(m *peer.Message) {
	if m.Type == peer.TypeSignal {
		l.handleSignal(m)
		return
	}
	if l.anonymous() {
		l.handleAnonymous(m)
		return
	}
	register := m.Path == wire.InternalPath && m.Interface == wire.InternalManagerInterface && m.Member == wire.MemberRegister
	switch {
	case register && !l.asked:
		l.asked = true
		l.register(m)
	case register:
		l.refuse(m, wire.ErrFailed.With("this connection has called Register already"))
	case !l.isRegistered():
		l.refuse(m, wire.ErrAccessDenied.With("only Register may be called before it has succeeded, not %q", m.Member))
	case m.Path == wire.InternalPath && m.Interface == wire.InternalManagerInterface && m.Member == wire.MemberRenew:
		l.renew(m)
	default:
		l.conn.ReplyError(m, peer.UnknownMethod(m))
	}
}

func (l *link) isRegistered() bool {
	select {
	case <-l.registered:
		return true
	default:
		return false
	}
}

// refuse answers what no agent does, and ends the connection.
func (l *link) refuse(m *peer.Message, err error) {
	l.conn.ReplyError(m, err)
	l.end(err)
}

func (l *link) register(m *peer.Message) {
	r := manager.Registration{Identity: l.identity, Link: l}
	if err := peer.Decode(m.Body, &r.Node, &r.Facts); err != nil {
		l.refuse(m, err)
		return
	}
	if err := l.checkGeneration(); err != nil {
		l.refuse(m, err)
		return
	}
	m = m.CloneHeader()
	l.core.Register(r, func(w manager.Welcome, err error) { l.decided(m, r.Node, w, err) })
}

// decided takes the core's decision, on its goroutine.
func (l *link) decided(m *peer.Message, node string, w manager.Welcome, err error) {
	if err != nil {
		if wire.ValidNodeName(node) {
			err = fmt.Errorf("registration as node %s refused: %w", node, err)
		}
		l.refuse(m, err)
		return
	}
	l.mu.Lock()
	l.session = w.Session
	dead, reason := l.dead, l.reason
	l.mu.Unlock()
	if dead {
		l.core.Closed(w.Session, reason.Error())
		return
	}
	// Again, since the certificate may have been revoked while the core was deciding: from
	// here on Server.Recheck finds it.
	l.pending.server.remember(l)
	if err := l.checkGeneration(); err != nil {
		l.core.Closed(w.Session, err.Error())
		l.refuse(m, err)
		return
	}
	l.node = node
	// Nothing of the core can overtake this answer: it sends on the same goroutine.
	l.conn.Reply(m, l.welcome(w))
	l.allowance.lifted.Store(true)
	close(l.registered)
	l.watchExpiry(l.pending.proof.NotAfter)
	l.askToRenew()
}

func (l *link) welcome(w manager.Welcome) wire.Raw {
	own := l.pending.settings.Session
	features := own.Features
	if features == nil {
		features = []string{}
	}
	return peer.MustEncode(map[string]wire.Value{
		wire.SessionID:                 peer.MustValue(uint64(w.Session)),
		wire.SessionFeatures:           peer.MustValue(features),
		wire.SessionHeartbeatInterval:  peer.MustValue(uint64(w.HeartbeatInterval.Microseconds())),
		wire.SessionHeartbeatThreshold: peer.MustValue(uint64(w.HeartbeatThreshold.Microseconds())),
		wire.SessionLogLevel:           peer.MustValue(own.LogLevel),
		wire.SessionMetrics:            peer.MustValue(w.Metrics),
	})
}

// handleSignal passes an agent's reports on. Before it has registered it has none to give.
func (l *link) handleSignal(m *peer.Message) {
	if m.Path == wire.InternalPath && m.Interface == wire.InternalProxyInterface {
		l.handleProxyReport(m)
		return
	}
	if m.Path != wire.InternalPath || m.Interface != wire.InternalAgentInterface || !l.isRegistered() {
		return
	}
	report, known := reports[m.Member]
	if !known {
		return // of a newer agent, or Heartbeat: that it came is all it says
	}
	if err := report(l, m); err != nil {
		l.conn.Close(fmt.Errorf("agent breaks the protocol: signal %s: %w", m.Member, err))
	}
}

// call sends a call and maps its errors to what the core distinguishes.
func (l *link) call(member string, body wire.Raw, timeout time.Duration, done func(*peer.Message, error)) {
	l.conn.Go(peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalAgentInterface, Member: member, Body: body,
	}, timeout, func(m *peer.Message, err error) { done(m, l.coreError(err)) })
}

// coreError makes of a dead connection, and of nothing else, an error of kind NodeOffline.
func (l *link) coreError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wire.ErrDisconnected) && l.conn.Err() != nil:
		return wire.ErrNodeOffline.With("%v", l.conn.Err())
	case errors.Is(err, wire.ErrNodeOffline):
		return wire.ErrFailed.With("%v", err)
	}
	return err
}

func (l *link) StartJob(job uint32, req manager.JobRequest, timeout time.Duration, done func(error)) {
	member, body, err := encodeJob(job, req)
	if err != nil {
		go done(err) // not on the core's own goroutine, within its call
		return
	}
	l.call(member, body, timeout, func(_ *peer.Message, err error) { done(err) })
}

// startTransient is the method for a job with a unit of its own.
const startTransient = "StartTransientUnit"

func encodeJob(job uint32, req manager.JobRequest) (member string, body wire.Raw, err error) {
	body, err = peer.Encode(job, req.Unit, req.Mode)
	if err != nil || req.Transient == nil {
		return req.Verb.Method(), body, err
	}
	body, err = peer.JoinBody(body, *req.Transient)
	return startTransient, body, err
}

func (l *link) CancelJob(job uint32, timeout time.Duration, done func(error)) {
	l.call(wire.MemberCancelJob, peer.MustEncode(job), timeout, func(_ *peer.Message, err error) { done(err) })
}

func (l *link) Call(method string, args wire.Raw, timeout time.Duration, done func(wire.Raw, error)) {
	found, known := wire.NodeMethodByName(method)
	l.call(method, args, timeout, func(m *peer.Message, err error) {
		switch {
		case err != nil:
			done(wire.Raw{}, err)
		case known && m.Body.Sig != found.Out:
			done(wire.Raw{}, wire.ErrFailed.With("agent answered %s with type %q instead of %q", method, string(m.Body.Sig), found.Out))
		default:
			done(peer.CloneRaw(m.Body), nil)
		}
	})
}

func (l *link) Subscribe(pattern string, timeout time.Duration, done func([]manager.UnitRow, error)) {
	body, err := peer.Encode(pattern)
	if err != nil {
		go done(nil, err)
		return
	}
	l.call(wire.MemberSubscribe, body, timeout, func(m *peer.Message, err error) {
		var rows []manager.UnitRow
		if err == nil {
			err = peer.Decode(m.Body, &rows)
		}
		done(rows, err)
	})
}

func (l *link) Unsubscribe(pattern string) {
	if body, err := peer.Encode(pattern); err == nil {
		l.conn.Send(peer.Call{
			Path: wire.InternalPath, Interface: wire.InternalAgentInterface, Member: wire.MemberUnsubscribe, Body: body,
		})
	}
}

// SetMetrics needs no answer: whether it came shows in the reports.
func (l *link) SetMetrics(on bool) {
	l.conn.Send(peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalAgentInterface, Member: wire.MemberSetMetrics, Body: peer.MustEncode(on),
	})
}

func (l *link) Heartbeat() { l.signal(wire.MemberHeartbeat, wire.Raw{}) }

func (l *link) LastReceived() time.Time { return l.conn.LastReceived() }

// Close says why and closes, in the background.
func (l *link) Close(reason string) {
	if body, err := peer.Encode(reason); err == nil {
		l.signal(wire.MemberClosing, body)
	}
	l.end(errors.New(reason))
}

func (l *link) signal(member string, body wire.Raw) {
	l.conn.Signal(wire.InternalPath, wire.InternalManagerInterface, member, body)
}
