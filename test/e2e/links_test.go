package e2e

import (
	"testing"
	"time"

	"example.org/ctrl/internal/clustertest"
	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

// Over a road that is long, loses frames and is narrow everything works, only later, and no
// heartbeat is missed: thresholds are the default ones.
func TestBadLink(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}})
	n := f.Nodes["node1"]
	session := on(t, f.Boss, "journalctl", "-q", "-o", "cat", "-u", "ctrl-manager", "-g", "node is online node=node1")
	const delay = 100 * time.Millisecond
	do(t, n.Shape(within(t), lab.Link{Delay: delay, Jitter: 20 * time.Millisecond, Loss: 0.01, Rate: 50_000}))
	began := time.Now()
	must(t, f, 0, nil, "start", "node1", "run")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("a start took %v: the link is not as bad as it should be", took)
	}
	must(t, f, 0, []string{"node1  dbus.socket", "node2  dbus.socket"}, "list-units", "*", "dbus.socket")
	must(t, f, 0, nil, "stop", "node1", "run")
	if got := on(t, f.Boss, "journalctl", "-q", "-o", "cat", "-u", "ctrl-manager", "-g", "node is online node=node1"); got != session {
		t.Errorf("the session was lost:\n%s", got)
	}
	do(t, n.Shape(within(t), lab.Link{}))
}

// A machine that is paused, as virtual machines are, accepts and acknowledges and says nothing.
func TestPausedMachine(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	must(t, f, 0, nil, "start", "node1", "run")
	before := on(t, n, "systemctl", "show", "-P", "InvocationID", "run.service")
	do(t, n.Pause(within(t)))
	do(t, f.WaitOnline(within(t), "node1", false))
	must(t, f, 6, []string{"node1", "offline"}, "start", "node1", "ok")
	must(t, f, 0, nil, "start", "node2", "ok")
	do(t, n.Resume())
	do(t, f.WaitOnline(within(t), "node1", true))
	must(t, f, 0, nil, "start", "node1", "ok")
	if after := on(t, n, "systemctl", "show", "-P", "InvocationID", "run.service"); after != before {
		t.Error("the pause has changed a unit")
	}
}

// Power fails on a node while a job runs there; the node comes back without it.
func TestPowerFailure(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	on(t, n, "systemctl", "enable", "ctrl-agent")
	waiting := begin(t, f, "start", "node1", "slow")
	await(t, n, "slow.service", "activating")
	do(t, n.Kill(within(t)))
	waiting.ends(t, 6, "node1", "offline")
	must(t, f, 0, nil, "list-jobs")
	do(t, n.Boot(within(t)))
	do(t, f.WaitOnline(within(t), "node1", true))
	if got := active(t, n, "slow.service"); got != "inactive" {
		t.Errorf("after the boot the unit is %s", got)
	}
	if jobs := must(t, f, 0, nil, "list-jobs", "--no-legend").Stdout; jobs != "" {
		t.Errorf("jobs outlived the power: %s", jobs)
	}
	must(t, f, 0, nil, "start", "node1", "fast")
}

// The manager's machine loses its power and boots again; agents come back by themselves.
func TestManagerPowerFailure(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	on(t, f.Boss, "systemctl", "enable", "ctrl-manager")
	must(t, f, 0, nil, "start", "node1", "run")
	before := on(t, n, "systemctl", "show", "-P", "InvocationID", "run.service")
	do(t, f.Boss.Kill(within(t)))
	do(t, f.Boss.Boot(within(t)))
	for name := range f.Nodes {
		do(t, f.WaitOnline(within(t), name, true))
	}
	if after := on(t, n, "systemctl", "show", "-P", "InvocationID", "run.service"); after != before {
		t.Error("the manager's power failure has changed a unit")
	}
	must(t, f, 0, nil, "stop", "node1", "run")
}

// A node reboots in order, as an administrator does it: the manager sees it go at once, with
// no threshold in between, and come back.
func TestReboot(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1"}, Manager: "NodeHeartbeatThreshold=1h\n"})
	n := f.Nodes["node1"]
	on(t, n, "systemctl", "enable", "ctrl-agent")
	t.Run(clustertest.AgentRestart, func(t *testing.T) {
		on(t, n, "systemctl", "--no-block", "poweroff")
		do(t, n.Wait(within(t)))
		do(t, f.WaitOnline(within(t), "node1", false))
		do(t, n.Boot(within(t)))
		do(t, f.WaitOnline(within(t), "node1", true))
		must(t, f, 0, nil, "start", "node1", "fast")
	})
}
