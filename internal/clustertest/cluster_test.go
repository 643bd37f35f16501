package clustertest

import (
	"slices"
	"testing"
)

// scenario is how this tier shows one of Scenarios.
type scenario struct {
	opt Options
	run func(c *Cluster)
}

// TestScenarios runs every scenario of the shared list that this tier can show.
func TestScenarios(t *testing.T) {
	for _, s := range Scenarios {
		shown, ok := shown[s.Name]
		if !ok {
			t.Errorf("scenario %s is not shown: %s", s.Name, s.What)
			continue
		}
		t.Run(s.Name, func(t *testing.T) { Run(t, shown.opt, shown.run) })
	}
	for name := range shown {
		if !slices.ContainsFunc(Scenarios, func(s Scenario) bool { return s.Name == name }) {
			t.Errorf("scenario %s is not in the list", name)
		}
	}
}

// shown are the scenarios of all files of this package.
var shown = merged(jobScenarios, nodeScenarios, lifeScenarios, defectScenarios, monitorScenarios, policyScenarios)

func merged(all ...map[string]scenario) map[string]scenario {
	out := make(map[string]scenario)
	for _, part := range all {
		for name, s := range part {
			out[name] = s
		}
	}
	return out
}
