package agentd

import (
	"cmp"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/delivery"
	"example.org/ctrl/internal/nodefiles"
	"example.org/ctrl/internal/policy"
	"example.org/ctrl/internal/systemd"
	"example.org/ctrl/internal/wire"
)

// filePaths are the directories into which files may be delivered.
func filePaths(c *config.Agent) []string {
	if len(c.Policy.AllowFilePaths) == 0 {
		return []string{"/etc/ctrl-files"}
	}
	return c.Policy.AllowFilePaths
}

// newWorkloads makes what holds this node's workloads. A user's agent has none.
func (s *service) newWorkloads(user bool, local *systemd.Systemd) *delivery.Delivery {
	if user {
		return nil
	}
	return delivery.New(delivery.Options{
		Layout: bundle.SystemLayout, UnitPath: nodefiles.SystemUnitPath, State: s.cfg.Places.StateDir,
		FilePaths: filePaths(s.cfg), Judge: judge(s.policy()), Systemd: local, Log: s.log,
		Tell: func(member, text string) { s.core.WorkloadEvent(member, text) },
	})
}

// judge holds a bundle against the node's policy: by the units that it has, starts and
// enables, and the names that it gives them.
func judge(rules policy.Policy) func(bundle.Bundle) error {
	return func(b bundle.Bundle) error {
		for _, name := range b.Names() {
			act := policy.Act{Method: wire.Restart.Method(), Units: []string{name}}
			if err := cmp.Or(rules.Check(act), rules.Decide(act, []policy.Unit{{Asked: name, Names: []string{name}}})); err != nil {
				return err
			}
		}
		return nil
	}
}

// features are the words by which the manager knows what this agent can do.
func (s *service) features() []string {
	words := []string{wire.FeatureLogs}
	if s.workloads != nil {
		words = append(words, wire.FeatureWorkloads)
	}
	return words
}

// fromSystemd passes what systemd says on to the core, and to whoever awaits jobs of
// workloads.
type fromSystemd struct {
	*agent.Agent
	workloads *delivery.Delivery
}

// SystemdUp implements systemd.Core.
func (f fromSystemd) SystemdUp(facts map[string]wire.Value) {
	f.Agent.SystemdUp(facts)
	f.workloads.SystemdUp()
}

// SystemdJobRemoved implements systemd.Core.
func (f fromSystemd) SystemdJobRemoved(job uint32, unit, result string) {
	f.Agent.SystemdJobRemoved(job, unit, result)
	f.workloads.SystemdJobRemoved(job, result)
}

// systemdCore is who hears of systemd.
func (s *service) systemdCore() systemd.Core {
	if s.workloads == nil {
		return s.core
	}
	return fromSystemd{s.core, s.workloads}
}

// holder is the core's view of the workloads: nil where there are none.
func (s *service) holder() agent.Workloads {
	if s.workloads == nil {
		return nil
	}
	return s.workloads
}
