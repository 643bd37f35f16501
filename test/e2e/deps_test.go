package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

const plainService = "[Service]\nExecStart=/bin/sleep infinity\n"

// needing is a unit that needs others by a directive, with After= beside it.
func needing(directive string, names ...string) string {
	list := strings.Join(names, " ")
	return "[Unit]\n" + directive + "=" + list + "\nAfter=" + list + "\n" + plainService
}

// depUnits are the units of scenarios about dependencies; each node has all of them.
var depUnits = map[string]string{
	"db.service":          plainService,
	"unneeded.service":    "[Unit]\nStopWhenUnneeded=yes\n" + plainService,
	"once.service":        "[Service]\nType=oneshot\nExecStart=/bin/true\n",
	"bad.service":         "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'exit 7'\n",
	"hang.service":        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'until [ -e /run/go ]; do sleep 0.1; done'\n",
	"hang3.service":       "[Service]\nType=notify\nTimeoutStartSec=3s\nExecStart=/bin/sleep infinity\n",
	"tmpl@.service":       plainService,
	"data.target":         "[Unit]\nDescription=A target of another type\n",
	`odd\x2dname.service`: plainService,

	"web.service":       needing("Requires", "ctrl-proxy@node2_db.service"),
	"web2.service":      needing("Requires", "ctrl-proxy@node2_db.service"),
	"w1.service":        needing("Requires", "ctrl-proxy@node2_unneeded.service"),
	"w2.service":        needing("Requires", "ctrl-proxy@node2_unneeded.service"),
	"w3.service":        needing("Requires", "ctrl-proxy@node2_unneeded.service"),
	"bound.service":     needing("BindsTo", "ctrl-proxy@node2_db.service"),
	"wants.service":     needing("Wants", "ctrl-proxy@node2_db.service"),
	"onceuser.service":  needing("Requires", "ctrl-proxy@node2_once.service"),
	"needsbad.service":  needing("Requires", "ctrl-proxy@node2_bad.service"),
	"wantsbad.service":  needing("Wants", "ctrl-proxy@node2_bad.service"),
	"nomask.service":    needing("Requires", "ctrl-proxy@node2_masked.service"),
	"nounit.service":    needing("Requires", "ctrl-proxy@node2_missing.service"),
	"nonode.service":    needing("Requires", "ctrl-proxy@node9_db.service"),
	"denied.service":    needing("Requires", "ctrl-proxy@node1_db.service"),
	"hanguser.service":  needing("Requires", "ctrl-proxy@node2_hang.service"),
	"hang3user.service": needing("Requires", "ctrl-proxy@node2_hang3.service"),
	"many.service":      needing("Requires", "ctrl-proxy@node2_data.target.service", "ctrl-proxy@node2_tmpl@a.service", `ctrl-proxy@node2_odd\x2dname.service`),
	"malformed.service": needing("Requires", "ctrl-proxy@nounderscore.service"),
	// Two that wait for each other, and three.
	"cyc1.service":   needing("Requires", "ctrl-proxy@node2_cyc2.service"),
	"cyc2.service":   needing("Requires", "ctrl-proxy@node1_cyc1.service"),
	"ring1.service":  needing("Requires", "ctrl-proxy@node2_ring2.service"),
	"ring2.service":  needing("Requires", "ctrl-proxy@node3_ring3.service"),
	"ring3.service":  needing("Requires", "ctrl-proxy@node1_ring1.service"),
	"chain.service":  needing("Requires", "ctrl-proxy@node2_middle.service"),
	"middle.service": needing("Requires", "ctrl-proxy@node3_db.service"),
}

// allowDeps says which nodes may depend on which.
const allowDeps = "[node node1]\nAllowDependenciesOn=node2,node3,node9\n[node node2]\nAllowDependenciesOn=node1,node3\n[node node3]\nAllowDependenciesOn=node1\n"

const dbProxy = "ctrl-proxy@node2_db.service"

