package e2e

import (
	"fmt"
	"strings"
	"testing"

	"example.org/ctrl/test/fleet"
)

// applyPolicy lets a fleet's manager deliver units.
const applyPolicy = "AllowApply=yes\nAllowFilePaths=/etc/ctrl-files\n"

// folder puts the files of a workload on the manager's machine.
func folder(t *testing.T, f *fleet.Fleet, dir string, files map[string]string) {
	t.Helper()
	on(t, f.Boss, "rm", "-rf", dir)
	for name, text := range files {
		path := dir + "/" + name
		on(t, f.Boss, "mkdir", "-p", path[:strings.LastIndexByte(path, '/')])
		do(t, f.Boss.WriteFile(path, []byte(text), 0o644))
	}
}

const (
	shop = "[Service]\nExecStart=/bin/sh -c 'cat /etc/ctrl-files/shop.conf >/run/shop.sees; exec sleep infinity'\n[Install]\nWantedBy=multi-user.target\n"
	till = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
)

func TestApply(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2", "node3"}, Policy: applyPolicy, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	files := map[string]string{"shop.service": shop, "till.service": till, "files/etc/ctrl-files/shop.conf": "price=1\n"}
	folder(t, f, "/root/shop", files)
	apply := []string{"apply", "-f", "/root/shop", "--name", "shop", "--node", "node1,node2"}
	everything := func() string {
		return on(t, n, "sh", "-c", "find /etc/systemd/system /var/lib/ctrl -type f -o -type l | grep -v -e /pki/ -e /state.json | sort | xargs stat -c '%n %y %i'")
	}
	t.Run("first", func(t *testing.T) {
		must(t, f, 0, []string{"node1  created", "node2  created"}, apply...)
		for _, node := range []string{"node1", "node2"} {
			for _, u := range []string{"shop.service", "till.service"} {
				if got := active(t, f.Nodes[node], u); got != "active" {
					t.Errorf("%s on %s is %s", u, node, got)
				}
				if got := on(t, f.Nodes[node], "systemctl", "is-enabled", u); got != "enabled" {
					t.Errorf("%s on %s is %s", u, node, got)
				}
			}
		}
		if got := active(t, f.Nodes["node3"], "shop.service"); got == "active" {
			t.Error("it runs on a node that was not named")
		}
		if got := on(t, n, "cat", "/run/shop.sees"); got != "price=1" {
			t.Errorf("the service sees %q", got)
		}
		must(t, f, 0, []string{"shop", "node1", "Running", "2/2"}, "workload", "list")
		must(t, f, 0, []string{"[X-Ctrl]", "ExecStart="}, "cat", "node1", "shop.service")
	})
	t.Run("second-changes-nothing", func(t *testing.T) {
		before, runs := everything(), invocation(t, n, "shop.service")
		must(t, f, 0, []string{"node1  unchanged", "node2  unchanged"}, apply...)
		if after := everything(); after != before {
			t.Errorf("files were\n%s\nand are\n%s", before, after)
		}
		if after := invocation(t, n, "shop.service"); after != runs {
			t.Error("the unit was restarted")
		}
		must(t, f, 0, nil, append([]string{"diff"}, apply[1:]...)...)
	})
	t.Run("only-what-changed-restarts", func(t *testing.T) {
		files["files/etc/ctrl-files/shop.conf"] = "price=2\n"
		folder(t, f, "/root/shop", files)
		document := "apiVersion: ctrl/v1\nkind: Units\nmetadata: {name: shop}\nspec:\n  nodes: [node1, node2]\n  units:\n" +
			"    shop.service: {file: shop/shop.service}\n    till.service: {file: shop/till.service}\n" +
			"  files:\n    /etc/ctrl-files/shop.conf: {file: shop/files/etc/ctrl-files/shop.conf, units: [shop.service]}\n"
		do(t, f.Boss.WriteFile("/root/shop.yaml", []byte(document), 0o644))
		apply = []string{"apply", "-f", "/root/shop.yaml"}
		must(t, f, 1, []string{"shop.service"}, append([]string{"diff"}, apply[1:]...)...)
		must(t, f, 0, nil, apply...) // till no longer sees the file, and has restarted for that
		do(t, f.Boss.WriteFile("/root/shop/files/etc/ctrl-files/shop.conf", []byte("price=3\n"), 0o644))
		shop, till := invocation(t, n, "shop.service"), invocation(t, n, "till.service")
		must(t, f, 0, []string{"node1  configured"}, apply...)
		if invocation(t, n, "shop.service") == shop || invocation(t, n, "till.service") != till {
			t.Error("restarted was not exactly the unit whose configuration changed")
		}
		if got := on(t, n, "cat", "/run/shop.sees"); got != "price=3" {
			t.Errorf("the service sees %q", got)
		}
	})
	t.Run("a-bad-unit-stops-at-the-first-node", func(t *testing.T) {
		bad := map[string]string{"shop.service": strings.Replace(shop, "exec sleep infinity", "exit 3", 1), "till.service": till, "files/etc/ctrl-files/shop.conf": "price=4\n"}
		bad["shop.service"] = strings.Replace(bad["shop.service"], "[Service]\n", "[Service]\nType=oneshot\nRemainAfterExit=yes\n", 1)
		folder(t, f, "/root/bad", bad)
		other := invocation(t, f.Nodes["node2"], "shop.service")
		must(t, f, 1, []string{"node1  rolled back", "node2  skipped"}, "apply", "-f", "/root/bad", "--name", "shop", "--node", "node1,node2", "--rollback-on-failure")
		if got := active(t, n, "shop.service"); got != "active" {
			t.Errorf("after the roll-back it is %s", got)
		}
		if got := on(t, n, "cat", "/run/shop.sees"); got != "price=3" {
			t.Errorf("after the roll-back the service sees %q", got)
		}
		if invocation(t, f.Nodes["node2"], "shop.service") != other {
			t.Error("the second node was touched")
		}
		must(t, f, 0, []string{"Held"}, "workload", "list")
		must(t, f, 0, nil, apply...)
	})
	t.Run("what-systemd-would-ignore", func(t *testing.T) {
		folder(t, f, "/root/odd", map[string]string{"odd.service": "[Service]\nExecStart=/bin/sleep infinity\nExecStrat=/bin/true\n"})
		must(t, f, 1, []string{"odd.service:3", "ExecStrat"}, "apply", "-f", "/root/odd", "--name", "odd", "--node", "node1")
		if r, err := n.Exec(within(t), "test", "-e", "/etc/systemd/system/odd.service"); err != nil || r.Code == 0 {
			t.Error("it was written all the same")
		}
		must(t, f, 0, nil, "apply", "-f", "/root/odd", "--name", "odd", "--node", "node1", "--allow-unknown")
		must(t, f, 0, nil, "workload", "delete", "odd")
	})
	t.Run("foreign-units-are-not-touched", func(t *testing.T) {
		before := on(t, n, "cat", "/lib/systemd/system/run.service")
		folder(t, f, "/root/theft", map[string]string{"run.service": till})
		must(t, f, 1, []string{"run.service"}, "apply", "-f", "/root/theft", "--name", "theft", "--node", "node1")
		folder(t, f, "/root/theft", map[string]string{"shop.service": till})
		must(t, f, 1, []string{"shop.service", "workload shop"}, "apply", "-f", "/root/theft", "--name", "theft", "--node", "node1")
		if after := on(t, n, "cat", "/lib/systemd/system/run.service"); after != before || active(t, n, "shop.service") != "active" {
			t.Error("a unit of somebody else was changed")
		}
		must(t, f, 0, nil, "workload", "delete", "theft")
	})
	t.Run("history-and-rollback", func(t *testing.T) {
		must(t, f, 0, []string{"node1", "*", "uid 0"}, "workload", "history", "shop", "--node", "node1")
		files["files/etc/ctrl-files/shop.conf"] = "price=9\n"
		folder(t, f, "/root/shop", files)
		must(t, f, 0, nil, apply...)
		must(t, f, 0, []string{"node1  rolled back"}, "workload", "rollback", "shop", "--node", "node1")
		if got := on(t, n, "cat", "/run/shop.sees"); got != "price=3" {
			t.Errorf("after the roll-back the service sees %q", got)
		}
		must(t, f, 0, nil, apply...)
		if got := on(t, n, "cat", "/run/shop.sees"); got != "price=9" {
			t.Errorf("after the next apply the service sees %q", got)
		}
	})
	t.Run("stop-is-remembered", func(t *testing.T) {
		must(t, f, 0, []string{"node1  stopped"}, "workload", "stop", "shop")
		must(t, f, 0, []string{"Stopped"}, "workload", "list")
		must(t, f, 0, nil, apply...)
		if got := active(t, n, "shop.service"); got == "active" {
			t.Error("an apply has started what was stopped")
		}
		must(t, f, 0, []string{"node1  started"}, "workload", "start", "shop")
		on(t, n, "systemctl", "stop", "shop.service", "till.service") // case 32
		must(t, f, 0, []string{"Stopped (outside ctl)"}, "workload", "list", "--node", "node1")
		must(t, f, 0, nil, "workload", "start", "shop")
	})
	t.Run("drift-is-shown-and-repaired", func(t *testing.T) {
		on(t, n, "sh", "-c", "echo '# edited' >>/etc/systemd/system/till.service")
		on(t, n, "systemctl", "restart", "ctrl-agent")
		do(t, f.WaitOnline(within(t), "node1", true))
		must(t, f, 0, []string{"till.service is edited"}, "workload", "describe", "shop")
		must(t, f, 0, []string{"node1  configured"}, apply...)
	})
	t.Run("nodes-that-are-away", func(t *testing.T) {
		other := f.Nodes["node2"]
		do(t, other.Cut(within(t)))
		do(t, f.WaitOnline(within(t), "node2", false))
		files["files/etc/ctrl-files/shop.conf"] = "price=5\n"
		folder(t, f, "/root/shop", files)
		must(t, f, 6, []string{"node1  configured", "node2  pending"}, apply...)
		do(t, other.Heal(within(t)))
		until(t, "it is delivered when the node is back", func() bool { return on(t, other, "cat", "/run/shop.sees") == "price=5" })
		do(t, other.Cut(within(t)))
		do(t, f.WaitOnline(within(t), "node2", false))
		must(t, f, 6, []string{"node1  deleted", "node2  pending"}, "workload", "delete", "shop")
		do(t, other.Heal(within(t)))
		await(t, other, "shop.service", "inactive")
		until(t, "it is removed when the node is back", func() bool {
			r, err := other.Exec(within(t), "test", "-e", "/etc/systemd/system/till.service")
			do(t, err)
			return r.Code != 0
		})
		must(t, f, 0, nil, "workload", "list")
		if left := on(t, n, "sh", "-c", "systemctl list-units --all --no-legend 'shop*' 'till*'; ls /etc/systemd/system/multi-user.target.wants 2>/dev/null | grep -E 'shop|till'; systemctl --failed --no-legend; true"); left != "" {
			t.Errorf("left on the node: %s", left)
		}
	})
}

