package bundle

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Direction says what a plan is for.
type Direction string

// Directions.
const (
	Forward Direction = ""        // what was asked for
	Resume  Direction = "resume"  // the same, after a crash in PhaseStart
	Restore Direction = "restore" // back to what was before
)

// Input is all that a plan depends on.
type Input struct {
	Layout    Layout
	FilePaths []string // roots below which files may be
	Direction Direction
	// Had says that the workload has a revision in effect.
	Had bool
	// Before are the bundles of which traces may be on the node, the one in effect first.
	Before []Bundle
	// New is what is wanted; for a delete it has no units.
	New     Bundle
	Blobs   map[string][]byte // of New, by SHA256; contents in the store need none
	Facts   Facts
	Claims  map[string]string // path or unit → another workload of this node that has it
	Options Options
	Stale   map[string]string
	Stopped bool
	// Touched is of the operation that is resumed or undone.
	Touched []Touched
}

// Plan is what is to be done, decided.
type Plan struct {
	Contents []Step // StepContent
	Stage    []Text
	Files    []File // that are written at their path
	Units    []Text // that are written
	Remove   []string
	Disable  []string
	Enable   []string
	Reload   bool
	Stop     []Job // before anything is replaced
	Reset    []string
	Jobs     []Job // after everything is in place
	Touched  []Touched
	Stale    map[string]string
	Diffs    []Diff
	Notes    []string

	Outcome Outcome
	runtime bool
}

// MakePlan decides what to do. It changes nothing and asks nobody: the same input gives the
// same plan. Errors are of kind *Refusal; for Restore and Resume there are none, what
// stands in the way is left alone and noted.
func MakePlan(in Input) (*Plan, error) {
	p := &planner{in: in, plan: &Plan{Stale: make(map[string]string), runtime: in.New.Runtime}, changed: make(map[string]bool), reload: make(map[string]bool)}
	for _, step := range []func() error{p.claims, p.texts, p.files, p.removals, p.enabling, p.units} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	p.finish()
	return p.plan, nil
}

type planner struct {
	in      Input
	plan    *Plan
	changed map[string]bool // definitions whose texts change
	reload  map[string]bool // definitions of which only files to be reloaded change
}

// object is a refusal, or a note where the plan must not fail.
func (p *planner) object(code, format string, args ...any) error {
	if p.in.Direction == Forward {
		return refuse(code, format, args...)
	}
	p.note(format, args...)
	return nil
}

func (p *planner) note(format string, args ...any) {
	p.plan.Notes = append(p.plan.Notes, fmt.Sprintf(format, args...))
}