func depFleet(t *testing.T, opt fleet.Options) *fleet.Fleet {
	t.Helper()
	opt.Lab, opt.Units = labName(t.Name()), depUnits
	opt.Manager += allowDeps
	f, err := fleet.New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			ctx := context.WithoutCancel(t.Context())
			t.Log(f.Evidence(ctx))
			for _, n := range f.Nodes {
				if n.PID() != 0 {
					out, err := n.Exec(ctx, "journalctl", "--no-pager", "-n", "60", "-o", "short-precise", "_PID=1")
					t.Log(n.Name, out.Stdout, err)
				}
			}
		}
		f.Close()
	})
	return f
}

// states compares the states of units on a node: "web active", "db inactive" …
func states(t *testing.T, n *lab.Node, want ...string) {
	t.Helper()
	for _, w := range want {
		name, state, _ := strings.Cut(w, " ")
		if got := active(t, n, name); got != state {
			t.Errorf("%s on %s is %s, want %s", name, n.Name, got, state)
		}
	}
}

// reason is what the journal of a node says of a proxy.
func reason(t *testing.T, n *lab.Node, proxy string, parts ...string) {
	t.Helper()
	out := on(t, n, "journalctl", "--no-pager", "-o", "cat", "-u", proxy)
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("the journal of %s does not say %q:\n%s", proxy, part, out)
		}
	}
}

func invocation(t *testing.T, n *lab.Node, unit string) string {
	t.Helper()
	return on(t, n, "systemctl", "show", "-P", "InvocationID", unit)
}

