package bundle

import "time"

// Request is what ApplyBundle, PlanBundle, RollbackWorkload, DeleteWorkload and
// ControlWorkload are given. Not every field has a meaning for every call.
type Request struct {
	// ID is the caller's; it stands in every Event of what the request begins.
	ID       uint64 `json:"id,omitempty"`
	Workload string `json:"workload"`
	// Package is the hexadecimal SHA-256 of an uploaded encoded package (apply, plan).
	Package string `json:"package,omitempty"`
	// Generation is the manager's number for this state of the workload (apply, delete).
	Generation uint64 `json:"generation,omitempty"`
	// To is the revision to go back to, 0 for the one before the present (rollback).
	To uint64 `json:"to,omitempty"`
	// Verb is start, stop or restart (control).
	Verb string `json:"verb,omitempty"`
	// Actor says who asks, for the history: a user's name and uid, at most 256 bytes.
	Actor   string  `json:"actor,omitempty"`
	Options Options `json:"options,omitzero"`
}

// Options of an apply, rollback or delete.
type Options struct {
	// NoRestart writes and reloads but restarts nothing; what would need it is said.
	NoRestart bool `json:"noRestart,omitempty"`
	// RollbackOnFailure goes back to the revision before when a unit does not come up.
	RollbackOnFailure bool `json:"rollbackOnFailure,omitempty"`
	// AllowUnknown accepts unit files with lines that this node's systemd would ignore.
	AllowUnknown bool `json:"allowUnknown,omitempty"`
	// NoWait does not wait for the units' jobs: the result is then that they are queued.
	NoWait bool `json:"noWait,omitempty"`
	// TimeoutMs bounds the wait for the units' jobs, in milliseconds. 0: DefaultTimeout.
	TimeoutMs uint64 `json:"timeoutMs,omitempty"`
}

// DefaultTimeout and MaxTimeout bound how long an operation waits for jobs of systemd.
const (
	DefaultTimeout = 5 * time.Minute
	MaxTimeout     = 24 * time.Hour
)

// Timeout is how long the operation waits for jobs.
func (o Options) Timeout() time.Duration {
	if o.TimeoutMs == 0 {
		return DefaultTimeout
	}
	return min(time.Duration(min(o.TimeoutMs, uint64(MaxTimeout/time.Millisecond)))*time.Millisecond, MaxTimeout)
}

// Outcome is the one word for what an operation came to.
type Outcome string

// Outcomes. The first four are successes.
const (
	Created    Outcome = "created"
	Configured Outcome = "configured"
	Unchanged  Outcome = "unchanged"
	Deleted    Outcome = "deleted"
	RolledBack Outcome = "rolled back" // asked for, or by RollbackOnFailure: then Error says what had failed
	Started    Outcome = "started"     // nothing was written, but units that should run were started
	Stopped    Outcome = "stopped"
	Failed     Outcome = "failed"
)

// Result is how an operation ended.
type Result struct {
	Outcome  Outcome `json:"outcome"`
	Revision uint64  `json:"revision,omitempty"` // that the node has now, 0 for none
	Digest   string  `json:"digest,omitempty"`   // of that revision's bundle
	// Code and Error are set where it failed, whatever Outcome says of what came then.
	Code    string   `json:"code,omitempty"`
	Error   string   `json:"error,omitempty"`
	Changes []Change `json:"changes,omitempty"` // what was done, in order
	// NeedRestart are the units that still run with the text or files from before.
	NeedRestart []string `json:"needRestart,omitempty"`
	// Notes are for people: what was left alone and why.
	Notes []string `json:"notes,omitempty"`
}

// OK reports whether what was asked for is so now.
func (r Result) OK() bool { return r.Error == "" }

// Codes of a Result and of refusals, for programs.
const (
	CodeInvalid  = "invalid"  // the bundle or request itself
	CodeConflict = "conflict" // a file or unit belongs to somebody else
	CodeIgnored  = "ignored"  // systemd would ignore a line
	CodeDenied   = "denied"   // the node's policy
	CodeStale    = "stale"    // the generation is older than the node's
	CodeBusy     = "busy"     // too much is waiting
	CodeUnknown  = "unknown"  // no such workload or revision
	CodeIO       = "io"       // a file could not be written; the old bundle is in place
	CodeUnits    = "units"    // a unit did not do what was asked
	CodeTimeout  = "timeout"  // jobs were still under way when the time was up
)

// Change is one thing that an operation does, or would do.
type Change struct {
	// What is one of write, remove, enable, disable, reload-daemon, start, stop, restart,
	// reload.
	What string `json:"what"`
	// Name is a unit's name or a file's path.
	Name string `json:"name,omitempty"`
	// Result is what systemd said of a job: done, failed, timeout …; empty in a plan.
	Result string `json:"result,omitempty"`
}

