package e2e

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.org/ctrl/internal/lab"
)

// busyUnits are units whose jobs do not end by themselves, and the verb whose job that is.
var busyUnits = []struct {
	name, text string
	running    bool
	first      string
	state      string // once the job runs
}{
	{"starting", "[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n", false, "start", "activating start"},
	{"stopping", deaf + "ExecReload=/bin/true\n", true, "stop", "deactivating stop-sigterm"},
	{"restarting", deaf + "ExecReload=/bin/true\n", true, "restart", "deactivating stop-sigterm"},
	{"reloading", sleep + "TimeoutStartSec=infinity\nExecReload=/bin/sleep infinity\n", true, "reload", "reloading reload"},
}

// busyVerbs are what is asked of such units while their jobs run.
var busyVerbs = []string{"start", "stop", "restart", "reload", "try-restart", "reload-or-restart", "try-reload-or-restart", "kill", "reset-failed", "freeze"}

type busyCase struct {
	unit, first, second, state string
	running                    bool
}

func busyCases() (cases []busyCase, files map[string]string) {
	files = make(map[string]string)
	for _, u := range busyUnits {
		for _, second := range busyVerbs {
			if u.first == "reload" && second == "kill" {
				continue // systemd's answer depends on which of two processes dies first
			}
			c := busyCase{"busy_" + u.name + "_" + strings.ReplaceAll(second, "-", "") + ".service", u.first, second, u.state, u.running}
			files[vendor+c.unit] = u.text
			cases = append(cases, c)
		}
	}
	return cases, files
}

// TestDifferentialBusy asks for something of a unit while a job of it is under way and hangs:
// the same jobs and states come of it, and the first command ends the same way.
func TestDifferentialBusy(t *testing.T) {
	d := newDiffer(t)
	cases, files := busyCases()
	up, hang := make(map[string]string), make(map[string]string)
	var names []string
	for _, c := range cases {
		names = append(names, c.unit)
		hang[c.unit] = c.state
		if c.running {
			up[c.unit] = "active running"
		}
	}
	d.both(func(p *pid1) {
		p.write(t, files)
		p.reload(t)
		p.startAll(t, slices.Collect(maps.Keys(up)))
		p.reach(t, up)
	})
	ours, theirs := make([]lab.Result, len(cases)), make([]lab.Result, len(cases))
	var first sync.WaitGroup
	for i, c := range cases {
		first.Go(func() { ours[i] = d.ctl(within(t), c.first, "node1", c.unit) })
		first.Go(func() { theirs[i] = systemctl(t, d.theirs.node, c.first, c.unit) })
	}
	d.both(func(p *pid1) { p.reach(t, hang) })
	for _, c := range cases {
		d.second(t, c)
	}
	d.compareStates(t, names, false)
	d.both(func(p *pid1) {
		for _, name := range names {
			do(t, p.call(within(t), "StopUnit", name, "replace").Err)
			p.call(within(t), "KillUnit", name, "all", int32(9))
		}
	})
	first.Wait()
	for i, c := range cases {
		checkCode(t, c.first+" while "+c.second, c.unit, ours[i], theirs[i])
	}
}

// second runs the second command of a case with both programs.
func (d *differ) second(t *testing.T, c busyCase) {
	t.Helper()
	var flags []string
	if !slices.Contains([]string{"kill", "reset-failed", "freeze"}, c.second) {
		flags = []string{"--no-block"}
	}
	a := d.ctl(within(t), slices.Concat([]string{c.second}, flags, []string{"node1", c.unit})...)
	b := systemctl(t, d.theirs.node, slices.Concat([]string{c.second}, flags, []string{c.unit})...)
	checkCode(t, c.second, c.unit, a, b)
}
