package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

func TestParseHost(t *testing.T) {
	tests := map[string]sshHost{
		"node1":           {"node1", ""},
		"root@node1":      {"root@node1", ""},
		"root@node1:2222": {"root@node1", "2222"},
		"root@[::1]":      {"root@::1", ""},
		"[fe80::1]:22":    {"fe80::1", "22"},
		"fe80::1":         {"fe80::1", ""},
		"a@b@node1":       {"a@b@node1", ""},
	}
	for s, want := range tests {
		if got, err := parseHost(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-oProxyCommand=x", "root@", "@node1", "root@-x", "node1:", "node1:0", "node1:x", "node1:65536", "[::1", "[::1]x", "[::1]:", "a b"} {
		if h, err := parseHost(s); !errors.Is(err, wire.ErrInvalidArgs) {
			t.Errorf("%q: %+v, %v; want an error", s, h, err)
		}
	}
}

const owner = ":1.5"

func removed(id uint32, node, result string) *dbus.Signal {
	return &dbus.Signal{Sender: owner, Path: dbus.ObjectPath(wire.RootPath), Body: []any{id, dbus.ObjectPath(wire.JobPath(id)), node, "x.service", result}}
}

func jobRemoved(f *follower, s *dbus.Signal) {
	f.DeliverSignal(wire.ManagerInterface, "JobRemoved", s)
}

func status(f *follower, node, status string) {
	f.DeliverSignal(wire.PropertiesInterface, "PropertiesChanged", &dbus.Signal{Sender: owner, Path: dbus.ObjectPath(wire.NodePath(node)),
		Body: []any{wire.NodeInterface, map[string]dbus.Variant{"Status": dbus.MakeVariant(status)}, []string{}}})
}

func owned(f *follower, before, after string) {
	f.DeliverSignal(wire.DBusInterface, "NameOwnerChanged", &dbus.Signal{Sender: wire.DBusName, Body: []any{wire.BusName, before, after}})
}

// TestFollowerOrders plays the orders in which an answer and signals may be seen.
func TestFollowerOrders(t *testing.T) {
	tests := []struct {
		name   string
		before func(f *follower) // before the answer is claimed
		after  func(f *follower)
		result string
		err    error
	}{
		{"removed after the answer", nil, func(f *follower) { jobRemoved(f, removed(7, "node1", "done")) }, "done", nil},
		{"removed before the answer", func(f *follower) { jobRemoved(f, removed(7, "node1", "done")) }, nil, "done", nil},
		{"node lost before the answer", func(f *follower) {
			status(f, "node1", wire.NodeOffline)
			jobRemoved(f, removed(7, "node1", "canceled"))
		}, nil, "", wire.ErrNodeOffline},
		{"node lost, answer, removed", func(f *follower) { status(f, "node1", wire.NodeOffline) },
			func(f *follower) { jobRemoved(f, removed(7, "node1", "canceled")) }, "", wire.ErrNodeOffline},
		{"node lost after the answer", nil, func(f *follower) { status(f, "node1", wire.NodeOffline) }, "", wire.ErrNodeOffline},
		{"done, then node lost", func(f *follower) {
			jobRemoved(f, removed(7, "node1", "done"))
			status(f, "node1", wire.NodeOffline)
		}, nil, "done", nil},
		{"another node lost", func(f *follower) { status(f, "node2", wire.NodeOffline) },
			func(f *follower) { jobRemoved(f, removed(7, "node1", "canceled")) }, "canceled", nil},
		{"node lost and back", func(f *follower) {
			status(f, "node1", wire.NodeOffline)
			status(f, "node1", wire.NodeOnline)
		}, func(f *follower) { jobRemoved(f, removed(7, "node1", "canceled")) }, "canceled", nil},
		{"manager lost after the answer", nil, func(f *follower) { owned(f, owner, "") }, "", ErrManagerGone},
		{"manager replaced before the answer is claimed", func(f *follower) { owned(f, owner, ":1.9") }, nil, "", ErrManagerGone},
		{"connection lost", nil, func(f *follower) { f.Terminate() }, "", ErrManagerGone},
		{"somebody else's signals", func(f *follower) {
			s := removed(7, "node1", "failed")
			s.Sender = ":1.66"
			jobRemoved(f, s)
			f.DeliverSignal(wire.DBusInterface, "NameOwnerChanged", &dbus.Signal{Sender: ":1.66", Body: []any{wire.BusName, owner, ""}})
		}, func(f *follower) { jobRemoved(f, removed(7, "node1", "done")) }, "done", nil},
		{"signals of other types", func(f *follower) {
			jobRemoved(f, &dbus.Signal{Sender: owner, Body: []any{"7"}})
			f.DeliverSignal(wire.PropertiesInterface, "PropertiesChanged", &dbus.Signal{Sender: owner, Path: "/x", Body: nil})
			f.DeliverSignal(wire.DBusInterface, "NameOwnerChanged", &dbus.Signal{Sender: wire.DBusName, Body: nil})
		}, func(f *follower) { jobRemoved(f, removed(7, "node1", "done")) }, "done", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFollower()
			f.setManager(owner)
			reign := f.asking()
			if test.before != nil {
				test.before(f)
			}
			job := f.claim(7, "node1", reign)
			f.asked()
			if test.after != nil {
				test.after(f)
			}
			select {
			case <-job.Done():
			default:
				t.Fatal("the job has not ended")
			}
			if result, err := job.Result(); result != test.result || !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Errorf("result %q, %v; want %q, %v", result, err, test.result, test.err)
			}
			if len(f.early)+len(f.waiting) > 0 {
				t.Errorf("left behind: %d early, %d waiting", len(f.early), len(f.waiting))
			}
		})
	}
}

// TestSharedJob: two callers whose job is the same one both see its end.
func TestSharedJob(t *testing.T) {
	f := newFollower()
	f.setManager(owner)
	reign := f.asking()
	f.asking()
	first := f.claim(7, "node1", reign)
	second := f.claim(7, "node1", reign)
	jobRemoved(f, removed(7, "node1", "done"))
	for _, j := range []*Job{first, second} {
		if result, err := j.Wait(t.Context()); result != "done" || err != nil {
			t.Errorf("result %q, %v", result, err)
		}
	}
}

func TestTailIsBounded(t *testing.T) {
	var kept tail
	for range 100 {
		if n, err := kept.Write([]byte(strings.Repeat("x", 1000))); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := kept.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if s := kept.String(); len(s) != tailSize || !strings.HasSuffix(s, "xend") {
		t.Errorf("kept %d bytes", len(s))
	}
}

// An owner that reads too slowly for too long is told that its monitor has ended.
func TestMonitorThatTheManagerEnds(t *testing.T) {
	f := newFollower()
	m := &Monitor{c: &Client{jobs: f}, path: "/m", events: make(chan Event, 1), quit: make(chan struct{}), over: make(chan struct{})}
	f.addMonitor(m)
	m.deliver("PeerRemoved", []any{"it has not read its signals for long"})
	<-m.Over()
	if err := m.Err(); !errors.Is(err, wire.ErrNoSuchMonitor) || !strings.Contains(err.Error(), "not read its signals") {
		t.Errorf("the monitor has ended with %v", err)
	}
	if len(f.monitors) != 0 {
		t.Error("it is still known")
	}
}
