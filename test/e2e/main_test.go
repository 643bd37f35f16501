// Package e2e shows the product on real systemd nodes: real TCP, TLS, D-Bus daemon and
// journal, installed as a package would. Names of scenarios are those of clustertest.
package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

func TestMain(m *testing.M) {
	if why := lab.Unavailable(); why != "" {
		fmt.Println("left out: all scenarios on real systemd:", why)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if shared.fleet != nil {
		if code != 0 {
			fmt.Println(shared.fleet.Evidence(context.Background()))
		}
		shared.fleet.Close()
	}
	os.Exit(code)
}

// units are what every node of every scenario has.
var units = map[string]string{
	"ok.service":           "[Unit]\nDescription=An ok unit\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecReload=/bin/true\n[Install]\nAlias=also.service\nWantedBy=multi-user.target\n",
	"fast.service":         "[Service]\nType=oneshot\nExecStart=/bin/true\n",
	"run.service":          "[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n",
	"web@.service":         "[Service]\nExecStart=/bin/sleep infinity\n",
	"bad.service":          "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'exit 7'\n",
	"slow.service":         "[Service]\nType=oneshot\nExecStart=/bin/sleep 600\n",
	"mute.service":         "[Service]\nType=notify\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity\n",
	"stopper.service":      "[Service]\nExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1; done'\nTimeoutStopSec=90s\n",
	"cond.service":         "[Unit]\nConditionPathExists=/nowhere\n[Service]\nType=oneshot\nExecStart=/bin/true\n",
	"assert.service":       "[Unit]\nAssertPathExists=/nowhere\n[Service]\nType=oneshot\nExecStart=/bin/true\n",
	`odd\x2dname@.service`: "[Service]\nExecStart=/bin/sleep infinity\n",
}

// transientUnits lets ctl run work, which a node must say.
const transientUnits = "AllowTransientUnits=yes\n"

// up brings up a fleet of the scenario's own, for scenarios that do harm.
func up(t *testing.T, opt fleet.Options) *fleet.Fleet {
	t.Helper()
	opt.Lab = labName(t.Name())
	opt.Units = units
	if opt.Policy == "" {
		opt.Policy = transientUnits
	}
	f, err := fleet.New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Evidence(context.WithoutCancel(t.Context())))
		}
		f.Close()
	})
	return f
}

func labName(test string) string {
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(test, "Test")))
	return "e2e-" + strings.Trim(name[:min(len(name), 16)], "-")
}

// shared is one fleet for all scenarios that leave it as they found it.
var shared struct {
	once  sync.Once
	fleet *fleet.Fleet
	err   error
}

// common gives the shared fleet of node1, node2 and node3.
func common(t *testing.T) *fleet.Fleet {
	t.Helper()
	shared.once.Do(func() {
		shared.fleet, shared.err = fleet.New(context.Background(), fleet.Options{
			Lab: "e2e", Nodes: []string{"node1", "node2", "node3"}, Units: units, Policy: transientUnits,
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.fleet
}

// limit bounds what one step of a scenario may take.
const limit = 60 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// ctl runs ctl on the manager's machine.
func ctl(t *testing.T, f *fleet.Fleet, args ...string) lab.Result {
	t.Helper()
	r, err := f.Ctl(within(t), args...)
	if err != nil {
		t.Fatalf("ctl %s: %v\n%s%s", strings.Join(args, " "), err, r.Stdout, r.Stderr)
	}
	return r
}

// must runs ctl and checks its exit code and that its output has certain parts.
func must(t *testing.T, f *fleet.Fleet, code int, parts []string, args ...string) lab.Result {
	t.Helper()
	r := ctl(t, f, args...)
	if r.Code != code {
		t.Errorf("ctl %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), r.Code, code, r.Stdout, r.Stderr)
	}
	for _, part := range parts {
		if !strings.Contains(r.Stdout+r.Stderr, part) {
			t.Errorf("ctl %s: %q is not in\n%s%s", strings.Join(args, " "), part, r.Stdout, r.Stderr)
		}
	}
	return r
}

// on runs a command on a node that must succeed.
func on(t *testing.T, n *lab.Node, argv ...string) string {
	t.Helper()
	out, err := n.Run(within(t), argv...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func active(t *testing.T, n *lab.Node, unit string) string {
	t.Helper()
	return on(t, n, "systemctl", "show", "-P", "ActiveState", "--", unit)
}

// await waits until a unit has one of these states.
func await(t *testing.T, n *lab.Node, unit string, states ...string) {
	t.Helper()
	if err := fleet.WaitUnit(within(t), n, unit, states...); err != nil {
		t.Fatal(err)
	}
}

// until asks again and again whether something is so, which costs a program on a node each
// time, and fails when a step's time is over.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for ctx := within(t); !ok(); {
		if ctx.Err() != nil {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
