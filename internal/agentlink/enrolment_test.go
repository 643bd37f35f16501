package agentlink

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/wire"
)

func TestRevokedIsRefusedByName(t *testing.T) {
	f := newFleet(t)
	node := f.joined("node1")
	if err := f.authority.RemoveNode("node1"); err != nil {
		t.Fatal(err)
	}
	a := f.connect(node)
	_, err := a.register(t.Context(), "node1")
	if !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), `the certificate of node "node1" was revoked`) {
		t.Errorf("got %v", err)
	}
	<-a.gone
	if len(f.core.came) > 0 {
		t.Error("the core was asked")
	}
}

// TestRemoveEndsTheSession: at once, whatever the peer does.
func TestRemoveEndsTheSession(t *testing.T) {
	f := newFleet(t)
	a, b := f.connect(f.joined("node1")), f.connect(f.joined("node2"))
	a.mustRegister(t, f.core, "node1")
	b.mustRegister(t, f.core, "node2")
	if err := f.authority.RemoveNode("node1"); err != nil {
		t.Fatal(err)
	}
	event := <-f.core.events
	if !strings.HasPrefix(event, `closed 1 the certificate of node "node1" was revoked: the node was removed`) {
		t.Errorf("the core heard %s", event)
	}
	if err := <-a.gone; err == nil {
		t.Error(err)
	}
	if signal := <-a.signals; signal != wire.InternalManagerInterface+"."+wire.MemberClosing {
		t.Errorf("the agent heard %s", signal)
	}
	_, csr, _ := pki.NewKeyAndCSR("")
	if _, _, err := b.renew(t.Context(), csr); err != nil {
		t.Errorf("the other node: %v", err)
	}
}

// TestRevokedWhileDeciding: a removal that comes between the first look and the core's
// decision lets nobody in.
func TestRevokedWhileDeciding(t *testing.T) {
	f := newFleet(t)
	node := f.joined("node1")
	f.core.hold = make(chan struct{})
	a := f.connect(node)
	answer := make(chan error, 1)
	go func() { _, err := a.register(t.Context(), "node1"); answer <- err }()
	<-f.core.came
	if err := f.authority.RemoveNode("node1"); err != nil {
		t.Fatal(err)
	}
	close(f.core.hold)
	if err := <-answer; !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("got %v", err)
	}
	f.core.want(t, "register 1 node1 node1")
	if event := <-f.core.events; !strings.HasPrefix(event, "closed 1 the certificate") {
		t.Errorf("the core heard %s", event)
	}
}

// TestStolenDisk is case 103: once the machine has joined anew, the copy of its old
// certificate is dead, also one that is connected.
func TestStolenDisk(t *testing.T) {
	f := newFleet(t)
	old := f.joined("node1")
	a := f.connect(old)
	a.mustRegister(t, f.core, "node1")
	fresh := f.joined("node1")
	if event := <-f.core.events; !strings.Contains(event, "the node has joined again since (generation 2)") {
		t.Errorf("the core heard %s", event)
	}
	<-a.gone
	if _, err := f.connect(old).register(t.Context(), "node1"); !errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("got %v", err)
	}
	if _, err := f.connect(fresh).register(t.Context(), "node1"); err != nil {
		t.Error(err)
	}
}

func TestRenewOverTheSession(t *testing.T) {
	f := newFleet(t)
	node := f.joined("node1")
	key, csr, _ := pki.NewKeyAndCSR("node2") // the name in a request counts for nothing
	early := f.connect(node)
	if _, _, err := early.renew(t.Context(), csr); !errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("before Register: %v", err)
	}
	a := f.connect(node)
	a.mustRegister(t, f.core, "node1")
	certificate, ca, err := a.renew(t.Context(), csr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pki.CheckIssued("node1", key, certificate, ca); err != nil {
		t.Error(err)
	}
	b := f.connect(f.joined("node2"))
	b.mustRegister(t, f.core, "node2")
	if _, _, err := b.renew(t.Context(), []byte("x")); !errors.Is(err, wire.ErrInvalidArgs) {
		t.Errorf("no request: %v", err)
	}
	if err := b.Err(); err != nil {
		t.Errorf("the session ended: %v", err)
	}
}

