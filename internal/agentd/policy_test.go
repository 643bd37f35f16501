package agentd

import (
	"slices"
	"testing"

	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/wire"
)

func TestUnitsOfControlGroup(t *testing.T) {
	for text, want := range map[string][]string{
		"0::/system.slice/ctrl-agent.service\n":                              {wire.AgentUnit, "-.slice", "system.slice", "ctrl-agent.service"},
		"12:pids:/init.scope\n1:name=systemd:/a.slice/a-b.slice/x.service\n": {wire.AgentUnit, "-.slice", "a.slice", "a-b.slice", "x.service"},
		"0::/user.slice/user-0.slice/session-1.scope\n":                      nil,
		"0::/\n": nil, "": nil, "nonsense": nil,
	} {
		if got := unitsOf(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestPolicySettings: every key of [policy] reaches the judge.
func TestPolicySettings(t *testing.T) {
	c := load(t, "NodeName=node7\n[policy]\nAllowUnits=a.*\nDenyUnits=b.*\nAllowTransientUnits=yes\nAllowApply=yes\nAllowLogs=no\n"+
		"AllowHostPaths=/h\nAllowFilePaths=/f\nAllowCreateUsers=yes\nReadOnly=yes\n")
	got := policySettings(c, []string{"own"})
	if got.Node != "node7" || !slices.Equal(got.AllowUnits, []string{"a.*"}) || !slices.Equal(got.DenyUnits, []string{"b.*"}) ||
		!got.AllowTransientUnits || !got.AllowApply || got.AllowLogs || !got.AllowCreateUsers || !got.ReadOnly ||
		!slices.Equal(got.AllowHostPaths, []string{"/h"}) || !slices.Equal(got.AllowFilePaths, []string{"/f"}) || !slices.Equal(got.Own, []string{"own"}) {
		t.Errorf("got %+v", got)
	}
	if keys := config.Sections(); len(keys[3].Keys) != 9 {
		t.Error("there is a key that this test does not know")
	}
}
