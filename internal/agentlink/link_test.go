package agentlink

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

func TestSession(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	set := plain()
	set.Session = Session{Features: []string{"monitors"}, LogLevel: "debug"}
	serve(t, core, set, l)
	a := dbus(t, dial(t, l), noCalls)
	session, err := a.register(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		id, interval, threshold uint64
		features                []string
		level                   string
		metrics                 bool
	}
	for key, dst := range map[string]any{
		wire.SessionID: &got.id, wire.SessionHeartbeatInterval: &got.interval, wire.SessionHeartbeatThreshold: &got.threshold,
		wire.SessionFeatures: &got.features, wire.SessionLogLevel: &got.level, wire.SessionMetrics: &got.metrics,
	} {
		if err := peer.DecodeValue(session[key], dst); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if text := fmt.Sprint(got); text != "{1 2000000 6000000 [monitors] debug true}" {
		t.Errorf("session is %s", text)
	}
	if r := core.seen[0]; r.Identity != (manager.Identity{Address: "127.0.0.1"}) || len(r.Facts) != 1 {
		t.Errorf("registered as %+v", r)
	}
	a.report(t, wire.MemberHeartbeat)
	a.report(t, "FromTheFuture", uint32(1))
	a.report(t, wire.MemberJobState, uint32(7), wire.JobRunning)
	a.report(t, wire.MemberUnitNew, "a.service", "real")
	a.report(t, wire.MemberUnitStateChanged, "a.service", "active", "running", "real")
	a.report(t, wire.MemberUnitPropertiesChanged, "a.service", "x.Service", map[string]wire.Value{"MainPID": peer.MustValue(uint32(1))})
	a.report(t, wire.MemberUnitAlias, "b.service", "a.service", "active", "running")
	a.report(t, wire.MemberUnitRemoved, "a.service", "real")
	a.report(t, wire.MemberJobDone, uint32(7), wire.ResultDone)
	a.report(t, wire.MemberClosing, "going down")
	core.want(t, "register 1 node1 ", "state 1 7 running",
		`unit 1 0 a.service   real  ""`, `unit 1 2 a.service active running real  ""`,
		`unit 1 3 a.service    x.Service "a{sv}"`, "alias 1 {b.service a.service active running}",
		`unit 1 1 a.service   real  ""`, "done 1 7 done", "closed 1 the agent ended the session: going down")
}

func TestUnixSocket(t *testing.T) {
	core := newFakeCore()
	l, err := ListenUnix(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	serve(t, core, plain(), l)
	// More at once than one address may have over TCP.
	for i := range 2 * maxPendingPerAddress {
		a := dbus(t, dial(t, l), noCalls)
		defer a.mustRegister(t, core, fmt.Sprintf("node%d", i))
	}
	a := dbus(t, dial(t, l), noCalls)
	a.mustRegister(t, core, "node1")
	if r := core.seen[0]; r.Identity != (manager.Identity{Address: "unix"}) {
		t.Errorf("identity %+v", r.Identity)
	}
}

func TestCallsOfTheCore(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	serve(t, core, plain(), l)
	var got []string
	a := dbus(t, dial(t, l), func(c *peer.Conn, m *peer.Message) {
		if m.Path != wire.InternalPath || m.Interface != wire.InternalAgentInterface {
			t.Errorf("got %v", m)
		}
		args, err := peer.BodyAny(m.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, fmt.Sprint(m.Member, m.Body.Sig, args))
		switch m.Member {
		case "ListUnitFiles":
			c.Reply(m, peer.MustEncode([]struct{ A, B string }{{"/x", "enabled"}}))
		case "GetUnitFileState":
			c.Reply(m, peer.MustEncode(uint32(1)))
		case "StopUnit":
			c.ReplyError(m, wire.ErrSystemdNoSuchUnit.With("Unit x.service not loaded."))
		case "ReloadUnit":
			c.ReplyError(m, wire.ErrNodeOffline.With("I am not there"))
		case "RestartUnit": // no answer
		case wire.MemberSubscribe:
			c.Reply(m, peer.MustEncode([]manager.UnitRow{{Asked: "b.service", ID: "a.service", Active: "active", Sub: "running"}}))
		default:
			c.Reply(m, wire.Raw{})
		}
	})
	link := a.mustRegister(t, core, "node1")
	job := func(verb wire.Verb, transient *wire.Raw, timeout time.Duration) error {
		done := make(chan error, 1)
		link.StartJob(3, manager.JobRequest{Unit: "x.service", Verb: verb, Mode: "replace", Transient: transient}, timeout, func(err error) { done <- err })
		return <-done
	}
	properties := peer.MustEncode([]struct {
		N string
		V wire.Value
	}{{"Description", peer.MustValue("d")}}, []struct {
		N string
		P []struct {
			N string
			V wire.Value
		}
	}{})
	if err := job(wire.Start, nil, time.Minute); err != nil {
		t.Error(err)
	}
	if err := job(wire.Start, &properties, time.Minute); err != nil {
		t.Error(err)
	}
	if err := job(wire.Stop, nil, time.Minute); !errors.Is(err, wire.ErrSystemdNoSuchUnit) || err.Error() != "Unit x.service not loaded." {
		t.Errorf("an error of systemd came as %v", err)
	}
	if err := job(wire.Reload, nil, time.Minute); err == nil || errors.Is(err, wire.ErrNodeOffline) {
		t.Errorf("a peer's NodeOffline came as %#v", err)
	}
	if err := job(wire.Restart, nil, time.Nanosecond); !errors.Is(err, wire.ErrTimeout) {
		t.Errorf("no answer came as %v", err)
	}
	cancelled := make(chan error, 1)
	link.CancelJob(3, time.Minute, func(err error) { cancelled <- err })
	if err := <-cancelled; err != nil {
		t.Error(err)
	}
	bodies, errs := make(chan wire.Raw, 1), make(chan error, 1)
	call := func(method string, args ...any) (wire.Raw, error) {
		link.Call(method, peer.MustEncode(args...), time.Minute, func(b wire.Raw, err error) { bodies <- b; errs <- err })
		return <-bodies, <-errs
	}
	if body, err := call("ListUnitFiles"); err != nil || body.Sig != "a(ss)" {
		t.Errorf("got %v, %v", body.Sig, err)
	}
	if _, err := call("GetUnitFileState", "x.service"); err == nil || !strings.Contains(err.Error(), `type "u" instead of "s"`) {
		t.Errorf("an answer of the wrong type gave %v", err)
	}
	rows := make(chan []manager.UnitRow, 1)
	link.Subscribe("b.service", time.Minute, func(r []manager.UnitRow, err error) { rows <- r; errs <- err })
	if r, err := <-rows, <-errs; err != nil || fmt.Sprint(r) != "[{b.service a.service active running}]" {
		t.Errorf("got %v, %v", r, err)
	}
	link.Unsubscribe("b.service")
	link.Heartbeat()
	if s := <-a.signals; s != wire.InternalManagerInterface+".Heartbeat" {
		t.Errorf("got signal %s", s)
	}
	want := []string{
		"StartUnituss[3 x.service replace]",
		"StartTransientUnitussa(sv)a(sa(sv))[3 x.service replace",
		"StopUnituss[3 x.service replace]", "ReloadUnituss[3 x.service replace]", "RestartUnituss[3 x.service replace]",
		"CancelJobu[3]", "ListUnitFiles[]", "GetUnitFileStates[x.service]", "Subscribes[b.service]", "Unsubscribes[b.service]",
	}
	for i, w := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], w) {
			t.Errorf("call %d: got %v, want %s", i, got, w)
			break
		}
	}
}