// claims refuses what another workload of the node has, or somebody else ships.
func (p *planner) claims() error {
	for _, u := range p.in.New.Units {
		if other := p.in.Claims[u.Name]; other != "" && !u.Foreign {
			if err := p.object(CodeConflict, "unit %s belongs to the workload %s on this node; rename one, or delete that workload first: ctl workload delete %s", u.Name, other, other); err != nil {
				return err
			}
		}
		if file := p.in.Facts.Elsewhere[u.Name]; file != "" && !u.Foreign {
			if err := p.object(CodeConflict, "unit %s is on this node already, as %s, which is not ctrl's; choose another name, or deliver a drop-in for it (foreign: true)", u.Name, file); err != nil {
				return err
			}
		}
	}
	for _, f := range p.in.New.Files {
		if !slices.ContainsFunc(p.in.FilePaths, func(root string) bool { return strings.HasPrefix(f.Path, strings.TrimSuffix(root, "/")+"/") }) {
			if err := p.object(CodeDenied, "file %s is not below a path that this node allows (AllowFilePaths=%s in the agent's configuration)", f.Path, strings.Join(p.in.FilePaths, " ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// texts compares unit files and drop-ins with what is there.
func (p *planner) texts() error {
	for _, t := range p.in.New.Render(p.in.Layout) {
		fact := p.in.Facts.Paths[t.Path]
		if fact.Kind == KindFile && fact.Text == t.Text {
			continue
		}
		if why := p.foreign(t.Path, fact); why != "" {
			if err := p.object(CodeConflict, "%s", why); err != nil {
				return err
			}
			continue
		}
		p.plan.Units = append(p.plan.Units, t)
		p.changed[t.Unit] = true
		d := Diff{Path: t.Path, New: &t.Text}
		if fact.Kind == KindFile {
			d.Old = &fact.Text
		}
		p.plan.Diffs = append(p.plan.Diffs, d)
	}
	p.plan.Stage = p.plan.Units
	return nil
}

// foreign says why something that is there may not be replaced, "" where it may.
func (p *planner) foreign(at string, fact PathFact) string {
	switch {
	case fact.Kind == "":
		return ""
	case fact.Kind == KindLink && fact.Target == "/dev/null":
		return fmt.Sprintf("%s is masked on this node (a link to /dev/null); allow it first: systemctl unmask %s", at, path.Base(at))
	case fact.Kind != KindFile:
		return fmt.Sprintf("%s is a %s that ctrl has not made; it is left alone", at, fact.Kind)
	}
	switch owner := Mark(fact.Text); owner {
	case p.in.New.Workload:
		return ""
	case "":
		return fmt.Sprintf("%s is there and does not have ctrl's mark; it is left alone. Move it away, or choose another name", at)
	default:
		return fmt.Sprintf("%s belongs to the workload %s", at, owner)
	}
}

// files compares what is bound and written.
func (p *planner) files() error {
	for _, id := range slices.Sorted(maps.Keys(p.in.New.contents())) {
		f := p.in.New.contents()[id]
		if p.in.Facts.Contents[id] {
			continue
		}
		data, ok := p.in.Blobs[f.SHA256]
		if !ok {
			if err := p.object(CodeIO, "the content of %s is no longer in this node's store; apply the workload again", f.Path); err != nil {
				return err
			}
			continue
		}
		p.plan.Contents = append(p.plan.Contents, Step{Kind: StepContent, File: f, Data: data})
	}
	for _, f := range p.in.New.Files {
		if !f.Write {
			continue
		}
		if err := p.written(f); err != nil {
			return err
		}
	}
	return nil
}

func (p *planner) written(f File) error {
	fact := p.in.Facts.Paths[f.Path]
	if fact.Kind == KindFile && fact.ID == f.ContentID() && p.wrote(f.Path) {
		return nil
	}
	why := ""
	switch other := p.in.Claims[f.Path]; {
	case other != "":
		why = fmt.Sprintf("file %s belongs to the workload %s on this node", f.Path, other)
	case fact.Kind == "":
	case fact.Kind != KindFile:
		why = fmt.Sprintf("%s is a %s that ctrl has not made; it is left alone", f.Path, fact.Kind)
	case !p.wrote(f.Path):
		why = fmt.Sprintf("%s is there and was not written by this workload; it is left alone. Move it away, or choose another path", f.Path)
	}
	if why != "" {
		return p.object(CodeConflict, "%s", why)
	}
	p.plan.Files = append(p.plan.Files, f)
	id := f.ContentID()
	d := Diff{Path: f.Path, New: &id}
	if fact.Kind == KindFile {
		d.Old = &fact.ID
	}
	p.plan.Diffs = append(p.plan.Diffs, d)
	if f.OnChange == ChangeReload {
		for _, u := range p.in.New.Units {
			p.reload[u.Name] = p.reload[u.Name] || f.reads(u)
		}
	}
	return nil
}

// wrote reports whether one of the bundles before has written a file at a path.
func (p *planner) wrote(at string) bool {
	return slices.ContainsFunc(p.in.Before, func(b Bundle) bool {
		return slices.ContainsFunc(b.Files, func(f File) bool { return f.Write && f.Path == at })
	})
}

// removals are what the bundles before have left and the new one does not have.
func (p *planner) removals() error {
	keep := make(map[string]bool)
	for _, at := range p.in.New.paths(p.in.Layout) {
		keep[at] = true
	}
	for _, b := range p.in.Before {
		for _, t := range b.Render(p.in.Layout) {
			if fact := p.in.Facts.Paths[t.Path]; !keep[t.Path] && fact.Kind != "" {
				p.removeText(t, fact)
			}
			keep[t.Path] = true
		}
	}
	gone := make(map[string]bool)
	for i, b := range p.in.Before {
		for _, f := range b.Files {
			fact := p.in.Facts.Paths[f.Path]
			if !f.Write || keep[f.Path] || gone[f.Path] || fact.Kind == "" {
				continue
			}
			switch {
			case fact.Kind == KindFile && fact.ID == f.ContentID():
				gone[f.Path] = true
				p.plan.Remove = append(p.plan.Remove, f.Path)
				p.plan.Diffs = append(p.plan.Diffs, Diff{Path: f.Path, Old: &fact.ID})
			case i == len(p.in.Before)-1:
				p.note("%s was changed by somebody else and is left there", f.Path)
			}
		}
	}
	return nil
}

func (p *planner) removeText(t Text, fact PathFact) {
	if fact.Kind != KindFile || Mark(fact.Text) != p.in.New.Workload {
		p.note("%s does not have the mark of this workload and is left there", t.Path)
		return
	}
	p.plan.Remove = append(p.plan.Remove, t.Path)
	p.plan.Diffs = append(p.plan.Diffs, Diff{Path: t.Path, Old: &fact.Text})
	p.changed[t.Unit] = true
}

// enabling is the difference in what is enabled.
func (p *planner) enabling() error {
	var before []string
	for _, b := range p.in.Before {
		before = append(before, b.Enable...)
	}
	for _, name := range set(before) {
		if !slices.Contains(p.in.New.Enable, name) && enabled(p.state(name)) {
			p.plan.Disable = append(p.plan.Disable, name)
		}
	}
	for _, name := range p.in.New.Enable {
		again := p.installChanged(name)
		if again && enabled(p.state(name)) {
			p.plan.Disable = append(p.plan.Disable, name)
		}
		if again || !enabled(p.state(name)) {
			p.plan.Enable = append(p.plan.Enable, name)
		}
	}
	return nil
}

func (p *planner) state(name string) string { return p.in.Facts.Units[name].FileState }

// enabled reports whether a unit file's state is one that enabling leads to. With nothing
// but Also= in its [Install] a unit is "indirect" ever after.
func enabled(state string) bool {
	return slices.Contains([]string{"enabled", "enabled-runtime", "indirect", "alias"}, state)
}

// installChanged reports whether links must be made anew: the [Install] section is not the
// one that they were made from.
func (p *planner) installChanged(name string) bool {
	u, _ := p.in.New.definition(name)
	for _, b := range p.in.Before {
		old, ok := b.definition(name)
		if !ok || old.installs().text != u.installs().text {
			return true
		}
	}
	return len(p.in.Before) == 0
}

// finish sorts, and finds the word for all of it.
func (p *planner) finish() {
	plan := p.plan
	slices.Sort(plan.Remove)
	slices.SortFunc(plan.Diffs, func(a, b Diff) int { return cmp.Compare(a.Path, b.Path) })
	plan.Disable, plan.Enable = set(plan.Disable), set(plan.Enable)
	written := len(plan.Units)+len(plan.Remove)+len(plan.Files)+len(plan.Disable)+len(plan.Enable) > 0
	plan.Reload = len(plan.Units)+len(plan.Disable)+len(plan.Enable) > 0 || p.in.Direction != Forward ||
		slices.ContainsFunc(plan.Remove, func(at string) bool { return !p.wrote(at) })
	restarted := slices.ContainsFunc(plan.Jobs, func(j Job) bool { return j.Verb != "start" })
	switch {
	case !p.in.Had && p.in.Direction == Forward:
		plan.Outcome = Created
	case written || restarted || len(plan.Stop) > 0:
		plan.Outcome = Configured
	case len(plan.Jobs) > 0:
		plan.Outcome = Started
	default:
		plan.Outcome = Unchanged
	}
}
