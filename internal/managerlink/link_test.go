package managerlink

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

func TestSession(t *testing.T) {
	for _, listener := range []string{"127.0.0.1:0", "[::1]:0", filepath.Join(t.TempDir(), "s")} {
		t.Run(listener, func(t *testing.T) {
			core := newFakeCore()
			b := newBoss(t, listen(t, listener), nil)
			l, err := dialled(t, newDialer(core, Settings{}), addressOf(b.l))
			if err != nil {
				t.Fatal(err)
			}
			c := <-b.conns
			if _, err := ask(t, c, "ListUnits"); !errors.Is(err, wire.ErrAccessDenied) {
				t.Errorf("a call before Register gave %v", err)
			}
			w, err := registered(l, 5, time.Minute)
			if err != nil || w.ManagerSession != 7 || len(w.Features) != 1 || w.HeartbeatInterval != 2*time.Second ||
				w.HeartbeatThreshold != 6*time.Second || w.LogLevel != "debug" || !w.Metrics {
				t.Errorf("welcome %+v, %v", w, err)
			}
			l.Heartbeat()
			l.JobState(3, wire.JobRunning)
			l.JobDone(3, wire.ResultDone)
			l.UnitNew("a.service", "real")
			l.UnitStateChanged("a.service", "active", "running", "real")
			l.UnitPropertiesChanged("a.service", "x.Unit", map[string]wire.Value{"P": peer.MustValue("v")})
			l.UnitAlias(agent.UnitRow{Asked: "b.service", ID: "a.service", Active: "active", Sub: "running"})
			l.UnitRemoved("a.service", "real")
			for _, want := range []string{
				".Heartbeat []", ".JobState [3 running]", ".JobDone [3 done]", ".UnitNew [a.service real]",
				".UnitStateChanged [a.service active running real]", ".UnitPropertiesChanged [a.service x.Unit map[P:{s [1 0 0 0 118 0]}]]",
				".UnitAlias [b.service a.service active running]", ".UnitRemoved [a.service real]",
			} {
				if got := <-b.signals; got != wire.InternalAgentInterface+want {
					t.Errorf("the manager heard %q, want %q", got, want)
				}
			}
			if time.Since(l.LastReceived()) > time.Minute {
				t.Errorf("last received %v", l.LastReceived())
			}
			l.Close("going down")
			if got := <-b.signals; got != wire.InternalAgentInterface+".Closing [going down]" {
				t.Errorf("the manager heard %q", got)
			}
			core.want(t, "closed 5 going down")
			<-c.Done()
		})
	}
}

func TestCallsOfTheManager(t *testing.T) {
	core := newFakeCore()
	b := newBoss(t, listen(t, "127.0.0.1:0"), nil)
	l, err := dialled(t, newDialer(core, Settings{}), addressOf(b.l))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registered(l, 5, time.Minute); err != nil {
		t.Fatal(err)
	}
	type property struct {
		Name  string
		Value wire.Value
	}
	type auxiliary struct {
		Name       string
		Properties []property
	}
	c := <-b.conns
	tests := []struct {
		member string
		args   []any
		heard  string // by the core
		answer wire.Signature
		kind   *wire.Error
	}{
		{"StartUnit", []any{uint32(1), "a.service", "replace"}, "start 5 1 a.service start replace", "", nil},
		{"ReloadOrTryRestartUnit", []any{uint32(2), "a.service", "fail"}, "start 5 2 a.service try-reload-or-restart fail", "", nil},
		{"StopUnit", []any{uint32(3), "missing.service", "replace"}, "start 5 3 missing.service stop replace", "", wire.ErrSystemdNoSuchUnit},
		{"StartTransientUnit", []any{uint32(4), "a.service", "replace", []property{}, []auxiliary{}}, "start 5 4 a.service start replace a(sv)a(sa(sv))", "", nil},
		{"CancelJob", []any{uint32(4)}, "cancel 5 4", "", nil},
		{"GetUnitFileState", []any{"a.service"}, "call 5 GetUnitFileState s", "s", nil},
		{"Subscribe", []any{"*"}, "subscribe 5 *", "a(ssss)", nil},
		{"Unsubscribe", []any{"*"}, "unsubscribe 5 *", "", nil},
		{"Subscribe", []any{uint32(1)}, "", "", wire.ErrInvalidArgs},
		{"StartUnit", []any{"a.service", "replace"}, "", "", wire.ErrInvalidArgs},
		{"StartTransientUnit", []any{uint32(4), "a.service", "replace"}, "", "", wire.ErrInvalidArgs},
		{"CancelJob", []any{"4"}, "", "", wire.ErrInvalidArgs},
		{"GetUnitFileState", nil, "", "", wire.ErrInvalidArgs},
		{"PowerOff", nil, "", "", wire.ErrUnknownMethod},
	}
	for _, test := range tests {
		m, err := ask(t, c, test.member, test.args...)
		if test.heard != "" {
			core.want(t, test.heard)
		}
		switch {
		case test.kind != nil && !errors.Is(err, test.kind):
			t.Errorf("%s: got %v, want kind %s", test.member, err, test.kind.Name)
		case test.kind == nil && (err != nil || m.Body.Sig != test.answer):
			t.Errorf("%s: got %v, %v", test.member, m, err)
		}
	}
	if _, err := c.Call(t.Context(), peer.Call{Path: "/other", Interface: wire.InternalAgentInterface, Member: "ListUnits"}); !errors.Is(err, wire.ErrUnknownMethod) {
		t.Errorf("another object gave %v", err)
	}
	if len(core.events) != 0 {
		t.Errorf("the core heard %q", <-core.events)
	}
}

