package clustertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/systemdtest"
	"example.org/ctrl/internal/wire"
)

var monitorScenarios = map[string]scenario{
	MonitorsSeeLastState: {run: monitorsSeeLastState},
	MonitorOfOfflineNode: {opt: Options{NotStarted: []string{"node2"}}, run: monitorOfOfflineNode},
	MonitorIsQuiet:       {run: monitorIsQuiet},
	MonitorFollowsAlias:  {run: monitorFollowsAlias},
	MonitorsAfterCut:     {run: monitorsAfterCut},
	FloodWhileCut:        {opt: Options{Nodes: []string{"node1"}}, run: floodWhileCut},
}

// monitor makes a monitor and gives it a subscription.
func (c *Cluster) monitor(owner, node string, units ...string) (id uint32) {
	c.t.Helper()
	c.Manager().CreateMonitor(owner, func(got uint32, err error) { id = got })
	synctest.Wait()
	c.Manager().Subscribe(owner, id, node, units, func(_ uint32, err error) {
		if err != nil {
			c.t.Errorf("subscription: %v", err)
		}
	})
	synctest.Wait()
	return id
}

// views is what the clients of all monitors know from their signals alone.
type views struct {
	units      map[string]map[string]string // by monitor and node: unit → state
	properties map[string]string            // the last one of each: "unit name" → value
	changes    int                          // of state
}

func (c *Cluster) views() *views {
	v := &views{units: make(map[string]map[string]string), properties: make(map[string]string)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = func(e manager.UnitEvent, to []manager.Audience) {
		for _, a := range to {
			key := fmt.Sprint(a.Monitor, " ", e.Node)
			if v.units[key] == nil {
				v.units[key] = make(map[string]string)
			}
			v.take(v.units[key], e)
		}
	}
	return v
}

func (v *views) take(units map[string]string, e manager.UnitEvent) {
	switch e.Kind {
	case manager.UnitNew:
		units[e.Unit] = "inactive"
	case manager.UnitRemoved:
		delete(units, e.Unit)
	case manager.UnitStateChanged:
		units[e.Unit] = e.Active
		v.changes++
	case manager.UnitPropertiesChanged:
		var all map[string]wire.Value
		if peer.Decode(e.Properties, &all) == nil {
			for name, value := range all {
				text, _ := value.AsString()
				v.properties[e.Unit+" "+name] = text
			}
		}
	}
}

// truth compares what a monitor shows of a node with what its systemd says.
func (c *Cluster) truth(v *views, monitor uint32, node string, units []string) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	shown := maps.Clone(v.units[fmt.Sprint(monitor, " ", node)])
	c.mu.Unlock()
	delete(shown, "*")
	want := make(map[string]string)
	for _, u := range units {
		// What is inactive and not needed is not loaded, and a monitor does not show it.
		if state := c.Node(node).Systemd.State(u).Active; state != "inactive" {
			want[u] = state
		}
	}
	if !maps.Equal(shown, want) {
		c.t.Errorf("monitor %d shows %v of %s, the truth is %v", monitor, shown, node, want)
	}
}

// job is what somebody does on the node itself.
func job(n *Node, verb wire.Verb, unit string) {
	n.Systemd.StartJob(agent.JobRequest{Unit: unit, Verb: verb, Mode: "replace"}, time.Minute, func(uint32, error) {})
}

func monitorsSeeLastState(c *Cluster) {
	n, v := c.Node("node1"), c.views()
	var units []string
	for i := range 10 {
		units = append(units, fmt.Sprintf("u%d.service", i))
		n.Systemd.AddUnit(units[i], plain)
	}
	var monitors []uint32
	for i := range 20 {
		monitors = append(monitors, c.monitor(fmt.Sprint(":1.", i), []string{"*", "node1", "node*"}[i%3], "*"))
	}
	one := c.monitor(":1.99", "node1", "u3.service")
	const changes = 5000
	for i := range changes / 4 { // a start is two changes, and so is a stop
		u := units[i*7%len(units)]
		job(n, wire.Start, u)
		if i < changes/4-5 {
			job(n, wire.Stop, u)
		}
		if i%1000 == 999 {
			synctest.Wait()
		}
	}
	for _, m := range monitors {
		c.truth(v, m, "node1", units)
	}
	c.truth(v, one, "node1", []string{"u3.service"})
	if want := (changes - 2*5) * len(monitors); v.changes < want {
		c.t.Errorf("%d changes of state were told, want %d: some are lost", v.changes, want)
	}
}

func monitorOfOfflineNode(c *Cluster) {
	sd := c.Node("node2").Systemd
	sd.AddUnit("foo.service", systemdtest.Spec{Enabled: true})
	sd.Reboot()
	c.monitor(":1.1", "node2", "foo.service", "not-there.service")
	c.Expect()
	c.Node("node2").Start()
	c.Until("the unit is told", 10*time.Second, func() bool { return len(c.peek("event")) == 2 })
	c.Expect("node2 is online", "fleet is up", "event 0 node2 foo.service   virtual", "event 2 node2 foo.service active running virtual")
	c.Node("node2").Stop()
	c.Expect("node2 is offline", "event 2 node2 foo.service inactive agent-offline virtual", "event 1 node2 foo.service   virtual", "fleet is degraded")
}