func TestDeps(t *testing.T) {
	f := depFleet(t, fleet.Options{Nodes: []string{"node1", "node2", "node3"}})
	one, two, three := f.Nodes["node1"], f.Nodes["node2"], f.Nodes["node3"]
	fails := func(t *testing.T, unit string) {
		t.Helper()
		must(t, f, 1, []string{unit}, "start", "node1", unit)
		states(t, one, unit+".service inactive")
	}
	t.Run("start-stop", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "web", "bound", "wants")
		states(t, one, "web.service active", "bound.service active", "wants.service active", dbProxy+" active")
		states(t, two, "db.service active", "ctrl-dep@db.service active")
		must(t, f, 0, nil, "stop", "node2", "db")
		await(t, one, dbProxy, "inactive")
		states(t, one, "web.service inactive", "bound.service inactive", "wants.service active")
		must(t, f, 0, nil, "stop", "node1", "wants")
	})
	t.Run("crash", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "web", "bound")
		on(t, two, "systemctl", "kill", "-s", "KILL", "db")
		await(t, one, dbProxy, "failed")
		await(t, one, "bound.service", "inactive")
		states(t, one, "web.service active")
		must(t, f, 0, nil, "stop", "node1", "web")
	})
	t.Run("last-dependent", func(t *testing.T) { // case 70
		must(t, f, 0, nil, "start", "node1", "w1", "w2", "w3")
		before := invocation(t, two, "unneeded.service")
		on(t, two, "systemctl", "is-active", "unneeded.service")
		for _, u := range []string{"w1", "w2"} {
			must(t, f, 0, nil, "stop", "node1", u)
			states(t, two, "unneeded.service active")
		}
		if invocation(t, two, "unneeded.service") != before {
			t.Error("the target was started more than once")
		}
		must(t, f, 0, nil, "stop", "node1", "w3")
		await(t, two, "unneeded.service", "inactive")
		states(t, two, "ctrl-dep@unneeded.service inactive")
	})
	t.Run("dependents-on-two-nodes", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "middle") // needs db of node3
		must(t, f, 0, nil, "start", "node2", "middle")
		must(t, f, 0, nil, "stop", "node1", "middle")
		await(t, one, "ctrl-proxy@node3_db.service", "inactive")
		states(t, three, "ctrl-dep@db.service active")
		must(t, f, 0, nil, "stop", "node2", "middle")
		await(t, three, "ctrl-dep@db.service", "inactive")
		states(t, three, "db.service active")
		must(t, f, 0, nil, "stop", "node3", "db")
	})
	t.Run("chain-of-three", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "chain")
		states(t, two, "middle.service active")
		states(t, three, "db.service active")
		must(t, f, 0, []string{"node1 chain.service  active", "node2 middle.service  active", "node3 db.service  active"}, "list-dependencies", "node1", "chain")
		must(t, f, 0, []string{"node2 middle.service  active", "node1 chain.service  active"}, "list-dependencies", "--reverse", "node3", "db")
		must(t, f, 0, nil, "stop", "node3", "db")
		await(t, one, "chain.service", "inactive")
		states(t, two, "middle.service inactive")
	})
	t.Run("other-types-templates-escapes", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "many")
		states(t, two, "data.target active", "tmpl@a.service active", `odd\x2dname.service active`)
		must(t, f, 0, nil, "stop", "node1", "many")
		await(t, two, "ctrl-dep-unit@data.target.service", "inactive")
	})
	t.Run("oneshot", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "onceuser")
		await(t, one, "ctrl-proxy@node2_once.service", "inactive")
		states(t, one, "onceuser.service active")
		await(t, two, "ctrl-dep@once.service", "inactive")
		must(t, f, 0, nil, "stop", "node1", "onceuser")
	})
	t.Run("restart-propagates", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "web", "wants")
		web, wants := invocation(t, one, "web.service"), invocation(t, one, "wants.service")
		must(t, f, 0, nil, "restart", "node2", "db")
		depsSettle(t, f)
		states(t, one, "web.service active", dbProxy+" active")
		if invocation(t, one, "web.service") == web || invocation(t, one, "wants.service") != wants {
			t.Error("not web alone was restarted")
		}
		must(t, f, 0, nil, "stop", "node1", "web", "wants")
	})
	t.Run("dep-unit-stopped-by-hand", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "web")
		on(t, two, "systemctl", "stop", "ctrl-dep@db.service")
		states(t, one, "web.service active", dbProxy+" active")
		states(t, two, "db.service active")
		must(t, f, 0, nil, "stop", "node2", "db")
		await(t, one, "web.service", "inactive")
	})
	t.Run("failing", func(t *testing.T) {
		fails(t, "needsbad")
		reason(t, one, "ctrl-proxy@node2_bad", `bad.service on node "node2" did not start`, "exit-code", "ctl status node2 bad.service")
		must(t, f, 0, nil, "start", "node1", "wantsbad")
		must(t, f, 0, nil, "stop", "node1", "wantsbad")
	})
	t.Run("masked-missing", func(t *testing.T) {
		on(t, two, "systemctl", "mask", "--runtime", "masked.service")
		fails(t, "nomask")
		reason(t, one, "ctrl-proxy@node2_masked", "masked")
		fails(t, "nounit")
		reason(t, one, "ctrl-proxy@node2_missing", "not found")
	})
	t.Run("timeout-of-the-target", func(t *testing.T) {
		fails(t, "hang3user")
		reason(t, one, "ctrl-proxy@node2_hang3", "timeout")
	})
	t.Run("unknown-and-denied", func(t *testing.T) {
		fails(t, "nonode")
		reason(t, one, "ctrl-proxy@node9_db", "node9", "not in the fleet")
		fails(t, "denied")
		reason(t, one, "ctrl-proxy@node1_db", "AllowDependenciesOn=", "[node node1]")
	})
	t.Run("malformed", func(t *testing.T) {
		fails(t, "malformed")
		reason(t, one, "ctrl-proxy@nounderscore", "no _", "ctrl-proxy@node2_db.service")
	})
	t.Run("by-hand", func(t *testing.T) {
		r, err := one.Exec(within(t), "ctrl-agent", "proxy", "start", "node2_db")
		if err != nil || r.Code != 1 || !strings.Contains(r.Stderr, "systemctl start") {
			t.Errorf("outside systemd: %+v, %v", r, err)
		}
		on(t, one, "systemctl", "start", dbProxy)
		await(t, one, dbProxy, "inactive") // nobody needs it
		must(t, f, 0, nil, "stop", "node2", "db")
	})
	t.Run("cycles", func(t *testing.T) {
		fails(t, "cyc1")
		out := on(t, two, "journalctl", "--no-pager", "-o", "cat", "-u", "ctrl-proxy@node1_cyc1")
		if !strings.Contains(out, "cycle") || !strings.Contains(out, `cyc1.service on node "node1" needs cyc2.service on node "node2"`) {
			t.Errorf("the cycle is not named:\n%s", out)
		}
		fails(t, "ring1")
		out = on(t, three, "journalctl", "--no-pager", "-o", "cat", "-u", "ctrl-proxy@node1_ring1")
		for _, part := range []string{"cycle", `ring2.service on node "node2"`, `ring3.service on node "node3"`} {
			if !strings.Contains(out, part) {
				t.Errorf("%q is not in\n%s", part, out)
			}
		}
	})
	t.Run("stopped-while-the-target-starts", func(t *testing.T) {
		s := begin(t, f, "start", "node1", "hanguser")
		await(t, two, "hang.service", "activating")
		on(t, one, "systemctl", "kill", "-s", "KILL", "ctrl-proxy@node2_hang.service")
		await(t, one, "ctrl-proxy@node2_hang.service", "failed")
		s.ends(t, 1)
		states(t, one, "hanguser.service inactive")
		await(t, two, "hang.service", "activating", "inactive")
		must(t, f, 0, nil, "stop", "node2", "hang")
	})
}

