package clustertest

import (
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

var nodeScenarios = map[string]scenario{
	UnknownNode:          {run: unknownNode},
	OfflineNode:          {run: offlineNode},
	DuplicateName:        {run: duplicateName},
	NodeNotAllowed:       {run: nodeNotAllowed},
	GhostTakeOver:        {opt: Options{Proven: true}, run: ghostTakeOver},
	SlowNodeDoesNotBlock: {run: slowNodeDoesNotBlock},
	FleetStatus:          {run: fleetStatus},
	OptionalNode:         {opt: Options{Nodes: []string{"node1", "flaky"}, Optional: []string{"flaky"}}, run: optionalNode},
	ManyNodes:            {opt: Options{Nodes: manyNames(30)}, run: manyNodes},
	ManagerRemovesNode:   {run: managerRemovesNode},
}

func unknownNode(c *Cluster) {
	c.Start("start", Request("node9", wire.Start, "web.service"))
	c.Expect("start: NoSuchNode")
	c.Manager().QueryNodes([]string{"web*"}, "ListUnits", wire.Raw{}, func(_ []manager.NodeReply, err error) { c.note("list: %s", Kind(err)) })
	c.Expect("list: NoSuchNode")
}

func offlineNode(c *Cluster) {
	began := time.Now()
	c.Node("node1").Stop()
	c.Expect("node1 is offline", "fleet is degraded")
	time.Sleep(time.Minute)
	var got error
	c.Manager().StartJob(Request("node1", wire.Start, "web.service"), func(_ uint32, err error) { got = err })
	synctest.Wait()
	if Kind(got) != "NodeOffline" {
		c.t.Fatalf("the caller got %v", got)
	}
	for _, want := range []string{"node1", began.UTC().Format(time.RFC3339), "agent is shutting down"} {
		if !strings.Contains(got.Error(), want) {
			c.t.Errorf("%q does not say %q", got, want)
		}
	}
}

func duplicateName(c *Cluster) {
	c.Node("node1").Systemd.AddUnit("web.service", slow)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Take()
	twin := c.AddMachine("twin", "node1")
	twin.Start()
	time.Sleep(9 * time.Second)
	c.Expect()
	if twin.Online() {
		c.t.Error("the second agent is online")
	}
	if info := c.info("node1"); info.Address != "192.0.2.11" {
		c.t.Errorf("node1 is at %s now", info.Address)
	}
	time.Sleep(time.Second)
	c.Expect("JobRemoved 1 done")
	// It comes in as soon as the name is free.
	c.Node("node1").Stop()
	c.Until("the twin is online", 15*time.Second, twin.Online)
}

func (c *Cluster) info(name string) manager.NodeInfo {
	for _, n := range c.Nodes() {
		if n.Name == name {
			return n
		}
	}
	c.t.Fatalf("the manager has no node %s", name)
	return manager.NodeInfo{}
}

func nodeNotAllowed(c *Cluster) {
	stranger := c.AddMachine("stranger", "node4")
	stranger.Start()
	time.Sleep(time.Minute)
	c.Expect()
	if stranger.Online() {
		c.t.Error("a node that is not in the fleet is online")
	}
}

func ghostTakeOver(c *Cluster) {
	n := c.Node("node1")
	n.Systemd.AddUnit("web.service", hanging)
	c.Start("start", Request("node1", wire.Start, "web.service"))
	c.Take()
	n.PowerOff()
	c.Expect() // nobody has noticed
	n.Start()
	synctest.Wait()
	c.Expect("node1 is offline", "JobRemoved 1 canceled", "fleet is degraded", "node1 is online", "fleet is up")
	time.Sleep(time.Minute)
	c.Expect() // the ghost is not heard any more
	c.Start("again", Request("node1", wire.Start, "web.service"))
	c.Expect("JobNew 2 node1 web.service start", "again: 2", "JobState 2 running")
}

// list asks all nodes and notes who has answered.
func (c *Cluster) list() {
	began := time.Now()
	c.Manager().QueryNodes(nil, "ListUnits", wire.Raw{}, func(all []manager.NodeReply, err error) {
		line := fmt.Sprintf("list after %v:", time.Since(began))
		for _, r := range all {
			var units []wire.UnitStatus
			if r.Err != nil || peer.Decode(r.Body, &units) != nil {
				line += fmt.Sprintf(" %s=%s", r.Node, Kind(r.Err))
				continue
			}
			line += fmt.Sprintf(" %s=%d", r.Node, len(units))
		}
		c.note("%s", line)
	})
	synctest.Wait()
}

func slowNodeDoesNotBlock(c *Cluster) {
	for _, name := range []string{"node1", "node3"} {
		c.Node(name).Systemd.AddUnit("web.service", plain)
		c.Start("start", Request(name, wire.Start, "web.service"))
	}
	c.Node("node2").Systemd.Hold()
	c.Take()
	c.list()
	time.Sleep(3 * time.Second)
	c.Expect("list after 2s: node1=1 node2=Timeout node3=1")
	c.Node("node2").Systemd.Release()
	// A cut link that nobody has noticed yet is no different.
	c.Cut("node1")
	c.list()
	time.Sleep(3 * time.Second)
	c.Expect("list after 2s: node1=Timeout node2=0 node3=1")
	c.Heal("node1")
	c.list()
	c.Expect("list after 0s: node1=1 node2=0 node3=1")
}

func fleetStatus(c *Cluster) {
	c.Node("node1").Stop()
	c.Expect("node1 is offline", "fleet is degraded")
	c.Node("node2").Stop()
	c.Expect("node2 is offline")
	c.Node("node3").Stop()
	c.Expect("node3 is offline", "fleet is down")
	c.Node("node1").Start()
	c.Expect("node1 is online", "fleet is degraded")
	c.Node("node2").Start()
	c.Expect("node2 is online")
	c.Node("node3").Start()
	c.Expect("node3 is online", "fleet is up")
}

func optionalNode(c *Cluster) {
	c.Node("flaky").Stop()
	c.Expect("flaky is offline")
	c.Node("node1").Stop()
	c.Expect("node1 is offline", "fleet is down")
	c.Node("flaky").Start()
	c.Expect("flaky is online", "fleet is degraded")
}

func manyNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("node%02d", i+1))
	}
	return names
}

