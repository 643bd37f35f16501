package managerbus

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// TestStrangersMayOnlyRead: whoever has no right calls no method of ours, and reads all
// properties.
func TestStrangersMayOnlyRead(t *testing.T) {
	w := &world{t: t, bus: bustest.Start(t), core: newFakeCore()}
	w.serve(authz.NewByUID(uint32(os.Getuid()) + 1))
	w.do(func() { w.core.jobs[1] = manager.JobInfo{ID: 1, Node: "node1", Unit: "web.service"} })
	conn := w.raw(func(*peer.Message) {})
	w.do(func() { w.core.monitors[1] = conn.UniqueName() })
	paths := map[string]wire.ObjectPath{
		wire.ManagerInterface: wire.RootPath, wire.NodeInterface: wire.NodePath("node1"),
		wire.JobInterface: wire.JobPath(1), wire.MonitorInterface: wire.MonitorPath(1),
	}
	for name, path := range paths {
		for _, m := range api.Load(name).Methods {
			_, err := conn.Call(w.ctx(), peer.Call{
				Destination: wire.BusName, Path: path, Interface: name, Member: m.Name, Body: samples[api.Signature(m.In)],
			})
			if !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), m.Action) {
				t.Errorf("%s.%s gave %v, want AccessDenied that names %s", name, m.Name, err, m.Action)
			}
		}
		for member, args := range map[string]wire.Raw{"GetAll": peer.MustEncode(name), "Introspect": {}} {
			if _, err := conn.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: path, Member: member, Body: args}); err != nil {
				t.Errorf("%s on %s: %v", member, path, err)
			}
		}
	}
	if _, err := conn.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: wire.RootPath, Member: "GetManagedObjects"}); err != nil {
		t.Error(err)
	}
	w.do(func() {
		if len(w.core.calls) != 0 || w.core.lastJob != 0 || len(w.core.jobs) != 1 || w.daemon.level != "INFO" {
			t.Errorf("the core was asked %v, has jobs %v, level %s", w.core.calls, w.core.jobs, w.daemon.level)
		}
	})
}

// recorder allows everything and notes what was asked.
type recorder struct {
	mu       sync.Mutex
	requests []busobject.Request
}

func (r *recorder) Check(q busobject.Request, done func(error)) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, q)
	go done(nil) // as an answer that comes later, from elsewhere
	return false, nil
}
func (r *recorder) Left(*peer.Conn, string) {}

// TestWhatIsAsked: what a right can depend on.
func TestWhatIsAsked(t *testing.T) {
	asked := &recorder{}
	w := &world{t: t, bus: bustest.Start(t), core: newFakeCore()}
	w.serve(asked)
	w.do(func() {
		w.core.jobs[1] = manager.JobInfo{ID: 1, Node: "node1", Unit: "web.service"}
		w.core.jobs[2] = manager.JobInfo{ID: 2, Node: "node1", Unit: "db.service"}
		w.core.lastJob = 2
		w.core.call = func(_, method string, _ wire.Raw, reply func(wire.Raw, error)) {
			m, _ := wire.NodeMethodByName(method)
			reply(samples[m.Out], nil)
		}
	})
	conn := w.raw(func(*peer.Message) {})
	node := wire.NodePath("node-2")
	for _, test := range []struct {
		path   wire.ObjectPath
		member string
		args   wire.Raw
		flags  peer.Flags
		want   string
	}{
		{node, "RestartUnit", samples["ss"], 0, "manage-units restart node-2 [web.service] false"},
		{node, "RestartUnit", samples["ss"], peer.FlagAllowInteraction, "manage-units restart node-2 [web.service] true"},
		{node, "StartTransientUnit", samples["ssa(sv)a(sa(sv))"], 0, "run run node-2 [x.service] false"},
		{node, "KillUnit", samples["ssi"], 0, "manage-units kill node-2 [web.service] false"},
		{node, "EnableUnitFiles", peer.MustEncode([]string{"a.service", "b.service"}, true, false), 0, "manage-unit-files enable node-2 [a.service b.service] false"},
		{node, "MaskUnitFiles", peer.MustEncode([]string{}, true, false), 0, "manage-unit-files mask node-2 [] false"},
		{node, "Reload", wire.Raw{}, 0, "manage-unit-files daemon-reload node-2 [] false"},
		{node, "ListUnitsFiltered", samples["asas"], 0, "inspect list-units node-2 [] false"},
		{node, "GetUnitProperties", peer.MustEncode("web.service", ""), 0, "inspect show node-2 [web.service] false"},
		{node, "Shutdown", wire.Raw{}, 0, "manage-nodes shutdown node-2 [] false"},
		{wire.RootPath, "CancelJob", samples["u"], 0, "manage-units cancel node1 [web.service] false"},
		{wire.JobPath(2), "Cancel", wire.Raw{}, 0, "manage-units cancel node1 [db.service] false"},
		{wire.RootPath, "ListNodes", wire.Raw{}, 0, "inspect list-nodes  [] false"},
		{wire.RootPath, "SetLogLevel", peer.MustEncode("info"), 0, "manage-nodes log-level  [] false"},
	} {
		_, err := conn.Call(w.ctx(), peer.Call{
			Destination: wire.BusName, Path: test.path, Member: test.member, Body: test.args, Flags: test.flags,
		})
		if err != nil {
			t.Errorf("%s: %v", test.member, err)
		}
		asked.mu.Lock()
		q := asked.requests[len(asked.requests)-1]
		asked.mu.Unlock()
		got := fmt.Sprint(strings.TrimPrefix(q.Action, wire.BusName+"."), " ", q.Verb, " ", q.Node, " ", q.Units, " ", q.Interactive)
		if got != test.want || q.Sender != conn.UniqueName() {
			t.Errorf("%s of %s asks %q of %s, want %q", test.member, conn.UniqueName(), got, q.Sender, test.want)
		}
	}
	before := len(asked.requests)
	if _, err := conn.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: wire.RootPath, Member: "CancelJob", Body: samples["u"]}); !errors.Is(err, wire.ErrNoSuchJob) {
		t.Errorf("canceling a job twice gave %v", err)
	}
	if len(asked.requests) != before {
		t.Error("a right was asked for a job that is not there")
	}
}
