package policy

import (
	"errors"
	"strings"
	"testing"

	"example.org/ctrl/internal/wire"
)

func rules(t *testing.T, set Settings) *Policy {
	t.Helper()
	set.Node = "node1"
	p, err := New(set)
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// judge asks as the agent does: what the names stand for only where that is needed.
func judge(p *Policy, act Act, units []Unit) error {
	err := p.Check(act)
	if err == nil && p.NeedsNames(act) {
		err = p.Decide(act, units)
	}
	return err
}

func unitsOf(names ...string) []Unit { return []Unit{{Asked: names[0], Names: names}} }

func TestUnits(t *testing.T) {
	// names[0] is asked for; where it is an alias the primary name stands first in names[1:].
	alias := func(asked string, names ...string) []Unit { return []Unit{{Asked: asked, Names: names}} }
	deny, allow := Settings{DenyUnits: []string{"sshd.service", "db-*"}}, Settings{AllowUnits: []string{"web-*.service"}}
	both := Settings{AllowUnits: []string{"web-*"}, DenyUnits: []string{"web-1.service"}}
	for name, tt := range map[string]struct {
		set    Settings
		method string
		units  []Unit
		want   string // what the refusal must say, "" for none
	}{
		"nothing set":             {Settings{}, "StartUnit", unitsOf("a.service"), ""},
		"denied":                  {deny, "StopUnit", unitsOf("sshd.service"), "DenyUnits= has sshd.service"},
		"denied by glob":          {deny, "KillUnit", unitsOf("db-1.service"), "take db-* out of DenyUnits="},
		"not denied":              {deny, "StopUnit", unitsOf("web.service"), ""},
		"denied by the alias":     {deny, "StopUnit", unitsOf("ssh.service", "sshd.service"), "stop ssh.service: DenyUnits= has sshd.service"},
		"asked by an alias":       {deny, "StopUnit", alias("x.service", "db-1.service", "x.service"), "stop x.service, which is db-1.service"},
		"a query":                 {deny, "GetUnitProperties", unitsOf("sshd.service"), ""},
		"allowed":                 {allow, "StartUnit", unitsOf("web-1.service"), ""},
		"not allowed":             {allow, "StartUnit", unitsOf("db.service"), "add db.service to AllowUnits="},
		"alias of what is not":    {allow, "StartUnit", alias("web-x.service", "db.service", "web-x.service"), "add db.service to AllowUnits="},
		"alias of what is":        {allow, "StartUnit", alias("front.service", "web-1.service", "front.service"), ""},
		"deny wins":               {both, "FreezeUnit", unitsOf("web-1.service"), "DenyUnits="},
		"the other one":           {both, "FreezeUnit", unitsOf("web-2.service"), ""},
		"a file by its path":      {deny, "MaskUnitFiles", alias("/run/x/sshd.service"), "mask sshd.service"},
		"template, instance":      {Settings{DenyUnits: []string{"web@1.service"}}, "DisableUnitFiles", unitsOf("web@.service"), "DenyUnits= has web@1.service"},
		"template, glob":          {Settings{DenyUnits: []string{"we*.service"}}, "DisableUnitFiles", unitsOf("web@.service"), "DenyUnits="},
		"template, other":         {deny, "EnableUnitFiles", unitsOf("web@.service"), ""},
		"template, allowed":       {Settings{AllowUnits: []string{"web@*"}}, "EnableUnitFiles", unitsOf("web@.service"), ""},
		"template, not allowed":   {Settings{AllowUnits: []string{"web@1.service"}}, "EnableUnitFiles", unitsOf("web@.service"), "AllowUnits="},
		"set-property":            {deny, "SetUnitProperties", unitsOf("db-1.service"), "set-property db-1.service"},
		"reset-failed":            {deny, "ResetFailedUnit", unitsOf("db-1.service"), "reset-failed db-1.service"},
		"default target":          {Settings{DenyUnits: []string{"rescue.target"}}, "SetDefaultTarget", unitsOf("rescue.target"), "set-default rescue.target"},
		"cancel":                  {deny, CancelJob, unitsOf("db-1.service"), "cancel db-1.service"},
		"second of two":           {deny, "EnableUnitFiles", append(unitsOf("a.service"), unitsOf("db-2.service")...), "enable db-2.service"},
		"reset-failed of all":     {deny, "ResetFailed", nil, "DenyUnits= is set, and this changes other units too"},
		"reset-failed, no lists":  {Settings{}, "ResetFailed", nil, ""},
		"daemon-reload":           {allow, "Reload", nil, ""},
		"read only":               {Settings{ReadOnly: true}, "Reload", nil, "ReadOnly=yes"},
		"read only, shutdown":     {Settings{ReadOnly: true}, "Shutdown", nil, "ReadOnly=yes"},
		"read only, query":        {Settings{ReadOnly: true}, "ListUnits", nil, ""},
		"transient":               {Settings{}, "StartTransientUnit", unitsOf("run-1.service"), "set AllowTransientUnits=yes"},
		"transient allowed":       {Settings{AllowTransientUnits: true}, "StartTransientUnit", unitsOf("run-1.service"), ""},
		"transient, other name":   {Settings{AllowTransientUnits: true, AllowUnits: []string{"web*"}}, "StartTransientUnit", unitsOf("run-1.service"), "AllowUnits="},
		"transient, second named": {Settings{AllowTransientUnits: true, DenyUnits: []string{"x.*"}}, "StartTransientUnit", append(unitsOf("run-1.service"), unitsOf("x.service")...), "DenyUnits="},
	} {
		t.Run(name, func(t *testing.T) {
			act := Act{Method: tt.method}
			for _, u := range tt.units {
				act.Units = append(act.Units, u.Asked)
			}
			err := judge(rules(t, tt.set), act, tt.units)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (!errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "node1")):
				t.Errorf("got %v, want %q and the node's name", err, tt.want)
			}
		})
	}
}

