package clustertest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/agentlink"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

// Options of a cluster.
type Options struct {
	// Nodes is the fleet, all of which have an agent; nil: node1, node2, node3.
	Nodes []string
	// Optional are those that do not count for degraded.
	Optional []string
	// Proven says that every connection proves its node's name, as certificates do.
	Proven bool
	// NotStarted are nodes whose agents wait for Node.Start.
	NotStarted []string
	// Change changes the manager's configuration.
	Change func(*manager.Config)
}

// Cluster is one manager and its agents in one process and one bubble of fake time.
type Cluster struct {
	t     *testing.T
	opt   Options
	cfg   manager.Config
	net   *network
	nodes map[string]*Node
	last  netip.Addr // that was given to a machine

	boss *boss // the manager that runs, or ran last

	mu      sync.Mutex
	history []string
	silent  bool // what is told from now on is lost with the manager
	// heard takes events of units instead of the history; it is called with the lock held.
	heard func(manager.UnitEvent, []manager.Audience)
}

// boss is one run of the manager.
type boss struct {
	core   *manager.Manager
	server *agentlink.Server
	port   *listener
	cancel context.CancelFunc
	done   chan struct{}
}

// Run starts a cluster, waits until all started nodes are online, lets scenario use it, and
// ends everything. A mistake that one of the programs logs fails the test.
func Run(t *testing.T, opt Options, scenario func(c *Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, opt)
		defer c.close()
		c.StartManager()
		for _, n := range c.nodes {
			if !slices.Contains(opt.NotStarted, n.Name) {
				n.Start()
			}
		}
		c.Until("all nodes are online", 10*time.Second, func() bool { return c.online() == len(c.nodes)-len(opt.NotStarted) })
		c.Take()
		scenario(c)
	})
}

func newCluster(t *testing.T, opt Options) *Cluster {
	if opt.Nodes == nil {
		opt.Nodes = []string{"node1", "node2", "node3"}
	}
	c := &Cluster{t: t, opt: opt, net: newNetwork(), nodes: make(map[string]*Node)}
	c.cfg = manager.Config{
		HeartbeatInterval: 2 * time.Second, HeartbeatThreshold: 6 * time.Second,
		CallTimeout: 30 * time.Second, QueryTimeout: 2 * time.Second,
	}
	c.last = netip.MustParseAddr("192.0.2.10")
	for _, name := range opt.Nodes {
		c.last = c.last.Next()
		c.cfg.Nodes = append(c.cfg.Nodes, manager.NodeConfig{Name: name, Optional: slices.Contains(opt.Optional, name)})
		c.nodes[name] = c.newNode(name, c.last)
	}
	if opt.Change != nil {
		opt.Change(&c.cfg)
	}
	return c
}

// close ends all programs, as the end of a bubble wants.
func (c *Cluster) close() {
	for _, n := range c.nodes {
		n.Stop()
	}
	c.StopManager()
	c.net.close()
}

// Node is a node by name.
func (c *Cluster) Node(name string) *Node {
	c.t.Helper()
	n := c.nodes[name]
	if n == nil {
		c.t.Fatalf("the cluster has no node %q", name)
	}
	return n
}

// AddMachine adds a machine that is in no configuration, with an agent that registers as a
// node of any name. It is not started.
func (c *Cluster) AddMachine(name, as string) *Node {
	c.last = c.last.Next()
	n := c.newNode(name, c.last)
	n.As = as
	c.nodes[name] = n
	return n
}

// Cut loses everything that is sent between the manager and a node, and Heal ends that. As
// in a real network, what was sent meanwhile arrives after Heal if nobody has given up.
func (c *Cluster) Cut(node string)  { c.net.setCut(c.Node(node).Name, true) }
func (c *Cluster) Heal(node string) { c.net.setCut(c.Node(node).Name, false) }

// StartManager starts a manager that knows nothing of those before.
func (c *Cluster) StartManager() {
	b := &boss{port: c.net.listen(), done: make(chan struct{})}
	log := c.log("manager")
	b.core = manager.New(c.cfg, c, log)
	set := agentlink.Settings{Group: agentlink.NoGroup}
	if c.opt.Proven {
		set.Secure = prove
	}
	b.server = agentlink.New(b.core, set, log)
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	go func() {
		b.core.Run(ctx)
		close(b.done)
	}()
	b.server.Serve(b.port)
	c.boss = b
	c.mute(false)
}

// prove is what TLS does: it says whose certificate the other side has.
func prove(_ context.Context, nc net.Conn) (net.Conn, agentlink.Proof, error) {
	return nc, agentlink.Proof{Node: nc.(*end).node}, nil
}

// StopManager ends the manager in order, as SIGTERM does.
func (c *Cluster) StopManager() {
	b := c.boss
	if b == nil {
		return
	}
	c.boss = nil
	b.server.Close()
	b.cancel()
	<-b.done
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	b.server.Drain(ctx)
}

// KillManager ends the manager as SIGKILL does: connections close, and nothing is told.
func (c *Cluster) KillManager() {
	c.mute(true)
	c.net.drop()
	c.StopManager()
}

func (c *Cluster) mute(silent bool) {
	c.mu.Lock()
	c.silent = silent
	c.mu.Unlock()
}

// Manager is the core of the manager that runs.
func (c *Cluster) Manager() *manager.Manager { return c.boss.core }

// Reconfigure changes the manager's configuration while it runs.
func (c *Cluster) Reconfigure(change func(*manager.Config)) {
	change(&c.cfg)
	c.boss.core.Reconfigure(c.cfg)
}

