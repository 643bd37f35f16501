package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/clustertest"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// What other tools of this kind are known to get wrong, on real systemd. Those of jobs, lists
// and reconnects stand with their subjects in the other files.
func TestKnownDefectsOfOthers(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	t.Run(clustertest.ResetConnections, func(t *testing.T) {
		out := on(t, f.Nodes["node2"], "/usr/bin/python3", "-c", `
import socket, struct, sys
done = 0
for i in range(300):
    s = socket.create_connection((sys.argv[1], 842))
    if i % 2: s.sendall(b"\\x16\\x03\\x01\\x02\\x00")
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close(); done += 1
print(done)`, fleet.Boss)
		if out != "300" {
			t.Fatalf("%s connections", out)
		}
		on(t, n, "systemctl", "restart", "ctrl-agent")
		do(t, f.WaitOnline(within(t), "node1", true))
		must(t, f, 0, nil, "start", "node1", "fast")
		if left := on(t, f.Boss, "sh", "-c", "ss -Htn state close-wait '( sport = :842 )' | wc -l"); left != "0" {
			t.Errorf("%s sockets are left in CLOSE_WAIT", left)
		}
	})
	t.Run(clustertest.CallsInFlight, func(t *testing.T) {
		bus, err := fleet.Bus(within(t), f.Boss)
		do(t, err)
		defer bus.Close()
		do(t, n.Signal(within(t), "ctrl-agent", "SIGSTOP"))
		node := bus.Object(wire.BusName, dbus.ObjectPath(wire.NodePath("node1")))
		// The session ends at its threshold, long before the 30 s of a call.
		err = node.CallWithContext(within(t), wire.NodeInterface+".GetUnitFileState", 0, "ok.service").Err
		do(t, n.Signal(within(t), "ctrl-agent", "SIGCONT"))
		if e, ok := err.(dbus.Error); !ok || e.Name != wire.ErrNodeOffline.Name {
			t.Errorf("the caller was told %v", err)
		}
		do(t, f.WaitOnline(within(t), "node1", true))
	})
	t.Run(clustertest.MetricsOfHungNode, func(t *testing.T) {
		busctl(t, f, "call", busName, busRoot, busName+".Manager", "EnableMetrics")
		do(t, n.Signal(within(t), "ctrl-agent", "SIGSTOP"))
		must(t, f, 0, nil, "start", "node2", "fast")
		must(t, f, 0, []string{"node2"}, "list-nodes")
		do(t, n.Signal(within(t), "ctrl-agent", "SIGCONT"))
		do(t, f.WaitOnline(within(t), "node1", true))
		busctl(t, f, "call", busName, busRoot, busName+".Manager", "DisableMetrics")
	})
	t.Run("wrong-log-level", func(t *testing.T) {
		for _, path := range []struct{ object, iface string }{{busRoot, ".Manager"}, {node1, ".Node"}} {
			r, err := f.Boss.Exec(within(t), "busctl", "call", busName, path.object, busName+path.iface, "SetLogLevel", "s", "loud")
			if do(t, err); r.Code == 0 || !strings.Contains(r.Stderr, "loud") {
				t.Errorf("%s: %+v", path.object, r)
			}
		}
	})
	t.Run(clustertest.UnpluggedUnderLoad, func(t *testing.T) {
		for range 20 { // each is a write that nobody will acknowledge
			must(t, f, 0, nil, "start", "--no-wait", "node1", "slow")
			must(t, f, 0, nil, "stop", "--no-wait", "node1", "slow")
		}
		do(t, f.Boss.Cut(within(t)))
		began := time.Now()
		for on(t, n, "busctl", "get-property", wire.AgentBusName, busRoot, wire.AgentInterface, "Status") != `s "offline"` {
			if time.Since(began) > limit {
				t.Fatal("the agent does not notice that the manager's machine is unplugged")
			}
		}
		do(t, f.Boss.Heal(within(t)))
		do(t, f.WaitOnline(within(t), "node1", true))
	})
}
