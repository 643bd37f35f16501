package managerbus

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

// run runs a program against the test's bus.
func (w *world) run(name string, args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx(), name, args...)
	cmd.Env = append(os.Environ(), "DBUS_SESSION_BUS_ADDRESS="+w.bus.Address)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

func (w *world) busctl(args ...string) string {
	w.t.Helper()
	return w.run("busctl", append([]string{"--address=" + w.bus.Address}, args...)...)
}

func expect(t *testing.T, what, text string, want ...string) {
	t.Helper()
	for _, s := range want {
		if !strings.Contains(text, s) {
			t.Errorf("%s lacks %q:\n%s", what, s, text)
		}
	}
}

func TestBusctl(t *testing.T) {
	w := newWorld(t)
	w.do(func() { w.core.lastJob = 6 })
	node := string(wire.NodePath("node1"))
	expect(t, "StartUnit", w.busctl("call", wire.BusName, node, wire.NodeInterface, "StartUnit", "ss", "foo.service", "replace"),
		`o "/org/example/ctrl1/job/7"`)
	expect(t, "tree", w.busctl("tree", "--list", wire.BusName),
		"/org/example/ctrl1\n", node+"\n", "/org/example/ctrl1/node/node_2d2\n", "/org/example/ctrl1/job/7\n")
	expect(t, "introspect", w.busctl("introspect", wire.BusName, node),
		wire.NodeInterface, ".StartUnit ", ".EnableUnitFiles ", wire.PropertiesInterface, ".Status ", `"online"`, "emits-change")
	expect(t, "introspect", w.busctl("introspect", wire.BusName, string(wire.RootPath)),
		wire.ManagerInterface, wire.ObjectManagerInterface, ".JobRemoved ", `"1.2.3"`, "const")
	expect(t, "get-property", w.busctl("get-property", wire.BusName, string(wire.NodePath("node-2")), wire.NodeInterface, "Name", "Status", "LastSeenTimestamp"),
		"s \"node-2\"\ns \"offline\"\nt 1234567\n")
	expect(t, "GetManagedObjects", w.busctl("call", wire.BusName, string(wire.RootPath), wire.ObjectManagerInterface, "GetManagedObjects"),
		"a{oa{sa{sv}}} 3 ", `"JobType" s "start"`, `"DisconnectReason" s "cut"`)
	expect(t, "ListJobs", w.busctl("call", wire.BusName, string(wire.RootPath), wire.ManagerInterface, "ListJobs"),
		`a(usssso) 1 7 "node1" "foo.service" "start" "waiting" "/org/example/ctrl1/job/7"`)
}

// python drives the API as a script does: the job is asked for, its signals come in order,
// and errors have their names.
const python = `
import dbus, sys
from dbus.mainloop.glib import DBusGMainLoop
from gi.repository import GLib
DBusGMainLoop(set_as_default=True)
name, root = sys.argv[1], sys.argv[2]
bus = dbus.bus.BusConnection(sys.argv[3])
manager = dbus.Interface(bus.get_object(name, root), name + ".Manager")
loop, seen = GLib.MainLoop(), []
def note(kind):
    def handler(*args):
        seen.append(kind)
        print(kind, *args)
        if "removed" in seen and "reply" in seen:
            loop.quit()
    return handler
manager.connect_to_signal("JobNew", note("new"))
manager.connect_to_signal("JobRemoved", note("removed"))
path = manager.GetNode("node1")
proxy = bus.get_object(name, path)
node = dbus.Interface(proxy, name + ".Node")
print("status", dbus.Interface(proxy, "org.freedesktop.DBus.Properties").Get(name + ".Node", "Status"))
node.StartUnit("foo.service", "replace", reply_handler=note("reply"), error_handler=note("error"))
GLib.timeout_add_seconds(30, loop.quit)
loop.run()
objects = dbus.Interface(bus.get_object(name, root), "org.freedesktop.DBus.ObjectManager").GetManagedObjects()
print("objects", sorted(str(p) for p in objects))
try:
    manager.GetNode("nowhere")
except dbus.DBusException as e:
    print("error", e.get_dbus_name())
`

