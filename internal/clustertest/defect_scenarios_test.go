package clustertest

import (
	"context"
	"fmt"
	"net/netip"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

// defectScenarios are those that other tools of this kind are known to get wrong.
var defectScenarios = map[string]scenario{
	ResetConnections:   {run: resetConnections},
	CallsInFlight:      {run: callsInFlight},
	UnpluggedUnderLoad: {run: unpluggedUnderLoad},
	MetricsOfHungNode:  {run: metricsOfHungNode},
}

func resetConnections(c *Cluster) {
	from := netip.MustParseAddr("192.0.2.200")
	for i := range 300 {
		nc, err := c.net.dial(context.Background(), "crowd", from)
		if err != nil {
			c.t.Fatal(err)
		}
		if i%2 == 1 {
			// Half-way through authentication. The manager may have closed it already.
			_, _ = nc.Write([]byte("\x00AUTH EXTERNAL\r\n"))
		}
		_ = nc.Close()
	}
	synctest.Wait()
	c.Expect()
	late := c.Node("node1")
	late.Stop()
	late.Start()
	c.Until("node1 is online again", time.Second, late.Online)
}

func callsInFlight(c *Cluster) {
	c.Node("node1").Systemd.Hold()
	for i := range 100 {
		c.Manager().CallNode("node1", "Reload", wire.Raw{}, func(_ wire.Raw, err error) { c.note("call %d: %s", i, Kind(err)) })
	}
	c.Cut("node1")
	time.Sleep(noticed)
	told := c.Take()
	for i := range 100 {
		if count(told, fmt.Sprintf("call %d: NodeOffline", i)) != 1 {
			c.t.Fatalf("call %d is not told once: %v", i, told)
		}
	}
}

func unpluggedUnderLoad(c *Cluster) {
	for i := range 50 {
		c.Node("node1").Systemd.AddUnit(fmt.Sprintf("u%d.service", i), plain)
	}
	c.Cut("node1")
	for i := range 50 {
		c.Manager().StartJob(Request("node1", wire.Start, fmt.Sprintf("u%d.service", i)), func(uint32, error) {})
	}
	time.Sleep(noticed)
	if info := c.info("node1"); info.Status != wire.NodeOffline {
		c.t.Errorf("the manager says %+v", info)
	}
	if c.Node("node1").Online() {
		c.t.Error("the agent says that it is connected")
	}
	if jobs := c.Jobs(); len(jobs) != 0 {
		c.t.Errorf("jobs of the lost node are left: %v", jobs)
	}
}

func metricsOfHungNode(c *Cluster) {
	for _, name := range []string{"node1", "node2"} {
		c.Node(name).Systemd.AddUnit("web.service", plain)
	}
	c.Manager().SetMetrics(true, func(error) {})
	c.Start("one", Request("node1", wire.Start, "web.service"))
	c.Node("node1").Systemd.Hold() // before it can answer how long that took
	c.Start("two", Request("node2", wire.Start, "web.service"))
	synctest.Wait()
	if told := c.Take(); count(told, "start metrics node2 web.service 0s") != 1 {
		c.t.Errorf("node2's figures wait for node1: %v", told)
	}
	c.Node("node1").Systemd.Release()
}
