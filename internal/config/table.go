package config

import "time"

// kind is the type of a key's value.
type kind uint8

const (
	boolean kind = iota
	number
	span
	text
	word
	list
	path
)

// key is one row of the table.
type key struct {
	section string
	name    string
	kind    kind
	def     string        // default, as it would be written
	unit    time.Duration // of a bare number where kind is span
	low     int64         // limits where kind is number
	high    int64
	words   []string // where kind is word
	split   string   // separator where kind is list, "" is a comma
	reload  bool     // SIGHUP applies it
	doc     string
	field   func(any) any // the field of a Manager, Agent or Node that it sets
	check   func(string) error
}

// Sections of the files.
const (
	managerSection = "manager"
	agentSection   = "agent"
	nodeSection    = "node"
)

var logTargets = []string{"auto", "journald", "stderr", "stderr-full", "json"}
var logLevels = []string{"debug", "info", "warn", "error"}

const ms = time.Millisecond

func manager(f func(*Manager) any) func(any) any { return func(c any) any { return f(c.(*Manager)) } }
func agent(f func(*Agent) any) func(any) any     { return func(c any) any { return f(c.(*Agent)) } }
func node(f func(*Node) any) func(any) any       { return func(c any) any { return f(c.(*Node)) } }
func common(f func(*Common) any) func(any) any {
	return func(c any) any {
		switch c := c.(type) {
		case *Manager:
			return f(&c.Common)
		case *Agent:
			return f(&c.Common)
		}
		return nil
	}
}

// keys is the table. Its order is the order of the samples and the documentation.
var keys = append(append(managerKeys, agentKeys...), nodeKeys...)

var managerKeys = append([]key{
	{section: managerSection, name: "AllowedNodeNames", kind: list, reload: true, check: checkNodeName,
		doc:   "The fleet: names of the nodes that may register, with commas between them.",
		field: manager(func(c *Manager) any { return &c.AllowedNodeNames })},
	{section: managerSection, name: "Port", kind: number, def: "842", low: 0, high: 65535,
		doc:   "TCP port on which agents are awaited, on all addresses of the machine. 0 lets the kernel choose.",
		field: manager(func(c *Manager) any { return &c.Port })},
	{section: managerSection, name: "UseTCP", kind: boolean, def: "yes",
		doc:   "Whether agents may connect over TCP.",
		field: manager(func(c *Manager) any { return &c.UseTCP })},
	{section: managerSection, name: "UseUDS", kind: boolean, def: "yes",
		doc:   "Whether an agent on the same machine may connect over the unix socket /run/ctrl/ctrl.sock.",
		field: manager(func(c *Manager) any { return &c.UseUDS })},
	{section: managerSection, name: "SocketGroup", kind: text,
		doc:   "A group whose members may use the unix socket. Without it only root and the manager's own user may.",
		field: manager(func(c *Manager) any { return &c.SocketGroup })},
	{section: managerSection, name: "AllowInsecureNetwork", kind: boolean, def: "no",
		doc:   "With TLS=no: listen beyond loopback all the same. Everybody who reaches the port can then be any node that is away.",
		field: manager(func(c *Manager) any { return &c.AllowInsecureNetwork })},
	{section: managerSection, name: "HeartbeatInterval", kind: span, def: "2s", unit: ms, reload: true,
		doc:   "Time between two signs of life to each agent. 0 switches heartbeats off. A bare number counts in milliseconds.",
		field: manager(func(c *Manager) any { return &c.HeartbeatInterval })},
	{section: managerSection, name: "NodeHeartbeatThreshold", kind: span, def: "6s", unit: ms, reload: true,
		doc:   "A node from which nothing came for so long is offline. 0 switches the check off. A bare number counts in milliseconds.",
		field: manager(func(c *Manager) any { return &c.NodeHeartbeatThreshold })},
	{section: managerSection, name: "CallTimeout", kind: span, def: "30s", unit: time.Second, reload: true,
		doc:   "How long a node may take to answer a call. It bounds the answer, not the job that a call begins.",
		field: manager(func(c *Manager) any { return &c.CallTimeout })},
	{section: managerSection, name: "QueryTimeout", kind: span, def: "2s", unit: time.Second, reload: true,
		doc:   "How long a list of the whole fleet waits for each node. Who has not answered by then is left out.",
		field: manager(func(c *Manager) any { return &c.QueryTimeout })},
}, commonKeys(managerSection)...)

