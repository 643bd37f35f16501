package bundle

import (
	"maps"
	"slices"

	"example.org/ctrl/internal/unit"
)

// units decides what happens to the units themselves: restart only what changed, start what
// should run and does not, stop what is no more.
func (p *planner) units() error {
	touched := make(map[string]Touched)
	for _, t := range p.in.Touched {
		touched[t.Unit] = t
	}
	for _, name := range p.names() {
		fact := p.in.Facts.Units[name]
		was, known := touched[name]
		if !known {
			was = Touched{Unit: name, Ran: fact.running()}
			if was.Ran {
				was.Before = fact.Invocation
			}
		}
		acts := p.decide(name, fact, was, known)
		if !known {
			was.Reload = slices.Contains(p.plan.Jobs, Job{"reload-or-restart", name})
		}
		if acts || known {
			p.plan.Touched = append(p.plan.Touched, was)
		}
	}
	return nil
}

// names are all units that could be concerned, with the instances of templates that are
// loaded.
func (p *planner) names() []string {
	names := make(map[string]bool)
	for name := range p.in.Facts.Units {
		names[name] = true
	}
	for _, b := range append(slices.Clone(p.in.Before), p.in.New) {
		for _, u := range b.Units {
			names[u.Name] = true
		}
		for _, name := range b.Start {
			names[name] = true
		}
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return unit.IsTemplate(name) })
	return slices.Sorted(maps.Keys(names))
}

// decide plans for one unit, and reports whether the operation acts on it.
func (p *planner) decide(name string, fact UnitFact, was Touched, known bool) bool {
	def, ok := p.in.New.definition(name)
	if !ok {
		return p.dropped(name, fact)
	}
	started := slices.Contains(p.in.New.Start, name)
	if def.Foreign && !started {
		if p.changed[def.Name] && fact.running() {
			p.note("%s runs without the changed drop-in until somebody restarts it: it is not in the list of units to start", name)
		}
		return false
	}
	if p.leaves(name, def, was, known) {
		if fact.gone() {
			return false
		}
		p.plan.Stop = append(p.plan.Stop, Job{"stop", name})
		return true
	}
	needs, onlyReload := p.needs(name, def, fact, was, known)
	if p.in.Direction == Forward && p.in.Options.NoRestart {
		if needs && fact.running() && !onlyReload {
			p.plan.Stale[name] = fact.Invocation
		}
		return needs
	}
	wanted := started && !p.in.Stopped
	if p.in.Direction == Restore {
		wanted = known && was.Ran
	}
	switch {
	case needs && fact.running() && onlyReload:
		p.job("reload-or-restart", name)
	case needs && fact.running():
		p.restart(name, fact)
	case !fact.running() && wanted && (needs || !fact.Done || p.in.Direction == Restore):
		if fact.Active == "failed" {
			p.plan.Reset = append(p.plan.Reset, name)
		}
		p.job("start", name)
	default:
		return needs
	}
	return true
}

// leaves reports whether a unit is to stop although the bundle has its text: an instance that
// the bundle before started and the new one does not, or one that an operation has started
// which is undone.
func (p *planner) leaves(name string, def Unit, was Touched, known bool) bool {
	if slices.Contains(p.in.New.Start, name) || def.Foreign {
		return false
	}
	if p.in.Direction == Restore {
		return known && !was.Ran
	}
	return def.Name != name && slices.ContainsFunc(p.in.Before, func(b Bundle) bool { return slices.Contains(b.Start, name) })
}

// dropped plans for a unit that the new bundle does not have.
func (p *planner) dropped(name string, fact UnitFact) bool {
	ours := slices.ContainsFunc(p.in.Before, func(b Bundle) bool {
		u, ok := b.definition(name)
		return ok && !u.Foreign
	})
	if !ours {
		return false
	}
	if at := p.in.Facts.Elsewhere[name]; at != "" {
		p.note("%s is left running: it is on this node as %s too", name, at)
		return false
	}
	if fact.Active == "failed" {
		p.plan.Reset = append(p.plan.Reset, name)
	}
	if fact.gone() {
		return false
	}
	p.plan.Stop = append(p.plan.Stop, Job{"stop", name})
	return true
}

// needs reports whether a running unit runs with something else than the new bundle, and
// whether a reload is enough to change that.
func (p *planner) needs(name string, def Unit, fact UnitFact, was Touched, known bool) (needs, onlyReload bool) {
	same := was.Before != "" && fact.Invocation == was.Before
	switch {
	case p.in.Direction == Restore:
		// What still runs from before the operation is what is wanted. Whatever was started
		// since may have been started from anything.
		return known && !same, false
	case p.in.Direction == Resume && known:
		return same || p.changed[def.Name], was.Reload && !p.changed[def.Name]
	case p.changed[def.Name]:
		return true, false
	case p.in.Stale[name] != "" && p.in.Stale[name] == fact.Invocation:
		return true, false
	}
	return p.reload[def.Name], true
}

// restart restarts a unit. Systemd refuses to start a socket whose service runs, so those
// are stopped together and started together.
func (p *planner) restart(name string, fact UnitFact) {
	var served []string
	if unit.TypeOf(name) == "socket" {
		for _, t := range fact.Triggers {
			if p.in.Facts.Units[t].running() {
				served = append(served, t)
			}
		}
	}
	if len(served) == 0 {
		p.job("restart", name)
		return
	}
	for _, s := range append(served, name) {
		p.plan.Stop = append(p.plan.Stop, Job{"stop", s})
		p.job("start", s)
	}
}

// job adds a job unless the unit has one: a start that a socket brought, after which there
// is nothing to restart.
func (p *planner) job(verb, name string) {
	if i := slices.IndexFunc(p.plan.Jobs, func(j Job) bool { return j.Unit == name }); i >= 0 {
		if verb == "start" {
			p.plan.Jobs[i].Verb = verb
		}
		return
	}
	p.plan.Jobs = append(p.plan.Jobs, Job{verb, name})
}