func TestPython(t *testing.T) {
	w := newWorld(t)
	w.do(func() {
		w.core.start = func(req manager.JobRequest, reply func(uint32, error)) {
			j := manager.JobInfo{ID: 3, Node: req.Node, Unit: req.Unit, Type: req.Verb.String(), State: wire.JobRunning}
			w.core.events.JobNew(j)
			reply(j.ID, nil)
			w.core.events.JobRemoved(j, wire.ResultDone)
		}
	})
	script := filepath.Join(t.TempDir(), "client.py")
	if err := os.WriteFile(script, []byte(python), 0o600); err != nil {
		t.Fatal(err)
	}
	out := w.run("/usr/bin/python3", script, wire.BusName, string(wire.RootPath), w.bus.Address)
	want := `status online
new 3 /org/example/ctrl1/job/3
reply /org/example/ctrl1/job/3
removed 3 /org/example/ctrl1/job/3 node1 foo.service done
objects ['/org/example/ctrl1/node/node1', '/org/example/ctrl1/node/node_2d2']
error org.example.ctrl1.Error.NoSuchNode
`
	if out != want {
		t.Errorf("the script says\n%s\nwant\n%s", out, want)
	}
}

// TestIntrospection: the XML is served as it is, and leads to every object.
func TestIntrospection(t *testing.T) {
	w := newWorld(t)
	w.do(func() { w.core.jobs[4], w.core.monitors[2] = manager.JobInfo{ID: 4}, ":1.99" })
	conn := w.client()
	for path, test := range map[string]struct {
		interfaces string
		children   string
	}{
		"/":                          {"", "org"},
		"/org/example":               {"", "ctrl1"},
		string(wire.RootPath):        {wire.ManagerInterface, "node job monitor"},
		string(nodesPath):            {"", "node1 node_2d2"},
		string(jobsPath):             {"", "4"},
		string(monitorsPath):         {"", "2"},
		string(nodesPath) + "/node1": {wire.NodeInterface, ""},
		string(jobsPath) + "/4":      {wire.JobInterface, ""},
		string(monitorsPath) + "/2":  {wire.MonitorInterface, ""},
	} {
		var text string
		err := conn.Object(wire.BusName, dbus.ObjectPath(path)).Call(wire.IntrospectableInterface+".Introspect", 0).Store(&text)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if test.interfaces != "" && !strings.Contains(text, api.Load(test.interfaces).XML) {
			t.Errorf("%s does not serve the XML of %s as it is:\n%s", path, test.interfaces, text)
		}
		node, err := introspect.Call(conn.Object(wire.BusName, dbus.ObjectPath(path)))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		var children []string
		for _, child := range node.Children {
			children = append(children, child.Name)
		}
		if got := strings.Join(children, " "); got != test.children {
			t.Errorf("%s leads to %q, want %q", path, got, test.children)
		}
	}
}

// TestFleetChange: nodes come and go as objects.
func TestFleetChange(t *testing.T) {
	w := newWorld(t)
	conn := w.client()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	if err := conn.AddMatchSignal(dbus.WithMatchSender(wire.BusName)); err != nil {
		t.Fatal(err)
	}
	w.do(func() {
		w.core.events.FleetChanged([]manager.NodeInfo{online("new")}, []manager.NodeInfo{online("old")})
	})
	for _, want := range []string{
		wire.ObjectManagerInterface + ".InterfacesAdded /org/example/ctrl1/node/new",
		wire.ObjectManagerInterface + ".InterfacesRemoved /org/example/ctrl1/node/old",
		wire.PropertiesInterface + ".PropertiesChanged " + wire.ManagerInterface,
	} {
		s := wait(t, signals)
		for s.Path != dbus.ObjectPath(wire.RootPath) { // the bus greets a new connection
			s = wait(t, signals)
		}
		got := s.Name + " "
		switch first := s.Body[0].(type) {
		case dbus.ObjectPath:
			got += string(first)
		case string:
			got += first
			if names := s.Body[2].([]string); len(names) != 1 || names[0] != "Nodes" {
				t.Errorf("invalidated are %v", names)
			}
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
