package clustertest

import (
	"strings"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/systemdtest"
	"example.org/ctrl/internal/wire"
)

// Units of the scenarios: slow ones take ten seconds, hanging ones never end by themselves.
var (
	plain    = systemdtest.Spec{}
	slow     = systemdtest.Spec{Start: systemdtest.Run{Takes: 10 * time.Second}}
	slowHour = systemdtest.Spec{Start: systemdtest.Run{Takes: time.Hour}}
	hanging  = systemdtest.Spec{Start: systemdtest.Run{Ends: systemdtest.Hangs}}
)

var jobScenarios = map[string]scenario{
	StartStop:           {run: startStop},
	EveryVerb:           {run: everyVerb},
	FailingUnit:         {run: failingUnit},
	UnknownUnit:         {run: unknownUnit},
	MaskedUnit:          {run: maskedUnit},
	BadUnitName:         {run: badUnitName},
	FastOneshot:         {run: fastOneshot},
	UnitAlias:           {run: unitAlias},
	TransientUnit:       {run: transientUnit},
	EqualJobsShared:     {run: equalJobsShared},
	StopInterruptsStart: {run: stopInterruptsStart},
	ReloadWaitsForStart: {run: reloadWaitsForStart},
	FailModeIsBusy:      {run: failModeIsBusy},
	CancelJob:           {run: cancelJob},
}

func startStop(c *Cluster) {
	n := c.Node("node2")
	n.Systemd.AddUnit("web.service", slow)
	c.Start("start", Request("node2", wire.Start, "web.service"))
	c.Expect("JobNew 1 node2 web.service start", "start: 1", "JobState 1 running")
	time.Sleep(10 * time.Second)
	c.Expect("JobRemoved 1 done")
	c.state("node2", "web.service", "active")
	c.Start("stop", Request("node2", wire.Stop, "web.service"))
	c.Expect("JobNew 2 node2 web.service stop", "stop: 2", "JobRemoved 2 done")
	c.state("node2", "web.service", "inactive")
	for _, other := range []string{"node1", "node3"} {
		if asked := c.Node(other).Systemd.Requests(); len(asked) > 0 {
			c.t.Errorf("%s was asked %v", other, asked)
		}
	}
}

func (c *Cluster) state(node, unit, active string) {
	c.t.Helper()
	synctest.Wait()
	if got := c.Node(node).Systemd.State(unit); got.Active != active {
		c.t.Errorf("%s on %s is %v, want %s", unit, node, got, active)
	}
}

func everyVerb(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("web.service", plain)
	for _, verb := range wire.Verbs() {
		for _, before := range []wire.Verb{wire.Start, wire.Stop} {
			c.Start("before", Request("node1", before, "web.service"))
			c.Take()
			c.Start("verb", Request("node1", verb, "web.service"))
			asked := sd.Requests()
			if got, want := asked[len(asked)-1], verb.Method()+" web.service replace"; got != want {
				c.t.Errorf("systemd was asked %q, want %q", got, want)
			}
			// What inactive units do with each verb is systemctl(1)'s.
			result, active := "done", "active"
			switch {
			case verb == wire.Stop:
				active = "inactive"
			case before == wire.Stop && verb == wire.Reload:
				result, active = "invalid", "inactive"
			case before == wire.Stop && (verb == wire.TryRestart || verb == wire.TryReloadOrRestart):
				active = "inactive"
			}
			told := c.Take()
			if last := told[len(told)-1]; !strings.HasPrefix(last, "JobRemoved") || !strings.HasSuffix(last, " "+result) {
				c.t.Errorf("%s after %s: told %v, want a job that ends %s", verb, before, told, result)
			}
			c.state("node1", "web.service", active)
		}
	}
}