func TestManagerEndsTheSession(t *testing.T) {
	for want, end := range map[string]func(*peer.Conn){
		"closed 5 peer closed the connection": func(c *peer.Conn) { c.Close(errTest) },
		"closed 5 the manager ended the session: shutting down": func(c *peer.Conn) {
			c.Signal(wire.InternalPath, wire.InternalManagerInterface, wire.MemberClosing, peer.MustEncode("shutting down"))
		},
		`closed 5 manager breaks the protocol: signal Closing: ` + peer.Decode(wire.Raw{}, new(string)).Error(): func(c *peer.Conn) {
			c.Signal(wire.InternalPath, wire.InternalManagerInterface, wire.MemberClosing, wire.Raw{})
		},
	} {
		core := newFakeCore()
		b := newBoss(t, listen(t, "127.0.0.1:0"), nil)
		l, err := dialled(t, newDialer(core, Settings{}), addressOf(b.l))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := registered(l, 5, time.Minute); err != nil {
			t.Fatal(err)
		}
		end(<-b.conns)
		core.want(t, want)
	}
}

func TestRegisterFails(t *testing.T) {
	tests := map[string]struct {
		answer  func(*peer.Conn, *peer.Message)
		timeout time.Duration
		want    func(error) bool
		over    bool // Closed follows
	}{
		"refused": {
			answer: func(c *peer.Conn, m *peer.Message) { c.ReplyError(m, wire.ErrNodeExists.With("twice")) },
			want:   func(err error) bool { return errors.Is(err, wire.ErrNodeExists) && err.Error() == "twice" },
		},
		"no answer": {
			answer:  func(*peer.Conn, *peer.Message) {},
			timeout: time.Nanosecond,
			want:    func(err error) bool { return errors.Is(err, wire.ErrTimeout) },
		},
		"connection lost": {
			answer: func(c *peer.Conn, _ *peer.Message) { c.Close(errTest) },
			want:   func(err error) bool { return errors.Is(err, wire.ErrDisconnected) },
			over:   true,
		},
		"nonsense": {
			answer: func(c *peer.Conn, m *peer.Message) { c.Reply(m, peer.MustEncode("hello")) },
			want:   func(err error) bool { return errors.Is(err, wire.ErrInvalidArgs) },
		},
		"no session": {
			answer: func(c *peer.Conn, m *peer.Message) { c.Reply(m, peer.MustEncode(map[string]wire.Value{})) },
			want:   func(err error) bool { return strings.Contains(err.Error(), "no Session") },
		},
		"session of another type": {
			answer: func(c *peer.Conn, m *peer.Message) {
				c.Reply(m, peer.MustEncode(map[string]wire.Value{wire.SessionID: peer.MustValue("7")}))
			},
			want: func(err error) bool { return strings.Contains(err.Error(), "Session:") },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			core := newFakeCore()
			b := newBoss(t, listen(t, "127.0.0.1:0"), test.answer)
			l, err := dialled(t, newDialer(core, Settings{}), addressOf(b.l))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := registered(l, 5, test.timeout); err == nil || !test.want(err) {
				t.Errorf("got %v", err)
			}
			if test.over {
				core.want(t, "closed 5 peer closed the connection")
			} else if _, err := ask(t, <-b.conns, "ListUnits"); !errors.Is(err, wire.ErrAccessDenied) {
				t.Errorf("a call afterwards gave %v", err)
			}
		})
	}
}

// TestLostBeforeRegister: the core learns of a link's end also if it had no session yet.
func TestLostBeforeRegister(t *testing.T) {
	core := newFakeCore()
	b := newBoss(t, listen(t, "127.0.0.1:0"), nil)
	d := newDialer(core, Settings{})
	l, err := dialled(t, d, addressOf(b.l))
	if err != nil {
		t.Fatal(err)
	}
	(<-b.conns).Close(errTest)
	d.links.Wait()
	if _, err := registered(l, 5, time.Minute); !errors.Is(err, wire.ErrDisconnected) {
		t.Errorf("got %v", err)
	}
	core.want(t, "closed 5 peer closed the connection")
}

func TestDurationsFromTheWire(t *testing.T) {
	for n, want := range map[uint64]time.Duration{0: 0, 1: time.Microsecond, 6_000_000: 6 * time.Second, 1 << 63: 24 * time.Hour} {
		if got := microseconds(n); got != want {
			t.Errorf("%d: got %v, want %v", n, got, want)
		}
	}
}

var _ Core = (*agent.Agent)(nil)
