package agent

import (
	"path"
	"strings"

	"example.org/ctrl/internal/policy"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// MaxUnitsPerCall is how many names one call of the manager may hold.
const MaxUnitsPerCall = 1024

// petition is something that the manager asks for while the node judges it.
type petition struct {
	act    policy.Act
	units  []policy.Unit
	wait   int // names that are being looked up
	err    error
	answer func(error)
}

// admit has the node's policy judge an act: answer gets nil where it may be carried out, at
// once or, where systemd must be asked first what names stand for, later. What is admitted
// leaves in the order in which it was asked for, so that a lookup reverses nothing.
func (a *Agent) admit(act policy.Act, answer func(error)) {
	rules := &a.cfg.Policy
	if len(act.Units) > MaxUnitsPerCall {
		answer(wire.ErrLimitsExceeded.With("a call may name %d units, this one names %d", MaxUnitsPerCall, len(act.Units)))
		return
	}
	if err := rules.Check(act); err != nil {
		answer(err)
		return
	}
	p := &petition{act: act, answer: answer}
	lookUp := rules.NeedsNames(act)
	if !lookUp && len(a.petitions) == 0 {
		answer(nil)
		return
	}
	a.petitions = append(a.petitions, p)
	if lookUp {
		a.lookUp(p)
	}
	a.settlePetitions()
}

// lookUp asks systemd for the names of the units that an act names.
func (a *Agent) lookUp(p *petition) {
	p.units = make([]policy.Unit, len(p.act.Units))
	for i, asked := range p.act.Units {
		p.units[i].Asked = asked
		name, ok := lookUpName(asked)
		if !ok {
			continue // judged by what was asked for; systemd refuses it
		}
		p.wait++
		a.systemd.Names(name, a.cfg.CallTimeout, func(names []string, err error) {
			a.loop.Defer(func() {
				p.wait--
				p.units[i].Names = ofTemplate(asked, names)
				if err != nil && p.err == nil {
					p.err = wire.AsError(err).With("cannot find out which unit %s is, to judge by [policy]: %v", path.Base(asked), err)
				}
				a.settlePetitions()
			})
		})
	}
}

// sample is the instance by which a template's aliases are looked up.
const sample = "policy"

// lookUpName is the name to ask systemd for. Of a path it is the file's, of a template that
// of an instance.
func lookUpName(asked string) (name string, ok bool) {
	name = path.Base(asked)
	if unit.CheckName(name) != nil {
		return "", false
	}
	if unit.IsTemplate(name) {
		name = strings.Replace(name, "@", "@"+sample, 1)
	}
	return name, len(name) <= unit.MaxName
}

// ofTemplate makes the names of a template from those of its sample instance.
func ofTemplate(asked string, names []string) []string {
	if !unit.IsTemplate(path.Base(asked)) {
		return names
	}
	for i, name := range names {
		names[i] = strings.Replace(name, "@"+sample+".", "@.", 1)
	}
	return names
}

// settlePetitions judges those whose names are known, in order. The rules are those of this
// moment: a reload counts for what has not been judged yet.
func (a *Agent) settlePetitions() {
	for len(a.petitions) > 0 && a.petitions[0].wait == 0 {
		p := a.petitions[0]
		if p.units == nil && a.cfg.Policy.NeedsNames(p.act) {
			a.lookUp(p) // rules that were read meanwhile ask for it
			continue
		}
		a.petitions[0] = nil
		a.petitions = a.petitions[1:]
		p.answer(a.judge(p))
	}
}

func (a *Agent) judge(p *petition) error {
	rules := &a.cfg.Policy
	switch {
	case a.over:
		return errShuttingDown()
	case p.err != nil:
		return p.err
	}
	if err := rules.Check(p.act); err != nil {
		return err
	}
	return rules.Decide(p.act, p.units)
}

// actOfJob is a job as the policy sees it.
func actOfJob(req *JobRequest) policy.Act {
	act := policy.Act{Method: req.method(), Mode: req.Mode, Units: []string{req.Unit}}
	act.Units = throughDep(act.Units)
	if req.Transient != nil {
		act.Units = append(act.Units, req.Transient.AuxiliaryUnits()...)
	}
	return act
}

// throughDep judges what starts and stops a target for others as what it does to the target,
// also by a name that no dependency has but systemd would follow (units/ctrl-dep-unit@.service).
func throughDep(units []string) []string {
	if !unit.IsDep(units[0]) {
		return units
	}
	if target, ok := unit.ParseDep(units[0]); ok {
		return []string{target}
	}
	if _, instance, _ := unit.Split(units[0]); unit.Valid(instance) {
		return append(units, instance)
	}
	return units
}

// actOfCall is a query or change as the policy sees it.
func actOfCall(method *wire.NodeMethod, args wire.Raw) policy.Act {
	act := policy.Act{Method: method.Name}
	lists := method.Kind == wire.ChangeMethod && strings.HasPrefix(string(method.In), "as")
	if method.UnitArg || lists || method.Name == "SetDefaultTarget" {
		act.Units, _ = args.FirstStrings()
	}
	return act
}
