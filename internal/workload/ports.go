// Package workload is the manager's core for what is delivered: it decides which nodes
// should have which bundle, brings it there node by node, and remembers that for nodes that
// are away. It does no I/O of its own.
//
// One goroutine owns its state (package loop). What comes in is a method of *Engine, safe
// from any goroutine; what goes out goes through the interfaces below.
//
// A node has the last word: it keeps what it has until it is told otherwise about that very
// workload. So a manager that knows nothing, or less than before, removes nothing; what it
// finds on a node and does not know it reports as an orphan.
package workload

import (
	"time"

	"example.org/ctrl/internal/bundle"
)

// Fleet is what the core may ask of nodes. No method blocks. Each done is called exactly
// once, from any goroutine; an error of kind wire.ErrNodeOffline says that the node is not
// there, or has gone before it answered.
type Fleet interface {
	// Upload sends a piece of an encoded package (wire.MemberUploadBundle).
	Upload(node, digest string, size, offset uint64, chunk []byte, done func(received uint64, err error))
	// Ask sends a request of wire.BundleMethods that takes one string, or none for "".
	Ask(node, method, request string, done func(answer string, err error))
	// Revision asks for a bundle of a workload's history; number 0 is the present one.
	Revision(node, workload string, number uint64, done func(answer string, err error))
	// Collect lets a node remove what no kept revision needs, or say what that would be.
	Collect(node string, dryRun bool, done func(answer string, err error))
}

// Store keeps what must outlive the manager. No method blocks; what is saved for one name
// is on the disk in the order of the calls. done is called once, from any goroutine.
type Store interface {
	SaveSpec(spec *Spec, done func(error))
	RemoveSpec(name string, done func(error))
	SavePackage(digest string, data []byte, done func(error))
	Package(digest string, done func(data []byte, err error))
	// Forget removes packages; it is no harm if one stays.
	Forget(digests []string)
}

// Events is what the core tells the world. The core calls it on its own goroutine, in order;
// an implementation only queues.
type Events interface {
	OperationNew(OperationInfo)
	NodeProgress(operation uint32, node string, e bundle.Event)
	NodeResult(o OperationInfo, r NodeResult)
	// OperationRemoved follows the end of an operation: result is done, failed, pending or
	// canceled.
	OperationRemoved(o OperationInfo, result string)
}

// Placement says on which nodes a workload belongs. Nodes are names and globs; a Selector
// matches nodes that have all of its labels. Whoever is matched by either is meant.
type Placement struct {
	Nodes    []string          `json:"nodes,omitempty"`
	Selector map[string]string `json:"selector,omitempty"`
}

// Spec is what a manager remembers of one workload: what was asked for last, and what has
// become of it on each node.
type Spec struct {
	Format     int                `json:"format"`
	Name       string             `json:"name"`
	Generation uint64             `json:"generation"`
	Bundle     string             `json:"bundle"`  // digest
	Package    string             `json:"package"` // digest
	Placement  Placement          `json:"placement"`
	Options    bundle.Options     `json:"options,omitzero"`
	Actor      string             `json:"actor,omitempty"`
	Made       time.Time          `json:"made"`
	Targets    map[string]*Target `json:"targets"` // by node
	// Kept are the packages of the last bundles, the newest last, for nodes whose disk is new
	// after a rollback.
	Kept []Kept `json:"kept,omitempty"`
}

// Kept is a package that is kept, with the digest of its bundle.
type Kept struct {
	Bundle  string `json:"bundle"`
	Package string `json:"package"`
}

// MaxKept is how many packages of one workload are kept, as many as nodes keep revisions.
const MaxKept = 10

// SpecFormat is the Format that this version writes.
const SpecFormat = 1

// Target is what one node should have of a workload, and how far that has come.
type Target struct {
	Generation uint64         `json:"generation"`
	Bundle     string         `json:"bundle,omitempty"`
	Package    string         `json:"package,omitempty"`
	Remove     bool           `json:"remove,omitempty"` // the workload is to go from this node
	Phase      Phase          `json:"phase"`
	Outcome    bundle.Outcome `json:"outcome,omitempty"`
	Revision   uint64         `json:"revision,omitempty"`
	Code       string         `json:"code,omitempty"`
	Error      string         `json:"error,omitempty"`
	At         time.Time      `json:"at"`
}

// Phase is how far a delivery has come.
type Phase string

// Phases.
const (
	Held    Phase = "held"    // its turn has not come, or an earlier node has failed; only a new apply goes on
	Pending Phase = "pending" // not there yet; it is delivered when the node is online
	Done    Phase = "done"
	Broken  Phase = "failed" // the node has refused it or gone back; only a new apply tries again
)

// Request is what a caller wants to be done with a workload.
type Request struct {
	Workload string
	Actor    string // who asks, for the history
	Options  bundle.Options
	// MaxUnavailable is how many nodes may be worked on at a time; less than 1 is 1.
	MaxUnavailable int
	// Package and Placement are for Apply and Plan.
	Package   []byte
	Placement Placement
	// Nodes limits Delete, Rollback and Control to some of the workload's nodes; none is all.
	Nodes []string
	// To is the revision that Rollback goes back to, 0 for the one before the present.
	To uint64
	// Verb is what Control does: start, stop or restart.
	Verb string
}

// OperationInfo is an operation as the public API shows it.
type OperationInfo struct {
	ID       uint32
	Workload string
	Verb     string // apply, delete, rollback, start, stop, restart
	Nodes    []string
	Actor    string // who has asked
}

// NodeResult is what an operation came to on one node.
type NodeResult struct {
	Node   string
	Result bundle.Result
}

// NodePlan is what an apply would do on one node.
type NodePlan struct {
	Node string            `json:"node"`
	Plan bundle.PlanResult `json:"plan"`
}

// Row is one workload on one node, as a list shows it.
type Row struct {
	Workload   string
	Node       string
	Desired    string // present, absent, or "" for an orphan
	State      string
	Ready      string // "1/2": started units that are active, of all
	Revision   uint64
	Generation uint64
	Since      time.Time // of the last change that this manager knows of
	Note       string
}

// Detail is all that is known of one workload.
type Detail struct {
	Spec   *Spec                    `json:"spec,omitempty"`
	Nodes  map[string]bundle.Status `json:"nodes"` // as the nodes said last
	Online []string                 `json:"online"`
}

// NodeHistory is a workload's history on one node.
type NodeHistory struct {
	Node    string         `json:"node"`
	History bundle.History `json:"history"`
	Error   string         `json:"error,omitempty"`
}

// NodeGarbage is what one node has removed, or would remove.
type NodeGarbage struct {
	Node    string         `json:"node"`
	Garbage bundle.Garbage `json:"garbage"`
	Error   string         `json:"error,omitempty"`
}