// Restarts of the manager and of agents, in each state, stop nothing and lose nothing.
func TestDepsRestarts(t *testing.T) {
	f := depFleet(t, fleet.Options{Nodes: []string{"node1", "node2"}, Manager: quickManager, Agent: quickAgent})
	one, two := f.Nodes["node1"], f.Nodes["node2"]
	online := func(t *testing.T) {
		t.Helper()
		do(t, f.WaitManager(within(t)))
		for _, n := range []string{"node1", "node2"} {
			do(t, f.WaitOnline(within(t), n, true))
		}
	}
	kill := func(t *testing.T, n *lab.Node, unit string) {
		t.Helper()
		do(t, n.Signal(within(t), unit, "SIGKILL"))
	}
	must(t, f, 0, nil, "start", "node1", "web", "bound")
	web, db := invocation(t, one, "web.service"), invocation(t, two, "db.service")
	for name, restart := range map[string]func(*testing.T){
		"manager":     func(t *testing.T) { kill(t, f.Boss, "ctrl-manager") },
		"source":      func(t *testing.T) { kill(t, one, "ctrl-agent") },
		"target":      func(t *testing.T) { kill(t, two, "ctrl-agent") },
		"both-agents": func(t *testing.T) { kill(t, one, "ctrl-agent"); kill(t, two, "ctrl-agent") },
		"all": func(t *testing.T) {
			kill(t, f.Boss, "ctrl-manager")
			kill(t, one, "ctrl-agent")
			kill(t, two, "ctrl-agent")
		},
		"in-order": func(t *testing.T) {
			on(t, two, "systemctl", "restart", "ctrl-agent")
			on(t, one, "systemctl", "restart", "ctrl-agent")
			on(t, f.Boss, "systemctl", "restart", "ctrl-manager")
		},
	} {
		t.Run(name, func(t *testing.T) {
			restart(t)
			online(t)
			states(t, one, "web.service active", "bound.service active", dbProxy+" active")
			states(t, two, "db.service active", "ctrl-dep@db.service active")
			if invocation(t, one, "web.service") != web || invocation(t, two, "db.service") != db {
				t.Error("something was restarted")
			}
		})
	}
	t.Run("still-bound", func(t *testing.T) {
		must(t, f, 0, nil, "stop", "node2", "db")
		await(t, one, "web.service", "inactive")
		await(t, one, "bound.service", "inactive")
	})
	for name, harm := range map[string]func(*testing.T){
		"manager-in-start": func(t *testing.T) { kill(t, f.Boss, "ctrl-manager") },
		"source-in-start":  func(t *testing.T) { kill(t, one, "ctrl-agent") },
		"target-in-start":  func(t *testing.T) { kill(t, two, "ctrl-agent") },
		"cut-in-start": func(t *testing.T) {
			do(t, two.Cut(within(t)))
			do(t, f.WaitOnline(within(t), "node2", false))
			do(t, two.Heal(within(t)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, one, "systemctl", "start", "--no-block", "hanguser.service")
			await(t, two, "hang.service", "activating")
			harm(t)
			online(t)
			states(t, one, "ctrl-proxy@node2_hang.service activating")
			on(t, two, "touch", "/run/go")
			await(t, one, "hanguser.service", "active")
			on(t, one, "systemctl", "stop", "hanguser.service")
			await(t, two, "ctrl-dep@hang.service", "inactive")
			on(t, two, "sh", "-c", "rm /run/go && systemctl stop hang.service")
		})
	}
}