// Losing the manager, its state, or the agent stops and removes nothing.
func TestDeliveredUnitsOutliveEverybody(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1"}, Policy: applyPolicy, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	folder(t, f, "/root/shop", map[string]string{"shop.service": shop, "files/etc/ctrl-files/shop.conf": "price=1\n"})
	must(t, f, 0, nil, "apply", "-f", "/root/shop", "--name", "shop", "--node", "node1")
	before := invocation(t, n, "shop.service")
	files := on(t, n, "sh", "-c", "find /etc/systemd/system /var/lib/ctrl/config -type f | sort | xargs stat -c '%n %y %i'")
	on(t, f.Boss, "systemctl", "restart", "ctrl-manager")
	on(t, n, "systemctl", "restart", "ctrl-agent")
	do(t, f.WaitOnline(within(t), "node1", true))
	on(t, f.Boss, "sh", "-c", "systemctl stop ctrl-manager; rm -rf /var/lib/ctrl-manager/workloads; systemctl start ctrl-manager")
	do(t, f.WaitOnline(within(t), "node1", true))
	until(t, "what the node has is reported", func() bool {
		return strings.Contains(must(t, f, 0, nil, "workload", "list").Stdout, "Orphan")
	})
	if invocation(t, n, "shop.service") != before || files != on(t, n, "sh", "-c", "find /etc/systemd/system /var/lib/ctrl/config -type f | sort | xargs stat -c '%n %y %i'") {
		t.Error("the unit or its files are not what they were")
	}
	// Applying it here takes it over.
	must(t, f, 0, []string{"node1  unchanged"}, "apply", "-f", "/root/shop", "--name", "shop", "--node", "node1")
	must(t, f, 0, nil, "workload", "delete", "shop")
}

