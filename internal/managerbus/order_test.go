package managerbus

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// TestJobOrder: of each of 1000 jobs that end at once, asked for by four clients at a time,
// every client sees InterfacesAdded, JobNew, its reply, JobRemoved, InterfacesRemoved.
func TestJobOrder(t *testing.T) {
	const clients, each = 4, 250
	w := newWorld(t)
	w.do(func() {
		w.core.start = func(req manager.JobRequest, reply func(uint32, error)) {
			w.core.lastJob++
			j := manager.JobInfo{ID: w.core.lastJob, Node: req.Node, Unit: req.Unit, Type: req.Verb.String(), State: wire.JobRunning}
			w.core.events.JobNew(j)
			reply(j.ID, nil)
			w.core.events.JobRemoved(j, wire.ResultDone)
		}
	})
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() { w.watchJobs(fmt.Sprint("client", n), each, clients*each) })
	}
	all.Wait()
}

// watchJobs asks for jobs, without waiting for the answers, until it has seen the end of
// total jobs, and checks what it saw of each.
func (w *world) watchJobs(name string, own, total int) {
	seen := make(map[wire.ObjectPath]string)
	ends, done := 0, make(chan struct{})
	var order sync.Mutex // the handler and the replies run one after the other, which the race detector cannot know
	note := func(path wire.ObjectPath, what string) {
		order.Lock()
		defer order.Unlock()
		seen[path] += what + " "
		if what == "gone" {
			if ends++; ends == total {
				close(done)
			}
		}
	}
	conn := w.raw(func(m *peer.Message) {
		d := peer.NewDecoder(m.Body)
		switch m.Member {
		case "InterfacesAdded":
			note(d.ObjectPath(), "added")
		case "InterfacesRemoved":
			note(d.ObjectPath(), "gone")
		case "JobNew", "JobRemoved":
			d.Uint32()
			note(d.ObjectPath(), m.Member)
		}
	})
	if err := conn.AddMatch(w.ctx(), fmt.Sprintf("type='signal',sender='%s',path='%s'", wire.BusName, wire.RootPath)); err != nil {
		w.t.Error(err)
		return
	}
	for i := range own {
		conn.Go(peer.Call{
			Destination: wire.BusName, Path: wire.NodePath("node1"), Interface: wire.NodeInterface, Member: "StartUnit",
			Body: peer.MustEncode(fmt.Sprintf("%s-%d.service", name, i), "replace"),
		}, patience, func(m *peer.Message, err error) {
			var path wire.ObjectPath
			if err == nil {
				err = peer.Decode(m.Body, &path)
			}
			if err != nil {
				w.t.Error(err)
			}
			note(path, "reply")
		})
	}
	wait(w.t, done)
	order.Lock()
	defer order.Unlock()
	replies := 0
	for path, what := range seen {
		if strings.Contains(what, "reply") {
			replies++
			what = strings.Replace(what, "reply ", "", 1)
			if !strings.Contains(seen[path], "JobNew reply JobRemoved") {
				w.t.Errorf("%s saw of %s: %s", name, path, seen[path])
			}
		}
		if what != "added JobNew JobRemoved gone " {
			w.t.Errorf("%s saw of %s: %s", name, path, seen[path])
		}
	}
	if replies != own || len(seen) != total {
		w.t.Errorf("%s had %d replies of %d, and saw %d jobs of %d", name, replies, own, len(seen), total)
	}
}

// TestCallsOfOneCallerAreAnsweredInOrder, from the very first on, whose check of the
// caller's right takes a question to the bus.
func TestCallsOfOneCallerAreAnsweredInOrder(t *testing.T) {
	w := newWorld(t)
	for range 10 { // ten callers that the API does not know yet
		conn := w.raw(func(*peer.Message) {})
		var got []string
		var want []string
		done := make(chan struct{})
		for i := range 20 {
			member := []string{"SetLogLevel", "ListNodes", "Get", "StartUnit"}[i%4]
			call := peer.Call{Destination: wire.BusName, Path: wire.RootPath, Member: member}
			switch member {
			case "SetLogLevel":
				call.Body = peer.MustEncode([]string{"debug", "warn"}[i/4%2])
			case "Get":
				call.Body = peer.MustEncode(wire.ManagerInterface, "LogLevel")
			case "StartUnit":
				call.Path, call.Body = wire.NodePath("node1"), samples["ss"]
			}
			name := fmt.Sprint(i, member)
			want = append(want, name)
			if member == "Get" {
				want[i] += []string{"DEBUG", "WARN"}[i/4%2]
			}
			conn.Go(call, patience, func(m *peer.Message, err error) {
				if err != nil {
					t.Error(err)
				} else if member == "Get" {
					var v wire.Value
					var level string
					peer.Decode(m.Body, &v)
					peer.DecodeValue(v, &level)
					name += level
				}
				got = append(got, name)
				if len(got) == 20 {
					close(done)
				}
			})
		}
		wait(t, done)
		if !slices.Equal(got, want) {
			t.Fatalf("answers are %v, want %v", got, want)
		}
	}
}

