package manager

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

// text is a string as it stands in a value.
func text(s string) wire.Value {
	return wire.Value{Sig: "s", Data: append([]byte{byte(len(s)), 0, 0, 0}, s+"\x00"...)}
}

func machineFacts(id string) map[string]wire.Value {
	return map[string]wire.Value{wire.FactMachineID: text(id)}
}

func TestRegister(t *testing.T) {
	in(t, fleet, func(w *world) {
		before := w.node("node1")
		if before.Status != wire.NodeOffline || !before.LastSeen.IsZero() || before.StatusSince.IsZero() || before.Address != "" {
			t.Errorf("before the first connection: %+v", before)
		}
		time.Sleep(time.Minute)
		l, welcome := w.register(Registration{Node: "node1", Identity: Identity{Address: "192.0.2.7"}, Facts: machineFacts("m1")})
		w.expect("node node1 online", "register node1: ok", "status degraded")
		if welcome != (Welcome{Session: 1, HeartbeatInterval: 2 * time.Second, HeartbeatThreshold: 6 * time.Second}) {
			t.Errorf("welcome is %+v", welcome)
		}
		now := time.Now()
		info := w.node("node1")
		if info.Status != wire.NodeOnline || info.Address != "192.0.2.7" || !info.LastSeen.Equal(now) ||
			!info.StatusSince.Equal(now) || string(info.Facts[wire.FactMachineID].Data) != string(text("m1").Data) {
			t.Errorf("while online: %+v", info)
		}
		time.Sleep(time.Second)
		l.hear()
		time.Sleep(time.Second)
		w.close(l, "bad\x1b[2J\nreason \xff")
		w.expect("node node1 offline", "status down")
		info = w.node("node1")
		if info.Status != wire.NodeOffline || info.Address != "" || !info.LastSeen.Equal(now.Add(time.Second)) ||
			!info.StatusSince.Equal(now.Add(2*time.Second)) || info.DisconnectReason != "bad [2J reason  " {
			t.Errorf("after the session: %+v", info)
		}
		_, welcome = w.register(Registration{Node: "node1"})
		if info = w.node("node1"); welcome.Session != 2 || info.DisconnectReason != "" {
			t.Errorf("second session: %+v, %+v", welcome, info)
		}
	})
}

func TestRegistrationsThatAreRefused(t *testing.T) {
	in(t, fleet, func(w *world) {
		many := map[string]wire.Value{}
		for i := range MaxFacts + 1 {
			many[fmt.Sprint(i)] = text("x")
		}
		for _, c := range []struct {
			why  string
			r    Registration
			want *wire.Error
			text string
		}{
			{"not in the fleet", Registration{Node: "stranger"}, wire.ErrNodeNotAllowed, "AllowedNodeNames="},
			{"no name", Registration{}, wire.ErrInvalidArgs, wire.NodeNameRule},
			{"bad name", Registration{Node: "node 1"}, wire.ErrInvalidArgs, wire.NodeNameRule},
			{"case counts", Registration{Node: "Node1"}, wire.ErrNodeNotAllowed, "Node1"},
			{"certificate of another node", Registration{Node: "node1", Identity: Identity{Node: "node2"}}, wire.ErrNodeNotAllowed, "node2"},
			{"too many facts", Registration{Node: "node1", Facts: many}, wire.ErrInvalidArgs, "facts"},
			{"too large facts", Registration{Node: "node1", Facts: map[string]wire.Value{"x": {Sig: "s", Data: make([]byte, MaxFactBytes)}}}, wire.ErrInvalidArgs, "facts"},
		} {
			c.r.Link = w.newLink(c.r.Node)
			var got error
			w.m.Register(c.r, func(_ Welcome, err error) { got = err })
			synctest.Wait()
			if kind(got) != kind(c.want) || got == nil || !strings.Contains(got.Error(), c.text) {
				t.Errorf("%s: got %v, want %s with %q in it", c.why, got, kind(c.want), c.text)
			}
		}
		w.expect()
	})
}

func TestTakeOver(t *testing.T) {
	proven := Identity{Node: "node1", Address: "192.0.2.1"}
	unproven := Identity{Address: "192.0.2.2"}
	for _, c := range []struct {
		why    string
		old    Registration
		silent time.Duration
		new    Registration
		want   bool
	}{
		{"a stranger, the old one is well", Registration{Identity: unproven}, 0, Registration{Identity: unproven}, false},
		{"silent, but not for long enough", Registration{Identity: unproven}, 3 * time.Second, Registration{Identity: unproven}, false},
		{"the old one missed its heartbeat", Registration{Identity: unproven}, 3*time.Second + 1, Registration{Identity: unproven}, true},
		{"certificate and machine", Registration{Identity: proven, Facts: machineFacts("m")}, 0, Registration{Identity: proven, Facts: machineFacts("m")}, true},
		{"copy of the certificate", Registration{Identity: proven, Facts: machineFacts("m")}, 0, Registration{Identity: proven, Facts: machineFacts("n")}, false},
		{"certificate without machine", Registration{Identity: proven}, 0, Registration{Identity: proven}, false},
		{"empty machine", Registration{Identity: proven, Facts: machineFacts("")}, 0, Registration{Identity: proven, Facts: machineFacts("")}, false},
		{"machine without certificate", Registration{Identity: proven, Facts: machineFacts("m")}, 0, Registration{Identity: unproven, Facts: machineFacts("m")}, false},
	} {
		in(t, fleet, func(w *world) {
			c.old.Node, c.new.Node = "node1", "node1"
			old, _ := w.register(c.old)
			w.start("job", ask(wire.Start, "web.service"))
			old.answer(1, nil)
			w.take()
			time.Sleep(c.silent)
			w.register(c.new)
			if !c.want {
				w.expect("register node1: NodeExists")
				return
			}
			w.expect("node1< close", "node node1 offline", "JobRemoved 1 web.service canceled", "status down",
				"node node1 online", "register node1: ok", "status degraded")
			// The ghost's voice is not heard any more.
			w.close(old, "dead at last")
			old.done(1, "done")
			if t.Failed() || w.node("node1").Status != wire.NodeOnline {
				t.Errorf("%s: the new session is gone", c.why)
			}
		})
	}
}