// Until lets time pass until ok, which is looked at every 10 ms, and fails after limit.
func (c *Cluster) Until(what string, limit time.Duration, ok func() bool) {
	c.t.Helper()
	began := time.Now()
	for synctest.Wait(); !ok(); synctest.Wait() {
		if time.Since(began) > limit {
			c.t.Fatalf("not within %v: %s; history:\n  %s", limit, what, strings.Join(c.Take(), "\n  "))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Nodes is what the manager says about its nodes.
func (c *Cluster) Nodes() []manager.NodeInfo {
	var all []manager.NodeInfo
	c.boss.core.Nodes(func(got []manager.NodeInfo) { all = got })
	synctest.Wait()
	return all
}

func (c *Cluster) online() (n int) {
	for _, node := range c.Nodes() {
		if node.Status == wire.NodeOnline {
			n++
		}
	}
	return n
}

// Jobs is what the manager says about its jobs.
func (c *Cluster) Jobs() []manager.JobInfo {
	var all []manager.JobInfo
	c.boss.core.Jobs(func(got []manager.JobInfo) { all = got })
	synctest.Wait()
	return all
}

// Request is a request for a job with mode replace.
func Request(node string, verb wire.Verb, unit string) manager.JobRequest {
	return manager.JobRequest{Node: node, Unit: unit, Verb: verb, Mode: "replace"}
}

// Start asks for a job. The answer is told as "as: id" or "as: kind of error".
func (c *Cluster) Start(as string, req manager.JobRequest) {
	c.boss.core.StartJob(req, func(id uint32, err error) {
		if err != nil {
			c.note("%s: %s", as, Kind(err))
			return
		}
		c.note("%s: %d", as, id)
	})
	synctest.Wait()
}

// Cancel cancels a job. The answer is told as "as: ok" or "as: kind of error".
func (c *Cluster) Cancel(as string, id uint32) {
	c.boss.core.CancelJob(id, func(err error) { c.note("%s: %s", as, Kind(err)) })
	synctest.Wait()
}

// Kind is the last word of an error's name, "ok" for none.
func Kind(err error) string {
	if err == nil {
		return "ok"
	}
	name := wire.AsError(err).Name
	return name[strings.LastIndexByte(name, '.')+1:]
}

// Take returns what was told since the last time, in order: the manager's events and the
// answers to callers.
func (c *Cluster) Take() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.history
	c.history = nil
	return got
}

// Expect compares what was told since the last time.
func (c *Cluster) Expect(want ...string) {
	c.t.Helper()
	if got := c.Take(); !slices.Equal(got, want) {
		c.t.Errorf("told was\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Told waits until a line was told, and leaves it and all others for Expect.
func (c *Cluster) Told(line string, limit time.Duration) {
	c.t.Helper()
	c.Until("told "+line, limit, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.history, line)
	})
}

func (c *Cluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.silent {
		c.history = append(c.history, fmt.Sprintf(format, args...))
	}
}

// Implementation of manager.Events.

func (c *Cluster) JobNew(j manager.JobInfo) {
	c.note("JobNew %d %s %s %s", j.ID, j.Node, j.Unit, j.Type)
}
func (c *Cluster) JobState(j manager.JobInfo) {
	c.note("JobState %d %s", j.ID, j.State)
}
func (c *Cluster) JobRemoved(j manager.JobInfo, result string) {
	c.note("JobRemoved %d %s", j.ID, result)
}
func (c *Cluster) NodeChanged(n manager.NodeInfo) { c.note("%s is %s", n.Name, n.Status) }
func (c *Cluster) StatusChanged(status string)    { c.note("fleet is %s", status) }

// FleetChanged implements manager.Events; scenarios look at Nodes.
func (c *Cluster) FleetChanged(added, removed []manager.NodeInfo) {}

// UnitEvent implements manager.Events.
func (c *Cluster) UnitEvent(e manager.UnitEvent, to []manager.Audience) {
	c.mu.Lock()
	if heard := c.heard; heard != nil {
		defer c.mu.Unlock()
		heard(e, to)
		return
	}
	c.mu.Unlock()
	c.note("event %d %s %s %s %s %s", e.Kind, e.Node, e.Unit, e.Active, e.Sub, e.Reason)
}

// PeerRemoved implements manager.Events.
func (c *Cluster) PeerRemoved(monitor uint32, peer, reason string) {}

// MonitorRemoved implements manager.Events.
func (c *Cluster) MonitorRemoved(monitor uint32) {}

// MetricsChanged implements manager.Events.
func (c *Cluster) MetricsChanged(on bool) {}

// StartJobMetrics implements manager.Events.
func (c *Cluster) StartJobMetrics(j manager.JobInfo, took, unit time.Duration) {
	c.note("start metrics %s %s %v", j.Node, j.Unit, took)
}

// AgentJobMetrics implements manager.Events.
func (c *Cluster) AgentJobMetrics(node, unit, method string, took time.Duration) {
	c.note("agent metrics %s %s %s %v", node, unit, method, took)
}

// log fails the test when a program logs a mistake.
func (c *Cluster) log(program string) *slog.Logger {
	return slog.New(&mistakes{t: c.t, program: program})
}

type mistakes struct {
	t       *testing.T
	program string
}

func (m *mistakes) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (m *mistakes) WithAttrs([]slog.Attr) slog.Handler           { return m }
func (m *mistakes) WithGroup(string) slog.Handler                { return m }
func (m *mistakes) Handle(_ context.Context, r slog.Record) error {
	text := m.program + ": " + r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	m.t.Error(text)
	return nil
}
