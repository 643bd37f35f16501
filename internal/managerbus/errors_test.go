package managerbus

import (
	"errors"
	"strings"
	"testing"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// TestErrors: each wrong call has the standard error, and the text says what was got and
// what was wanted.
func TestErrors(t *testing.T) {
	w := newWorld(t)
	w.do(func() {
		w.core.start = func(req manager.JobRequest, reply func(uint32, error)) {
			switch {
			case req.Node == "gone":
				reply(0, wire.ErrNoSuchNode.With("node %q is not in the fleet", req.Node))
			case req.Unit == "offline.service":
				reply(0, wire.ErrNodeOffline.With("node %q is offline; last seen yesterday", req.Node))
			default:
				reply(0, &wire.Error{Name: wire.ErrSystemdNoSuchUnit.Name, Text: "Unit x.service not found."})
			}
		}
		w.core.call = func(node, method string, _ wire.Raw, reply func(wire.Raw, error)) {
			if node == "gone" {
				reply(wire.Raw{}, wire.ErrNoSuchNode.With("node %q is not in the fleet", node))
				return
			}
			reply(peer.MustEncode(uint32(1)), nil) // of a type that no method promises
		}
	})
	conn := w.raw(func(*peer.Message) {})
	node := wire.NodePath("node1")
	ss := samples["ss"]
	for _, test := range []struct {
		path   wire.ObjectPath
		iface  string
		member string
		args   wire.Raw
		kind   *wire.Error
		text   string
	}{
		{"/", wire.ManagerInterface, "ListNodes", wire.Raw{}, wire.ErrUnknownInterface, "it has " + wire.PeerInterface},
		{"/nowhere", wire.ManagerInterface, "ListNodes", wire.Raw{}, wire.ErrUnknownObject, "/nowhere"},
		{"/nowhere", "", "ListNodes", wire.Raw{}, wire.ErrUnknownObject, string(wire.RootPath)},
		{"/nowhere", wire.IntrospectableInterface, "Introspect", wire.Raw{}, wire.ErrUnknownObject, "/nowhere"},
		{nodesPath, wire.NodeInterface, "StartUnit", ss, wire.ErrUnknownInterface, wire.NodeInterface},
		{wire.NodePath("gone"), wire.NodeInterface, "StartUnit", ss, wire.ErrUnknownObject, `"gone" is not in the fleet`},
		{wire.NodePath("gone"), wire.NodeInterface, "Reload", wire.Raw{}, wire.ErrUnknownObject, `"gone" is not in the fleet`},
		{wire.NodePath("gone"), wire.NodeInterface, "StartUnit", wire.Raw{}, wire.ErrUnknownObject, `"gone" is not in the fleet`},
		{wire.NodePath("gone"), "no.such", "StartUnit", ss, wire.ErrUnknownObject, `"gone" is not in the fleet`},
		{wire.NodePath("gone"), wire.PropertiesInterface, "GetAll", peer.MustEncode(""), wire.ErrUnknownObject, `"gone" is not in the fleet`},
		{wire.NodePath("gone"), wire.IntrospectableInterface, "Introspect", wire.Raw{}, wire.ErrUnknownObject, `"gone" is not in the fleet`},
		{wire.RootPath + "/node/node_2D2", wire.NodeInterface, "Reload", wire.Raw{}, wire.ErrUnknownObject, "node_2D2"},
		{wire.JobPath(9), wire.JobInterface, "Cancel", wire.Raw{}, wire.ErrUnknownObject, "it may have ended"},
		{wire.JobPath(9), wire.PropertiesInterface, "Get", peer.MustEncode(wire.JobInterface, "State"), wire.ErrUnknownObject, "it may have ended"},
		{wire.MonitorPath(9), wire.MonitorInterface, "Close", wire.Raw{}, wire.ErrUnknownObject, "no monitor 9"},
		{wire.MonitorPath(9), wire.MonitorInterface, "Subscribe", ss, wire.ErrUnknownObject, "no monitor 9"},
		{wire.MonitorPath(9), wire.IntrospectableInterface, "Introspect", wire.Raw{}, wire.ErrUnknownObject, "no monitor 9"},
		{node, "no.such.Interface", "StartUnit", ss, wire.ErrUnknownInterface, `"no.such.Interface"; it has ` + wire.NodeInterface},
		{node, wire.NodeInterface, "Fly", wire.Raw{}, wire.ErrUnknownMethod, `"Fly"`},
		{node, "", "Fly", wire.Raw{}, wire.ErrUnknownMethod, wire.NodeInterface},
		{node, wire.NodeInterface, "StartUnit", wire.Raw{}, wire.ErrInvalidArgs, `StartUnit takes arguments of type "ss" (name, mode), not arguments of type ""`},
		{node, wire.NodeInterface, "Reload", ss, wire.ErrInvalidArgs, `Reload takes no arguments, not arguments of type "ss"`},
		{node, "", "StartUnit", samples["ss"], wire.ErrSystemdNoSuchUnit, "Unit x.service not found."},
		{node, wire.NodeInterface, "StartUnit", peer.MustEncode("offline.service", "replace"), wire.ErrNodeOffline, "last seen yesterday"},
		{node, wire.NodeInterface, "GetDefaultTarget", wire.Raw{}, wire.ErrFailed, `of type "u" instead of "s"`},
		{node, wire.PropertiesInterface, "Get", peer.MustEncode("no.such", "Name"), wire.ErrUnknownInterface, `"no.such"; it has`},
		{node, wire.PropertiesInterface, "Get", peer.MustEncode(wire.NodeInterface, "Nome"), wire.ErrUnknownProperty, `"Nome"`},
		{node, wire.PropertiesInterface, "GetAll", peer.MustEncode("no.such"), wire.ErrUnknownInterface, `"no.such"`},
		{node, wire.PropertiesInterface, "Set", peer.MustEncode(wire.NodeInterface, "Name", peer.MustValue("x")), wire.ErrPropertyReadOnly, "Name"},
		{node, wire.PropertiesInterface, "Set", peer.MustEncode(wire.NodeInterface, "Nome", peer.MustValue("x")), wire.ErrUnknownProperty, `"Nome"`},
		{node, wire.PropertiesInterface, "Set", peer.MustEncode("no.such", "Name", peer.MustValue("x")), wire.ErrUnknownInterface, "no.such"},
		{node, wire.ObjectManagerInterface, "GetManagedObjects", wire.Raw{}, wire.ErrUnknownInterface, "ObjectManager"},
		{wire.RootPath, wire.ManagerInterface, "GetNode", peer.MustEncode("gone"), wire.ErrNoSuchNode, "gone"},
		{wire.RootPath, wire.ManagerInterface, "GetJob", peer.MustEncode(uint32(9)), wire.ErrNoSuchJob, "9"},
		{wire.RootPath, wire.ManagerInterface, "CancelJob", peer.MustEncode(uint32(9)), wire.ErrNoSuchJob, "9"},
		{wire.RootPath, wire.ManagerInterface, "SetLogLevel", peer.MustEncode("loud"), wire.ErrInvalidArgs, `"loud" is not known; use one of debug`},
	} {
		_, err := conn.Call(w.ctx(), peer.Call{
			Destination: wire.BusName, Path: test.path, Interface: test.iface, Member: test.member, Body: test.args,
		})
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s on %s %q: error %+v, want %s with %q", test.member, test.path, test.iface, err, test.kind.Name, test.text)
		}
	}
}

// TestWithoutInterface: a call may leave the interface out.
func TestWithoutInterface(t *testing.T) {
	w := newWorld(t)
	conn := w.raw(func(*peer.Message) {})
	for member, path := range map[string]wire.ObjectPath{
		"ListNodes": wire.RootPath, "GetManagedObjects": wire.RootPath, "Introspect": wire.NodePath("node1"),
		"Ping": "/nowhere", "GetMachineId": wire.RootPath,
	} {
		if _, err := conn.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: path, Member: member}); err != nil {
			t.Errorf("%s on %s: %v", member, path, err)
		}
	}
	var all map[string]wire.Value
	answer, err := conn.Call(w.ctx(), peer.Call{
		Destination: wire.BusName, Path: wire.NodePath("node-2"), Member: "GetAll", Body: peer.MustEncode(""),
	})
	if err == nil {
		err = peer.Decode(answer.Body, &all)
	}
	var seen uint64
	if err == nil {
		err = peer.DecodeValue(all["LastSeenTimestamp"], &seen)
	}
	if err != nil || seen != 1234567 {
		t.Errorf("all properties of an offline node are %v, %v", all, err)
	}
}
