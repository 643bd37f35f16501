// Package agent is the core of the agent: it keeps the session to a manager, carries out
// that manager's jobs through the local systemd and reports on them. It does no I/O of its
// own.
//
// One goroutine owns its state (package loop). What comes in is a method of *Agent, safe
// from any goroutine; what goes out goes through the interfaces below.
package agent

import (
	"time"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/policy"
	"example.org/ctrl/internal/wire"
)

// Systemd is the node's service manager as the core needs it. No method blocks. Each done
// is called exactly once, from any goroutine, also when the connection to systemd is lost.
// Signals arrive as the Systemd… methods of *Agent, in systemd's order relative to the
// answers: a job's JobRemoved never overtakes the answer that named the job.
type Systemd interface {
	// StartJob queues a job; job is systemd's own id, which several requests may share.
	StartJob(req JobRequest, timeout time.Duration, done func(job uint32, err error))
	// CancelJob cancels a job by systemd's id.
	CancelJob(job uint32, timeout time.Duration, done func(error))
	// Call carries out a query or change of wire.NodeMethods, answer unopened.
	Call(method string, args wire.Raw, timeout time.Duration, done func(wire.Raw, error))
	// Jobs lists all jobs in systemd's queue.
	Jobs(timeout time.Duration, done func([]QueuedJob, error))
	// JobType tells what a job does, in systemd's words: start, stop, restart …
	JobType(job uint32, timeout time.Duration, done func(kind string, err error))
	// Units tells the present state of the loaded units that a name or glob matches. For a
	// name that is an alias the row's ID is the primary name.
	Units(pattern string, timeout time.Duration, done func([]UnitRow, error))
	// Names gives all names of the unit behind a name, the primary one first. It loads the
	// unit, as acting on it would; what there is no file for has that one name.
	Names(name string, timeout time.Duration, done func(names []string, err error))
	// Watch says which units' signals are wanted from now on; nil is none. wanted is called
	// from any goroutine.
	Watch(wanted func(unit string) bool)
}

// QueuedJob is a job in systemd's queue.
type QueuedJob struct {
	ID    uint32
	Unit  string
	Type  string // start, stop …
	State string // wire.JobWaiting or wire.JobRunning
}

// UnitRow is the present state of one unit, asked for by the name or glob Asked.
type UnitRow struct{ Asked, ID, Active, Sub string }

// Dialer opens links to managers.
type Dialer interface {
	// Dial connects to a D-Bus address ("tcp:host=…,port=…", "unix:path=…") and proves both
	// identities, within the dialler's own time limits. done is called once, from any
	// goroutine. A dial that is no longer wanted is cancelled by the returned function;
	// done is still called then.
	// An error of kind wire.ErrAccessDenied says that one side did not accept who the other
	// is (certificates, TLS on one side only): trying again soon cannot help.
	Dial(address string, done func(ManagerLink, error)) (cancel func())
}

// ManagerLink is what the core may ask of the manager over one connection. No method
// blocks. Messages leave in the order of the calls.
type ManagerLink interface {
	// Register asks to become a node. From a nil error on, the link delivers the manager's
	// calls to the core, tagged with session.
	Register(session Session, node string, facts map[string]wire.Value, timeout time.Duration, done func(Welcome, error))
	Heartbeat()
	JobState(job uint32, state string)
	JobDone(job uint32, result string)
	UnitNew(unit, reason string)
	UnitRemoved(unit, reason string)
	UnitStateChanged(unit, active, sub, reason string)
	UnitPropertiesChanged(unit, iface string, changed map[string]wire.Value)
	UnitAlias(UnitRow)
	JobMetrics(unit, method string, took time.Duration)
	WorkloadEvent(member, text string)
	// Backlog is how many bytes the manager has still to take. Safe from any goroutine.
	Backlog() int
	// Renew asks for a certificate; request and answer are PEM.
	Renew(request []byte, timeout time.Duration, done func(certificate, authorities []byte, err error))
	// Proxies is the first report of a session: all proxies, and the targets of all dep units
	// that are active. The others follow as things change.
	Proxies(all []Proxy, deps []string)
	ProxyNew(Proxy)
	ProxyRemoved(name string)
	TargetState(unit, state string)
	TargetLeaving(unit string, restart bool)
	DepState(unit string, active bool)
	// LastReceived is when anything last arrived from the manager. Safe from any goroutine.
	LastReceived() time.Time
	// Close ends the connection. Agent.Closed follows, once, also if the manager closed first.
	Close(reason string)
}

