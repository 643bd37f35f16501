package wire

// WorkloadRow is one workload on one node, as List of the Workloads interface gives it.
type WorkloadRow struct {
	Workload   string
	Node       string
	Desired    string // present, absent, "" for an orphan
	State      string
	Ready      string // units that are active, of those that should be: "1/2"
	Note       string
	Revision   uint64
	Generation uint64
	Since      uint64 // microseconds since 1970
}

// OperationRow is one operation on a workload that is under way.
type OperationRow struct {
	ID       uint32
	Workload string
	Verb     string
	Nodes    []string
}

// Options of the methods of the Workloads interface; each may be left out.
const (
	OptionNoRestart         = "NoRestart"         // b
	OptionRollbackOnFailure = "RollbackOnFailure" // b
	OptionAllowUnknown      = "AllowUnknown"      // b
	OptionNoWait            = "NoWait"            // b
	OptionTimeout           = "TimeoutUSec"       // t, microseconds
	OptionMaxUnavailable    = "MaxUnavailable"    // u
)

// Words of WorkloadRow beside those that nodes say of themselves (package bundle).
const (
	DesiredPresent = "present"
	DesiredAbsent  = "absent"

	WorkloadHeld        = "Held"        // its turn has not come, or an earlier node has failed
	WorkloadPending     = "Pending"     // it is delivered when the node is back
	WorkloadUnreachable = "Unreachable" // the node is away
	WorkloadRefused     = "Failed"      // the node has not taken it
	WorkloadOrphan      = "Orphan"      // not applied through this manager
)

// Results of operations on workloads, beside ResultDone, ResultFailed and ResultCanceled.
const ResultPending = "pending" // some nodes are away and get it when they come back

// Outcomes of nodes beside those of package bundle.
const (
	OutcomePending = "pending" // the node was not reached
	OutcomeSkipped = "skipped" // an earlier node has failed, or the operation was ended
)

// CodeOffline is the code of a node's result where nothing is remembered for its return.
const CodeOffline = "offline"