func TestApplyIsUpToTheNode(t *testing.T) {
	f := common(t)
	folder(t, f, "/root/shop", map[string]string{"till.service": till})
	must(t, f, 5, []string{"AllowApply"}, "apply", "-f", "/root/shop", "--name", "till", "--node", "node1")
	if r, err := f.Nodes["node1"].Exec(within(t), "test", "-e", "/etc/systemd/system/till.service"); err != nil || r.Code == 0 {
		t.Error("it was written all the same")
	}
	must(t, f, 0, nil, "workload", "delete", "till")
}

// 200 units come with one reload.
func TestApplyManyUnits(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1"}, Policy: applyPolicy})
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("many%03d.service", i)] = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
	}
	folder(t, f, "/root/many", files)
	n := f.Nodes["node1"]
	reloads := func() int { return strings.Count(on(t, n, "journalctl", "-o", "cat", "_PID=1"), "Reloading.") }
	before := reloads()
	must(t, f, 0, nil, "apply", "-f", "/root/many", "--name", "many", "--node", "node1")
	if n := reloads() - before; n != 1 {
		t.Errorf("%d reloads", n)
	}
	if got := on(t, n, "sh", "-c", "systemctl list-units --no-legend 'many*' | grep -c ' active '"); got != "200" {
		t.Errorf("%s are active", got)
	}
	must(t, f, 0, []string{"unchanged"}, "apply", "-f", "/root/many", "--name", "many", "--node", "node1")
	if n := reloads() - before; n != 1 {
		t.Errorf("%d reloads after the second apply", n)
	}
	must(t, f, 0, nil, "workload", "delete", "many")
}
