package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"example.org/ctrl/internal/wire"
)

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

	origins map[string]origin // section and key → where its value comes from
}

// Manager is the configuration of the manager.
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
	// Allowed=yes in theirs.
	Nodes []Node

	sections []*Node
}

// Node is what the configuration says about one node.
type Node struct {
	Name     string
	Allowed  bool
	Optional bool
}

// Agent is the configuration of an agent.
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
}

// Addresses are the D-Bus addresses of the manager, in the order in which they are tried.
func (c *Agent) Addresses() []string {
	if len(c.ManagerAddress) > 0 {
		return c.ManagerAddress
	}
	host := strings.Trim(c.ManagerHost, "[]")
	return []string{"tcp:host=" + escape(host) + ",port=" + strconv.Itoa(c.ManagerPort)}
}

// escape writes a value of a D-Bus address (D-Bus specification, "Server Addresses").
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_/.\\*", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}

func checkNodeName(s string) error {
	if !wire.ValidNodeName(s) {
		return fmt.Errorf("%q is not valid: %s", s, wire.NodeNameRule)
	}
	return nil
}

// checkAddress refuses what is no address at all; its transport says more when it is used.
func checkAddress(s string) error {
	kind, rest, ok := strings.Cut(s, ":")
	if !ok || kind != "tcp" && kind != "unix" || rest == "" {
		return fmt.Errorf("%q is no D-Bus address such as tcp:host=boss,port=842 or unix:path=/run/ctrl/ctrl.sock", s)
	}
	return nil
}

func (c *Manager) finish(Options) error {
	c.Nodes = nil
	seen := make(map[string]bool)
	section := make(map[string]*Node)
	for _, n := range c.sections {
		section[n.Name] = n
	}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			n := Node{Name: name, Allowed: true}
			if s := section[name]; s != nil {
				n.Optional = s.Optional
			}
			c.Nodes = append(c.Nodes, n)
		}
	}
	for _, name := range c.AllowedNodeNames {
		add(name)
	}
	for _, n := range c.sections {
		if n.Allowed {
			add(n.Name)
		} else if !seen[n.Name] {
			c.Notes = append(c.Notes, fmt.Sprintf("section [node %s] has no effect: the node is not in AllowedNodeNames= and has no Allowed=yes", n.Name))
		}
	}
	return checkHeartbeat(&c.Common, managerSection, "NodeHeartbeatThreshold", c.HeartbeatInterval, c.NodeHeartbeatThreshold)
}

func (c *Agent) finish(opt Options) error {
	if c.NodeName == "" {
		if err := checkNodeName(opt.Hostname); err != nil {
			return fmt.Errorf("NodeName= is not set and the host name cannot stand for it: %w; set NodeName= in [agent]", err)
		}
		c.NodeName = opt.Hostname
	}
	if c.ReconnectMin <= 0 || c.ReconnectMax < c.ReconnectMin {
		return fmt.Errorf("%sReconnectMin= (%s) must be more than 0 and at most ReconnectMax= (%s)",
			c.at(agentSection, "ReconnectMin"), formatSpan(c.ReconnectMin), formatSpan(c.ReconnectMax))
	}
	return nil
}

// checkHeartbeat refuses settings that would switch the check off by accident, or end every
// session that is a little late.
func checkHeartbeat(c *Common, section, threshold string, every, limit time.Duration) error {
	switch {
	case limit > 0 && every <= 0:
		return fmt.Errorf("%s%s=%s has no effect while HeartbeatInterval=0; set HeartbeatInterval=, or %s=0 as well to switch heartbeats off",
			c.at(section, threshold), threshold, formatSpan(limit), threshold)
	case limit > 0 && limit < every*3/2:
		return fmt.Errorf("%s%s=%s is less than one and a half times HeartbeatInterval=%s, so one late heartbeat would end the session",
			c.at(section, threshold), threshold, formatSpan(limit), formatSpan(every))
	}
	return nil
}

// at is "file:line: " of a key's value where it comes from a file, for error texts.
func (c *Common) at(section, name string) string {
	if o, ok := c.origins[section+" "+name]; ok && o.line > 0 {
		return o.String() + ": "
	}
	return ""
}

// filesNeeded is the text for a daemon that has no certificates.
const filesNeeded = "TLS is on, but %s not set. Two ways lead on: certificates in files, with CertFile=, KeyFile= and CAFile= in [%s] (docs/tls.md makes them), or TLS=no on both sides for a network that nobody else can reach"

// checkTLS refuses to start without certificates, naming the ways on.
func (c *Common) checkTLS(section string) error {
	var missing []string
	for name, value := range map[string]string{"CertFile=": c.CertFile, "KeyFile=": c.KeyFile, "CAFile=": c.CAFile} {
		if value == "" {
			missing = append(missing, name)
		}
	}
	if !c.TLS || len(missing) == 0 {
		return nil
	}
	verb := "is"
	if len(missing) > 1 {
		verb = "are"
	}
	return fmt.Errorf(filesNeeded, join(missing)+" "+verb, section)
}

// CheckStart says what keeps the manager from starting although every key is right.
func (c *Manager) CheckStart() error {
	if !c.UseTCP {
		return nil
	}
	return c.checkTLS(managerSection)
}

// CheckStart says what keeps the agent from starting although every key is right.
func (c *Agent) CheckStart() error {
	for _, address := range c.Addresses() {
		if strings.HasPrefix(address, "tcp:") {
			return c.checkTLS(agentSection)
		}
	}
	return nil
}

// LoopbackOnly reports whether the manager may listen on loopback only: TLS=no without
// AllowInsecureNetwork=yes.
func (c *Manager) LoopbackOnly() bool { return !c.TLS && !c.AllowInsecureNetwork }

// Insecure reports whether an address leaves this machine without TLS.
func (c *Agent) Insecure() bool {
	if c.TLS {
		return false
	}
	for _, address := range c.Addresses() {
		if strings.HasPrefix(address, "tcp:") && !loopback(address) {
			return true
		}
	}
	return false
}

func loopback(address string) bool {
	for part := range strings.SplitSeq(strings.TrimPrefix(address, "tcp:"), ",") {
		if host, ok := strings.CutPrefix(part, "host="); ok {
			ip := net.ParseIP(host)
			return host == "localhost" || ip != nil && ip.IsLoopback()
		}
	}
	return false
}