// TestAskedToRenew: during a rotation every node is asked, those that are connected and those
// that come later.
func TestAskedToRenew(t *testing.T) {
	f := newFleet(t)
	one, two := f.joined("node1"), f.joined("node2")
	a := f.connect(one)
	a.mustRegister(t, f.core, "node1")
	if err := f.authority.Rotate(); err != nil {
		t.Fatal(err)
	}
	want := wire.InternalManagerInterface + "." + wire.MemberRenewNow
	if got := <-a.signals; got != want {
		t.Errorf("the first heard %s", got)
	}
	b := f.connect(two)
	b.mustRegister(t, f.core, "node2")
	if got := <-b.signals; got != want {
		t.Errorf("the second heard %s", got)
	}
	for _, agent := range []*agent{a, b} {
		_, csr, _ := pki.NewKeyAndCSR("")
		if _, _, err := agent.renew(t.Context(), csr); err != nil {
			t.Fatal(err)
		}
	}
	// The old authority is gone now, and both are to forget it.
	if x, y := <-a.signals, <-b.signals; x != want || y != want {
		t.Errorf("heard %s and %s", x, y)
	}
	if state, err := f.authority.State(); err != nil || len(state.Authorities) != 1 {
		t.Errorf("%+v, %v", state, err)
	}
}

// stubEnrolment is one whose certificates end soon.
type stubEnrolment struct {
	end     atomic.Int64
	refuses atomic.Bool
}

func (s *stubEnrolment) Join(string, string, string, []byte) (string, []byte, []byte, error) {
	return "", nil, nil, errors.New("not here")
}
func (s *stubEnrolment) Renew(string, uint64, []byte) ([]byte, []byte, time.Time, error) {
	if s.refuses.Load() {
		return nil, nil, time.Time{}, errors.New("no space left")
	}
	return []byte("c"), []byte("a"), time.Unix(s.end.Load(), 0), nil
}
func (s *stubEnrolment) Check(string, uint64) error { return nil }
func (s *stubEnrolment) Outdated(string) bool       { return false }

// TestOftenRenewed: renewals of one session are a second apart, one at a time.
func TestOftenRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, core, e := newPipes(), newFakeCore(), &stubEnrolment{}
		e.end.Store(time.Now().Add(90 * 24 * time.Hour).Unix())
		set := plain()
		set.Enrolment = e
		set.Secure = func(_ context.Context, nc net.Conn) (net.Conn, Proof, error) {
			return nc, Proof{Node: "node1", Generation: 1, NotAfter: time.Now().Add(90 * 24 * time.Hour)}, nil
		}
		s := serve(t, core, set, l)
		a := dbus(t, l.dial(t, "192.0.2.1"), noCalls)
		a.mustRegister(t, core, "node1")
		start := time.Now()
		for range 3 {
			if _, _, err := a.renew(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if took := time.Since(start); took != 2*renewPause {
			t.Errorf("three renewals took %v", took)
		}
		first := make(chan error, 1)
		go func() { _, _, err := a.renew(t.Context(), nil); first <- err }()
		synctest.Wait()
		if _, _, err := a.renew(t.Context(), nil); !errors.Is(err, wire.ErrLimitsExceeded) {
			t.Errorf("a second one at the same time: %v", err)
		}
		a.Conn.Close(errors.New("gone")) // in the middle
		if err := <-first; err == nil {
			t.Error("answered")
		}
		s.Close()
		s.links.Wait()
	})
}

// TestExpired is case 102: a session does not outlive its certificate, and the log warns
// before.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		l, core, e := newPipes(), newFakeCore(), &stubEnrolment{}
		set := plain()
		set.Enrolment = e
		start := time.Now()
		set.Secure = func(_ context.Context, nc net.Conn) (net.Conn, Proof, error) {
			return nc, Proof{Node: "node1", Generation: 1, NotAfter: start.Add(30 * day)}, nil
		}
		s := serve(t, core, set, l)
		a := dbus(t, l.dial(t, "192.0.2.1"), noCalls)
		a.mustRegister(t, core, "node1")
		time.Sleep(29 * day)
		e.end.Store(start.Add(90 * day).Unix())
		if _, _, err := a.renew(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		e.refuses.Store(true)
		time.Sleep(60 * day) // day 89
		if _, _, err := a.renew(t.Context(), nil); !errors.Is(err, wire.ErrFailed) || strings.Contains(err.Error(), "no space") {
			t.Errorf("got %v", err)
		}
		if len(core.events) > 0 {
			t.Fatalf("the core heard %s", <-core.events)
		}
		time.Sleep(day + time.Second)
		event := <-core.events
		if want := "closed 1 the certificate of node node1 expired at 2000-03-31T00:00:00Z, and the agent has not renewed it"; event != want {
			t.Errorf("the core heard %q", event)
		}
		<-a.gone
		s.Close()
		s.links.Wait()
	})
}
