package agentlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

var quiet = slog.New(slog.DiscardHandler)

// fakeCore accepts every node but "stranger", and tells what it hears.
type fakeCore struct {
	events chan string
	links  chan manager.AgentLink

	mu   sync.Mutex
	last manager.Session
	hold chan struct{} // where set: decisions wait for it
	seen []manager.Registration
	came chan bool // one for each registration
}

func newFakeCore() *fakeCore {
	return &fakeCore{events: make(chan string, 1024), links: make(chan manager.AgentLink, 1024), came: make(chan bool, 1024)}
}

func (f *fakeCore) Register(r manager.Registration, reply func(manager.Welcome, error)) {
	f.mu.Lock()
	f.last++
	session, hold := f.last, f.hold
	f.seen = append(f.seen, r)
	f.mu.Unlock()
	f.came <- true
	go func() { // the core's own goroutine
		if hold != nil {
			<-hold
		}
		if r.Node == "stranger" {
			reply(manager.Welcome{}, wire.ErrNodeNotAllowed.With("not in the fleet"))
			return
		}
		f.events <- fmt.Sprintf("register %d %s %s", session, r.Node, r.Identity.Node)
		reply(manager.Welcome{Session: session, HeartbeatInterval: 2 * time.Second, HeartbeatThreshold: 6 * time.Second, Metrics: true}, nil)
		f.links <- r.Link
	}()
}

func (f *fakeCore) Closed(s manager.Session, reason string) {
	f.events <- fmt.Sprintf("closed %d %s", s, reason)
}
func (f *fakeCore) JobState(s manager.Session, job uint32, state string) {
	f.events <- fmt.Sprintf("state %d %d %s", s, job, state)
}
func (f *fakeCore) JobDone(s manager.Session, job uint32, result string) {
	f.events <- fmt.Sprintf("done %d %d %s", s, job, result)
}
func (f *fakeCore) UnitEvent(s manager.Session, e manager.UnitEvent) {
	f.events <- fmt.Sprintf("unit %d %d %s %s %s %s %s %q", s, e.Kind, e.Unit, e.Active, e.Sub, e.Reason, e.Interface, e.Properties.Sig)
}
func (f *fakeCore) UnitAlias(s manager.Session, row manager.UnitRow) {
	f.events <- fmt.Sprintf("alias %d %v", s, row)
}

func (f *fakeCore) JobMetrics(s manager.Session, unit, method string, took time.Duration) {
	f.events <- fmt.Sprintf("metrics %d %s %s %v", s, unit, method, took)
}

func (f *fakeCore) want(t *testing.T, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		select {
		case got := <-f.events:
			if got != want {
				t.Fatalf("the core heard %q, want %q", got, want)
			}
		case <-t.Context().Done():
			t.Fatalf("the core did not hear %q", want)
		}
	}
}

// plain are settings without TLS.
func plain() Settings { return Settings{Group: NoGroup} }

// serve starts a server on l, which ends with the test.
func serve(t *testing.T, core Core, set Settings, l net.Listener) *Server {
	t.Helper()
	s := New(core, set, quiet)
	s.Serve(l)
	t.Cleanup(s.Close)
	return s
}

// listen is a port on loopback.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	nc, err := net.Dial(l.Addr().Network(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

// agent is the other end: a D-Bus peer on a connection.
type agent struct {
	*peer.Conn
	signals chan string
	gone    chan error
}

// dbus makes an agent of a connection. answer is called for each call of the manager.
func dbus(t *testing.T, nc net.Conn, answer func(*peer.Conn, *peer.Message)) *agent {
	t.Helper()
	a := &agent{signals: make(chan string, 64), gone: make(chan error, 1)}
	conn, err := peer.Client(t.Context(), nc, peer.Options{
		Handler: func(c *peer.Conn, m *peer.Message) {
			if m.Type == peer.TypeSignal {
				a.signals <- m.Interface + "." + m.Member
				return
			}
			answer(c, m)
		},
		OnClose: func(_ *peer.Conn, err error) { a.gone <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	a.Conn = conn
	t.Cleanup(func() { conn.Close(errors.New("test ended")); <-conn.Done() })
	return a
}

func noCalls(c *peer.Conn, m *peer.Message) { c.ReplyError(m, peer.UnknownMethod(m)) }

var someFacts = map[string]wire.Value{wire.FactMachineID: peer.MustValue("0123")}

// register is what an agent does first.
func (a *agent) register(ctx context.Context, node string) (map[string]wire.Value, error) {
	return a.registerWith(ctx, peer.MustEncode(node, someFacts))
}

func (a *agent) registerWith(ctx context.Context, body wire.Raw) (map[string]wire.Value, error) {
	m, err := a.Call(ctx, peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalManagerInterface, Member: wire.MemberRegister, Body: body,
	})
	if err != nil {
		return nil, err
	}
	var session map[string]wire.Value
	return session, peer.Decode(m.Body, &session)
}

// mustRegister registers and hands out the manager's side.
func (a *agent) mustRegister(t *testing.T, core *fakeCore, node string) manager.AgentLink {
	t.Helper()
	if _, err := a.register(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	<-core.events
	return <-core.links
}

// report sends a signal of an agent.
func (a *agent) report(t *testing.T, member string, args ...any) {
	t.Helper()
	if err := a.Signal(wire.InternalPath, wire.InternalAgentInterface, member, peer.MustEncode(args...)); err != nil {
		t.Fatal(err)
	}
}

// pipes is a listener in memory, for bubbles of package synctest. Each connection says from
// which address it comes.
type pipes struct {
	conns  chan net.Conn
	errs   chan error
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex
	accepted int
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), errs: make(chan error, 1024), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	p.mu.Lock()
	p.accepted++
	p.mu.Unlock()
	select {
	case err := <-p.errs:
		return nil, err
	default:
	}
	select {
	case err := <-p.errs:
		return nil, err
	case nc := <-p.conns:
		return nc, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects from an address.
func (p *pipes) dial(t *testing.T, from string) net.Conn {
	t.Helper()
	far, near := net.Pipe()
	select {
	case p.conns <- &pipe{near, &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}:
	case <-t.Context().Done():
		t.Fatal("the connection was not accepted")
	}
	return far
}

type pipe struct {
	net.Conn
	remote net.Addr
}

func (p *pipe) RemoteAddr() net.Addr { return p.remote }
