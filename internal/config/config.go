// Package config reads the configuration of both daemons: one table of keys gives the
// parser, the defaults, the checks, the sample files and the documentation.
package config

import "time"

//go:generate go run ./configdoc -root ../..

// Common is what both daemons have.
type Common struct {
	TLS                       bool
	CertFile, KeyFile, CAFile string

	TCPKeepAliveTime     time.Duration
	TCPKeepAliveInterval time.Duration
	TCPKeepAliveCount    int
	IPReceiveErrors      bool

	LogLevel   string // debug, info, warn, error
	LogTarget  string // auto, journald, stderr, stderr-full, json
	LogIsQuiet bool

	// Notes are remarks about the configuration that are no errors.
	Notes []string

	// Places are where the daemon keeps things.
	Places Places

	settings *settings
}

// Manager is the configuration of the manager. Durations of 0 switch the thing off.
type Manager struct {
	Common
	AllowedNodeNames       []string
	Port                   int
	UseTCP, UseUDS         bool
	SocketGroup            string
	AllowInsecureNetwork   bool
	HeartbeatInterval      time.Duration
	NodeHeartbeatThreshold time.Duration
	CallTimeout            time.Duration
	QueryTimeout           time.Duration

	// Nodes is the fleet: AllowedNodeNames in their order, then the sections with
	// Allowed=yes by name.
	Nodes []Node

	sections []*Node // in the order of their first lines
}

// Node is what the configuration says about one node.
type Node struct {
	Name                string
	Allowed             bool
	Optional            bool
	AllowDependenciesOn []string
	ReleaseAfter        time.Duration // 0: never

	// Origin is where the node is made part of the fleet, as file:line.
	Origin string
}

// Agent is the configuration of an agent. Durations of 0 switch the thing off, if nothing
// else is said.
type Agent struct {
	Common
	NodeName                       string
	ManagerHost                    string
	ManagerPort                    int
	ManagerAddress                 []string
	ManagerName                    string
	HeartbeatInterval              time.Duration
	ManagerHeartbeatThreshold      time.Duration
	CallTimeout                    time.Duration
	ReconnectMin, ReconnectMax     time.Duration
	ConnectionRetryCountUntilQuiet int
	ExitOnDisconnect               time.Duration
	OnDisconnectUnit               string
	OnDisconnectUnitAfter          time.Duration // 0: at once
	ProxyStartTimeout              time.Duration // 0: fail at once; Forever: no limit
	OnNodeLoss                     NodeLoss
	Labels                         []string // NAME=VALUE
	Policy                         Policy
}

// Policy is the node's last word about itself. Of globs and paths each is valid.
type Policy struct {
	AllowUnits          []string // empty: all
	DenyUnits           []string
	AllowTransientUnits bool
	AllowApply          bool
	AllowLogs           bool
	AllowHostPaths      []string
	AllowFilePaths      []string
	AllowCreateUsers    bool
	ReadOnly            bool
}

// Node is what the configuration says about a node of any name, whether it belongs to the
// fleet by the files or by the manager's state.
func (c *Manager) Node(name string) Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	for _, n := range c.sections {
		if n.Name == name {
			return *n
		}
	}
	n := Node{Name: name}
	for _, k := range in(nodeSection) {
		if k.def != "" {
			_ = k.set(k.field(&n), k.def) // a test sets every default
		}
	}
	return n
}

// LabelMap is Labels by name; of a name that stands twice the last counts.
func (c *Agent) LabelMap() map[string]string {
	labels := make(map[string]string, len(c.Labels))
	for _, l := range c.Labels {
		name, value := cutLabel(l)
		labels[name] = value
	}
	return labels
}
