package e2e

import (
	"regexp"
	"strconv"
	"testing"
)

// TestExposure prints what systemd thinks of the daemons' sandboxes and holds it against what
// docs/security.md promises.
func TestExposure(t *testing.T) {
	f := common(t)
	for unit, most := range map[string]float64{"ctrl-manager.service": 1.5, "ctrl-agent.service": 2} {
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