func failingUnit(c *Cluster) {
	c.Node("node1").Systemd.AddUnit("bad.service", systemdtest.Spec{Start: systemdtest.Run{Takes: time.Second, Ends: "failed"}})
	c.Start("start", Request("node1", wire.Start, "bad.service"))
	time.Sleep(time.Second)
	c.Expect("JobNew 1 node1 bad.service start", "start: 1", "JobState 1 running", "JobRemoved 1 failed")
	c.state("node1", "bad.service", "failed")
}

func unknownUnit(c *Cluster) {
	c.refused(Request("node1", wire.Start, "none.service"), wire.ErrSystemdNoSuchUnit.With("Unit none.service not found."))
}

func maskedUnit(c *Cluster) {
	c.Node("node1").Systemd.AddUnit("off.service", systemdtest.Spec{Load: "masked"})
	c.refused(Request("node1", wire.Start, "off.service"), wire.ErrSystemdUnitMasked.With("Unit off.service is masked."))
}

// refused expects systemd's own words, and nothing told to anybody else.
func (c *Cluster) refused(req manager.JobRequest, want *wire.Error) {
	c.t.Helper()
	var got error
	c.Manager().StartJob(req, func(_ uint32, err error) { got = err })
	c.Expect()
	if e := wire.AsError(got); e == nil || *e != *want {
		c.t.Errorf("the caller got %v, want %v", got, want)
	}
}

func badUnitName(c *Cluster) {
	for _, name := range []string{"", "web", "web@.service", "a/b.service", "a\nb.service", strings.Repeat("x", 300) + ".service"} {
		c.Start("start", Request("node1", wire.Start, name))
		c.Expect("start: InvalidArgs")
	}
	if asked := c.Node("node1").Systemd.Requests(); len(asked) > 0 {
		c.t.Errorf("the node was asked %v", asked)
	}
}

func fastOneshot(c *Cluster) {
	c.Node("node1").Systemd.AddUnit("quick.service", systemdtest.Spec{Oneshot: true})
	for range 100 {
		c.Start("start", Request("node1", wire.Start, "quick.service"))
	}
	told := c.Take()
	if len(told) != 300 {
		c.t.Fatalf("told %d lines of 100 jobs, want 3 of each: %v", len(told), told)
	}
	for i := 0; i < len(told); i += 3 {
		if !strings.HasPrefix(told[i], "JobNew") || !strings.HasPrefix(told[i+1], "start: ") || !strings.HasPrefix(told[i+2], "JobRemoved") {
			c.t.Fatalf("told %v, want JobNew, the reply, JobRemoved", told[i:i+3])
		}
	}
}

func unitAlias(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("bluetooth.service", systemdtest.Spec{Aliases: []string{"dbus-org.bluez.service"}, Start: systemdtest.Run{Takes: 5 * time.Second}})
	c.Start("name", Request("node1", wire.Start, "bluetooth.service"))
	c.Start("alias", Request("node1", wire.Start, "dbus-org.bluez.service"))
	if n := sd.QueuedJobs(); n != 1 {
		c.t.Errorf("systemd has %d jobs, want one for both names", n)
	}
	time.Sleep(5 * time.Second)
	c.Expect("JobNew 1 node1 bluetooth.service start", "name: 1", "JobState 1 running",
		"JobNew 2 node1 dbus-org.bluez.service start", "alias: 2", "JobState 2 running",
		"JobRemoved 1 done", "JobRemoved 2 done")
}

func transientUnit(c *Cluster) {
	type property struct {
		Name  string
		Value wire.Value
	}
	type aux struct {
		Name       string
		Properties []property
	}
	args := peer.MustEncode([]property{{"Description", peer.MustValue("once")}}, []aux{})
	req := Request("node1", wire.Start, "run-1.service")
	req.Transient = &args
	c.Start("run", req)
	c.Expect("JobNew 1 node1 run-1.service start", "run: 1", "JobRemoved 1 done")
	c.state("node1", "run-1.service", "active")
	c.Start("again", req)
	c.Expect("again: UnitExists")
}

