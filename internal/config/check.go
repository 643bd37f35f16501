package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

func checkNodeName(s string) error {
	switch {
	case wire.ValidNodeName(s):
		return nil
	case strings.ContainsAny(s, " \t"):
		return fmt.Errorf("%s is no node name: %s; names in a list have commas between them", clip(s), wire.NodeNameRule)
	}
	return fmt.Errorf("%s is no node name: %s", clip(s), wire.NodeNameRule)
}

// checkAddress refuses what is no address at all; its transport says more when it is used.
func checkAddress(s string) error {
	kind, rest, ok := strings.Cut(s, ":")
	if !ok || kind != "tcp" && kind != "unix" || !strings.Contains(rest, "=") {
		return fmt.Errorf("%s is no D-Bus address such as tcp:host=boss,port=842 or unix:path=/run/ctrl/ctrl.sock", clip(s))
	}
	return nil
}

// hostName is a host name as resolvers take it (RFC 1123, with "_").
var hostName = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?)+$`)

func checkHost(s string) error {
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return nil
	}
	switch host, port, ok := strings.Cut(s, ":"); {
	case ok && strings.Contains(port, "="):
		return fmt.Errorf("%s is an address; that stands in ManagerAddress=", clip(s))
	case ok && hostName.MatchString(host) && !strings.Contains(port, ":"):
		return fmt.Errorf("%s has a port; that stands in ManagerPort=", clip(s))
	}
	return checkDNSName(s)
}

func checkDNSName(s string) error {
	if len(s) > 253 || !hostName.MatchString(s) {
		return fmt.Errorf("%s is no host name", clip(s))
	}
	return nil
}

var groupName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,30}\$?$`)

func checkGroup(s string) error {
	if !groupName.MatchString(s) {
		return fmt.Errorf("%s is no name of a group", clip(s))
	}
	return nil
}

func checkPath(s string) error {
	if !filepath.IsAbs(s) {
		return fmt.Errorf("%s is no absolute path", clip(s))
	}
	return nil
}

func checkUnit(s string) error {
	if err := unit.CheckName(s); err != nil {
		return err
	}
	if unit.IsTemplate(s) {
		return fmt.Errorf("%s is a template; name an instance of it", clip(s))
	}
	return nil
}

func checkUnitGlob(s string) error {
	if _, err := unit.CompileGlob(s); err != nil {
		return err
	}
	if strings.ContainsAny(s, " \t") {
		return fmt.Errorf("%s contains a blank, which no unit's name has; globs in a list have commas between them", clip(s))
	}
	return nil
}

