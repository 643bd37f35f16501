// Package manager is the core of the manager: it decides what the fleet's nodes, sessions,
// jobs and monitors are, and does no I/O of its own.
//
// One goroutine owns its state (package loop). What comes in is a method of *Manager, safe
// from any goroutine, whose answer arrives through a callback on the core's goroutine. What
// goes out goes through the two interfaces below, which adapters implement.
package manager

import (
	"time"

	"example.org/ctrl/internal/wire"
)

// Session identifies one registered connection of one agent. Ids are never reused within a
// manager's life; a message that carries an old one is dropped.
type Session uint64

// AgentLink is what the core may ask of one agent over one session.
//
// No method blocks. Each done is called exactly once, from any goroutine, also when the
// link dies (with an error of kind wire.ErrNodeOffline, whose text is the reason) and when
// the time is up (wire.ErrTimeout). An error of kind NodeOffline ends the session, so one
// that a peer sends must not arrive here as such. Messages leave in the order of the calls,
// and what comes from the agent reaches the core in the order in which it came: answers
// through done, reports through Manager.JobState and Manager.JobDone. A body given to done
// is the core's to keep.
type AgentLink interface {
	// StartJob asks for a job. A nil error says that the node's systemd has taken it; how
	// it goes on arrives as Manager.JobState and Manager.JobDone.
	StartJob(job uint32, req JobRequest, timeout time.Duration, done func(error))
	// CancelJob cancels a job that StartJob began. The job's end still arrives as JobDone.
	CancelJob(job uint32, timeout time.Duration, done func(error))
	// Call passes a method of wire.NodeMethods on, arguments and answer unopened.
	Call(method string, args wire.Raw, timeout time.Duration, done func(wire.Raw, error))
	// Subscribe asks for events of the units that a pattern matches: a unit name, or a glob.
	// The answer is their present state; every event after it comes after it.
	Subscribe(pattern string, timeout time.Duration, done func([]UnitRow, error))
	// Unsubscribe ends what Subscribe began.
	Unsubscribe(pattern string)
	// SetMetrics switches the agent's metrics on or off; it then reports Manager.JobMetrics.
	SetMetrics(on bool)
	// Targets tells which units of the node others need.
	Targets(units []string)
	// ProxyState tells what is to become of a proxy of the node: one of wire's Proxy….
	ProxyState(proxy, state, text string)
	// Ordered asks which of some units of the node start only after a proxy.
	Ordered(proxy string, units []string, timeout time.Duration, done func([]string, error))
	// ReleaseTarget lets the stop of a target go on.
	ReleaseTarget(unit string)
	// Heartbeat sends one sign of life.
	Heartbeat()
	// LastReceived is when anything last arrived from the agent, with a monotonic reading, so
	// that setting the clock ends no session. Safe from any goroutine.
	LastReceived() time.Time
	// Close ends the connection; reason is told to the agent where that is still possible.
	// Manager.Closed may follow and is then ignored: the core has ended the session itself.
	Close(reason string)
}

// Events is what the core tells the world. The core calls it on its own goroutine in the
// order in which things happened; an implementation only queues and never blocks.
type Events interface {
	JobNew(JobInfo)
	JobState(JobInfo)
	JobRemoved(job JobInfo, result string)
	// NodeChanged follows each change of a node's status.
	NodeChanged(NodeInfo)
	// StatusChanged follows each change of the fleet's status word.
	StatusChanged(status string)
	// FleetChanged follows a Reconfigure that changed which nodes there are. The sessions of
	// removed nodes have ended by then.
	FleetChanged(added, removed []NodeInfo)
	// UnitEvent is for the recipients of the monitors in audience, and for nobody else.
	UnitEvent(e UnitEvent, audience []Audience)
	// PeerRemoved tells one peer that it gets no more events of a monitor.
	PeerRemoved(monitor uint32, peer, reason string)
	// MonitorRemoved follows the end of a monitor.
	MonitorRemoved(monitor uint32)
	// MetricsChanged follows SetMetrics.
	MetricsChanged(on bool)
	// StartJobMetrics follows the end of a start: took is the time from the call to
	// JobRemoved, unit that from leaving the inactive state to active, 0 where not known.
	StartJobMetrics(job JobInfo, took, unit time.Duration)
	// AgentJobMetrics is what a node measured of one job of its systemd's.
	AgentJobMetrics(node, unit, method string, took time.Duration)
}

// UnitEventKind is one of the four signals of a monitor.
type UnitEventKind uint8

