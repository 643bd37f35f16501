package managerbus

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/internal/workload"
)

type property struct {
	Name  string
	Value wire.Value
}

type unitFileChange struct{ Type, File, Source string }

// samples are arguments and answers by signature.
var samples = map[wire.Signature]wire.Raw{
	"":     {},
	"s":    peer.MustEncode("node1"),
	"u":    peer.MustEncode(uint32(1)),
	"o":    peer.MustEncode(wire.ObjectPath("/x")),
	"v":    peer.MustEncode(peer.MustValue(uint64(5))),
	"ss":   peer.MustEncode("web.service", "replace"),
	"sss":  peer.MustEncode("web.service", "", "Id"),
	"ssi":  peer.MustEncode("web.service", "all", int32(15)),
	"sb":   peer.MustEncode("multi-user.target", true),
	"us":   peer.MustEncode(uint32(7), "enough"),
	"sas":  peer.MustEncode("node1", []string{"a.service", "b.service"}),
	"asb":  peer.MustEncode([]string{"a.service"}, true),
	"asbb": peer.MustEncode([]string{"a.service"}, true, true),
	"asas": peer.MustEncode([]string{"active"}, []string{"*"}),
	"b":    peer.MustEncode(true),
	"sayasa{ss}a{sv}": peer.MustEncode("web", []byte("package"), []string{"node1"}, map[string]string{}, map[string]wire.Value{
		wire.OptionNoWait: peer.MustValue(true),
	}),
	"sasa{sv}":  peer.MustEncode("web", []string{"node1"}, map[string]wire.Value{}),
	"sasta{sv}": peer.MustEncode("web", []string{"node1"}, uint64(3), map[string]wire.Value{}),
	"sassa{sv}": peer.MustEncode("web", []string{"node1"}, "stop", map[string]wire.Value{}),
	"sst":       peer.MustEncode("node1", "web", uint64(3)),
	"st":        peer.MustEncode("node1", uint64(0)),
	"sut":       peer.MustEncode("web-*", uint32(2), uint64(0)),
	"a{sv}":     peer.MustEncode(map[string]wire.Value{"Id": peer.MustValue("x")}),
	"a(ss)":     peer.MustEncode([]struct{ A, B string }{{"/etc/x", "enabled"}}),
	"sba(sv)":   peer.MustEncode("web.service", true, []property{{"CPUWeight", peer.MustValue(uint64(1))}}),
	"ssa(sv)a(sa(sv))": peer.MustEncode("x.service", "fail", []property{{"Description", peer.MustValue("d")}},
		[]struct {
			Name  string
			Props []property
		}{}),
	"asasas":  peer.MustEncode([]string{"node1"}, []string{"active"}, []string{"*"}),
	"a(sss)":  peer.MustEncode([]unitFileChange{{"symlink", "/a", "/b"}}),
	"ba(sss)": peer.MustEncode(true, []unitFileChange{}),
	"a(sus)": peer.MustEncode([]struct {
		Group string
		PID   uint32
		Line  string
	}{{"/", 1, "init"}}),
	wire.UnitsSignature: peer.MustEncode([]wire.UnitStatus{{Name: "a.service", Path: "/a", JobPath: "/"}}),
}