// Events is what the core tells the node's own bus. Called on the core's goroutine, in
// order; an implementation only queues.
type Events interface {
	StatusChanged(Info)
	ManagerAddressChanged(Info)
}

// Session numbers this agent's connections; a message tagged with an old one is dropped.
type Session uint64

// Welcome is the manager's answer to Register.
type Welcome struct {
	ManagerSession     uint64
	Features           []string
	HeartbeatInterval  time.Duration // 0: the manager sends none
	HeartbeatThreshold time.Duration
	LogLevel           string // "" leaves the agent's own
	Metrics            bool
}

// JobRequest is a job as the manager asks for it. ID is the manager's.
type JobRequest struct {
	ID   uint32
	Unit string
	Verb wire.Verb
	Mode string
	// Transient is set for StartTransientUnit: signature "a(sv)a(sa(sv))".
	Transient *wire.Raw
}

// Info is the agent as its local API shows it.
type Info struct {
	Status         string // wire.NodeOnline or wire.NodeOffline
	ManagerAddress string
	LastSeen       time.Time
	DisconnectedAt time.Time // zero while connected and before the first connection
}

// Config is what the core needs to know. Durations of 0 switch the thing off.
type Config struct {
	Node               string
	Addresses          []string // D-Bus addresses, tried in order
	HeartbeatInterval  time.Duration
	HeartbeatThreshold time.Duration
	CallTimeout        time.Duration
	RegisterTimeout    time.Duration
	ReconnectMin       time.Duration
	ReconnectMax       time.Duration
	// QuietAfter is the number of failed tries after which an unchanged reason is logged
	// no more; at most 0 is never.
	QuietAfter int
	// ExitOnDisconnect is how long the agent may be without a manager before Fail is called.
	ExitOnDisconnect time.Duration
	// OnDisconnectUnit is started when the agent has been without a manager for
	// OnDisconnectUnitAfter, 0 being at once; "" is none.
	OnDisconnectUnit      string
	OnDisconnectUnitAfter time.Duration
	// Actions takes the action log; nil: nothing is written down.
	Actions *actionlog.Log
	// Policy is what the node lets the manager do.
	Policy policy.Policy
	// Workloads is what the node holds of workloads; nil: it takes none.
	Workloads Workloads
	// Logs is the node's journal; nil: it is not read.
	Logs Logs
	// ProxyStartTimeout is how long a proxy waits for a node that is not there.
	ProxyStartTimeout time.Duration
	// OnNodeLoss is what becomes of proxies whose node is lost, and ParseNodeLoss reads what
	// the environment of one says about it.
	OnNodeLoss    NodeLoss
	ParseNodeLoss func(string) (NodeLoss, error)
	// Facts are told to the manager beside those of systemd.
	Facts map[string]wire.Value
	// CheckAddress refuses what is no D-Bus address, for SwitchManager.
	CheckAddress func(string) error
	// SetLogLevel and Shutdown carry out what the manager asks of the agent itself. They
	// are called on the core's goroutine and do not block.
	SetLogLevel func(level string) error
	Shutdown    func()
	// RenewNow is told that the manager wants this node to renew its certificate without
	// waiting for its time. It does not block. nil: certificates come from elsewhere.
	RenewNow func()
	// Fail ends the agent as failed, for a reason. As Shutdown it does not block.
	Fail func(error)
}