func TestIsolateActsOnUnitsThatItDoesNotName(t *testing.T) {
	act := Act{Method: "StartUnit", Mode: "isolate", Units: []string{"multi-user.target"}}
	if err := rules(t, Settings{}).Check(act); err != nil {
		t.Error(err)
	}
	if err := rules(t, Settings{AllowUnits: []string{"*"}}).Check(act); !errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("got %v", err)
	}
}

// TestEveryChangeIsJudged: a method that is added to the Node interface is refused on a node
// that is read-only, unless it only reads.
func TestEveryChangeIsJudged(t *testing.T) {
	p := rules(t, Settings{ReadOnly: true})
	for _, m := range wire.NodeMethods {
		err := p.Check(Act{Method: m.Name})
		if (err != nil) != (m.Kind != wire.QueryMethod) {
			t.Errorf("%s: %v", m.Name, err)
		}
		if act := (Act{Method: m.Name}); m.Kind != wire.QueryMethod && act.Verb() == m.Name {
			t.Errorf("%s has no word", m.Name)
		}
	}
}

func TestOwnUnit(t *testing.T) {
	for _, tt := range []struct {
		method, asked string
		names         []string
		refused       bool
	}{
		{"StopUnit", wire.AgentUnit, nil, true}, {"KillUnit", wire.AgentUnit, nil, true},
		{"FreezeUnit", wire.AgentUnit, nil, true}, {"SetUnitProperties", wire.AgentUnit, nil, true},
		{"MaskUnitFiles", "/etc/systemd/system/" + wire.AgentUnit, nil, true}, {"DisableUnitFiles", wire.AgentUnit, nil, true},
		{"PresetUnitFiles", wire.AgentUnit, nil, true}, {"StopUnit", "me.service", []string{wire.AgentUnit, "me.service"}, true},
		{"RestartUnit", wire.AgentUnit, nil, false}, {"StartUnit", wire.AgentUnit, nil, false}, {"ReloadUnit", wire.AgentUnit, nil, false},
		{"ThawUnit", wire.AgentUnit, nil, false}, {"EnableUnitFiles", wire.AgentUnit, nil, false}, {"GetUnitProcesses", wire.AgentUnit, nil, false},
		{"StopUnit", "system.slice", nil, true}, {"FreezeUnit", "-.slice", nil, true}, {"KillUnit", "system.slice", nil, true},
		{"SetUnitProperties", "system.slice", nil, false}, {"StopUnit", "user.slice", nil, false},
	} {
		act, names := Act{Method: tt.method, Units: []string{tt.asked}}, tt.names
		if names == nil {
			names = []string{tt.asked}
		}
		err := judge(rules(t, Settings{}), act, []Unit{{Asked: tt.asked, Names: names}})
		if errors.Is(err, wire.ErrAccessDenied) != tt.refused {
			t.Errorf("%s %s: %v", tt.method, tt.asked, err)
		}
	}
	own := rules(t, Settings{Own: []string{"mine.service", "box.slice"}})
	for asked, refused := range map[string]bool{"mine.service": true, "box.slice": true, wire.AgentUnit: true, "system.slice": false} {
		act := Act{Method: "StopUnit", Units: []string{asked}}
		if err := judge(own, act, unitsOf(asked)); errors.Is(err, wire.ErrAccessDenied) != refused {
			t.Errorf("own %s: %v", asked, err)
		}
	}
}

func TestWhatLaterFeaturesAsk(t *testing.T) {
	none, all := rules(t, Settings{}), rules(t, Settings{
		AllowApply: true, AllowLogs: true, AllowCreateUsers: true, AllowHostPaths: []string{"/srv", "/data/"}, AllowFilePaths: []string{"/"},
	})
	asks := map[string]func(*Policy) error{
		"AllowApply=": (*Policy).Apply, "AllowLogs=": (*Policy).Logs, "AllowCreateUsers=": (*Policy).CreateUsers,
		"AllowHostPaths=": func(p *Policy) error { return p.HostPath("/data/x") },
		"AllowFilePaths=": func(p *Policy) error { return p.FilePath("/etc/web/x") },
	}
	for key, ask := range asks {
		if err := ask(none); !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s not set: %v", key, err)
		}
		if err := ask(all); err != nil {
			t.Errorf("%s set: %v", key, err)
		}
	}
	if err := rules(t, Settings{AllowApply: true, ReadOnly: true}).Apply(); !errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("read only: %v", err)
	}
	for name, ok := range map[string]bool{
		"/srv": true, "/srv/": true, "/srv/a/b": true, "/srv2": false, "/": false, "/srv/../etc": false, "srv": false, "": false,
		"/srv/./a": true, "/data/x/..": true, "/datax": false,
	} {
		if err := all.HostPath(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestBadGlobsAreRefused(t *testing.T) {
	if _, err := New(Settings{DenyUnits: []string{"web-["}}); err == nil {
		t.Error("taken")
	}
}
