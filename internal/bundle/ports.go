package bundle

import (
	"time"
)

// Files is the node's disk as the engine needs it. No method blocks; each done is called
// exactly once, from any goroutine.
type Files interface {
	// Load reads all states, after what a crash has left half-done was removed: staged
	// texts, temporary files, revisions that no state knows.
	Load(done func(Disk, error))
	// Look reads what is at paths. It follows no link.
	Look(q Query, done func(Facts, error))
	// Verify lets the node's systemd read texts as if they were installed, and gives the
	// lines that it would not take, each as a sentence with the text's path and line.
	Verify(texts []Text, done func(faults []string, err error))
	// Revision reads one revision's bundle.
	Revision(workload string, number uint64, done func(Bundle, error))
	// Do carries out a step that is not ForSystemd.
	Do(step Step, done func(error))
}

// Query is what Look looks at.
type Query struct {
	Workload string
	Texts    []string // paths of unit files and drop-ins
	// Files are those that a bundle writes at its path; a path may be there twice. The
	// PathFact's ID is that of the first that it is equal to.
	Files    []File
	Contents []string // ContentIDs
	// Units are looked for in all places where unit files are: a file that does not have
	// the mark of Workload is somewhere else's.
	Units []string
}

// Disk is what Load found.
type Disk struct {
	States   []State
	Current  map[string]Bundle              // by workload
	Contents map[string]map[uint64][]string // ContentIDs by workload and revision
	Stored   map[string]int64               // contents in the store, with their size
	// Broken are workloads whose state or revision cannot be read: nothing is done to them.
	Broken map[string]string
	// Marked are unit files with ctrl's mark, by path: whose they say they are.
	Marked map[string]string
}

// Systemd is the node's service manager as the engine needs it. No method blocks; each done
// is called exactly once, from any goroutine.
type Systemd interface {
	// Look tells the state of units, whether or not they are loaded, and of all loaded
	// instances of templates.
	Look(names, templates []string, done func(map[string]UnitFact, error))
	// Do carries out a step that is ForSystemd, except StepJobs.
	Do(step Step, done func(error))
	// Jobs queues jobs, waits for their end where wait is set, and calls each with every
	// job's result: systemd's word, "refused: …" where it did not take the job, "timeout"
	// where it had not ended in time, "queued" without wait.
	Jobs(jobs []Job, wait bool, timeout time.Duration, each func(i int, result string), done func())
}

// Events is what the engine tells. Called on its own goroutine, in order; an implementation
// only queues.
type Events interface {
	Progress(Event)
	Changed(Status)
}

// Config is what the engine needs to know.
type Config struct {
	Layout    Layout
	FilePaths []string // AllowFilePaths=
	// Now is the clock for the history; nil is time.Now.
	Now func() time.Time
	// Judge refuses bundles that may not be on this node, or acted on; nil allows all.
	Judge func(b Bundle) error
	// Fault, in tests, is called before and after each step, on the engine's goroutine.
	Fault func(before bool, step Step)
}
