package bundle

import "slices"

// Step is one thing that is done on the node, in an order that is data: a crash can be tried
// before and after each of them.
type Step struct {
	Kind StepKind
	// Path, Text, File: what is written or removed where.
	Path string
	Text string
	File File
	Data []byte
	// Texts are staged together.
	Texts []Text
	// Workload, Number, State, Bundle: what is recorded.
	Workload string
	Number   uint64
	State    *State
	Bundle   *Bundle
	// Names are units; Runtime says where they are enabled.
	Names   []string
	Runtime bool
	// Jobs are queued together and awaited together.
	Jobs []Job

	changes []Change // what people are told when it is done
}

// StepKind is what a step does.
type StepKind string

// Kinds of steps. Those up to StepSync are for Files, the rest for Systemd. Each is done
// wholly or not at all, unless it says otherwise.
const (
	// StepContent puts Data into the store as the content File.ContentID, with its mode and
	// owner, so that it is on the disk. What is there already is left.
	StepContent StepKind = "content"
	// StepStage writes Texts and Files under temporary names beside their places, so that
	// their content is on the disk. It may be done in part; what is left is removed by Load.
	StepStage StepKind = "stage"
	// StepUnstage removes what StepStage has left of Texts.
	StepUnstage StepKind = "unstage"
	// StepRevision records Bundle as revision Number of Workload.
	StepRevision StepKind = "revision"
	// StepState replaces the state of Workload. When it is done it is on the disk, with all
	// that was done before.
	StepState StepKind = "state"
	// StepUnit puts the staged text into its place, Path. The directory is made.
	StepUnit StepKind = "unit"
	// StepFile copies the content File.ContentID to its path, with mode and owner.
	StepFile StepKind = "file"
	// StepRemove removes the file Path, and its directory where that is a unit's .d or below
	// the file paths and is empty then.
	StepRemove StepKind = "remove"
	// StepDropRevision removes revision Number of Workload.
	StepDropRevision StepKind = "drop-revision"
	// StepForget removes all that is recorded of Workload.
	StepForget StepKind = "forget"
	// StepDropContent removes the content Path from the store.
	StepDropContent StepKind = "drop-content"

	// StepDisable and StepEnable change what is enabled of Names, as systemctl does.
	StepDisable StepKind = "disable"
	StepEnable  StepKind = "enable"
	// StepReload lets systemd read all unit files again.
	StepReload StepKind = "reload-daemon"
	// StepResetFailed forgets that Names have failed.
	StepResetFailed StepKind = "reset-failed"
	// StepJobs queues Jobs. It may be done in part.
	StepJobs StepKind = "jobs"
)

// ForSystemd reports whether a step is systemd's to do.
func (k StepKind) ForSystemd() bool {
	switch k {
	case StepDisable, StepEnable, StepReload, StepResetFailed, StepJobs:
		return true
	}
	return false
}

// Job is a job of systemd: start, stop, restart or reload-or-restart of a unit.
type Job struct{ Verb, Unit string }

// prepare are the steps that change nothing that anybody sees.
func (p *Plan) prepare() []Step {
	steps := slices.Clone(p.Contents)
	if len(p.Stage) > 0 {
		steps = append(steps, Step{Kind: StepStage, Texts: p.Stage})
	}
	return steps
}

// stops end what may not be there any more when its file goes.
func (p *Plan) stops() []Step {
	if len(p.Stop) == 0 {
		return nil
	}
	return []Step{{Kind: StepJobs, Jobs: p.Stop}}
}

// replace are the steps that put everything into place. What is enabled is changed before
// systemd reads its files, so that it reads them once: links are files to it as well.
func (p *Plan) replace() []Step {
	var steps []Step
	if len(p.Disable) > 0 {
		steps = append(steps, Step{Kind: StepDisable, Names: p.Disable, Runtime: p.runtime, changes: each("disable", p.Disable)})
	}
	for _, t := range p.Units {
		steps = append(steps, Step{Kind: StepUnit, Path: t.Path, Text: t.Text, changes: each("write", []string{t.Path})})
	}
	for _, f := range p.Files {
		steps = append(steps, Step{Kind: StepFile, Path: f.Path, File: f, changes: each("write", []string{f.Path})})
	}
	for _, at := range p.Remove {
		steps = append(steps, Step{Kind: StepRemove, Path: at, changes: each("remove", []string{at})})
	}
	if len(p.Enable) > 0 {
		steps = append(steps, Step{Kind: StepEnable, Names: p.Enable, Runtime: p.runtime, changes: each("enable", p.Enable)})
	}
	if p.Reload {
		steps = append(steps, Step{Kind: StepReload, changes: []Change{{What: "reload-daemon"}}})
	}
	return steps
}

// starts are the steps after everything is in place.
func (p *Plan) starts() []Step {
	var steps []Step
	if len(p.Reset) > 0 {
		steps = append(steps, Step{Kind: StepResetFailed, Names: p.Reset})
	}
	if len(p.Jobs) > 0 {
		steps = append(steps, Step{Kind: StepJobs, Jobs: p.Jobs})
	}
	return steps
}

// Changes are what the plan does, in order, for people.
func (p *Plan) Changes() []Change {
	var out []Change
	for _, s := range slices.Concat(p.stops(), p.replace(), p.starts()) {
		out = append(out, s.changes...)
		for _, j := range s.Jobs {
			out = append(out, Change{What: j.Verb, Name: j.Unit})
		}
	}
	return out
}

func each(what string, names []string) []Change {
	out := make([]Change, len(names))
	for i, name := range names {
		out[i] = Change{What: what, Name: name}
	}
	return out
}
