package e2e

import (
	"regexp"
	"strconv"
	"testing"

	"example.org/ctrl/test/fleet"
)

// TestExposure prints what systemd thinks of the daemons' sandboxes and holds it against what
// docs/security.md promises.
func TestExposure(t *testing.T) {
	f := common(t)
	for unit, most := range map[string]float64{"ctrl-manager.service": 1.5, "ctrl-agent.service": 2.2} {
		n := f.Boss
		if unit == "ctrl-agent.service" {
			n = f.Nodes["node1"]
		}
		out := on(t, n, "systemd-analyze", "security", "--no-pager", unit)
		found := regexp.MustCompile(`Overall exposure level for \S+ ([0-9.]+)`).FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("%s: no figure in\n%s", unit, out)
		}
		t.Logf("%s: %s\n%s", unit, found[0], regexp.MustCompile(`(?m)^✗.*$`).FindAllString(out, -1))
		if level, err := strconv.ParseFloat(found[1], 64); err != nil || level > most {
			t.Errorf("%s: exposure %s is more than %g", unit, found[1], most)
		}
	}
}

// portOfSystemd: with the socket unit the manager needs no capability, and nodes find it.
func portOfSystemd(t *testing.T, f *fleet.Fleet) {
	do(t, f.Boss.WriteFile("/etc/systemd/system/ctrl-manager.service.d/socket.conf",
		[]byte("[Service]\nAmbientCapabilities=\nCapabilityBoundingSet=\n"), 0o644))
	on(t, f.Boss, "sh", "-ec", "systemctl daemon-reload; systemctl stop ctrl-manager; systemctl enable --now ctrl-manager.socket; systemctl start ctrl-manager")
	for name := range f.Nodes {
		do(t, f.WaitOnline(within(t), name, true))
	}
	pid, err := f.Boss.MainPID(within(t), "ctrl-manager.service")
	do(t, err)
	status := on(t, f.Boss, "grep", "Cap", "/proc/"+strconv.Itoa(pid)+"/status")
	if !regexp.MustCompile(`^(Cap\w+:\s+0+\s*)+$`).MatchString(status) {
		t.Errorf("the manager has capabilities:\n%s", status)
	}
}
