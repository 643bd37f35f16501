package agentd

import (
	"os"
	"path"
	"strings"

	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/policy"
	"example.org/ctrl/internal/wire"
)

// policy is what this node lets the manager do.
func (s *service) policy() policy.Policy {
	rules, err := policy.New(policySettings(s.cfg, ownUnits()))
	if err != nil { // the configuration's own check came first
		s.log.Error("[policy] cannot be used, so the manager may change nothing", "err", err)
		rules, _ = policy.New(policy.Settings{Node: s.cfg.NodeName, ReadOnly: true})
	}
	return rules
}

func policySettings(c *config.Agent, own []string) policy.Settings {
	p := &c.Policy
	return policy.Settings{
		Node: c.NodeName, AllowUnits: p.AllowUnits, DenyUnits: p.DenyUnits, AllowTransientUnits: p.AllowTransientUnits,
		AllowApply: p.AllowApply, AllowLogs: p.AllowLogs, AllowHostPaths: p.AllowHostPaths,
		AllowFilePaths: p.AllowFilePaths, AllowCreateUsers: p.AllowCreateUsers, ReadOnly: p.ReadOnly, Own: own,
	}
}

// ownUnits are the agent's unit and the slices that it runs in, nil where that cannot be
// found out.
func ownUnits() []string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	return unitsOf(string(text))
}

// unitsOf finds the units in the control group of a process (cgroups(7)); of a process that
// is in no service, none. The hierarchy's root is a slice of its own.
func unitsOf(cgroup string) []string {
	own := []string{wire.AgentUnit, "-.slice"}
	for line := range strings.Lines(cgroup) {
		group := strings.TrimSpace(line)
		if i := strings.LastIndexByte(group, ':'); i >= 0 && path.Ext(group) == ".service" {
			for part := range strings.SplitSeq(group[i+1:], "/") {
				if ext := path.Ext(part); ext == ".slice" || ext == ".service" {
					own = append(own, part)
				}
			}
			return own
		}
	}
	return nil
}