// label is a name, perhaps with a prefix, and a value as Kubernetes has them.
var label = regexp.MustCompile(`^([A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?=([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)

func checkLabel(s string) error {
	name, value := cutLabel(s)
	if !strings.Contains(s, "=") || !label.MatchString(name+"="+value) {
		return fmt.Errorf("%s is no label such as zone=north: letters, digits and . _ - in name and value, up to 63 each", clip(s))
	}
	return nil
}

func cutLabel(s string) (name, value string) {
	name, value, _ = strings.Cut(s, "=")
	return strings.TrimSpace(name), strings.TrimSpace(value)
}

// loopback reports whether a D-Bus address leads to this machine.
func loopback(address string) bool {
	for part := range strings.SplitSeq(strings.TrimPrefix(address, "tcp:"), ",") {
		if host, ok := strings.CutPrefix(part, "host="); ok {
			ip, err := netip.ParseAddr(strings.ReplaceAll(host, "%3a", ":"))
			return host == "localhost" || err == nil && ip.IsLoopback()
		}
	}
	return false
}

// finish checks what needs more than one key, and makes the fleet.
func (c *Manager) finish() []error {
	var faults []error
	origins := c.settings.origins(managerSection, "AllowedNodeNames")
	c.fleet(origins)
	for _, n := range c.sections {
		place := nodeSection + " " + n.Name
		listed := origins[n.Name]
		if allowed := c.settings.last(place, "Allowed"); allowed != nil && !n.Allowed && listed != nil {
			faults = append(faults, fmt.Errorf("%s: Allowed=no does not take %s out of the fleet, since AllowedNodeNames= names it (%s); remove it there",
				allowed.origin, n.Name, listed.origin))
		}
	}
	c.remark("AllowInsecureNetwork", c.AllowInsecureNetwork && c.TLS, "has no effect, since TLS=yes")
	faults = append(faults, c.heartbeat(managerSection, "NodeHeartbeatThreshold", c.HeartbeatInterval > 0,
		c.NodeHeartbeatThreshold > 0, c.NodeHeartbeatThreshold < c.HeartbeatInterval*3/2))
	return append(faults, c.finishCommon(managerSection)...)
}

// fleet lists the nodes in the order of parity.md.
func (c *Manager) fleet(listed map[string]*entry) {
	sections := make(map[string]*Node)
	for _, n := range c.sections {
		sections[n.Name] = n
	}
	seen := make(map[string]bool)
	add := func(name, origin string) {
		if seen[name] {
			return
		}
		seen[name] = true
		n := c.Node(name)
		if s := sections[name]; s != nil {
			n = *s
		}
		n.Allowed, n.Origin = true, origin
		c.Nodes = append(c.Nodes, n)
	}
	for _, name := range c.AllowedNodeNames {
		add(name, listed[name].origin.String())
	}
	for _, n := range sortedByName(c.sections) {
		if n.Allowed {
			add(n.Name, c.settings.last(nodeSection+" "+n.Name, "Allowed").origin.String())
		} else if !seen[n.Name] {
			c.Notes = append(c.Notes, fmt.Sprintf("section [node %s] has no effect: the node is not in AllowedNodeNames= and has no Allowed=yes", n.Name))
		}
	}
}

func (c *Agent) finish(hostname string) []error {
	var faults []error
	if c.NodeName == "" {
		c.NodeName = hostname
		if err := checkNodeName(hostname); err != nil {
			faults = append(faults, fmt.Errorf("NodeName= is not set, and the host name cannot stand for it: %w; set NodeName= in [agent]", err))
		}
	}
	if c.ReconnectMax < c.ReconnectMin {
		faults = append(faults, fmt.Errorf("%s is more than %s",
			c.settings.say(agentSection, "ReconnectMin"), c.settings.say(agentSection, "ReconnectMax")))
	}
	c.remark("OnDisconnectUnitAfter", c.OnDisconnectUnit == "", "has no effect without OnDisconnectUnit=")
	faults = append(faults, c.manager()...)
	faults = append(faults, c.heartbeat(agentSection, "ManagerHeartbeatThreshold", c.HeartbeatInterval > 0,
		c.ManagerHeartbeatThreshold > 0, c.ManagerHeartbeatThreshold < c.HeartbeatInterval*3/2))
	return append(faults, c.finishCommon(agentSection)...)
}

// manager decides between ManagerAddress= and the other two: what comes from nearer to the
// user wins, and in one place the address.
func (c *Agent) manager() []error {
	address := c.settings.last(agentSection, "ManagerAddress")
	if address == nil {
		return nil
	}
	host, port := c.settings.last(agentSection, "ManagerHost"), c.settings.last(agentSection, "ManagerPort")
	switch {
	case host != nil && host.origin.layer > address.origin.layer:
		c.Notes = append(c.Notes, fmt.Sprintf("ManagerAddress= (%s) is not used: ManagerHost= (%s) comes after it", address.origin, host.origin))
		c.ManagerAddress = nil
		c.settings.forget(agentSection, "ManagerAddress")
		return nil
	case port != nil && port.origin.layer > address.origin.layer:
		return []error{fmt.Errorf("%s: ManagerPort= has no effect, since ManagerAddress= (%s) is set; give the whole address, or the host as well",
			port.origin, address.origin)}
	}
	for _, e := range []*entry{host, port} {
		switch {
		case e == nil:
		case e.origin.layer == layerFlag:
			return []error{fmt.Errorf("%s: has no effect beside %s; give one of them", e.origin, address.origin)}
		default:
			c.Notes = append(c.Notes, fmt.Sprintf("%s (%s) is not used: ManagerAddress= (%s) wins", e.key, e.origin, address.origin))
		}
	}
	return nil
}

// heartbeat refuses settings that would switch the check off by accident, or end every session
// that is a little late.
func (c *Common) heartbeat(section, threshold string, interval, checked, short bool) error {
	const every = "HeartbeatInterval"
	switch {
	case checked && !interval:
		return fmt.Errorf("%s switches heartbeats off, and without them %s has no effect; set an interval, or %s=0 as well",
			c.settings.say(section, every), c.settings.say(section, threshold), threshold)
	case checked && short:
		return fmt.Errorf("%s is less than one and a half times %s, so one late heartbeat would end the session",
			c.settings.say(section, threshold), c.settings.say(section, every))
	}
	return nil
}

func (c *Common) finishCommon(section string) []error {
	c.settings.noteLater(c)
	files := []string{"CertFile", "KeyFile"}
	for i, name := range files {
		other := files[1-i]
		set, lacks := c.settings.last(section, name), c.settings.last(section, other) == nil
		if set != nil && lacks && c.TLS {
			return []error{fmt.Errorf("%s: %s= is of no use without %s=; set both", set.origin, name, other)}
		}
	}
	if !c.TLS {
		for _, name := range append(files, "CAFile", "ManagerName") {
			c.remark(name, true, "has no effect, since TLS=no")
		}
	}
	return nil
}

// remark notes something about a key that some source sets.
func (c *Common) remark(name string, applies bool, what string) {
	for _, section := range []string{managerSection, agentSection} {
		if e := c.settings.last(section, name); e != nil && applies {
			c.Notes = append(c.Notes, fmt.Sprintf("%s=%s (%s) %s", name, e.text, e.origin, what))
		}
	}
}

// named reports whether certificates from files are wanted.
func (c *Common) named() bool { return c.CertFile != "" || c.KeyFile != "" || c.CAFile != "" }

// checkTLS refuses to start without certificates, naming the ways on.
func (c *Common) checkTLS(section, without string) error {
	var missing []string
	for _, f := range []struct{ name, value string }{{"CAFile=", c.CAFile}, {"CertFile=", c.CertFile}, {"KeyFile=", c.KeyFile}} {
		if f.value == "" {
			missing = append(missing, f.name)
		}
	}
	if !c.TLS || len(missing) == 0 {
		return nil
	}
	verb := "is"
	if len(missing) > 1 {
		verb = "are"
	}
	return fmt.Errorf("TLS is on, but %s %s not set in [%s]. Two ways lead on: certificates from files, with CertFile=, KeyFile= and CAFile= "+
		"(docs/tls.md shows how to make them); or, in a network that nobody else can reach, %s", series(missing), verb, section, without)
}

func series(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// CheckStart says what keeps the manager from starting although every key is right.
func (c *Manager) CheckStart() error {
	if !c.UseTCP || !c.named() {
		return nil // without files the manager is its fleet's authority
	}
	return c.checkTLS(managerSection, "TLS=no on both sides, with AllowInsecureNetwork=yes beside it on the manager if agents connect from other machines")
}

// CheckStart says what keeps the agent from starting although every key is right.
func (c *Agent) CheckStart() error {
	if c.OverTCP() && c.named() { // else those of ctrl-agent join, if there are any
		return c.checkTLS(agentSection, "TLS=no on both sides")
	}
	return nil
}

// OverTCP reports whether the manager, or one of several, is reached over TCP.
func (c *Agent) OverTCP() bool {
	return slices.ContainsFunc(c.Addresses(), func(address string) bool { return strings.HasPrefix(address, "tcp:") })
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
