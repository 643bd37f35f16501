package e2e

import (
	"strings"
	"testing"

	"example.org/ctrl/test/fleet"
)

// TestBundleThroughTheAgent: the agent as it is installed, within its sandbox, takes what the
// manager delivers, and only where its node says so. Its own end ends nothing.
func TestBundleThroughTheAgent(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Agent: "[policy]\nAllowApply=yes\nDenyUnits=secret-*\n"})
	n := f.Nodes["node1"]
	put := func(path, text string) { do(t, f.Boss.WriteFile(path, []byte(text), 0o644)) }
	put("/root/web/demo.service", "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")
	put("/root/web/demo.service.d/10-x.conf", "[Unit]\nDescription=from a drop-in\n")
	put("/root/web/files/etc/ctrl-files/demo/a.conf", "one\n")
	must(t, f, 0, []string{"created"}, "apply", "-f", "/root/web", "--name", "web", "--node", "node1")
	if got := active(t, n, "demo.service"); got != "active" {
		t.Fatalf("demo.service is %s", got)
	}
	seen := on(t, n, "sh", "-c", "nsenter -t $(systemctl show -P MainPID demo) -m cat /etc/ctrl-files/demo/a.conf; systemctl show -P Description demo; stat -c %a /etc/systemd/system/demo.service.d")
	if seen != "one\nfrom a drop-in\n755" {
		t.Errorf("the node has %q", seen)
	}
	invocation := on(t, n, "systemctl", "show", "-P", "InvocationID", "demo")
	must(t, f, 0, []string{"unchanged"}, "apply", "-f", "/root/web", "--name", "web", "--node", "node1")
	on(t, n, "systemctl", "restart", "ctrl-agent")
	do(t, f.WaitAgent(within(t), "node1"))
	must(t, f, 0, []string{"unchanged"}, "apply", "-f", "/root/web", "--name", "web", "--node", "node1")
	if got := on(t, n, "systemctl", "show", "-P", "InvocationID", "demo"); got != invocation {
		t.Error("the unit has restarted")
	}
	put("/root/web/wrong.service", "[Service]\nExecStart=/bin/true\nFoo=1\n")
	must(t, f, 1, []string{"wrong.service:3"}, "apply", "-f", "/root/web", "--name", "web", "--node", "node1")
	on(t, f.Boss, "rm", "/root/web/wrong.service")
	put("/root/secret/secret-a.service", "[Service]\nExecStart=/bin/true\n")
	must(t, f, 5, []string{"DenyUnits="}, "apply", "-f", "/root/secret", "--name", "secret", "--node", "node1")

	on(t, f.Nodes["node2"], "sed", "-i", "s/AllowApply=yes/AllowApply=no/", "/etc/ctrl/agent.conf")
	on(t, f.Nodes["node2"], "systemctl", "reload", "ctrl-agent")
	r := must(t, f, 5, []string{"AllowApply="}, "apply", "-f", "/root/web", "--name", "other", "--node", "node2")
	if strings.Contains(r.Stdout, "created") {
		t.Errorf("it was delivered: %s", r.Stdout)
	}
	must(t, f, 0, nil, "workload", "delete", "web")
	if left := on(t, n, "sh", "-c", "ls -d /etc/systemd/system/demo* 2>/dev/null; systemctl list-units --all --no-legend demo.service; true"); left != "" {
		t.Errorf("left: %s", left)
	}
}
