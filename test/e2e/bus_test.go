package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/clustertest"
	"example.org/ctrl/test/fleet"
)

// What a script sees that uses nothing but busctl.

func busctl(t *testing.T, f *fleet.Fleet, args ...string) string {
	t.Helper()
	return on(t, f.Boss, append([]string{"busctl"}, args...)...)
}

const (
	busName = "org.example.ctrl1"
	busRoot = "/org/example/ctrl1"
	node1   = busRoot + "/node/node1"
)

func TestBusctlIntrospectsWhatTheContractSays(t *testing.T) {
	f := common(t)
	for path, want := range map[string][]string{
		busRoot: {".ListUnits", ".ListNodes", ".GetJob", ".JobRemoved", ".Status", "org.freedesktop.DBus.ObjectManager"},
		node1:   {".StartUnit", ".KillUnit", ".GetUnitProperties", ".LastSeenTimestamp", ".Facts"},
	} {
		out := busctl(t, f, "introspect", busName, path)
		for _, member := range want {
			if !strings.Contains(out, member) {
				t.Errorf("%s has no %s:\n%s", path, member, out)
			}
		}
	}
	// The served XML is the repository's, byte for byte where it counts: each interface is
	// found in it.
	xml := busctl(t, f, "introspect", "--xml-interface", busName, node1)
	contract, err := os.ReadFile(filepath.Join("../../api/dbus-xml", busName+".Node.xml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(contract)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "<method") && !strings.Contains(xml, line) {
			t.Errorf("the served XML has no %s", line)
		}
	}
	if out := busctl(t, f, "call", busName, busRoot, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects"); !strings.Contains(out, node1) || !strings.Contains(out, "MachineID") {
		t.Errorf("managed objects: %s", out)
	}
	if out := busctl(t, f, "call", busName, busRoot, busName+".Manager", "GetNode", "s", "node1"); out != `o "`+node1+`"` {
		t.Errorf("GetNode: %s", out)
	}
}

// message is one line of busctl monitor --json=short.
type message struct {
	Type, Member, Path string
	Payload            struct{ Data []any }
}

func TestBusctlSeesJobsInOrder(t *testing.T) {
	f := common(t)
	cmd := f.Boss.Command(within(t), "busctl", "monitor", "--json=short", busName)
	out, err := cmd.StdoutPipe()
	do(t, err)
	notes, err := cmd.StderrPipe()
	do(t, err)
	do(t, cmd.Start())
	defer cmd.Process.Kill()
	if line, err := bufio.NewReader(notes).ReadString('\n'); err != nil || !strings.Contains(line, "Monitoring") {
		t.Fatalf("busctl monitor says %q, %v", line, err)
	}
	t.Run(clustertest.FastOneshot, func(t *testing.T) {
		job := busctl(t, f, "call", busName, node1, busName+".Node", "StartUnit", "ss", "fast.service", "replace")
		path := strings.Trim(strings.TrimPrefix(job, "o "), `"`)
		var order []string
		decoder := json.NewDecoder(out)
		for !slices.Contains(order, "JobRemoved") {
			var m message
			do(t, decoder.Decode(&m))
			data, _ := json.Marshal(m.Payload.Data)
			switch {
			case m.Member == "JobNew" && strings.Contains(string(data), path):
				order = append(order, "JobNew")
			case m.Type == "method_return" && strings.Contains(string(data), path):
				order = append(order, "reply")
			case m.Member == "JobRemoved" && strings.Contains(string(data), path):
				order = append(order, "JobRemoved")
				if !strings.Contains(string(data), `"node1","fast.service","done"`) {
					t.Errorf("JobRemoved says %s", data)
				}
			}
		}
		if !slices.Equal(order, []string{"JobNew", "reply", "JobRemoved"}) {
			t.Errorf("the order is %v", order)
		}
	})
}

func TestErrorsOnTheBus(t *testing.T) {
	f := common(t)
	tests := []struct {
		args []string
		want string
	}{
		{[]string{busRoot, busName + ".Manager", "GetNode", "s", "nobody"}, "nobody"},
		{[]string{node1, busName + ".Node", "StartUnit", "ss", "ok.service", "sideways"}, "job mode"},
		{[]string{node1, busName + ".Node", "StartUnit", "ss", "none.service", "replace"}, "Unit none.service not found."},
		{[]string{node1, busName + ".Node", "StartUnit", "s", "ok.service"}, "ss"},
		{[]string{node1, busName + ".Node", "Nonsense"}, "Nonsense"},
		{[]string{busRoot + "/node/nobody", busName + ".Node", "Reload"}, "nobody"},
		{[]string{busRoot + "/job/77", busName + ".Job", "Cancel"}, "77"},
		{[]string{node1, busName + ".Node", "StartUnit", "ss", "", "replace"}, "empty"},
		{[]string{node1, busName + ".Node", "StartUnit", "ss", "a/b.service", "replace"}, "contains"},
	}
	for _, tt := range tests {
		r, err := f.Boss.Exec(within(t), append([]string{"busctl", "call", busName}, tt.args...)...)
		do(t, err)
		if r.Code == 0 || !strings.Contains(r.Stderr, tt.want) {
			t.Errorf("%v: exit %d, %s; want a text with %q", tt.args, r.Code, r.Stderr, tt.want)
		}
	}
}

// A client in Python, with another D-Bus library underneath.
func TestPythonClient(t *testing.T) {
	f := common(t)
	script := `import dbus
bus = dbus.SystemBus()
root = bus.get_object("org.example.ctrl1", "/org/example/ctrl1")
manager = dbus.Interface(root, "org.example.ctrl1.Manager")
node = dbus.Interface(bus.get_object("org.example.ctrl1", manager.GetNode("node2")), "org.example.ctrl1.Node")
print(node.StartUnit("ok.service", "replace"))
while manager.ListJobs():
    pass
units = manager.ListUnitsFiltered(["node2"], ["active"], ["ok.service"])
print(list(units), [str(u[0]) for u in units["node2"]])
print(node.GetUnitProperty("ok.service", "org.freedesktop.systemd1.Unit", "ActiveState"))
try:
    node.StartUnit("none.service", "replace")
except dbus.DBusException as e:
    print(e.get_dbus_name())
node.StopUnit("ok.service", "replace")
`
	do(t, f.Boss.WriteFile("/root/client.py", []byte(script), 0o644))
	out := on(t, f.Boss, "/usr/bin/python3", "/root/client.py")
	for _, want := range []string{busRoot + "/job/", "node2", "'ok.service'", "active", "org.freedesktop.systemd1.NoSuchUnit"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
}
