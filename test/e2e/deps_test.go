package e2e

import (
	"strings"
	"testing"

	"example.org/ctrl/test/fleet"
)

// depUnits are the units of scenarios about dependencies; each node has all of them.
var depUnits = map[string]string{
	"db.service":       "[Service]\nExecStart=/bin/sleep infinity\n",
	"web.service":      "[Unit]\nRequires=ctrl-proxy@node2_db.service\nAfter=ctrl-proxy@node2_db.service\n[Service]\nExecStart=/bin/sleep infinity\n",
	"bound.service":    "[Unit]\nBindsTo=ctrl-proxy@node2_db.service\nAfter=ctrl-proxy@node2_db.service\n[Service]\nExecStart=/bin/sleep infinity\n",
	"wants.service":    "[Unit]\nWants=ctrl-proxy@node2_db.service\nAfter=ctrl-proxy@node2_db.service\n[Service]\nExecStart=/bin/sleep infinity\n",
	"needsbad.service": "[Unit]\nRequires=ctrl-proxy@node2_bad.service\nAfter=ctrl-proxy@node2_bad.service\n[Service]\nExecStart=/bin/sleep infinity\n",
	"bad.service":      "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'exit 7'\n",
}

// allowDeps lets node1 depend on node2 and node3, and node2 on node1 and node3.
const allowDeps = "[node node1]\nAllowDependenciesOn=node2,node3\n[node node2]\nAllowDependenciesOn=node1,node3\n"

func depFleet(t *testing.T, nodes ...string) *fleet.Fleet {
	t.Helper()
	f, err := fleet.New(t.Context(), fleet.Options{Lab: labName(t.Name()), Nodes: nodes, Units: depUnits, Manager: allowDeps})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Evidence(t.Context()))
			for _, n := range nodes {
				t.Log(n, f.Nodes[n].Journal(t.Context(), "ctrl-proxy@node2_db"))
			}
		}
		f.Close()
	})
	return f
}

func TestDepsFirst(t *testing.T) {
	f := depFleet(t, "node1", "node2")
	one, two := f.Nodes["node1"], f.Nodes["node2"]
	must(t, f, 0, nil, "start", "node1", "web", "bound", "wants")
	for _, u := range []string{"web.service", "bound.service", "wants.service", "ctrl-proxy@node2_db.service"} {
		if got := active(t, one, u); got != "active" {
			t.Errorf("%s is %s", u, got)
		}
	}
	if got := active(t, two, "db.service"); got != "active" {
		t.Errorf("db is %s", got)
	}
	must(t, f, 0, nil, "stop", "node2", "db")
	await(t, one, "web.service", "inactive")
	await(t, one, "bound.service", "inactive")
	await(t, one, "ctrl-proxy@node2_db.service", "inactive")
	if got := active(t, one, "wants.service"); got != "active" {
		t.Errorf("wants is %s", got)
	}
	must(t, f, 0, nil, "start", "node1", "web", "bound")
	on(t, two, "systemctl", "kill", "-s", "KILL", "db")
	await(t, one, "bound.service", "inactive")
	await(t, one, "ctrl-proxy@node2_db.service", "failed")
	if got := active(t, one, "web.service"); got != "active" {
		t.Errorf("web is %s after a crash", got)
	}
	must(t, f, 1, []string{"needsbad"}, "start", "node1", "needsbad")
	out := on(t, one, "journalctl", "--no-pager", "-o", "cat", "-u", "ctrl-proxy@node2_bad")
	if !strings.Contains(out, `bad.service on node "node2"`) {
		t.Errorf("the reason is not in the journal: %s", out)
	}
}