func manyNodes(c *Cluster) {
	for _, name := range c.opt.Nodes {
		c.Node(name).Systemd.AddUnit("web.service", slow)
	}
	for _, name := range c.opt.Nodes {
		c.Manager().StartJob(Request(name, wire.Start, "web.service"), func(id uint32, err error) { c.note("start: %s", Kind(err)) })
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
	told := c.Take()
	if n := count(told, "start: ok"); n != len(c.opt.Nodes) {
		c.t.Errorf("%d of %d starts were accepted", n, len(c.opt.Nodes))
	}
	ended := 0
	for _, line := range told {
		if strings.HasPrefix(line, "JobRemoved") && strings.HasSuffix(line, "done") {
			ended++
		}
	}
	if ended != len(c.opt.Nodes) || len(c.Jobs()) != 0 {
		c.t.Errorf("%d of %d jobs are done, %d go on", ended, len(c.opt.Nodes), len(c.Jobs()))
	}
	c.list()
	if line := c.Take()[0]; strings.Count(line, "=1") != len(c.opt.Nodes) {
		c.t.Errorf("not every node has listed its unit: %s", line)
	}
	time.Sleep(5 * time.Minute)
	c.Expect()
}

func managerRemovesNode(c *Cluster) {
	c.Node("node2").Systemd.AddUnit("web.service", slow)
	c.Start("start", Request("node2", wire.Start, "web.service"))
	c.Take()
	c.Reconfigure(func(cfg *manager.Config) { cfg.Nodes = []manager.NodeConfig{cfg.Nodes[0], cfg.Nodes[2]} })
	c.Expect("node2 is offline", "JobRemoved 1 canceled")
	time.Sleep(time.Minute)
	c.Expect()
	if c.Node("node2").Online() {
		c.t.Error("the removed node is online")
	}
	c.state("node2", "web.service", "active")
	c.Start("start", Request("node2", wire.Start, "web.service"))
	c.Expect("start: NoSuchNode")
}