func TestLinkDies(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	serve(t, core, plain(), l)
	a := dbus(t, dial(t, l), func(c *peer.Conn, _ *peer.Message) { c.Close(errors.New("power off")) })
	link := a.mustRegister(t, core, "node1")
	done := make(chan error, 1)
	link.CancelJob(1, time.Minute, func(err error) { done <- err })
	if err := <-done; !errors.Is(err, wire.ErrNodeOffline) || !strings.Contains(err.Error(), "peer closed the connection") {
		t.Errorf("a call under way gave %v", err)
	}
	core.want(t, "closed 1 peer closed the connection")
	link.CancelJob(1, time.Minute, func(err error) { done <- err })
	if err := <-done; !errors.Is(err, wire.ErrNodeOffline) {
		t.Errorf("a call afterwards gave %v", err)
	}
}

func TestCloseSaysWhy(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	s := serve(t, core, plain(), l)
	a := dbus(t, dial(t, l), noCalls)
	link := a.mustRegister(t, core, "node1")
	s.Close()
	link.Close("removed from the configuration")
	if got := <-a.signals; got != wire.InternalManagerInterface+"."+wire.MemberClosing {
		t.Errorf("got %s", got)
	}
	<-a.gone
	s.Drain(t.Context())
	core.want(t, "closed 1 removed from the configuration")
}

