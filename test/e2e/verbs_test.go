package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"example.org/ctrl/internal/clustertest"
	"example.org/ctrl/internal/wire"
)

func TestStartStop(t *testing.T) {
	f := common(t)
	t.Run(clustertest.StartStop, func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "run")
		if active(t, f.Nodes["node1"], "run.service") != "active" || active(t, f.Nodes["node2"], "run.service") == "active" {
			t.Error("the unit runs on the wrong nodes")
		}
		must(t, f, 0, []string{"node1  run.service", "active", "running"}, "list-units", "node1", "run.service")
		must(t, f, 0, []string{"Active: active (running)"}, "status", "node1", "run")
		must(t, f, 0, nil, "stop", "node1", "run")
		must(t, f, 3, []string{"inactive (dead)"}, "status", "node1", "run")
		if got := active(t, f.Nodes["node1"], "run.service"); got != "inactive" {
			t.Errorf("after the stop it is %s", got)
		}
	})
	t.Run(clustertest.EveryVerb, func(t *testing.T) {
		n := f.Nodes["node1"]
		for _, step := range []struct{ verb, want string }{
			{"try-restart", "inactive"}, {"try-reload-or-restart", "inactive"}, {"start", "active"}, {"reload", "active"},
			{"restart", "active"}, {"try-restart", "active"}, {"reload-or-restart", "active"}, {"try-reload-or-restart", "active"}, {"stop", "inactive"},
		} {
			before := on(t, n, "systemctl", "show", "-P", "InvocationID", "ok.service")
			must(t, f, 0, nil, step.verb, "node1", "ok.service")
			if got := active(t, n, "ok.service"); got != step.want {
				t.Errorf("after %s it is %s", step.verb, got)
			}
			anew := before != on(t, n, "systemctl", "show", "-P", "InvocationID", "ok.service")
			if begins := strings.HasSuffix(step.verb, "start") && step.want == "active" && !strings.Contains(step.verb, "reload"); begins != anew && step.verb != "stop" {
				t.Errorf("%s: started anew is %v", step.verb, anew)
			}
		}
	})
	t.Run("many-nodes-and-units", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node*", "web@a", "web@b")
		for _, n := range f.Nodes {
			for _, u := range []string{"web@a.service", "web@b.service"} {
				if active(t, n, u) != "active" {
					t.Errorf("%s does not run on %s", u, n.Name)
				}
			}
		}
		must(t, f, 0, nil, "stop", "node1,node2", "web@*")
		must(t, f, 0, nil, "stop", "*", "web@a", "web@b")
		must(t, f, 4, []string{"nothing-*"}, "start", "nothing-*", "ok")
	})
}

func TestUnitsThatDoNotStart(t *testing.T) {
	f := common(t)
	on(t, f.Nodes["node1"], "systemctl", "mask", "--runtime", "masked.service")
	tests := []struct {
		name, unit string
		code       int
		parts      []string
	}{
		{clustertest.FailingUnit, "bad", 1, []string{"bad.service on node1", "7", "journalctl"}},
		{clustertest.UnknownUnit, "none", 4, []string{"none.service", "not found"}},
		{clustertest.MaskedUnit, "masked", 1, []string{"masked"}},
		{clustertest.BadUnitName, "web@", 2, []string{"instance", "web@NAME.service"}},
		{"condition-fails", "cond", 0, []string{"ConditionPathExists=/nowhere"}},
		{"assert-fails", "assert", 1, []string{"assert"}},
		{"suffix", "foo.bar", 4, []string{"foo.bar.service"}},
		{"odd-name", `odd\x2dname@A:b_c.d`, 0, nil},
		{"long-name", strings.Repeat("x", 250), 2, []string{"at most 255"}},
		{"newline-in-name", "a\nb.service", 4, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { must(t, f, tt.code, tt.parts, "start", "node1", "--", tt.unit) })
	}
	must(t, f, 0, nil, "stop", "node1", "--", `odd\x2dname@A:b_c.d`)
	on(t, f.Nodes["node1"], "systemctl", "reset-failed")
	must(t, f, 4, []string{"workr@a.service"}, "stop", "node1", "workr@a.service")
	must(t, f, 0, nil, "stop", "node1", "web@zz.service")
}

func TestNodesThatAreNotThere(t *testing.T) {
	f := common(t)
	t.Run(clustertest.UnknownNode, func(t *testing.T) {
		must(t, f, 4, []string{"nodeX"}, "start", "nodeX", "ok")
		must(t, f, 4, []string{"nde1", "did you mean", "node1"}, "start", "nde1", "ok")
	})
}

func TestOutputForPrograms(t *testing.T) {
	f := common(t)
	var nodes []map[string]any
	if err := json.Unmarshal([]byte(must(t, f, 0, nil, "list-nodes", "-o", "json").Stdout), &nodes); err != nil || len(nodes) != 3 || nodes[0]["node"] != "node1" || nodes[0]["status"] != wire.NodeOnline {
		t.Errorf("list-nodes: %v, %v", nodes, err)
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(must(t, f, 0, nil, "list-units", "-o", "json", "*", "--", "-.mount").Stdout), &list); err != nil || len(list) != 3 || list[2]["node"] != "node3" {
		t.Errorf("list-units: %v, %v", list, err)
	}
	if got := must(t, f, 0, nil, "list-jobs", "-o", "json").Stdout; strings.TrimSpace(got) != "[]" {
		t.Errorf("list-jobs: %q", got)
	}
	theirs := on(t, f.Nodes["node1"], "systemctl", "list-units", "--all", "--plain", "--no-legend")
	ours := ctl(t, f, "list-units", "--all", "--no-legend", "node1").Stdout
	for line := range strings.Lines(theirs) {
		if name := strings.Fields(line)[0]; !strings.Contains(ours, name) {
			t.Errorf("%s is not listed", name)
		}
	}
	if r, err := f.Boss.Exec(within(t), "sh", "-c", "ctl list-units '*' | head -1; echo ${PIPESTATUS}"); err != nil || r.Stderr != "" {
		t.Errorf("into a closed pipe: %+v, %v", r, err)
	}
}

func TestUnprivilegedUsersOnlyLook(t *testing.T) {
	f := common(t)
	as := func(argv ...string) (string, int) {
		r, err := f.Boss.Exec(within(t), append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}, argv...)...)
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout + r.Stderr, r.Code
	}
	if out, code := as("busctl", "introspect", "org.example.ctrl1", "/org/example/ctrl1"); code != 0 || !strings.Contains(out, ".ListUnits") {
		t.Errorf("introspect: %d %s", code, out)
	}
	if out, code := as("busctl", "get-property", "org.example.ctrl1", "/org/example/ctrl1/node/node1", "org.example.ctrl1.Node", "Status"); code != 0 || !strings.Contains(out, "online") {
		t.Errorf("property: %d %s", code, out)
	}
	if out, code := as("ctl", "start", "node1", "ok"); code != 5 || !strings.Contains(out, "needs the right org.example.ctrl1.manage-units") {
		t.Errorf("start: %d %s", code, out)
	}
	if got := active(t, f.Nodes["node1"], "ok.service"); got == "active" {
		t.Error("a user without rights has started a unit")
	}
}
