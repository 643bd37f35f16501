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
		wire.EnrolmentInterface: wire.RootPath, wire.WorkloadsInterface: wire.RootPath,
	}
	for _, name := range api.Names() {
		public := !strings.Contains(name, ".internal.") && name != wire.AgentInterface && len(api.Load(name).Methods) > 0
		if _, known := paths[name]; public && !known {
			t.Errorf("it is not tried whether strangers may call the methods of %s: give the path of an object", name)
		}
	}
	for name, path := range paths {
		for _, m := range api.Load(name).Methods {
			args, ok := samples[api.Signature(m.In)]
			if !ok {
				t.Fatalf("no sample of type %q", api.Signature(m.In))
			}
			_, err := conn.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: path, Interface: name, Member: m.Name, Body: args})
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
		if len(w.core.calls) != 0 || w.core.lastJob != 0 || len(w.core.jobs) != 1 || w.daemon.level != "INFO" || len(w.enrolment.noted()) != 0 || len(w.workloads.noted()) != 0 {
			t.Errorf("the core was asked %v, has jobs %v, level %s", w.core.calls, w.core.jobs, w.daemon.level)
		}
	})
}

type auxiliary struct {
	Name       string
	Properties []property
}

// answerIDs is a node on which some names mean other units, and gone.service none.
func answerIDs(aliases map[string]string) func(string, string, wire.Raw, func(wire.Raw, error)) {
	return func(_, method string, args wire.Raw, reply func(wire.Raw, error)) {
		if method != "GetUnitProperty" {
			m, _ := wire.NodeMethodByName(method)
			reply(samples[m.Out], nil)
			return
		}
		names, _ := args.FirstStrings()
		id := names[0]
		if id == "gone.service" {
			reply(wire.Raw{}, wire.ErrSystemdNoSuchUnit.With("Unit gone.service not found."))
			return
		}
		if real, ok := aliases[id]; ok {
			id = real
		}
		reply(peer.MustEncode(peer.MustValue(id)), nil)
	}
}

// recorder allows everything and notes what was asked.
type recorder struct {
	mu       sync.Mutex
	requests []busobject.Request
}

func (r *recorder) Check(q busobject.Request, done func(error)) (bool, error) {
	note := func(about busobject.About, err error) {
		if err == nil {
			q.About = about
			r.mu.Lock()
			r.requests = append(r.requests, q)
			r.mu.Unlock()
		}
		done(err) // as an answer that comes later, from elsewhere
	}
	if q.Find != nil {
		q.Find(note)
	} else {
		go note(q.About, nil)
	}
	return false, nil
}
func (r *recorder) Left(*peer.Conn, string)         {}
func (r *recorder) Trusted(*peer.Conn, string) bool { return true }

// TestWhatIsAsked: what a right can depend on.
func TestWhatIsAsked(t *testing.T) {
	asked := &recorder{}
	w := &world{t: t, bus: bustest.Start(t), core: newFakeCore()}
	w.serve(asked)
	w.do(func() {
		w.core.jobs[1] = manager.JobInfo{ID: 1, Node: "node1", Unit: "web.service"}
		w.core.jobs[2] = manager.JobInfo{ID: 2, Node: "node1", Unit: "db.service"}
		w.core.lastJob = 2
		w.core.call = answerIDs(map[string]string{"alias.service": "real.service", "db.service": "store.service"})
	})
	conn := w.raw(func(*peer.Message) {})
	w.do(func() {
		w.core.monitors[1] = conn.UniqueName()
		w.core.query = func(_ []string, _ string, _ wire.Raw, reply func([]manager.NodeReply, error)) { reply(nil, nil) }
	})
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
		{node, "StopUnit", peer.MustEncode("alias.service", "fail"), 0, "manage-units stop node-2 [real.service] false"},
		{node, "StopUnit", peer.MustEncode("gone.service", "fail"), 0, "manage-units stop node-2 [gone.service] false"},
		{node, "StopUnit", peer.MustEncode("no unit", "fail"), 0, "manage-units stop node-2 [no unit] false"},
		{node, "StartTransientUnit", peer.MustEncode("a.service", "fail", []property{}, []auxiliary{{"b.service", nil}, {"alias.service", nil}}), 0, "run run node-2 [a.service b.service real.service] false"},
		{node, "StartTransientUnit", samples["ssa(sv)a(sa(sv))"], 0, "run run node-2 [x.service] false"},
		{node, "KillUnit", samples["ssi"], 0, "manage-units kill node-2 [web.service] false"},
		{node, "EnableUnitFiles", peer.MustEncode([]string{"a.service", "b.service"}, true, false), 0, "manage-unit-files enable node-2 [a.service b.service] false"},
		{node, "DisableUnitFiles", peer.MustEncode([]string{"alias.service", "t@.service", "/x/a.service"}, true), 0, "manage-unit-files disable node-2 [alias.service t@.service /x/a.service real.service] false"},
		{node, "SetDefaultTarget", samples["sb"], 0, "manage-unit-files set-default node-2 [multi-user.target] false"},
		{node, "MaskUnitFiles", peer.MustEncode([]string{}, true, false), 0, "manage-unit-files mask node-2 [] false"},
		{node, "Reload", wire.Raw{}, 0, "manage-unit-files daemon-reload node-2 [] false"},
		{node, "ListUnitsFiltered", samples["asas"], 0, "inspect list-units node-2 [] false"},
		{node, "GetUnitProperties", peer.MustEncode("web.service", ""), 0, "inspect show node-2 [web.service] false"},
		{node, "Shutdown", wire.Raw{}, 0, "manage-nodes shutdown node-2 [] false"},
		{wire.RootPath, "CancelJob", samples["u"], 0, "manage-units cancel node1 [web.service] false"},
		{wire.JobPath(2), "Cancel", wire.Raw{}, 0, "manage-units cancel node1 [store.service] false"},
		{wire.RootPath, "GetNode", peer.MustEncode("node1"), 0, "inspect list-nodes node1 [] false"},
		{wire.RootPath, "ListUnitsFiltered", peer.MustEncode([]string{"node1", "node-2"}, []string{}, []string{}), 0, "inspect list-units [node1 node-2] [] false"},
		{wire.MonitorPath(1), "Subscribe", peer.MustEncode("node*", "web-?.service"), 0, "inspect monitor node* [web-?.service] false"},
		{wire.MonitorPath(1), "SubscribeList", peer.MustEncode("node1", []string{"a.service", "b.service"}), 0, "inspect monitor node1 [a.service b.service] false"},
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
		nodes := q.Node
		if q.Nodes != nil {
			nodes = fmt.Sprint(q.Nodes)
		}
		got := fmt.Sprint(strings.TrimPrefix(q.Action, wire.BusName+"."), " ", q.Verb, " ", nodes, " ", q.Units, " ", q.Interactive)
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
