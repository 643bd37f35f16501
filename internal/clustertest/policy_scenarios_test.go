package clustertest

import (
	"strings"
	"time"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/policy"
	"example.org/ctrl/internal/systemdtest"
	"example.org/ctrl/internal/wire"
)

var policyScenarios = map[string]scenario{NodesLastWord: {run: nodesLastWord}}

// denied expects a refusal of the node's, with the key and the node in its text.
func (c *Cluster) denied(req manager.JobRequest, key string) {
	c.t.Helper()
	var got error
	c.Manager().StartJob(req, func(_ uint32, err error) { got = err })
	c.Expect()
	e := wire.AsError(got)
	if e == nil || e.Name != wire.ErrAccessDenied.Name || !strings.Contains(e.Text, key) || !strings.Contains(e.Text, req.Node) {
		c.t.Errorf("%s %s on %s: %v, want a refusal by %s", req.Verb, req.Unit, req.Node, got, key)
	}
}

func nodesLastWord(c *Cluster) {
	for _, name := range []string{"node1", "node2"} {
		n := c.Node(name)
		n.Systemd.AddUnit("ssh.service", systemdtest.Spec{Aliases: []string{"sshd.service"}})
		n.Systemd.AddUnit("web.service", systemdtest.Spec{})
	}
	c.restart("node1", policy.Settings{DenyUnits: []string{"sshd.service"}})
	c.denied(Request("node1", wire.Start, "ssh.service"), "DenyUnits=")
	c.denied(Request("node1", wire.Stop, "sshd.service"), "DenyUnits=")
	transient := Request("node1", wire.Start, "run-1.service")
	transient.Transient = &wire.Raw{Sig: "a(sv)a(sa(sv))", Data: make([]byte, 16)}
	c.denied(transient, "AllowTransientUnits=")
	c.Start("other unit", Request("node1", wire.Start, "web.service"))
	c.Expect("JobNew 4 node1 web.service start", "other unit: 4", "JobRemoved 4 done")
	c.Start("other node", Request("node2", wire.Start, "sshd.service"))
	c.Expect("JobNew 5 node2 sshd.service start", "other node: 5", "JobRemoved 5 done")
	c.state("node1", "ssh.service", "inactive")

	c.restart("node1", policy.Settings{ReadOnly: true})
	c.denied(Request("node1", wire.Stop, "web.service"), "ReadOnly=")
	c.list()
	if told := strings.Join(c.Take(), ""); !strings.Contains(told, " node1=1 ") {
		c.t.Errorf("a node that is read-only is not listed: %s", told)
	}
}

// restart gives a node another policy.
func (c *Cluster) restart(node string, set policy.Settings) {
	n := c.Node(node)
	n.Stop()
	n.Policy = set
	n.Start()
	c.Until(node+" is back", time.Minute, func() bool { return c.info(node).Status == wire.NodeOnline })
	c.Take()
}
