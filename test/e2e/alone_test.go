package e2e

import (
	"strings"
	"testing"

	"example.org/ctrl/test/fleet"
)

// What a node does on its own when the manager is away for long.
func TestManagerAwayForLong(t *testing.T) {
	f := up(t, fleet.Options{
		Nodes: []string{"node1", "node2"}, Manager: quickManager,
		Agent: quickAgent + "OnDisconnectUnit=ok.service\nOnDisconnectUnitAfter=500ms\n",
	})
	n := f.Nodes["node1"]
	on(t, f.Nodes["node2"], "sed", "-i", "s/^OnDisconnectUnit.*//; $ a ExitOnDisconnect=500ms", "/etc/ctrl/agent.conf")
	do(t, f.Nodes["node2"].WriteFile("/etc/systemd/system/bound.service", []byte(
		"[Unit]\nBindsTo=ctrl-agent.service\nAfter=ctrl-agent.service\n[Service]\nExecStart=/bin/sleep infinity\n"), 0o644))
	on(t, f.Nodes["node2"], "systemctl", "daemon-reload")
	on(t, f.Nodes["node2"], "systemctl", "restart", "ctrl-agent")
	do(t, f.WaitAgent(within(t), "node2"))
	on(t, f.Nodes["node2"], "systemctl", "start", "bound")
	if got := active(t, n, "ok.service"); got != "inactive" {
		t.Fatalf("with a manager the unit is %s", got)
	}
	do(t, f.Boss.Cut(within(t)))
	await(t, n, "ok.service", "active")
	await(t, f.Nodes["node2"], "bound.service", "inactive")
	if log := f.Nodes["node2"].Journal(within(t), "ctrl-agent"); !strings.Contains(log, "ExitOnDisconnect=") {
		t.Errorf("the log does not say why the agent has ended: %s", log)
	}
	do(t, f.Boss.Heal(within(t)))
	do(t, f.WaitAgent(within(t), "node1"))
	if got := active(t, n, "ok.service"); got != "active" {
		t.Errorf("the manager's return has changed the unit: %s", got)
	}
}
