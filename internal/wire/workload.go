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
