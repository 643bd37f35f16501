package managerlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

var quiet = slog.New(slog.DiscardHandler)

// fakeCore answers jobs and calls, and tells what it hears.
type fakeCore struct{ events chan string }

func newFakeCore() *fakeCore { return &fakeCore{make(chan string, 1024)} }

func (f *fakeCore) StartJob(s agent.Session, req agent.JobRequest, reply func(error)) {
	transient := ""
	if req.Transient != nil {
		transient = " " + string(req.Transient.Sig)
	}
	f.events <- fmt.Sprintf("start %d %d %s %s %s%s", s, req.ID, req.Unit, req.Verb, req.Mode, transient)
	if req.Unit == "missing.service" {
		reply(wire.ErrSystemdNoSuchUnit.With("Unit missing.service not found."))
		return
	}
	reply(nil)
}

func (f *fakeCore) CancelJob(s agent.Session, job uint32, reply func(error)) {
	f.events <- fmt.Sprintf("cancel %d %d", s, job)
	go reply(nil)
}

func (f *fakeCore) Call(s agent.Session, method string, args wire.Raw, reply func(wire.Raw, error)) {
	f.events <- fmt.Sprintf("call %d %s %s", s, method, args.Sig)
	go reply(peer.MustEncode("enabled"), nil)
}

func (f *fakeCore) Subscribe(s agent.Session, pattern string, reply func([]agent.UnitRow, error)) {
	f.events <- fmt.Sprintf("subscribe %d %s", s, pattern)
	reply([]agent.UnitRow{{Asked: pattern, ID: pattern, Active: "active", Sub: "running"}}, nil)
}

func (f *fakeCore) Unsubscribe(s agent.Session, pattern string) {
	f.events <- fmt.Sprintf("unsubscribe %d %s", s, pattern)
}

func (f *fakeCore) SetMetrics(s agent.Session, on bool) {
	f.events <- fmt.Sprintf("metrics %v", on)
}

func (f *fakeCore) RenewNow(s agent.Session) { f.events <- fmt.Sprintf("renew now %d", s) }

func (f *fakeCore) Closed(s agent.Session, err error) {
	f.events <- fmt.Sprintf("closed %d %v", s, err)
}

func (f *fakeCore) want(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-f.events:
		if got != want {
			t.Fatalf("the core heard %q, want %q", got, want)
		}
	case <-t.Context().Done():
		t.Fatalf("the core did not hear %q", want)
	}
}

func newDialer(core Core, set Settings) *Dialer {
	d := New(set, quiet)
	d.Bind(core)
	return d
}

// dialled waits for a dial.
func dialled(t *testing.T, d *Dialer, address string) (agent.ManagerLink, error) {
	t.Helper()
	type result struct {
		l   agent.ManagerLink
		err error
	}
	results := make(chan result, 2)
	d.Dial(address, func(l agent.ManagerLink, err error) { results <- result{l, err} })
	r := <-results
	if r.l != nil {
		t.Cleanup(func() { r.l.Close("test ended") })
	}
	return r.l, r.err
}

// registered waits for an answer to Register.
func registered(l agent.ManagerLink, s agent.Session, timeout time.Duration) (agent.Welcome, error) {
	type result struct {
		w   agent.Welcome
		err error
	}
	results := make(chan result, 2)
	l.Register(s, "node1", nil, timeout, func(w agent.Welcome, err error) { results <- result{w, err} })
	r := <-results
	return r.w, r.err
}

// boss is a manager as far as a link sees it.
type boss struct {
	l       net.Listener
	conns   chan *peer.Conn
	signals chan string
	answer  func(*peer.Conn, *peer.Message)
	done    sync.WaitGroup
}

// newBoss listens on l. answer gets all calls; nil welcomes everybody.
func newBoss(t *testing.T, l net.Listener, answer func(*peer.Conn, *peer.Message)) *boss {
	t.Helper()
	b := &boss{l: l, conns: make(chan *peer.Conn, 16), signals: make(chan string, 64), answer: answer}
	if answer == nil {
		b.answer = func(c *peer.Conn, m *peer.Message) { c.Reply(m, welcome(7)) }
	}
	b.done.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			b.done.Go(func() { b.serve(nc) })
		}
	})
	t.Cleanup(func() { l.Close(); b.done.Wait() })
	return b
}

func (b *boss) serve(nc net.Conn) {
	conn, err := peer.Server(context.Background(), nc, peer.Options{Handler: func(c *peer.Conn, m *peer.Message) {
		if m.Type == peer.TypeSignal {
			args, _ := peer.BodyAny(m.Body)
			b.signals <- strings.TrimSpace(fmt.Sprint(m.Interface, ".", m.Member, " ", args))
			return
		}
		b.answer(c, m)
	}})
	if err == nil {
		b.conns <- conn
		<-conn.Done()
	}
}

func welcome(session uint64) wire.Raw {
	return peer.MustEncode(map[string]wire.Value{
		wire.SessionID: peer.MustValue(session), wire.SessionFeatures: peer.MustValue([]string{"x"}),
		wire.SessionHeartbeatInterval: peer.MustValue(uint64(2_000_000)), wire.SessionHeartbeatThreshold: peer.MustValue(uint64(6_000_000)),
		wire.SessionLogLevel: peer.MustValue("debug"), wire.SessionMetrics: peer.MustValue(true),
		"FromTheFuture": peer.MustValue("x"),
	})
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// addressOf is a listener's D-Bus address.
func addressOf(l net.Listener) string {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return fmt.Sprintf("tcp:host=%s,port=%d", peer.EscapeAddress(a.IP.String()), a.Port)
	}
	return "unix:path=" + l.Addr().String()
}

// ask makes a call of the manager.
func ask(t *testing.T, c *peer.Conn, member string, args ...any) (*peer.Message, error) {
	t.Helper()
	return c.Call(t.Context(), peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalAgentInterface, Member: member, Body: peer.MustEncode(args...),
	})
}

var errTest = errors.New("test ended")
