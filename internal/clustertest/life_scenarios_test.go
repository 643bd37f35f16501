package clustertest

import (
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

var lifeScenarios = map[string]scenario{
	CutWhileWaiting:    {run: cutWhileWaiting},
	CutIsNoticed:       {run: cutIsNoticed},
	HealReconnects:     {run: healReconnects},
	ManagerRestart:     {run: managerRestart},
	AgentRestart:       {run: agentRestart},
	SystemdRestart:     {run: systemdRestart},
	ManagerShutdown:    {run: managerShutdown},
	ReportOfOldSession: {run: reportOfOldSession},
}

// noticed is how long a cut may go unnoticed: the threshold and an eighth of it, from the
// last sign of life, which is at most one heartbeat old.
const noticed = 6*time.Second + 6*time.Second/8

func cutWhileWaiting(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("web.service", slowHour)
	sd.AddUnit("db.service", plain)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Start("reload", Request("node1", wire.Reload, "web.service"))
	c.Take()
	c.Cut("node1")
	c.Start("asked over the cut link", Request("node1", wire.Start, "db.service"))
	c.Manager().CallNode("node1", "Reload", wire.Raw{}, func(_ wire.Raw, err error) { c.note("call: %s", Kind(err)) })
	c.Cancel("cancel", 1)
	time.Sleep(noticed)
	c.Expect("node1 is offline", "asked over the cut link: NodeOffline", "call: NodeOffline", "cancel: NodeOffline",
		"JobRemoved 1 canceled", "JobRemoved 2 canceled", "fleet is degraded")
	// The unit was not touched, and the agent looks for the manager.
	c.state("node1", "web.service", "activating")
	c.Heal("node1")
	c.Until("node1 is online again", 20*time.Second, c.Node("node1").Online)
	c.Expect("node1 is online", "fleet is up")
}

func cutIsNoticed(c *Cluster) {
	time.Sleep(time.Minute)
	c.Expect()
	c.Cut("node1")
	time.Sleep(noticed)
	c.Expect("node1 is offline", "fleet is degraded")
	if info := c.Node("node1").Info(); info.Status != wire.NodeOffline || info.DisconnectedAt.IsZero() {
		c.t.Errorf("the agent says %+v", info)
	}
	if others := c.Node("node2").Online() && c.Node("node3").Online(); !others {
		c.t.Error("another node has gone too")
	}
}

func healReconnects(c *Cluster) {
	n := c.Node("node1")
	n.Systemd.AddUnit("web.service", plain)
	// A short cut is nothing.
	c.Cut("node1")
	time.Sleep(3 * time.Second)
	c.Heal("node1")
	time.Sleep(time.Minute)
	c.Expect()
	for i := range 5 {
		c.Cut("node1")
		time.Sleep(time.Duration(i+1) * time.Minute)
		c.Heal("node1")
		c.Until("node1 is online again", 20*time.Second, n.Online)
		c.Expect("node1 is offline", "fleet is degraded", "node1 is online", "fleet is up")
	}
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Expect("JobNew 1 node1 web.service start", "start: 1", "JobRemoved 1 done")
}

func managerRestart(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("web.service", slow)
	sd.AddUnit("db.service", hanging)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Take()
	c.KillManager()
	time.Sleep(time.Second)
	c.StartManager()
	c.Until("all nodes are online again", 20*time.Second, func() bool { return c.online() == 3 })
	c.Take()
	// Ids begin at 1 again. The end of the old job 1 is not the end of the new one.
	c.Start("start", Request("node1", wire.Start, "db.service"))
	time.Sleep(time.Minute)
	c.Expect("JobNew 1 node1 db.service start", "start: 1", "JobState 1 running")
	c.state("node1", "web.service", "active")
}

func agentRestart(c *Cluster) {
	n := c.Node("node1")
	n.Systemd.AddUnit("web.service", slow)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Take()
	n.Stop()
	c.Expect("node1 is offline", "JobRemoved 1 canceled", "fleet is degraded")
	if reason := c.info("node1").DisconnectReason; reason != "the agent ended the session: agent is shutting down" {
		c.t.Errorf("the reason is %q", reason)
	}
	time.Sleep(5 * time.Second)
	n.Start()
	c.Expect("node1 is online", "fleet is up")
	time.Sleep(5 * time.Second)
	c.state("node1", "web.service", "active")
	c.Expect()
}

func systemdRestart(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("web.service", slow)
	sd.AddUnit("fast.service", plain)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Take()
	sd.Restart(3 * time.Second)
	c.Start("meanwhile", Request("node1", wire.Start, "fast.service"))
	c.Expect("meanwhile: Disconnected")
	time.Sleep(10 * time.Second)
	c.Expect("JobRemoved 1 done") // the job has survived, and so has the session
	// A job that ends while nobody listens is found to have ended.
	c.Start("restart", Request("node1", wire.Restart, "web.service"))
	time.Sleep(8 * time.Second)
	sd.Restart(5 * time.Second)
	time.Sleep(6 * time.Second)
	c.Expect("JobNew 3 node1 web.service restart", "restart: 3", "JobState 3 running", "JobRemoved 3 done")
	if n := c.Jobs(); len(n) != 0 {
		c.t.Errorf("jobs are left: %v", n)
	}
}

func managerShutdown(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("web.service", slow)
	sd.AddUnit("db.service", plain)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Start("reload", Request("node1", wire.Reload, "web.service"))
	sd.Hold()
	c.Start("asked", Request("node1", wire.Start, "db.service"))
	c.Manager().CallNode("node1", "Reload", wire.Raw{}, func(_ wire.Raw, err error) { c.note("call: %s", Kind(err)) })
	c.Take()
	began := time.Now()
	c.StopManager()
	c.Expect("JobRemoved 1 canceled", "JobRemoved 2 canceled", "asked: ShuttingDown", "call: ShuttingDown",
		"node1 is offline", "node2 is offline", "node3 is offline", "fleet is down")
	if d := time.Since(began); d > 5*time.Second {
		c.t.Errorf("the manager took %v to end", d)
	}
	sd.Release()
	time.Sleep(10 * time.Second)
	c.state("node1", "web.service", "active") // nothing was stopped on the node
	c.StartManager()
	c.Until("all nodes are online again", 20*time.Second, func() bool { return c.online() == 3 })
}

func reportOfOldSession(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("web.service", slow)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Take()
	c.Cut("node1")
	time.Sleep(noticed)
	c.Expect("node1 is offline", "JobRemoved 1 canceled", "fleet is degraded")
	c.Heal("node1")
	c.Until("node1 is online again", 20*time.Second, c.Node("node1").Online)
	sd.AddUnit("db.service", hanging)
	c.Start("start", Request("node1", wire.Start, "db.service"))
	time.Sleep(time.Minute)
	synctest.Wait()
	c.Expect("node1 is online", "fleet is up", "JobNew 2 node1 db.service start", "start: 2", "JobState 2 running")
	if all := c.Jobs(); len(all) != 1 || all[0] != (manager.JobInfo{ID: 2, Node: "node1", Unit: "db.service", Type: "start", State: "running"}) {
		c.t.Errorf("jobs are %v", all)
	}
}
