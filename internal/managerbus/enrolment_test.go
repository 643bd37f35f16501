package managerbus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// fakeEnrolment notes what it is asked.
type fakeEnrolment struct {
	mu    sync.Mutex
	calls []string
	err   error
	hold  chan struct{} // where set: AddNode waits for it
}

func (e *fakeEnrolment) note(format string, args ...any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, fmt.Sprintf(format, args...))
	return e.err
}

func (e *fakeEnrolment) noted() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

func (e *fakeEnrolment) AddNode(node string, life time.Duration) (string, string, error) {
	if e.hold != nil {
		<-e.hold
	}
	return "the token", "boss:842", e.note("add %s %v", node, life)
}
func (e *fakeEnrolment) AddToken(pattern string, count int, life time.Duration) (string, string, error) {
	return "the token", "boss:842", e.note("token %s %d %v", pattern, count, life)
}
func (e *fakeEnrolment) WithdrawToken(id string) error     { return e.note("withdraw %s", id) }
func (e *fakeEnrolment) RemoveNode(node string) error      { return e.note("remove %s", node) }
func (e *fakeEnrolment) Members() []wire.MemberRow         { return nil }
func (e *fakeEnrolment) Tokens() ([]wire.TokenRow, error)  { return nil, nil }
func (e *fakeEnrolment) RotateAuthority(finish bool) error { return e.note("rotate %v", finish) }
func (e *fakeEnrolment) Authority() (string, []wire.CertificateRow, []string, error) {
	return "/state", []wire.CertificateRow{{Role: wire.RoleManager}}, nil, nil
}

func enrolmentCall(member string, args ...any) peer.Call {
	return peer.Call{Destination: wire.BusName, Path: wire.RootPath, Interface: wire.EnrolmentInterface, Member: member, Body: peer.MustEncode(args...)}
}

func TestEnrolment(t *testing.T) {
	w := newWorld(t)
	conn := w.raw(func(*peer.Message) {})
	answer, err := conn.Call(w.ctx(), enrolmentCall("AddNode", "node1", uint64(3600_000_000)))
	if err != nil {
		t.Fatal(err)
	}
	var token, at string
	if err := peer.Decode(answer.Body, &token, &at); err != nil || token != "the token" || at != "boss:842" {
		t.Errorf("%q, %q, %v", token, at, err)
	}
	for _, c := range []peer.Call{
		enrolmentCall("AddToken", "web-*", uint32(20), uint64(0)), enrolmentCall("AddNode", "node2", ^uint64(0)),
		enrolmentCall("WithdrawToken", "01ab"), enrolmentCall("RemoveNode", "node1"), enrolmentCall("RotateAuthority", true),
	} {
		if _, err := conn.Call(w.ctx(), c); err != nil {
			t.Errorf("%s: %v", c.Member, err)
		}
	}
	want := []string{"add node1 1h0m0s", "token web-* 20 0s", "add node2 1281023h53m38.427387s", "withdraw 01ab", "remove node1", "rotate true"}
	if got := w.enrolment.noted(); !slices.Equal(got, want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
	w.enrolment.err = wire.ErrFailed.With("no space left")
	for _, c := range []peer.Call{enrolmentCall("AddNode", "node1", uint64(0)), enrolmentCall("RemoveNode", "node1")} {
		if answer, err := conn.Call(w.ctx(), c); !errors.Is(err, wire.ErrFailed) || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%s: %v, %v", c.Member, answer, err)
		}
	}
}

// TestEnrolmentWaits: a disk that hangs holds up nobody else, those behind it keep their
// order, and how many there are is bounded.
func TestEnrolmentWaits(t *testing.T) {
	w := newWorld(t)
	w.enrolment.hold = make(chan struct{})
	conn := w.raw(func(*peer.Message) {})
	errs := make(chan error, 100)
	const calls = maxEnrolling + 3
	for i := range calls {
		conn.Go(enrolmentCall("AddNode", fmt.Sprintf("node%d", i), uint64(0)), patience, func(_ *peer.Message, err error) { errs <- err })
	}
	for range calls - maxEnrolling - 1 {
		if err := <-errs; !errors.Is(err, wire.ErrLimitsExceeded) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := conn.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: wire.RootPath, Interface: wire.ManagerInterface, Member: "ListNodes"}); err != nil {
		t.Error(err)
	}
	close(w.enrolment.hold)
	for range maxEnrolling + 1 {
		if err := <-errs; err != nil {
			t.Errorf("got %v", err)
		}
	}
	for i, got := range w.enrolment.noted() {
		if want := fmt.Sprintf("add node%d 0s", i); got != want {
			t.Errorf("number %d is %q", i, got)
		}
	}
}