// peek lists what was told so far and begins so.
func (c *Cluster) peek(prefix string) (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range c.history {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, line)
		}
	}
	return lines
}

func monitorIsQuiet(c *Cluster) {
	sd := c.Node("node1").Systemd
	for i := range 2000 {
		sd.AddUnit(fmt.Sprintf("u%d.service", i), systemdtest.Spec{Enabled: true})
	}
	sd.Reboot()
	c.Until("node1 is online", 20*time.Second, func() bool { return c.online() == 3 })
	c.Take()
	c.monitor(":1.1", "node1", "u7.service")
	before := sd.Requests()
	if last := before[len(before)-1]; last != "Units u7.service" {
		c.t.Errorf("a subscription asked %q", last)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if asked := sd.Requests()[len(before):]; len(asked) > 0 {
		c.t.Errorf("while nothing happened systemd was asked %q", asked)
	}
	c.Take()
	job(c.Node("node1"), wire.Restart, "u8.service") // nobody's
	c.Expect()
}

func monitorFollowsAlias(c *Cluster) {
	sd := c.Node("node1").Systemd
	sd.AddUnit("a.service", systemdtest.Spec{Enabled: true})
	sd.AddUnit("b.service", systemdtest.Spec{Enabled: true})
	sd.Reboot()
	c.Until("node1 is online", 20*time.Second, func() bool { return c.online() == 3 })
	c.monitor(":1.1", "node1", "a.service")
	c.Take()
	job(c.Node("node1"), wire.Stop, "a.service")
	sd.RemoveUnit("a.service")
	synctest.Wait()
	if told := c.Take(); told[len(told)-1] != "event 1 node1 a.service   real" {
		c.t.Errorf("of a unit that went: %q", told)
	}
	sd.AddUnit("b.service", systemdtest.Spec{Aliases: []string{"a.service"}})
	c.Manager().CallNode("node1", "Reload", wire.Raw{}, func(wire.Raw, error) {})
	c.Expect("event 0 node1 b.service   virtual", "event 2 node1 b.service active running virtual")
	job(c.Node("node1"), wire.Stop, "b.service")
	synctest.Wait()
	if told := c.peek("event 2"); !slices.Contains(told, "event 2 node1 b.service inactive dead real") {
		c.t.Errorf("of the unit behind the name: %q", told)
	}
}

func monitorsAfterCut(c *Cluster) {
	n, v := c.Node("node1"), c.views()
	var units []string
	for i := range 20 {
		units = append(units, fmt.Sprintf("u%d.service", i))
		n.Systemd.AddUnit(units[i], plain)
	}
	all, one := c.monitor(":1.1", "*", "*"), c.monitor(":1.2", "node1", units[1])
	for _, cut := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
		job(n, wire.Start, units[0])
		job(n, wire.Start, units[1])
		synctest.Wait()
		c.Cut("node1")
		for i, u := range units {
			job(n, []wire.Verb{wire.Stop, wire.Start}[(i+int(cut/time.Second))%2], u)
		}
		time.Sleep(cut)
		if cut > noticed {
			c.truth(v, all, "node1", nil) // nothing is shown of a node that is lost
		}
		c.Heal("node1")
		healed := time.Now()
		c.Until("node1 is online after a cut of "+cut.String(), 11*time.Second, func() bool { return n.Online() && c.online() == 3 })
		if took := time.Since(healed); cut <= 5*time.Second && took > 3*time.Second {
			c.t.Errorf("after a cut of %v the node was online again after %v", cut, took)
		}
		c.truth(v, all, "node1", units)
		c.truth(v, one, "node1", units[1:2])
	}
}

// floodWhileCut changes 64 KiB of properties of each of some units every 4 ms while nothing
// gets through.
func floodWhileCut(c *Cluster) {
	n, v := c.Node("node1"), c.views()
	units := []string{"a.service", "b.service", "c.service", "d.service"}
	m := c.monitor(":1.1", "*", "*")
	for _, u := range units {
		n.Systemd.AddUnit(u, plain)
		job(n, wire.Start, u)
	}
	synctest.Wait()
	c.Take()
	c.Cut("node1")
	const rounds = 1000 // in all, less time than a cut takes to be noticed
	for i := range rounds {
		for _, u := range units {
			set(n, u, fmt.Sprint("round ", i))
		}
		time.Sleep(4 * time.Millisecond)
	}
	job(n, wire.Restart, "a.service")
	synctest.Wait()
	c.Heal("node1")
	time.Sleep(time.Second)
	c.truth(v, m, "node1", units)
	for _, u := range units {
		if got, want := v.properties[u+" Description"], fmt.Sprint("round ", rounds-1); got != want {
			c.t.Errorf("the last value told of %s is %q, want %q", u, got, want)
		}
	}
	c.Expect() // the session has not ended
}

var large = peer.MustValue(strings.Repeat("x", 64<<10))

// set changes properties of a unit on the node itself.
func set(n *Node, unit, description string) {
	type property struct {
		Name  string
		Value wire.Value
	}
	args := peer.MustEncode(unit, true, []property{{"Description", peer.MustValue(description)}, {"Documentation", large}})
	n.Systemd.Call("SetUnitProperties", args, time.Minute, func(wire.Raw, error) {})
}