func TestRefusals(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	serve(t, core, plain(), l)
	register := peer.Call{Path: wire.InternalPath, Interface: wire.InternalManagerInterface, Member: wire.MemberRegister}
	with := func(c peer.Call, body wire.Raw) peer.Call { c.Body = body; return c }
	tests := map[string]struct {
		first *peer.Call
		call  peer.Call
		want  *wire.Error
	}{
		"not in the fleet":   {call: with(register, peer.MustEncode("stranger", someFacts)), want: wire.ErrNodeNotAllowed},
		"wrong arguments":    {call: with(register, peer.MustEncode("node1")), want: wire.ErrInvalidArgs},
		"other method":       {call: peer.Call{Path: wire.InternalPath, Interface: wire.InternalManagerInterface, Member: "Renew"}, want: wire.ErrAccessDenied},
		"other interface":    {call: peer.Call{Path: wire.InternalPath, Interface: wire.InternalAgentInterface, Member: "ListUnits"}, want: wire.ErrAccessDenied},
		"other object":       {call: peer.Call{Path: wire.RootPath, Interface: wire.InternalManagerInterface, Member: wire.MemberRegister}, want: wire.ErrAccessDenied},
		"registered already": {first: &peer.Call{Body: peer.MustEncode("node1", someFacts)}, call: with(register, peer.MustEncode("node2", someFacts)), want: wire.ErrFailed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := dbus(t, dial(t, l), noCalls)
			if test.first != nil {
				if _, err := a.registerWith(t.Context(), test.first.Body); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := a.Call(t.Context(), test.call); !errors.Is(err, test.want) {
				t.Errorf("got %v, want kind %s", err, test.want.Name)
			}
			<-a.gone
		})
	}
}

func TestBreachOfProtocolEndsOneSession(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	serve(t, core, plain(), l)
	for i, test := range []struct {
		member string
		args   []any
	}{
		{wire.MemberJobDone, []any{"7", wire.ResultDone}},
		{wire.MemberJobState, []any{uint32(7)}},
		{wire.MemberUnitNew, []any{"a.service"}},
		{wire.MemberUnitPropertiesChanged, []any{"a.service", "x.Service", "y"}},
		{wire.MemberUnitPropertiesChanged, nil},
		{wire.MemberUnitAlias, []any{"a"}},
		{wire.MemberClosing, nil},
	} {
		a := dbus(t, dial(t, l), noCalls)
		a.mustRegister(t, core, fmt.Sprintf("node%d", i))
		a.report(t, test.member, test.args...)
		<-a.gone
		if event := <-core.events; !strings.HasPrefix(event, fmt.Sprintf("closed %d agent breaks the protocol: signal %s", i+1, test.member)) {
			t.Errorf("%s: %s", test.member, event)
		}
	}
	a := dbus(t, dial(t, l), noCalls)
	a.mustRegister(t, core, "good")
}

// TestDeadBeforeDecided: the core hears of the end of a session also if the peer had left
// before it was accepted.
func TestDeadBeforeDecided(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	core.hold = make(chan struct{})
	s := serve(t, core, plain(), l)
	a := dbus(t, dial(t, l), noCalls)
	a.Go(peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalManagerInterface, Member: wire.MemberRegister, Body: peer.MustEncode("node1", someFacts),
	}, 0, func(*peer.Message, error) {})
	a.CloseWhenSent(errors.New("changed its mind"))
	<-a.gone
	<-core.came
	s.links.Wait()
	s.Close()
	close(core.hold)
	core.want(t, "register 1 node1 ", "closed 1 peer closed the connection")
}

func TestNoTLSHere(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	serve(t, core, plain(), l)
	nc := dial(t, l)
	if _, err := nc.Write([]byte{tlsRecord, 3, 1, 0, 5}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 64)
	n, err := nc.Read(answer)
	if err != nil || !strings.Contains(string(answer[:n]), "no TLS") {
		t.Errorf("got %q, %v", answer[:n], err)
	}
	if _, err := nc.Read(answer); err != io.EOF {
		t.Errorf("then came %v, want an end that takes nothing back", err)
	}
}

var _ net.Listener = (*pipes)(nil)
