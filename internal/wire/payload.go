package wire

// UnitStatus is one row of ListUnits, "(ssssssouso)" (org.freedesktop.systemd1(5)).
type UnitStatus struct {
	Name        string
	Description string
	LoadState   string
	ActiveState string
	SubState    string
	Followed    string
	Path        ObjectPath
	JobID       uint32
	JobType     string
	JobPath     ObjectPath
}

// NodeUnits is one entry of Manager.ListUnits, "{sa(ssssssouso)}".
type NodeUnits struct {
	Node  string
	Units []UnitStatus
}

// NodeRow is one row of Manager.ListNodes, "(soss)".
type NodeRow struct {
	Name    string
	Path    ObjectPath
	Status  string
	Address string
}

// JobRow is one row of Manager.ListJobs, "(usssso)".
type JobRow struct {
	ID    uint32
	Node  string
	Unit  string
	Type  string
	State string
	Path  ObjectPath
}

// AgentUnit is the unit that the agent itself runs as on a node.
const AgentUnit = "ctrl-agent.service"

// Keys of the facts that an agent gives in Register, and of Node.Facts.
const (
	FactAgentVersion   = "AgentVersion"
	FactSystemdVersion = "SystemdVersion"
	FactMachineID      = "MachineID"
	FactBootID         = "BootID"
	FactArchitecture   = "Architecture"
	FactFeatures       = "Features" // as
	FactLabels         = "Labels"   // a{ss}
)

// Keys of the session dictionary that answers Register.
const (
	SessionID                 = "Session"            // t
	SessionFeatures           = "Features"           // as
	SessionHeartbeatInterval  = "HeartbeatInterval"  // t, microseconds, 0 is off
	SessionHeartbeatThreshold = "HeartbeatThreshold" // t, microseconds, 0 is off
	SessionLogLevel           = "LogLevel"           // s, "" leaves the agent's own
	SessionMetrics            = "Metrics"            // b
)

// Members of the internal interfaces besides the Node verbs.
const (
	MemberRegister   = "Register"
	MemberHeartbeat  = "Heartbeat" // a signal, both ways
	MemberCancelJob  = "CancelJob"
	MemberJobState   = "JobState"   // signal (u job, s state)
	MemberSetMetrics = "SetMetrics" // (b on)
	MemberJobMetrics = "JobMetrics" // signal (s unit, s method, t microseconds)
	MemberJobDone    = "JobDone"    // signal (u job, s result)
	MemberClosing    = "Closing"    // signal (s reason), both ways: the last message of a side that ends a session on purpose
)

// Members that serve certificates. Requests, certificates and authorities travel as PEM, as
// they stand in files.
const (
	MemberJoin     = "Join"     // of the Join interface: (s node, s token, ay csr → ay certificate, ay ca)
	MemberRenew    = "Renew"    // of the internal Manager interface: (ay csr → ay certificate, ay ca)
	MemberRenewNow = "RenewNow" // signal of the manager: the agent is to call Renew without waiting for its time
)

// Members of the internal Agent interface that serve monitors.
const (
	MemberSubscribe             = "Subscribe"             // (s pattern → a(ssss) asked, id, active, sub)
	MemberUnsubscribe           = "Unsubscribe"           // (s pattern)
	MemberUnitNew               = "UnitNew"               // signal (s unit, s reason)
	MemberUnitRemoved           = "UnitRemoved"           // signal (s unit, s reason)
	MemberUnitStateChanged      = "UnitStateChanged"      // signal (s unit, s active, s sub, s reason)
	MemberUnitPropertiesChanged = "UnitPropertiesChanged" // signal (s unit, s interface, a{sv} changed)
	MemberUnitAlias             = "UnitAlias"             // signal (s name, s primary or "", s active, s sub)
)