// A node that is not there yet, or not any more.
func TestDepsAbsentNodes(t *testing.T) {
	f := depFleet(t, fleet.Options{Nodes: []string{"node1", "node2"}, Manager: quickManager, Agent: quickAgent, Offline: []string{"node2"}})
	one, two := f.Nodes["node1"], f.Nodes["node2"]
	t.Run("comes-later", func(t *testing.T) { // case 68
		on(t, one, "systemctl", "start", "--no-block", "web.service")
		await(t, one, dbProxy, "activating")
		do(t, two.Boot(within(t)))
		on(t, two, "systemctl", "start", "ctrl-agent")
		await(t, one, "web.service", "active")
		states(t, two, "db.service active")
	})
	t.Run("lost-and-back", func(t *testing.T) {
		web := invocation(t, one, "web.service")
		do(t, two.Cut(within(t)))
		do(t, f.WaitOnline(within(t), "node2", false))
		states(t, one, "web.service active")
		do(t, two.Heal(within(t)))
		do(t, f.WaitOnline(within(t), "node2", true))
		states(t, two, "db.service active")
		if invocation(t, one, "web.service") != web {
			t.Error("the cut has restarted web")
		}
	})
	t.Run("source-lost", func(t *testing.T) {
		do(t, one.Cut(within(t)))
		do(t, f.WaitOnline(within(t), "node1", false))
		states(t, two, "ctrl-dep@db.service active", "db.service active")
		on(t, one, "systemctl", "stop", "web.service")
		do(t, one.Heal(within(t)))
		await(t, two, "ctrl-dep@db.service", "inactive")
	})
	t.Run("stopped-during-a-cut", func(t *testing.T) {
		on(t, one, "systemctl", "start", "web.service")
		do(t, two.Cut(within(t)))
		do(t, f.WaitOnline(within(t), "node2", false))
		on(t, two, "systemctl", "stop", "db.service")
		states(t, one, "web.service active")
		do(t, two.Heal(within(t)))
		await(t, one, "web.service", "inactive")
	})
	t.Run("target-powered-off", func(t *testing.T) {
		on(t, one, "systemctl", "start", "web.service")
		web := invocation(t, one, "web.service")
		do(t, two.Kill(within(t)))
		do(t, f.WaitOnline(within(t), "node2", false))
		states(t, one, "web.service active")
		do(t, two.Boot(within(t)))
		on(t, two, "systemctl", "start", "ctrl-agent")
		await(t, two, "db.service", "active")
		if invocation(t, one, "web.service") != web {
			t.Error("web was restarted")
		}
		on(t, one, "systemctl", "stop", "web.service")
	})
	t.Run("policy-stop", func(t *testing.T) {
		do(t, one.WriteFile("/etc/systemd/system/"+dbProxy+".d/loss.conf", []byte("[Service]\nEnvironment=CTRL_ON_NODE_LOSS=stop\n"), 0o644))
		on(t, one, "systemctl", "daemon-reload")
		on(t, one, "systemctl", "start", "web.service", "wants.service")
		on(t, one, "systemctl", "restart", "ctrl-agent")
		do(t, f.WaitOnline(within(t), "node1", true))
		do(t, two.Cut(within(t)))
		await(t, one, "web.service", "inactive")
		states(t, one, "wants.service active")
		do(t, two.Heal(within(t)))
		do(t, f.WaitOnline(within(t), "node2", true))
		on(t, one, "systemctl", "stop", "wants.service")
	})
	t.Run("stop-while-waiting", func(t *testing.T) { // case 71
		do(t, two.Cut(within(t)))
		do(t, f.WaitOnline(within(t), "node2", false))
		on(t, two, "systemctl", "stop", "db.service")
		on(t, one, "systemctl", "start", "--no-block", "web.service")
		await(t, one, dbProxy, "activating")
		on(t, one, "systemctl", "stop", "web.service")
		await(t, one, dbProxy, "inactive")
		on(t, one, "systemctl", "start", "--no-block", "web.service")
		await(t, one, dbProxy, "activating")
		on(t, one, "systemctl", "kill", "-s", "KILL", dbProxy)
		await(t, one, dbProxy, "failed")
		do(t, fleet.WaitIdle(within(t), one))
		if got := on(t, one, "systemctl", "list-jobs", "--no-legend"); got != "" {
			t.Errorf("jobs are left: %s", got)
		}
		do(t, two.Heal(within(t)))
		do(t, f.WaitOnline(within(t), "node2", true))
		must(t, f, 0, nil, "start", "node1", "wants") // after all that was to come
		must(t, f, 0, nil, "stop", "node1", "wants")
	})
	t.Run("fail-at-once", func(t *testing.T) {
		do(t, two.Cut(within(t)))
		do(t, f.WaitOnline(within(t), "node2", false))
		on(t, one, "sh", "-c", "sed -i 's/^.agent.$/[agent]\\nProxyStartTimeout=0/' /etc/ctrl/agent.conf && systemctl reload ctrl-agent")
		must(t, f, 1, []string{"web.service"}, "start", "node1", "web")
		reason(t, one, dbProxy, "offline", "ProxyStartTimeout=")
		do(t, two.Heal(within(t)))
	})
}

