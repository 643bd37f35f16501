package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// pid1 is systemd as it looks on D-Bus: it writes down what it is asked and answers what a
// test tells it to answer.
type pid1 struct {
	mu      sync.Mutex
	asked   []string // "member /path interface(args)"
	answers map[string]any
	kept    map[string]*peer.Message // calls that wait for the test
	conn    *peer.Conn
	caller  string // unique name of the adapter, on a bus
}

func newPID1() *pid1 {
	return &pid1{
		answers: map[string]any{"Version": "252.1-test", "Architecture": "x86-64"},
		kept:    make(map[string]*peer.Message),
	}
}

// later as an answer keeps the call until the test replies.
type later struct{}

func (p *pid1) options() peer.Options {
	return peer.Options{Handler: p.handle, MaxMessage: peer.DefaultBusMaxMessage, Log: slog.New(slog.DiscardHandler)}
}

// handle answers with what is set for the member, or for the property that is read, and
// otherwise with nothing.
func (p *pid1) handle(conn *peer.Conn, m *peer.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.Type != peer.TypeCall {
		return
	}
	args, _ := peer.BodyAny(m.Body)
	p.caller = m.Sender
	key := m.Member
	if m.Interface == wire.PropertiesInterface && m.Member == "Get" {
		key = args[1].(string)
	}
	if key != "Version" && key != "Architecture" {
		p.asked = append(p.asked, fmt.Sprintf("%s %s %s%v", m.Member, m.Path, m.Interface[strings.LastIndexByte(m.Interface, '.')+1:], args))
	}
	switch answer := p.answers[key].(type) {
	case nil:
		conn.Reply(m, wire.Raw{})
	case later:
		p.kept[key] = m.Clone()
	case error:
		conn.ReplyError(m, answer)
	case wire.Raw:
		conn.Reply(m, answer)
	default:
		if m.Interface == wire.PropertiesInterface && m.Member == "Get" {
			answer = peer.MustValue(answer)
		}
		conn.Reply(m, peer.MustEncode(answer))
	}
}

func (p *pid1) set(key string, answer any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers[key] = answer
}

func (p *pid1) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func (p *pid1) signal(path wire.ObjectPath, iface, member string, args ...any) {
	p.conn.Signal(path, iface, member, peer.MustEncode(args...))
}

func (p *pid1) jobRemoved(id uint32, unit, result string) {
	p.signal(wire.SystemdPath, wire.SystemdManagerInterface, "JobRemoved", id, wire.SystemdJobPath(id), unit, result)
}

func (p *pid1) propertiesChanged(path wire.ObjectPath, iface string, changed map[string]wire.Value) {
	p.signal(path, wire.PropertiesInterface, "PropertiesChanged", iface, changed, []string{})
}

// heard is a core that writes down what it hears.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return lines
}

func (h *heard) SystemdUp(facts map[string]wire.Value) {
	version, _ := facts[wire.FactSystemdVersion].AsString()
	h.note("up %s", version)
}
func (h *heard) SystemdDown(error)                        { h.note("down") }
func (h *heard) SystemdJobState(job uint32, state string) { h.note("%s %d", state, job) }
func (h *heard) SystemdUnitNew(u string)                  { h.note("new %s", u) }
func (h *heard) SystemdUnitRemoved(u string)              { h.note("gone %s", u) }
func (h *heard) SystemdReloaded()                         { h.note("reloaded") }
func (h *heard) SystemdJobRemoved(j uint32, u, r string)  { h.note("removed %d %s %s", j, u, r) }
func (h *heard) SystemdUnitChanged(u, iface string, changed map[string]wire.Value) {
	h.note("changed %s %s %d", u, iface[strings.LastIndexByte(iface, '.')+1:], len(changed))
}

// world is the adapter in fake time, with a systemd on the other end of a pipe.
type world struct {
	*Systemd
	t       *testing.T
	p       *pid1
	h       *heard
	refused atomic.Bool // systemd does not listen
}

func private(t *testing.T, scenario func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, p: newPID1(), h: &heard{}}
		w.Systemd = New(Options{DialPrivate: w.dial}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx, w.h); close(done) }()
		w.expect("up 252.1-test")
		scenario(w)
		cancel()
		<-done
		w.p.conn.Close(errors.New("the test ends"))
		<-w.p.conn.Done()
	})
}

func (w *world) dial(context.Context) (net.Conn, error) {
	if w.refused.Load() {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	go func() {
		conn, err := peer.Server(context.Background(), theirs, w.p.options())
		if err != nil {
			w.t.Error(err)
			return
		}
		w.p.mu.Lock()
		w.p.conn = conn
		w.p.mu.Unlock()
	}()
	return ours, nil
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.h.take(); !slices.Equal(got, want) {
		w.t.Errorf("heard\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (w *world) expectAsked(want ...string) {
	w.t.Helper()
	synctest.Wait()
	if got := w.p.take(); !slices.Equal(got, want) {
		w.t.Errorf("systemd was asked\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (w *world) start(unit string) {
	w.StartJob(agent.JobRequest{Unit: unit, Mode: "replace"}, 30*time.Second, func(job uint32, err error) {
		if err != nil {
			w.h.note("%s refused: %v", unit, err)
			return
		}
		w.h.note("%s is job %d", unit, job)
	})
}

func (w *world) call(method string, args ...any) {
	w.Call(method, peer.MustEncode(args...), 30*time.Second, func(body wire.Raw, err error) {
		if err != nil {
			w.h.note("%s: %v", method, err)
			return
		}
		values, _ := peer.BodyAny(body)
		w.h.note("%s: %v", method, values)
	})
}

func unitChanged(active string) map[string]wire.Value {
	return map[string]wire.Value{"ActiveState": peer.MustValue(active)}
}
