package bundle

import (
	"slices"
	"time"
)

// KeepRevisions is how many revisions of a workload a node keeps.
const KeepRevisions = 10

// State is what a node keeps of one workload, in one file that is replaced as a whole: so
// what is current and what is under way change together.
type State struct {
	Format     int    `json:"format"`
	Workload   string `json:"workload"`
	Generation uint64 `json:"generation,omitempty"`
	// Current is the revision in effect, 0 for none: a workload that was deleted.
	Current uint64 `json:"current"`
	// Revisions are kept oldest first, at most KeepRevisions and the current one.
	Revisions []Revision `json:"revisions,omitempty"`
	Stopped   bool       `json:"stopped,omitempty"`
	Last      Outcome    `json:"last,omitempty"`
	LastError string     `json:"lastError,omitempty"`
	Changed   time.Time  `json:"changed"`
	// Stale are units that still run with what was before, by the invocation that does.
	Stale map[string]string `json:"stale,omitempty"`
	// Pending is the operation under way: the journal.
	Pending *Pending `json:"pending,omitempty"`
}

// Phase is how far an operation has come, as far as that decides where a crash leads.
type Phase string

const (
	// PhaseSwitch: files are being replaced. A crash leads back to the old bundle.
	PhaseSwitch Phase = "switch"
	// PhaseStart: all files are in place. A crash leads on to the new bundle.
	PhaseStart Phase = "start"
	// PhaseBack: the old bundle is being restored. A crash leads there.
	PhaseBack Phase = "back"
)

// Pending is what must be known after a crash.
type Pending struct {
	Phase Phase `json:"phase"`
	// Target and Back are the revisions to go to and to come from, 0 being none.
	Target uint64 `json:"target"`
	Back   uint64 `json:"back"`
	// Touched are the units that the operation acts on, with their invocation before.
	Touched []Touched `json:"touched,omitempty"`
	Options Options   `json:"options,omitzero"`
	Delete  bool      `json:"delete,omitempty"`
	// Error is why PhaseBack was begun.
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
}

// Touched is one unit that an operation acts on.
type Touched struct {
	Unit string `json:"unit"`
	// Before is the invocation that ran with the text from before; "" did not run.
	Before string `json:"before,omitempty"`
	// Ran says that it ran when the operation began.
	Ran bool `json:"ran,omitempty"`
	// Reload says that a reload was to be enough.
	Reload bool `json:"reload,omitempty"`
}

func (s State) clone() State {
	s.Revisions = slices.Clone(s.Revisions)
	return s
}

// revision finds one by its number.
func (s State) revision(number uint64) (Revision, bool) {
	i := slices.IndexFunc(s.Revisions, func(r Revision) bool { return r.Number == number })
	if i < 0 {
		return Revision{}, false
	}
	return s.Revisions[i], true
}

// next is the number for a new revision.
func (s State) next() uint64 {
	if len(s.Revisions) == 0 {
		return s.Current + 1
	}
	return max(s.Current, s.Revisions[len(s.Revisions)-1].Number) + 1
}

// trim drops the oldest revisions, never the current one, and gives the numbers dropped.
func (s *State) trim() []uint64 {
	var dropped []uint64
	for len(s.Revisions) > KeepRevisions {
		i := slices.IndexFunc(s.Revisions, func(r Revision) bool { return r.Number != s.Current })
		dropped = append(dropped, s.Revisions[i].Number)
		s.Revisions = slices.Delete(s.Revisions, i, i+1)
	}
	return dropped
}