func TestReportsOfOldSessionsAreDropped(t *testing.T) {
	in(t, fleet, func(w *world) {
		old := w.connect("node1")
		w.close(old, "cut")
		l := w.connect("node1")
		w.start("job", ask(wire.Start, "web.service"))
		l.answer(1, nil)
		w.take()
		other := w.connect("node2")
		for _, wrong := range []*link{old, other} {
			wrong.state(1, wire.JobRunning)
			wrong.done(1, "failed")
		}
		// Nor may a node report on a job that only waits.
		w.start("reload", ask(wire.Reload, "web.service"))
		w.take()
		l.state(2, wire.JobRunning)
		l.done(2, "done")
		w.expect()
		l.done(1, "done")
		w.expect("JobRemoved 1 web.service done", "node1< ReloadUnit web.service replace 2")
	})
}

func TestClosedFromTheReply(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.newLink("node1")
		w.m.Register(Registration{Node: "node1", Link: l}, func(welcome Welcome, err error) {
			w.m.Closed(welcome.Session, "died meanwhile")
		})
		w.expect("node node1 online", "status degraded", "node node1 offline", "status down")
	})
}

func TestFleetStatus(t *testing.T) {
	nodes := func(states string) []*node {
		var all []*node
		for _, c := range states {
			n := &node{optional: c == 'o' || c == 'O'}
			if c == 'N' || c == 'O' {
				n.session = &session{}
			}
			all = append(all, n)
		}
		return all
	}
	// n is a node and o an optional one, in capitals while online.
	for states, want := range map[string]string{
		"": "down", "n": "down", "N": "up", "nn": "down", "Nn": "degraded", "NN": "up",
		"No": "up", "NO": "up", "nO": "degraded", "no": "down", "o": "down", "O": "up", "Oo": "up", "NnO": "degraded",
	} {
		if got := tallyOf(nodes(states)).status(); got != want {
			t.Errorf("fleet %q is %s, want %s", states, got, want)
		}
	}
}

func TestStatusIsToldWhenTheWordChanges(t *testing.T) {
	in(t, fleet, func(w *world) {
		status := func(change func()) string {
			change()
			var word string
			for _, line := range w.take() {
				if s, ok := strings.CutPrefix(line, "status "); ok {
					word += s
				}
			}
			return word
		}
		reg := func(name string) (l *link) {
			l, _ = w.register(Registration{Node: name})
			return l
		}
		var flaky, one, two *link
		got := []string{
			status(func() { flaky = reg("flaky") }), status(func() { one = reg("node1") }), status(func() { two = reg("node2") }),
			status(func() { w.close(flaky, "") }), status(func() { w.close(one, "") }), status(func() { w.close(two, "") }),
		}
		if want := "degraded,,up,,degraded,down"; strings.Join(got, ",") != want {
			t.Errorf("told %q, want %q", strings.Join(got, ","), want)
		}
		var now string
		w.m.Status(func(s string) { now = s })
		if synctest.Wait(); now != "down" {
			t.Errorf("status is %s", now)
		}
	})
}

func TestReconfigure(t *testing.T) {
	in(t, fleet, func(w *world) {
		one, two := w.connect("node1"), w.connect("node2")
		w.start("job", ask(wire.Start, "web.service"))
		one.answer(1, nil)
		w.take()
		w.m.CreateMonitor(":1.1", func(uint32, error) {})
		w.m.Snapshot(func(s Snapshot) {
			w.note("%s, %d nodes, %d jobs, %d monitors", s.Status, len(s.Nodes), len(s.Jobs), len(s.Monitors))
		})
		w.expect("up, 3 nodes, 1 jobs, 1 monitors")
		changed := fleet
		changed.Nodes = []NodeConfig{{Name: "node3"}, {Name: "node2", Optional: true}, {Name: "node3"}, {Name: "bad name"}}
		w.m.log = silent() // the repetition and the bad name are logged as errors
		w.m.Reconfigure(changed)
		w.expect("node1< close", "node node1 offline", "JobRemoved 1 web.service canceled", "status degraded",
			"added node3 offline", "removed flaky offline", "removed node1 offline")
		var names []string
		w.m.Nodes(func(all []NodeInfo) {
			for _, n := range all {
				names = append(names, fmt.Sprint(n.Name, " ", n.Status, " ", n.Optional))
			}
		})
		synctest.Wait()
		if got := strings.Join(names, ", "); got != "node3 offline false, node2 online true" {
			t.Errorf("the fleet is %s", got)
		}
		w.start("gone", ask(wire.Start, "web.service"))
		w.register(Registration{Node: "node1"})
		w.expect("gone: 0 NoSuchNode", "register node1: NodeNotAllowed")
		w.close(two, "cut")
		w.expect("node node2 offline", "status down")
		w.m.Reconfigure(fleet)
		w.connect("node1")
		w.connect("node2")
	})
}