// TestEveryMethod calls every method of the XML with arguments of its types and holds the
// type of the answer against it.
func TestEveryMethod(t *testing.T) {
	w := newWorld(t)
	w.do(func() {
		w.core.call = func(_, method string, args wire.Raw, reply func(wire.Raw, error)) {
			m, _ := wire.NodeMethodByName(method)
			if args.Sig != m.In {
				t.Errorf("%s came with arguments of type %q, want %q", method, args.Sig, m.In)
			}
			reply(samples[m.Out], nil)
		}
		w.core.query = func(_ []string, method string, args wire.Raw, reply func([]manager.NodeReply, error)) {
			m, _ := wire.NodeMethodByName(method)
			if args.Sig != m.In {
				t.Errorf("%s came with arguments of type %q, want %q", method, args.Sig, m.In)
			}
			reply([]manager.NodeReply{{Node: "node1", Body: samples[m.Out]}}, nil)
		}
	})
	conn := w.raw(func(*peer.Message) {})
	for _, name := range []string{wire.NodeInterface, wire.MonitorInterface, wire.ManagerInterface, wire.JobInterface, wire.EnrolmentInterface, wire.WorkloadsInterface} {
		for _, m := range api.Load(name).Methods {
			w.do(func() {
				w.core.jobs[1] = manager.JobInfo{ID: 1, Node: "node1", Unit: "web.service"}
				w.core.monitors[1] = conn.UniqueName()
			})
			path := map[string]wire.ObjectPath{
				wire.ManagerInterface: wire.RootPath, wire.NodeInterface: wire.NodePath("node1"),
				wire.JobInterface: wire.JobPath(1), wire.MonitorInterface: wire.MonitorPath(1),
				wire.EnrolmentInterface: wire.RootPath, wire.WorkloadsInterface: wire.RootPath,
			}[name]
			in := api.Signature(m.In)
			args, ok := samples[in]
			if !ok {
				t.Fatalf("no sample of type %q", in)
			}
			if name == wire.ManagerInterface && m.Name == "SetLogLevel" {
				args = peer.MustEncode("Debug")
			}
			answer, err := conn.Call(w.ctx(), peer.Call{
				Destination: wire.BusName, Path: path, Interface: name, Member: m.Name, Body: args,
			})
			if err != nil {
				t.Errorf("%s.%s: %v", name, m.Name, err)
				continue
			}
			if want := api.Signature(m.Out); answer.Body.Sig != want {
				t.Errorf("%s.%s answered %q, want %q", name, m.Name, answer.Body.Sig, want)
			}
		}
	}
	if level := w.daemon.LogLevel(); level != "DEBUG" {
		t.Errorf("the log level is %s", level)
	}
	wait(t, w.daemon.shutdown)
	w.do(func() {
		want := []string{"Subscribe web.service", "Subscribe node1", "Unsubscribe", "AddPeer node1", "RemovePeer enough", "Close"}
		var got []string
		for _, call := range w.core.calls {
			if slices.Contains(want, call) {
				got = append(got, call)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the core heard %v of monitors, want %v", got, want)
		}
		if n := len(w.core.calls) - len(want); n != len(wire.NodeMethods)-8 {
			t.Errorf("the core was asked %d times to call the node: %v", n, w.core.calls)
		}
	})
}

// TestEverySignal makes everything happen and holds what is sent against the XML: all its
// signals, and no others.
func TestEverySignal(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	seen := make(map[string]wire.Signature)
	last := make(chan bool, 1)
	conn := w.raw(func(m *peer.Message) {
		mu.Lock()
		defer mu.Unlock()
		if m.Type == peer.TypeSignal && m.Interface != wire.DBusInterface {
			seen[m.Interface+"."+m.Member] = m.Body.Sig
		}
		if m.Member == "PeerRemoved" {
			last <- true
		}
	})
	if err := conn.AddMatch(w.ctx(), fmt.Sprintf("type='signal',sender='%s'", wire.BusName)); err != nil {
		t.Fatal(err)
	}
	to := []manager.Audience{{Monitor: 1, To: []string{conn.UniqueName()}}}
	w.do(func() {
		e := w.core.events
		j := manager.JobInfo{ID: 1, Node: "node1", Unit: "web.service", Type: "start", State: wire.JobRunning}
		e.JobNew(j)
		e.JobState(j)
		e.JobRemoved(j, wire.ResultDone)
		e.NodeChanged(online("node1"))
		e.StatusChanged(wire.StatusUp)
		e.FleetChanged([]manager.NodeInfo{online("new")}, []manager.NodeInfo{online("old")})
		e.UnitEvent(manager.UnitEvent{Kind: manager.UnitNew}, to)
		e.UnitEvent(manager.UnitEvent{Kind: manager.UnitRemoved}, to)
		e.UnitEvent(manager.UnitEvent{Kind: manager.UnitStateChanged}, to)
		e.UnitEvent(manager.UnitEvent{Kind: manager.UnitPropertiesChanged, Properties: samples["a{sv}"]}, to)
		e.MetricsChanged(true)
		e.StartJobMetrics(j, time.Second, time.Millisecond)
		e.AgentJobMetrics("node1", "web.service", "StartUnit", time.Second)
		e.MetricsChanged(false)
		o := workload.OperationInfo{ID: 7, Workload: "web", Verb: "apply", Nodes: []string{"node1"}}
		w.api.OperationNew(o)
		w.api.NodeProgress(7, "node1", bundle.Event{Step: 1, Steps: 2, Change: &bundle.Change{What: "write", Name: "web.service"}})
		w.api.NodeResult(o, workload.NodeResult{Node: "node1", Result: bundle.Result{Outcome: bundle.Created}})
		w.api.OperationRemoved(o, wire.ResultDone)
		e.MonitorRemoved(1)
		e.PeerRemoved(1, conn.UniqueName(), "enough")
	})
	wait(t, last)
	mu.Lock()
	defer mu.Unlock()
	for _, name := range api.Names() {
		for _, s := range api.Load(name).Signals {
			if name != wire.ManagerInterface && name != wire.NodeInterface && name != wire.JobInterface && name != wire.MonitorInterface && name != wire.MetricsInterface && name != wire.WorkloadsInterface {
				continue
			}
			full := name + "." + s.Name
			if got, ok := seen[full]; !ok || got != api.Signature(s.Args) {
				t.Errorf("%s was sent with type %q (%v), want %q", full, got, ok, api.Signature(s.Args))
			}
			delete(seen, full)
		}
	}
	for full, want := range map[string]wire.Signature{
		wire.PropertiesInterface + ".PropertiesChanged":    "sa{sv}as",
		wire.ObjectManagerInterface + ".InterfacesAdded":   "oa{sa{sv}}",
		wire.ObjectManagerInterface + ".InterfacesRemoved": "oas",
	} {
		if seen[full] != want {
			t.Errorf("%s was sent with type %q, want %q", full, seen[full], want)
		}
		delete(seen, full)
	}
	if len(seen) > 0 {
		t.Errorf("signals that no XML has: %v", seen)
	}
}

// TestEveryProperty reads all properties of every kind of object, one by one and all at
// once, and holds their types against the XML.
func TestEveryProperty(t *testing.T) {
	w := newWorld(t)
	w.do(func() {
		w.core.jobs[1] = manager.JobInfo{ID: 1, Node: "node1", Unit: "web.service", Type: "stop", State: wire.JobRunning}
	})
	conn := w.raw(func(*peer.Message) {})
	for path, name := range map[wire.ObjectPath]string{
		wire.RootPath: wire.ManagerInterface, wire.NodePath("node1"): wire.NodeInterface,
		wire.NodePath("node-2"): wire.NodeInterface, wire.JobPath(1): wire.JobInterface,
	} {
		var all map[string]wire.Value
		answer, err := conn.Call(w.ctx(), peer.Call{
			Destination: wire.BusName, Path: path, Interface: wire.PropertiesInterface, Member: "GetAll", Body: peer.MustEncode(name),
		})
		if err == nil {
			err = peer.Decode(answer.Body, &all)
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		spec := api.Load(name)
		if len(all) != len(spec.Properties) {
			t.Errorf("%s has %d properties, the XML %d", path, len(all), len(spec.Properties))
		}
		for _, p := range spec.Properties {
			if all[p.Name].Sig != p.Type {
				t.Errorf("%s %s is of type %q, want %q", path, p.Name, all[p.Name].Sig, p.Type)
			}
			var v wire.Value
			answer, err := conn.Call(w.ctx(), peer.Call{
				Destination: wire.BusName, Path: path, Interface: wire.PropertiesInterface, Member: "Get", Body: peer.MustEncode(name, p.Name),
			})
			if err == nil {
				err = peer.Decode(answer.Body, &v)
			}
			if err != nil || v.Sig != p.Type || string(v.Data) != string(all[p.Name].Data) {
				t.Errorf("%s %s alone is %+v (%v), among all %+v", path, p.Name, v, err, all[p.Name])
			}
		}
	}
}