// PlanResult answers PlanBundle.
type PlanResult struct {
	Outcome Outcome  `json:"outcome"` // created, configured, started or unchanged
	Changes []Change `json:"changes,omitempty"`
	Diffs   []Diff   `json:"diffs,omitempty"`
	// Error says why an apply would be refused, with its Code.
	Code  string   `json:"code,omitempty"`
	Error string   `json:"error,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// Diff is a file of units before and after; Old is nil where it is new, New where it goes.
// Contents of Files are never shown: Old and New hold their digests and modes.
type Diff struct {
	Path string  `json:"path"`
	Old  *string `json:"old,omitempty"`
	New  *string `json:"new,omitempty"`
}

// Event is one signal about an operation under way.
type Event struct {
	ID       uint64 `json:"id"`
	Workload string `json:"workload"`
	// Step and Steps count; they are 0 until the plan is made.
	Step   int     `json:"step,omitempty"`
	Steps  int     `json:"steps,omitempty"`
	Change *Change `json:"change,omitempty"` // what was done
	Done   bool    `json:"done,omitempty"`
	Result *Result `json:"result,omitempty"` // with Done
}

// Status is one workload as ListWorkloads and the signal WorkloadChanged tell it.
type Status struct {
	Workload   string `json:"workload"`
	Revision   uint64 `json:"revision"`
	Digest     string `json:"digest"`
	Generation uint64 `json:"generation,omitempty"`
	// Deleted is a workload of which only its generation is kept.
	Deleted bool `json:"deleted,omitempty"`
	// Stopped says that it was stopped through ctrl.
	Stopped bool `json:"stopped,omitempty"`
	// Busy says that an operation is under way.
	Busy bool `json:"busy,omitempty"`
	// Last is how the last operation ended.
	Last Outcome `json:"last,omitempty"`
	// LastError is what failed in it.
	LastError string       `json:"lastError,omitempty"`
	State     string       `json:"state"` // one of the State words below
	Units     []UnitStatus `json:"units,omitempty"`
	// Drift are paths that are not as the revision has them, each with a word: missing,
	// edited, foreign, mode.
	Drift []Drift `json:"drift,omitempty"`
}

// Words of Status.State, from the units that the bundle starts.
const (
	StateRunning        = "Running"
	StateStarting       = "Starting"
	StateFailed         = "Failed"
	StateDegraded       = "Degraded"
	StateStopped        = "Stopped"
	StateStoppedOutside = "Stopped (outside ctl)"
	StateCompleted      = "Completed"
	StateNone           = "-" // it starts nothing
	StateUnknown        = "Unknown"
)

// UnitStatus is one unit of a workload.
type UnitStatus struct {
	Name        string `json:"name"`
	Load        string `json:"load,omitempty"`
	Active      string `json:"active,omitempty"`
	Sub         string `json:"sub,omitempty"`
	FileState   string `json:"fileState,omitempty"`
	Result      string `json:"result,omitempty"`
	NeedRestart bool   `json:"needRestart,omitempty"`
}

// Drift is a path that is not as it was written.
type Drift struct {
	Path string `json:"path"`
	What string `json:"what"`
}

// Revision is one entry of a workload's history.
type Revision struct {
	Number     uint64    `json:"number"`
	Digest     string    `json:"digest"`
	Generation uint64    `json:"generation,omitempty"`
	Made       time.Time `json:"made"`
	Actor      string    `json:"actor,omitempty"`
	Outcome    Outcome   `json:"outcome"`
	Error      string    `json:"error,omitempty"`
	// Of is the revision whose bundle a rollback took.
	Of uint64 `json:"of,omitempty"`
}

// Listing answers ListWorkloads.
type Listing struct {
	Workloads []Status `json:"workloads"`
	// Orphans are unit files with ctrl's mark whose workload this node does not know.
	Orphans []string `json:"orphans,omitempty"`
}

// History answers GetHistory, oldest first.
type History struct {
	Current   uint64     `json:"current"`
	Revisions []Revision `json:"revisions"`
}

// Garbage answers CollectGarbage: what was removed, or would be.
type Garbage struct {
	Blobs   []string `json:"blobs,omitempty"`
	Orphans []string `json:"orphans,omitempty"`
	// Forgotten are workloads that were deleted long ago, whose generation is no longer kept.
	Forgotten []string `json:"forgotten,omitempty"`
	Bytes     int64    `json:"bytes,omitempty"`
}
