// Package policy judges what the manager may do to a node by what the node says about
// itself: the section [policy] of agent.conf.
package policy

import (
	"fmt"
	"path"
	"strings"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Settings are the keys of [policy], and what the judge must know of the agent itself.
type Settings struct {
	Node string // its name, for error texts

	AllowUnits, DenyUnits          []string // globs
	AllowTransientUnits            bool
	AllowApply                     bool
	AllowLogs                      bool
	AllowHostPaths, AllowFilePaths []string // absolute
	AllowCreateUsers               bool
	ReadOnly                       bool

	// Own are the unit that the agent runs as and the slices that it runs in. Empty:
	// wire.AgentUnit in system.slice.
	Own []string
}

// Policy is a node's last word. It does not change and is safe from any goroutine. The zero
// Policy lets the manager act on every unit, and allows nothing that must be allowed by name.
type Policy struct {
	set         Settings
	allow, deny []unit.Glob
}

// New checks the globs.
func New(set Settings) (Policy, error) {
	p := Policy{set: set}
	for _, list := range []struct {
		globs []string
		to    *[]unit.Glob
	}{{set.AllowUnits, &p.allow}, {set.DenyUnits, &p.deny}} {
		for _, text := range list.globs {
			g, err := unit.CompileGlob(text)
			if err != nil {
				return Policy{}, err
			}
			*list.to = append(*list.to, g)
		}
	}
	return p, nil
}

// ReadOnly reports whether the manager may change nothing at all.
func (p *Policy) ReadOnly() bool { return p.set.ReadOnly }

// Act is something that the manager asks for.
type Act struct {
	// Method is one of the Node interface, or CancelJob.
	Method string
	Mode   string // of a job
	// Units are the names that the call holds. Some methods take the paths of unit files.
	Units []string
}

// CancelJob is the one Act.Method that is none of the Node interface's.
const CancelJob = wire.MemberCancelJob

// Changes reports whether an act is one that a policy can be about.
func (a Act) Changes() bool {
	m, ok := wire.NodeMethodByName(a.Method)
	return a.Method == CancelJob || ok && m.Kind != wire.QueryMethod
}

// Unit is a name as it was asked for and what it stands for.
type Unit struct {
	Asked string
	// Names are all names of the unit, the primary one first.
	Names []string
}

// Check judges what can be judged without knowing which units the names stand for.
// A refusal is of kind wire.ErrAccessDenied and says which key on which node refuses, and
// what to set.
func (p *Policy) Check(act Act) error {
	switch {
	case !act.Changes():
		return nil
	case p.set.ReadOnly:
		return p.refuse(act, "ReadOnly=yes", "set ReadOnly=no")
	case act.Method == "StartTransientUnit" && !p.set.AllowTransientUnits:
		return p.refuse(act, "AllowTransientUnits=no", "set AllowTransientUnits=yes")
	case act.everyUnit() && p.listed():
		return p.refuse(act, p.lists()+" is set, and "+act.reach()+" changes other units too", "remove "+p.lists())
	}
	for _, name := range act.Units {
		if err := p.own(act, path.Base(name)); err != nil {
			return err
		}
	}
	return nil
}

// NeedsNames reports whether Decide must be asked after Check has refused nothing: whether
// what the names stand for can make a difference.
func (p *Policy) NeedsNames(act Act) bool {
	return act.Changes() && len(act.Units) > 0 && (p.listed() || protectedFrom[act.Method] != "")
}

// Decide judges by the units that the names of an act stand for. It is asked beside Check.
//
// A unit is denied if any of its names is, since a denied unit must not be reached by
// another of its names. It is allowed if its primary name is: an alias may lead anywhere.
func (p *Policy) Decide(act Act, units []Unit) error {
	if !act.Changes() {
		return nil
	}
	for _, u := range units {
		if err := p.decide(act, u); err != nil {
			return err
		}
	}
	return nil
}

func (p *Policy) decide(act Act, u Unit) error {
	names := append([]string{path.Base(u.Asked)}, u.Names...)
	for _, name := range names {
		if err := p.own(act, name); err != nil {
			return err
		}
		for _, g := range p.deny {
			if g.Match(name) || unit.IsTemplate(name) && mayMatchInstance(g.String(), name) {
				return p.refuseUnit(act, u, fmt.Sprintf("DenyUnits= has %s", g), fmt.Sprintf("take %s out of DenyUnits=", g))
			}
		}
	}
	primary := names[0]
	if len(u.Names) > 0 {
		primary = u.Names[0]
	}
	if len(p.allow) == 0 || matchAny(p.allow, primary) {
		return nil
	}
	return p.refuseUnit(act, u, "AllowUnits= does not name it", fmt.Sprintf("add %s to AllowUnits=", primary))
}

func matchAny(globs []unit.Glob, name string) bool {
	for _, g := range globs {
		if g.Match(name) {
			return true
		}
	}
	return false
}

// mayMatchInstance reports whether a glob could match an instance of a template: what is
// done to a template's file is done to all of them. It looks at what is before the first
// wildcard only, and so says yes rather too often.
func mayMatchInstance(glob, template string) bool {
	stem := template[:strings.IndexByte(template, '@')+1]
	if i := strings.IndexAny(glob, "*?["); i >= 0 {
		glob = glob[:i]
		return strings.HasPrefix(stem, glob) || strings.HasPrefix(glob, stem)
	}
	return strings.HasPrefix(glob, stem)
}

func (p *Policy) listed() bool { return len(p.allow)+len(p.deny) > 0 }

func (p *Policy) lists() string {
	if len(p.allow) > 0 {
		return "AllowUnits="
	}
	return "DenyUnits="
}

// reach names what makes an act change more than it names.
func (a Act) reach() string {
	if a.Mode == "isolate" {
		return "mode isolate"
	}
	return "this"
}

// everyUnit reports whether an act changes units that it does not name.
func (a Act) everyUnit() bool { return a.Method == "ResetFailed" || a.Mode == "isolate" }