var agentKeys = append([]key{
	{section: agentSection, name: "NodeName", kind: text, reload: true, check: checkNodeName,
		doc:   "The name under which this node registers. Default: the host name.",
		field: agent(func(c *Agent) any { return &c.NodeName })},
	{section: agentSection, name: "ManagerHost", kind: text, def: "127.0.0.1", reload: true,
		doc:   "Host name or address of the manager. A name is resolved anew at each try.",
		field: agent(func(c *Agent) any { return &c.ManagerHost })},
	{section: agentSection, name: "ManagerPort", kind: number, def: "842", low: 1, high: 65535, reload: true,
		doc:   "TCP port of the manager.",
		field: agent(func(c *Agent) any { return &c.ManagerPort })},
	{section: agentSection, name: "ManagerAddress", kind: list, split: ";", reload: true, check: checkAddress,
		doc:   "The manager as D-Bus addresses, with semicolons between them, tried in order; instead of ManagerHost= and ManagerPort=. For example tcp:host=a,port=842;tcp:host=b,port=842 or unix:path=/run/ctrl/ctrl.sock.",
		field: agent(func(c *Agent) any { return &c.ManagerAddress })},
	{section: agentSection, name: "ManagerName", kind: text, reload: true,
		doc:   "The DNS name in the manager's certificate, where the certificate does not carry ctrl://manager.",
		field: agent(func(c *Agent) any { return &c.ManagerName })},
	{section: agentSection, name: "HeartbeatInterval", kind: span, def: "2s", unit: ms, reload: true,
		doc:   "Time between two signs of life to the manager. 0: only as often as the manager's own threshold needs. A bare number counts in milliseconds.",
		field: agent(func(c *Agent) any { return &c.HeartbeatInterval })},
	{section: agentSection, name: "ManagerHeartbeatThreshold", kind: span, def: "6s", unit: ms, reload: true,
		doc:   "A manager from which nothing came for so long is given up and dialled again. 0 switches the check off. A bare number counts in milliseconds.",
		field: agent(func(c *Agent) any { return &c.ManagerHeartbeatThreshold })},
	{section: agentSection, name: "CallTimeout", kind: span, def: "30s", unit: time.Second, reload: true,
		doc:   "How long systemd may take to answer a call. It bounds the answer, not the job that a call begins.",
		field: agent(func(c *Agent) any { return &c.CallTimeout })},
	{section: agentSection, name: "ReconnectMin", kind: span, def: "100ms", unit: time.Second, reload: true,
		doc:   "Longest delay before the first new try after the manager was lost; it doubles with each failure. The delay is drawn evenly from zero to it, so that a fleet does not come back in waves.",
		field: agent(func(c *Agent) any { return &c.ReconnectMin })},
	{section: agentSection, name: "ReconnectMax", kind: span, def: "10s", unit: time.Second, reload: true,
		doc:   "Where the doubling of ReconnectMin= ends.",
		field: agent(func(c *Agent) any { return &c.ReconnectMax })},
	{section: agentSection, name: "ConnectionRetryCountUntilQuiet", kind: number, def: "10", low: 0, high: 1 << 31, reload: true,
		doc:   "After so many tries that failed for the same reason a last line is logged, then nothing until the reason changes. 0: only the first is logged.",
		field: agent(func(c *Agent) any { return &c.ConnectionRetryCountUntilQuiet })},
}, commonKeys(agentSection)...)

var nodeKeys = []key{
	{section: nodeSection, name: "Allowed", kind: boolean, def: "no", reload: true,
		doc:   "yes: the node belongs to the fleet, as if it stood in AllowedNodeNames=.",
		field: node(func(n *Node) any { return &n.Allowed })},
	{section: nodeSection, name: "Optional", kind: boolean, def: "no", reload: true,
		doc:   "yes: the fleet is not degraded while this node is offline.",
		field: node(func(n *Node) any { return &n.Optional })},
}

// commonKeys are those of both daemons.
func commonKeys(section string) []key {
	rows := []key{
		{name: "TLS", kind: boolean, def: "yes",
			doc:   "Whether connections over TCP are TLS 1.3 with certificates on both sides. no is for tests; both sides must say it.",
			field: common(func(c *Common) any { return &c.TLS })},
		{name: "CertFile", kind: path, reload: true,
			doc:   "This side's certificate, PEM, with intermediate certificates after it. Read again when it changes.",
			field: common(func(c *Common) any { return &c.CertFile })},
		{name: "KeyFile", kind: path, reload: true,
			doc:   "The private key of CertFile=, PEM, not readable by others.",
			field: common(func(c *Common) any { return &c.KeyFile })},
		{name: "CAFile", kind: path, reload: true,
			doc:   "The certificates of the authorities that the other side's certificate must come from, PEM.",
			field: common(func(c *Common) any { return &c.CAFile })},
		{name: "TCPKeepAliveTime", kind: span, def: "1s", unit: time.Second,
			doc:   "How long a TCP connection may be idle before the kernel probes it. 0: the kernel's default.",
			field: common(func(c *Common) any { return &c.TCPKeepAliveTime })},
		{name: "TCPKeepAliveInterval", kind: span, def: "1s", unit: time.Second,
			doc:   "Time between two probes. 0: the kernel's default.",
			field: common(func(c *Common) any { return &c.TCPKeepAliveInterval })},
		{name: "TCPKeepAliveCount", kind: number, def: "6", low: 0, high: 127,
			doc:   "Probes without answer that end a connection. 0: the kernel's default.",
			field: common(func(c *Common) any { return &c.TCPKeepAliveCount })},
		{name: "IPReceiveErrors", kind: boolean, def: "yes",
			doc:   "Whether an ICMP error (host unreachable and the like) ends a connection at once. Switch it off on networks that give false alarms.",
			field: common(func(c *Common) any { return &c.IPReceiveErrors })},
		{name: "LogLevel", kind: word, def: "info", words: logLevels, reload: true,
			doc:   "Least important level that is logged: debug, info, warn or error.",
			field: common(func(c *Common) any { return &c.LogLevel })},
		{name: "LogTarget", kind: word, def: "auto", words: logTargets,
			doc:   "Where to log: journald, stderr, stderr-full (with time and level), json (on stderr), or auto: journald under systemd, else stderr.",
			field: common(func(c *Common) any { return &c.LogTarget })},
		{name: "LogIsQuiet", kind: boolean, def: "no",
			doc:   "yes: log nothing at all.",
			field: common(func(c *Common) any { return &c.LogIsQuiet })},
	}
	for i := range rows {
		rows[i].section = section
	}
	return rows
}

// known reports whether some section has a key of that name.
func known(name string) bool {
	for i := range keys {
		if keys[i].name == name {
			return true
		}
	}
	return false
}

func find(section, name string) *key {
	for i := range keys {
		if keys[i].section == section && keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

func names(section string) []string {
	var out []string
	for i := range keys {
		if keys[i].section == section {
			out = append(out, keys[i].name)
		}
	}
	return out
}