func equalJobsShared(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("web.service", slow)
	sd.Hold()
	c.Start("first", Request("node1", wire.Start, "web.service"))
	c.Start("while asked", Request("node1", wire.Start, "web.service"))
	c.Expect()
	sd.Release()
	c.Expect("JobNew 1 node1 web.service start", "first: 1", "while asked: 1", "JobState 1 running")
	c.Start("while it runs", Request("node1", wire.Start, "web.service"))
	time.Sleep(10 * time.Second)
	c.Expect("while it runs: 1", "JobRemoved 1 done")
	if asked := sd.Requests(); len(asked) != 1 {
		c.t.Errorf("systemd was asked %v", asked)
	}
	// Two restarts are two jobs here and one in systemd, which knows what they may share.
	c.Start("restart", Request("node1", wire.Restart, "web.service"))
	c.Start("restart too", Request("node1", wire.Restart, "web.service"))
	if n := sd.QueuedJobs(); n != 1 {
		c.t.Errorf("systemd has %d jobs, want 1", n)
	}
	c.Told("JobRemoved 2 done", time.Minute)
	c.Told("JobRemoved 3 done", time.Minute)
}

func stopInterruptsStart(c *Cluster) {
	c.Node("node1").Systemd.AddUnit("stuck.service", hanging)
	c.Start("start", Request("node1", wire.Start, "stuck.service"))
	c.Start("reload", Request("node1", wire.Reload, "stuck.service"))
	time.Sleep(10 * time.Minute)
	c.Expect("JobNew 1 node1 stuck.service start", "start: 1", "JobState 1 running",
		"JobNew 2 node1 stuck.service reload", "reload: 2")
	c.Start("stop", Request("node1", wire.Stop, "stuck.service"))
	told := c.Take()
	// The start ends as systemd says, before or after the stop is announced.
	for _, line := range []string{"JobNew 3 node1 stuck.service stop", "stop: 3", "JobRemoved 1 canceled", "JobRemoved 2 canceled", "JobRemoved 3 done"} {
		if count(told, line) != 1 {
			c.t.Errorf("%q was told %d times: %v", line, count(told, line), told)
		}
	}
	c.state("node1", "stuck.service", "inactive")
}

func count(lines []string, line string) (n int) {
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

func reloadWaitsForStart(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("web.service", slow)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Start("reload", Request("node1", wire.Reload, "web.service"))
	c.Start("reload too", Request("node1", wire.Reload, "web.service"))
	if asked := sd.Requests(); len(asked) != 1 {
		c.t.Errorf("systemd was asked %v before the start has ended", asked)
	}
	time.Sleep(10 * time.Second)
	c.Expect("JobNew 1 node1 web.service start", "start: 1", "JobState 1 running",
		"JobNew 2 node1 web.service reload", "reload: 2", "reload too: 2", "JobRemoved 1 done", "JobRemoved 2 done")
}

func failModeIsBusy(c *Cluster) {
	c.Node("node1").Systemd.AddUnit("web.service", slow)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	stop := Request("node1", wire.Stop, "web.service")
	stop.Mode = "fail"
	c.Start("stop", stop)
	time.Sleep(10 * time.Second)
	c.Expect("JobNew 1 node1 web.service start", "start: 1", "JobState 1 running", "stop: UnitBusy", "JobRemoved 1 done")
}

func cancelJob(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("web.service", slow)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Start("reload", Request("node1", wire.Reload, "web.service"))
	c.Take()
	c.Cancel("waiting", 2)
	c.Expect("JobRemoved 2 canceled", "waiting: ok")
	c.Cancel("running", 1)
	c.Expect("JobRemoved 1 canceled", "running: ok")
	// Canceling a job stops nothing: the unit goes on starting, as in systemd.
	c.state("node1", "web.service", "activating")
	c.Cancel("gone", 1)
	c.Expect("gone: NoSuchJob")
}