// TestSlowNodeHoldsUpNobody: while a node does not answer, other calls are answered, also
// of the same caller to the same node.
func TestSlowNodeHoldsUpNobody(t *testing.T) {
	w := newWorld(t)
	asked := make(chan func(wire.Raw, error), 1)
	w.do(func() {
		w.core.call = func(_, method string, _ wire.Raw, reply func(wire.Raw, error)) {
			if method == "Reload" {
				asked <- reply
				return
			}
			reply(samples["s"], nil)
		}
	})
	conn := w.client()
	node := conn.Object(wire.BusName, dbus.ObjectPath(wire.NodePath("node1")))
	slow := node.Go(wire.NodeInterface+".Reload", 0, make(chan *dbus.Call, 1))
	reply := wait(t, asked)
	var target string
	if err := node.Call(wire.NodeInterface+".GetDefaultTarget", 0).Store(&target); err != nil || target != "node1" {
		t.Errorf("a quick call beside a slow one gave %q, %v", target, err)
	}
	var job dbus.ObjectPath
	if err := node.Call(wire.NodeInterface+".StartUnit", 0, "a.service", "replace").Store(&job); err != nil || job == "" {
		t.Errorf("a job beside a slow call gave %q, %v", job, err)
	}
	select {
	case call := <-slow.Done:
		t.Errorf("the slow call was answered before its node did: %v", call.Err)
	default:
	}
	w.do(func() { reply(wire.Raw{}, nil) })
	if call := wait(t, slow.Done); call.Err != nil {
		t.Error(call.Err)
	}
}

// TestSnapshotsAreOfTheirPlaceInTheOrder: what a client reads is never older than the
// signals that came before the answer.
func TestSnapshotsAreOfTheirPlaceInTheOrder(t *testing.T) {
	w := newWorld(t)
	var got []string
	const rounds = 200
	came := make(chan struct{}, 2*rounds) // what was read, and the signals
	conn := w.raw(func(m *peer.Message) {
		if m.Member == "PropertiesChanged" {
			var iface string
			var changed map[string]wire.Value
			var gone []string
			var status string
			if peer.Decode(m.Body, &iface, &changed, &gone) == nil && peer.DecodeValue(changed["Status"], &status) == nil {
				got = append(got, status)
				came <- struct{}{}
			}
		}
	})
	if err := conn.AddMatch(w.ctx(), fmt.Sprintf("type='signal',sender='%s'", wire.BusName)); err != nil {
		t.Fatal(err)
	}
	changes := 0
	w.do(func() {
		w.core.afterSnapshot = func() {
			changes++
			w.core.nodes[0].Status = fmt.Sprint("status", changes)
			w.core.events.NodeChanged(w.core.nodes[0])
		}
	})
	for range rounds {
		conn.Go(peer.Call{Destination: wire.BusName, Path: wire.RootPath, Member: "GetManagedObjects"}, patience,
			func(m *peer.Message, err error) {
				var all map[wire.ObjectPath]map[string]map[string]wire.Value
				var status string
				if err == nil {
					err = peer.Decode(m.Body, &all)
				}
				if err == nil {
					err = peer.DecodeValue(all[wire.NodePath("node1")][wire.NodeInterface]["Status"], &status)
				}
				if err != nil {
					t.Error(err)
				}
				got = append(got, "read "+status)
				came <- struct{}{}
			})
	}
	for range 2 * rounds {
		wait(t, came)
	}
	last := ""
	for _, entry := range got {
		status, isRead := strings.CutPrefix(entry, "read ")
		if isRead && last != "" && status != last {
			t.Fatalf("after the signal %q a client read %q", last, status)
		}
		last = status
	}
}
