package authz

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

const patience = 30 * time.Second

// fakeBus is a bus that knows some callers and counts what it is asked.
type fakeBus struct {
	conn  *peer.Conn
	asked chan string
	hold  chan struct{} // answers wait until it is closed; nil: they do not
}

func newBus(t *testing.T, uids map[string]uint32, hold chan struct{}) *fakeBus {
	t.Helper()
	b := &fakeBus{asked: make(chan string, 64), hold: hold}
	near, far := net.Pipe()
	served := make(chan *peer.Conn, 1)
	go func() {
		conn, err := peer.Server(t.Context(), far, peer.Options{Handler: func(c *peer.Conn, m *peer.Message) {
			var name string
			if m.Member != "GetConnectionUnixUser" || peer.Decode(m.Body, &name) != nil {
				c.ReplyError(m, peer.UnknownMethod(m))
				return
			}
			b.asked <- name
			if b.hold != nil {
				<-b.hold
			}
			if uid, ok := uids[name]; ok {
				c.Reply(m, peer.MustEncode(uid))
				return
			}
			c.ReplyError(m, wire.ErrNameHasNoOwner.With("nobody is %s", name))
		}})
		if err != nil {
			t.Error(err)
		}
		served <- conn
	}()
	conn, err := peer.ClientBus(t.Context(), near, peer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.conn = conn
	t.Cleanup(func() {
		conn.Close(nil)
		<-conn.Done()
		if s := <-served; s != nil {
			<-s.Done()
		}
	})
	return b
}

func request(conn *peer.Conn, sender string) busobject.Request {
	return busobject.Request{Conn: conn, Sender: sender, Action: wire.ActionManageUnits, Verb: "start"}
}

// check asks and waits for the answer.
func check(t *testing.T, a *ByUID, r busobject.Request) (err error, decided bool) {
	t.Helper()
	later := make(chan error, 1)
	decided, err = a.Check(r, func(err error) { later <- err })
	if decided {
		return err, true
	}
	select {
	case err = <-later:
	case <-time.After(patience):
		t.Fatal("no answer has come")
	}
	return err, false
}

func TestByUID(t *testing.T) {
	bus := newBus(t, map[string]uint32{":1.1": 0, ":1.2": 1000, ":1.3": 77}, nil)
	a := NewByUID(0, 77)
	for _, test := range []struct {
		sender  string
		text    string // of the refusal, "" where there is none
		decided bool
	}{
		{":1.1", "", false}, {":1.1", "", true}, {":1.3", "", false},
		{":1.2", "start needs the right org.example.ctrl1.manage-units, which only uid 0 or uid 77 has; the caller is uid 1000", false},
		{":1.2", "the caller is uid 1000", true},
		{":1.9", "nobody is :1.9", false},
		{":1.9", "nobody is :1.9", false}, // not knowing is not remembered
		{"not a name\x00", "does not say who", false},
	} {
		err, decided := check(t, a, request(bus.conn, test.sender))
		refused := errors.Is(err, wire.ErrAccessDenied) && strings.Contains(err.Error(), test.text)
		if refused != (test.text != "") || err != nil && !refused || decided != test.decided {
			t.Errorf("%s: %v, decided at once: %v; want %q, %v", test.sender, err, decided, test.text, test.decided)
		}
	}
	if n := len(bus.asked); n != 5 {
		t.Errorf("the bus was asked %d times, want 5", n)
	}
}

// TestOneQuestionPerCaller: calls that come while the bus is being asked wait for the same
// answer, and have it in their order.
func TestOneQuestionPerCaller(t *testing.T) {
	hold := make(chan struct{})
	bus := newBus(t, map[string]uint32{":1.1": 0}, hold)
	a := NewByUID(0)
	answers := make(chan string, 8)
	for i := range 5 {
		decided, _ := a.Check(request(bus.conn, ":1.1"), func(err error) { answers <- fmt.Sprint(i, err) })
		if decided {
			t.Fatal("it was decided before the bus answered")
		}
	}
	close(hold)
	for i := range 5 {
		if got := <-answers; got != fmt.Sprint(i, nil) {
			t.Errorf("answer %d is %s", i, got)
		}
	}
	if n := len(bus.asked); n != 1 {
		t.Errorf("the bus was asked %d times", n)
	}
}

// TestLeft: what is known of a caller ends with it, and another bus has other callers.
func TestLeft(t *testing.T) {
	first := newBus(t, map[string]uint32{":1.1": 0, ":1.2": 0}, nil)
	second := newBus(t, map[string]uint32{":1.1": 1000}, nil)
	a := NewByUID(0)
	know := func(conn *peer.Conn, name string, want bool) {
		t.Helper()
		if _, decided := check(t, a, request(conn, name)); decided != want {
			t.Errorf("%s was known: %v", name, decided)
		}
	}
	know(first.conn, ":1.1", false)
	know(first.conn, ":1.2", false)
	if err, decided := check(t, a, request(second.conn, ":1.1")); err == nil || decided {
		t.Errorf("the same name on another bus: %v, decided at once: %v", err, decided)
	}
	a.Left(first.conn, ":1.1")
	know(first.conn, ":1.2", true)
	know(first.conn, ":1.1", false)
	a.Left(first.conn, "")
	know(second.conn, ":1.1", true)
	know(first.conn, ":1.1", false)
	know(first.conn, ":1.2", false)
}

// TestBusGone: a question whose bus goes is answered no.
func TestBusGone(t *testing.T) {
	hold := make(chan struct{})
	bus := newBus(t, map[string]uint32{":1.1": 0}, hold)
	a := NewByUID(0)
	answer := make(chan error, 1)
	a.Check(request(bus.conn, ":1.1"), func(err error) { answer <- err })
	<-bus.asked
	bus.conn.Close(errors.New("gone"))
	if err := <-answer; !errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("the answer is %v", err)
	}
	close(hold)
}
