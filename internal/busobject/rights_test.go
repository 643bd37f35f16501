package busobject

import (
	"fmt"
	"testing"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

const mayAsk = peer.FlagAllowInteraction

// TestCallsWaitForTheCheckBeforeThem: calls of one caller keep their order while a check is
// under way, others do not wait.
func TestCallsWaitForTheCheckBeforeThem(t *testing.T) {
	a := newAsker()
	w := newWorld(t, a).run()
	c, other := w.client(), w.client()
	c.call("Change", "first", 0)
	first := wait(t, a.asked)
	if first.Sender != c.conn.UniqueName() || first.Action != wire.ActionManageUnits || first.Interactive {
		t.Errorf("asked was %+v", first.Request)
	}
	c.call("Look", "second", 0)
	c.call("Change", "third", 0)
	c.call("Get", "fourth", 0)
	other.call("Look", "mine", 0)
	other.expect("mine")
	first.answer(wire.ErrAccessDenied.With("no"))
	c.expect("first AccessDenied", "second")
	wait(t, a.asked).answer(nil)
	c.expect("third", "fourth")
	c.call("Look", "after", 0)
	c.expect("after")
	done := make(chan int)
	w.server.loop.Defer(func() { done <- len(w.server.lanes) })
	if n := wait(t, done); n != 0 {
		t.Errorf("%d lanes are left", n)
	}
}

// TestNobodyWaitsForAPassword: while a person may be asked, calls of the same caller that
// change nothing go on; those that do wait.
func TestNobodyWaitsForAPassword(t *testing.T) {
	a := newAsker()
	w := newWorld(t, a).run()
	c := w.client()
	c.call("Change", "first", mayAsk)
	first := wait(t, a.asked)
	if !first.Interactive {
		t.Error("that the caller can wait was not said")
	}
	c.call("Change", "second", 0)
	c.call("Look", "third", 0)
	c.call("Get", "fourth", 0)
	c.expect("third", "fourth")
	select {
	case q := <-a.asked:
		t.Errorf("%+v was asked beside the first", q.Request)
	default:
	}
	first.answer(nil)
	c.expect("first")
	wait(t, a.asked).answer(nil)
	c.expect("second")
}

func TestTooManyCallsWait(t *testing.T) {
	a := newAsker()
	w := newWorld(t, a).run()
	c := w.client()
	for i := range MaxCallsPerCaller + 1 {
		c.call("Change", fmt.Sprint(i), 0)
	}
	c.expect(fmt.Sprint(MaxCallsPerCaller) + " LimitsExceeded")
	for i := range MaxCallsPerCaller {
		wait(t, a.asked).answer(nil)
		c.expect(fmt.Sprint(i))
	}
}

// TestCallerLeaves: a call whose caller has left is not carried out when the check says yes
// afterwards.
func TestCallerLeaves(t *testing.T) {
	a := newAsker()
	w := newWorld(t, a)
	served := make(chan string, 4)
	w.iface.Methods["Change"] = Method{Serve: func(c *Call) {
		var what string
		c.Decode(&what)
		served <- what
		c.Reply(what)
	}}
	w.run()
	c := w.client()
	name := c.conn.UniqueName()
	c.call("Change", "late", 0)
	q := wait(t, a.asked)
	c.leave()
	for wait(t, a.left) != name {
	}
	q.answer(nil)
	other := w.client()
	other.call("Change", "next", 0)
	wait(t, a.asked).answer(nil)
	other.expect("next")
	if got := wait(t, served); got != "next" {
		t.Errorf("%q was carried out", got)
	}
}

// TestForgedDepartureIsIgnored: only the bus says who has left.
func TestForgedDepartureIsIgnored(t *testing.T) {
	a := newAsker()
	w := newWorld(t, a).run()
	c, liar := w.client(), w.client()
	c.call("Change", "first", 0)
	q := wait(t, a.asked)
	owner, err := liar.conn.NameOwner(w.ctx(), testName)
	if err != nil {
		t.Fatal(err)
	}
	err = liar.conn.SignalTo(owner, wire.DBusPath, wire.DBusInterface, "NameOwnerChanged",
		peer.MustEncode(c.conn.UniqueName(), c.conn.UniqueName(), ""))
	if err != nil {
		t.Fatal(err)
	}
	liar.call("Look", "read", 0) // the signal has arrived when this is answered
	liar.expect("read")
	q.answer(nil)
	c.expect("first")
}

// TestEndCallsChecksOff: a server that ends has nobody asked any more.
func TestEndCallsChecksOff(t *testing.T) {
	a := newAsker()
	w := newWorld(t, a).run()
	c := w.client()
	c.call("Change", "never", mayAsk)
	wait(t, a.asked)
	w.stop()
	if name := wait(t, a.left); name != "" {
		t.Errorf("it was told that %q has left", name)
	}
}

// TestFindIsForWhoNeedsIt: what has to be looked up is looked up when it is asked for.
func TestFindIsForWhoNeedsIt(t *testing.T) {
	a := newAsker()
	w := newWorld(t, a)
	looked := make(chan bool, 2)
	change := w.iface.Methods["Change"]
	change.About = func(*Call) (About, error) { return About{Node: "n", Units: []string{"alias"}}, nil }
	change.Find = func(_ *Call, done func(About, error)) {
		looked <- true
		go done(About{Node: "n", Units: []string{"real"}}, nil)
	}
	w.iface.Methods["Change"] = change
	w.run()
	c := w.client()
	c.call("Change", "first", 0)
	q := wait(t, a.asked)
	if q.Units[0] != "alias" || len(looked) > 0 {
		t.Errorf("asked was %+v", q.Request)
	}
	found := make(chan About, 1)
	q.Find(func(about About, _ error) { found <- about })
	if about := wait(t, found); about.Units[0] != "real" {
		t.Errorf("found was %+v", about)
	}
	q.answer(nil)
	c.expect("first")
}
