package clustertest

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/managerlink"
	"example.org/ctrl/internal/policy"
	"example.org/ctrl/internal/systemdtest"
	"example.org/ctrl/internal/wire"
)

// Node is one machine: a systemd, which is faked, and an agent, which is not.
type Node struct {
	Name    string // of the machine on the network
	As      string // under which the agent registers; mostly the same
	Systemd *systemdtest.Systemd
	Policy  policy.Settings // of the next start
	c       *Cluster
	address netip.Addr
	run     *agentRun // nil while the agent is down
}

// agentRun is one run of the agent.
type agentRun struct {
	core   *agent.Agent
	dialer *managerlink.Dialer
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (c *Cluster) newNode(name string, address netip.Addr) *Node {
	return &Node{Name: name, As: name, Systemd: systemdtest.New(), c: c, address: address, Policy: policy.Settings{AllowTransientUnits: true}}
}

// rules are the node's [policy].
func (n *Node) rules() policy.Policy {
	set := n.Policy
	set.Node = n.As
	rules, err := policy.New(set)
	if err != nil {
		n.c.t.Fatal(err)
	}
	return rules
}

// Start starts the agent.
func (n *Node) Start() {
	log := n.c.log(n.Name)
	r := &agentRun{}
	r.dialer = managerlink.New(managerlink.Settings{
		Connect: func(ctx context.Context, _, _ string) (net.Conn, error) { return n.c.net.dial(ctx, n.Name, n.address) },
	}, log)
	r.core = agent.New(agent.Config{
		Node: n.As, Addresses: []string{"tcp:host=192.0.2.1,port=842"},
		HeartbeatInterval: 2 * time.Second, HeartbeatThreshold: 6 * time.Second, Policy: n.rules(),
	}, n.Systemd, r.dialer, quietNode{}, log)
	r.dialer.Bind(r.core)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.done.Go(func() { r.core.Run(ctx) })
	r.done.Go(func() { n.Systemd.Run(ctx, r.core) })
	n.run = r
}

func (r *agentRun) stop() {
	r.cancel()
	r.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r.dialer.Drain(ctx)
}

// Stop ends the agent in order, as SIGTERM does. Its units go on.
func (n *Node) Stop() {
	if n.run != nil {
		n.run.stop()
		n.run = nil
	}
}

// PowerOff ends the machine without a word to anybody; Start boots it again.
func (n *Node) PowerOff() {
	n.c.net.sever(n.Name)
	n.Stop()
	n.Systemd.Reboot()
}

// Online reports whether the agent says that it is connected.
func (n *Node) Online() bool { return n.Info().Status == wire.NodeOnline }

// Info is what the agent shows on its own bus.
func (n *Node) Info() agent.Info {
	var info agent.Info
	n.run.core.Info(func(got agent.Info) { info = got })
	synctest.Wait()
	return info
}

// quietNode is the node's bus, which nobody reads here.
type quietNode struct{}

func (quietNode) StatusChanged(agent.Info)         {}
func (quietNode) ManagerAddressChanged(agent.Info) {}