// Both nodes powered off and booted together, in both orders and at once.
func TestDepsBootTogether(t *testing.T) {
	f := depFleet(t, fleet.Options{Nodes: []string{"node1", "node2"}, Manager: quickManager, Agent: quickAgent})
	one, two := f.Nodes["node1"], f.Nodes["node2"]
	on(t, one, "sh", "-c", "mkdir -p /etc/systemd/system/multi-user.target.wants && cd /etc/systemd/system/multi-user.target.wants && ln -s /usr/lib/systemd/system/web.service /usr/lib/systemd/system/ctrl-agent.service .")
	on(t, two, "sh", "-c", "mkdir -p /etc/systemd/system/multi-user.target.wants && ln -s /usr/lib/systemd/system/ctrl-agent.service /etc/systemd/system/multi-user.target.wants/")
	for i := range 9 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			do(t, one.Kill(within(t)))
			do(t, two.Kill(within(t)))
			booted := make(chan error, 2)
			boot := func(n *lab.Node) { booted <- n.Boot(within(t)) }
			switch i % 3 {
			case 0: // the boot of node1 ends when web has started, so not before node2 is there
				go boot(one)
				do(t, f.WaitOnline(within(t), "node1", true))
				go boot(two)
			case 1:
				go boot(two)
				do(t, f.WaitOnline(within(t), "node2", true))
				go boot(one)
			default:
				go boot(one)
				go boot(two)
			}
			do(t, <-booted)
			do(t, <-booted)
			await(t, one, "web.service", "active")
			states(t, two, "db.service active")
		})
	}
}