const (
	UnitNew UnitEventKind = iota
	UnitRemoved
	UnitStateChanged
	UnitPropertiesChanged
)

// Reasons of a UnitEvent.
const (
	ReasonReal    = "real"    // systemd said so
	ReasonVirtual = "virtual" // a subscription begins, or a node comes or goes
)

// UnitEvent is one thing that happened to one unit. For the pseudo-unit "*", which stands
// for the node's agent, see parity.md section 5.
type UnitEvent struct {
	Kind       UnitEventKind
	Node       string
	Unit       string   // the primary name
	Active     string   // UnitStateChanged
	Sub        string   // UnitStateChanged
	Reason     string   // ReasonReal or ReasonVirtual; not for UnitPropertiesChanged
	Interface  string   // UnitPropertiesChanged
	Properties wire.Raw // UnitPropertiesChanged, signature "a{sv}"
}

// Audience is one monitor that hears of an event, and its recipients: the owner, then the
// peers in order of addition. To is not changed after it was given out.
type Audience struct {
	Monitor uint32
	To      []string // unique bus names
}

// UnitRow is the present state of one unit as an agent reports it. Asked is the name in the
// subscription, which may be an alias of ID.
type UnitRow struct{ Asked, ID, Active, Sub string }

// MonitorInfo is a monitor as the public API shows it.
type MonitorInfo struct {
	ID    uint32
	Owner string // unique bus name
}

// JobRequest is what a caller asks of one unit.
type JobRequest struct {
	Node string
	Unit string
	Verb wire.Verb
	Mode string
	// Transient is set for StartTransientUnit: the arguments after the mode, signature
	// "a(sv)a(sa(sv))".
	Transient *wire.Raw
	// Caller is who asks, which the core passes on with the job's end.
	Caller Caller
}

// Caller is a user of the public API.
type Caller struct {
	Name  string // unique name on the bus
	UID   uint32
	Known bool // the uid
}

// JobInfo is a job as the public API shows it.
type JobInfo struct {
	ID    uint32
	Node  string
	Unit  string
	Type  string // wire.Verb.String
	State string // wire.JobWaiting or wire.JobRunning
	// Caller is who asked for it, the first one where several share it.
	Caller Caller
}

// NodeInfo is a node as the public API shows it.
type NodeInfo struct {
	Name             string
	Status           string // wire.NodeOnline or wire.NodeOffline
	Address          string // of the peer; "" when offline, "unix" over the unix socket
	LastSeen         time.Time
	StatusSince      time.Time
	DisconnectReason string                // why the last session ended; "" while online
	Facts            map[string]wire.Value // of the last session; not to be changed
	Optional         bool
}

// Snapshot is everything that the public API shows, as of one moment and in the orders of
// Manager.Nodes, Jobs and Monitors.
type Snapshot struct {
	Status   string
	Nodes    []NodeInfo
	Jobs     []JobInfo
	Monitors []MonitorInfo
	Metrics  bool
}

// Identity is who a peer has proved to be, before it says who it wants to be.
type Identity struct {
	// Node is the name that the peer's certificate carries, "" where there is none
	// (unix socket with peer credentials, or TLS=no).
	Node string
	// Address is the peer's address for people: an IP address without port, or "unix".
	Address string
}

// Registration is an agent's wish to be a node.
type Registration struct {
	Node     string
	Identity Identity
	Facts    map[string]wire.Value
	Link     AgentLink
}

// Welcome answers a Registration.
type Welcome struct {
	Session            Session
	HeartbeatInterval  time.Duration
	HeartbeatThreshold time.Duration
	Metrics            bool
}

// NodeReply is one node's answer to a question asked of many.
type NodeReply struct {
	Node string
	Body wire.Raw
	Err  error // kind wire.ErrTimeout where the node did not answer in time
}

// NodeConfig is what the configuration says about one node of the fleet.
type NodeConfig struct {
	Name                string
	Optional            bool
	AllowDependenciesOn []string
	ReleaseAfter        time.Duration // 0: never
}

// Config is what the core needs to know. A heartbeat duration of 0 switches the thing off;
// without an interval there is no threshold either, since nobody promised a sign of life.
// A time limit of 0 is DefaultCallTimeout or DefaultQueryTimeout.
type Config struct {
	Nodes              []NodeConfig
	HeartbeatInterval  time.Duration
	HeartbeatThreshold time.Duration
	CallTimeout        time.Duration
	QueryTimeout       time.Duration
}
