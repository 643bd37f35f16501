package manager

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/wire"
)

// Manager is the core. Make one with New and run it with Run.
//
// Every method is safe from any goroutine but the core's own: callbacks, and the methods of
// Events, must not call back, except Closed. Each reply is called exactly once, on the core's
// goroutine, or at once on the caller's when the core has ended. Bodies and facts that are
// handed in are kept: an adapter that reuses its buffers gives copies.
type Manager struct {
	loop   *loop.Loop
	log    *slog.Logger
	events Events

	// All below is owned by the loop's goroutine.
	cfg         Config
	nodes       []*node // in the order of the configuration
	byName      map[string]*node
	sessions    map[Session]*session
	lastSession Session
	jobs        map[uint32]*job
	lastJob     uint32

	monitors         map[uint32]*monitor
	lastMonitor      uint32
	lastSubscription uint32
	lastPeer         uint32

	deps dependencies

	tally   tally
	status  string
	metered bool
	over    bool

	tick      *loop.Timer
	tickEvery time.Duration
	tickDue   time.Time
	awake     time.Time // since when this process is known to run without a pause
}

// inbox is how many calls from outside may wait for the core; a caller past it waits.
const inbox = 4096

// Time limits where the configuration gives none: no wait is without one.
const (
	DefaultCallTimeout  = 30 * time.Second
	DefaultQueryTimeout = 2 * time.Second
)

// New makes a core. It does nothing until Run.
func New(cfg Config, events Events, log *slog.Logger) *Manager {
	m := &Manager{
		loop: loop.New(inbox), log: log, events: events,
		sessions: make(map[Session]*session), jobs: make(map[uint32]*job), monitors: make(map[uint32]*monitor), status: wire.StatusDown,
		deps: newDependencies(),
	}
	m.configure(cfg)
	return m
}

func (m *Manager) configure(cfg Config) (added, gone []*node) {
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = DefaultCallTimeout
	}
	if cfg.QueryTimeout <= 0 {
		cfg.QueryTimeout = DefaultQueryTimeout
	}
	m.cfg = cfg
	return m.setFleet(cfg.Nodes)
}

// Run owns the state until ctx ends, then ends all jobs as canceled, answers all pending
// calls with wire.ErrShuttingDown, closes all links and returns.
func (m *Manager) Run(ctx context.Context) {
	m.loop.Defer(m.armTick)
	stop := context.AfterFunc(ctx, func() { m.loop.Defer(m.shutDown) })
	defer stop()
	m.loop.Run(context.Background())
}

// shutDown ends everything on purpose: first what callers wait for, so that they hear of
// the shutdown and not of nodes that go offline, then the nodes.
func (m *Manager) shutDown() {
	if m.over {
		return
	}
	const why = "manager is shutting down"
	m.over = true
	m.tick.Stop()
	for _, n := range m.nodes {
		if s := n.session; s != nil {
			m.cancelJobs(s.allJobs(), why)
			s.failCalls(errShuttingDown())
		}
	}
	for _, n := range m.nodes {
		if n.session != nil {
			m.detach(n.session, why, true)
			m.events.NodeChanged(n.info())
		}
	}
	m.updateStatus()
	m.loop.Stop()
}

func errShuttingDown() error { return wire.ErrShuttingDown.With("the manager is shutting down") }

// post runs fn on the core, or refuse where the core has ended.
func (m *Manager) post(fn func(), refuse func(error)) {
	ok := m.loop.Post(func() {
		if m.over {
			refuse(errShuttingDown())
			return
		}
		fn()
	})
	if !ok {
		refuse(errShuttingDown())
	}
}

func ignore(error) {}

// Reconfigure applies a changed configuration: fleet, heartbeats, time limits. Sessions of
// nodes that are no longer in the fleet are closed. A live session keeps the heartbeat
// settings that its agent was told.
func (m *Manager) Reconfigure(cfg Config) {
	m.post(func() {
		added, gone := m.configure(cfg)
		for _, n := range gone {
			if n.session != nil {
				m.endSession(n.session, "removed from the configuration", true)
			}
			m.depsRemoved(n)
			n.state.Transition(&nodeMachine, nodeGone, m.log, "removed from the configuration", slog.String(keyNode, n.name))
		}
		m.armTick()
		m.driveAll()
		if len(added)+len(gone) > 0 {
			m.events.FleetChanged(infos(added), infos(gone))
		}
		m.updateStatus()
	}, ignore)
}

// Register decides whether a peer becomes a node (transport.md, "Session protocol"). The
// link may be used from the call on, and Closed must be called for it if reply gets a
// session that is dead by then.
// Errors: ErrNodeNotAllowed, ErrNodeExists, ErrInvalidArgs, ErrShuttingDown.
func (m *Manager) Register(r Registration, reply func(Welcome, error)) {
	m.post(func() { m.register(r, reply) }, func(err error) { reply(Welcome{}, err) })
}

// Closed says that a session's link has died, for a reason that people can read. It may be
// called from the core's own goroutine too, so from Register's reply.
func (m *Manager) Closed(s Session, reason string) {
	m.loop.Defer(func() {
		if !m.over {
			m.closed(s, reason)
		}
	})
}

// JobState says that a job of session s is now in state.
func (m *Manager) JobState(s Session, job uint32, state string) {
	m.post(func() { m.jobState(s, job, state) }, ignore)
}

// JobDone says that a job of session s has ended.
func (m *Manager) JobDone(s Session, job uint32, result string) {
	m.post(func() { m.jobDone(s, job, result) }, ignore)
}

// StartJob queues a job (api.md, "Queue"). Events.JobNew comes before the reply, and
// Events.JobRemoved after it, always.
// Errors: ErrNoSuchNode, ErrNodeOffline, ErrUnitBusy, ErrInvalidArgs, ErrTimeout,
// ErrLimitsExceeded (see MaxJobsPerUnit and the bounds beside it), ErrShuttingDown, systemd's.
func (m *Manager) StartJob(req JobRequest, reply func(id uint32, err error)) {
	m.post(func() { m.startJob(req, reply) }, func(err error) { reply(0, err) })
}

// CancelJob removes a waiting job or cancels a running one in systemd; the job's end comes
// as Events.JobRemoved. Errors: ErrNoSuchJob, ErrNodeOffline, ErrTimeout, ErrLimitsExceeded,
// ErrShuttingDown, systemd's.
func (m *Manager) CancelJob(id uint32, reply func(error)) {
	m.post(func() { m.cancelJob(id, reply) }, reply)
}

// Jobs lists all jobs by id; none after the core has ended.
func (m *Manager) Jobs(reply func([]JobInfo)) {
	m.post(func() { reply(m.listJobs()) }, func(error) { reply(nil) })
}

// Job finds one job. Errors: ErrNoSuchJob, ErrShuttingDown.
func (m *Manager) Job(id uint32, reply func(JobInfo, error)) {
	m.post(func() {
		if j := m.jobs[id]; j != nil && j.announced() {
			reply(j.info(), nil)
			return
		}
		reply(JobInfo{}, noSuchJob(id))
	}, func(err error) { reply(JobInfo{}, err) })
}

// Nodes lists all nodes, in the order of the configuration; none after the core has ended.
func (m *Manager) Nodes(reply func([]NodeInfo)) {
	m.post(func() { reply(infos(m.nodes)) }, func(error) { reply(nil) })
}

// Online counts the nodes that are online, and all; none after the core has ended.
func (m *Manager) Online(reply func(online, all int)) {
	m.post(func() { reply(m.tally.online, len(m.nodes)) }, func(error) { reply(0, 0) })
}

// Snapshot gives all of one moment; an empty one, with the status down, after the core has
// ended.
func (m *Manager) Snapshot(reply func(Snapshot)) {
	m.post(func() {
		reply(Snapshot{Status: m.status, Nodes: infos(m.nodes), Jobs: m.listJobs(), Monitors: m.listMonitors(), Metrics: m.metered})
	}, func(error) { reply(Snapshot{Status: wire.StatusDown}) })
}

// Node finds one node. Errors: ErrNoSuchNode, ErrShuttingDown.
func (m *Manager) Node(name string, reply func(NodeInfo, error)) {
	m.post(func() {
		n, err := m.find(name)
		if err != nil {
			reply(NodeInfo{}, err)
			return
		}
		reply(n.info(), nil)
	}, func(err error) { reply(NodeInfo{}, err) })
}

// Status is the fleet's status word: up, degraded or down; down after the core has ended.
func (m *Manager) Status(reply func(string)) {
	m.post(func() { reply(m.status) }, func(error) { reply(wire.StatusDown) })
}

// CallNode passes a query or change of wire.NodeMethods to one node.
// Errors: ErrNoSuchNode, ErrNodeOffline, ErrTimeout, ErrUnknownMethod, ErrInvalidArgs,
// ErrLimitsExceeded (see MaxCallsPerNode), ErrShuttingDown, systemd's.
func (m *Manager) CallNode(node, method string, args wire.Raw, reply func(wire.Raw, error)) {
	m.post(func() { m.callNode(node, method, args, reply) }, func(err error) { reply(wire.Raw{}, err) })
}

// QueryNodes asks all online nodes whose names match one of the globs (none: all) in
// parallel and replies once, within the query time limit, with one entry per asked node in
// the order of Nodes. A pattern without any configured match is ErrNoSuchNode. An entry's
// Err is of the kinds that CallNode gives, and ErrLimitsExceeded where the answers
// together pass 64 MiB.
func (m *Manager) QueryNodes(nodes []string, method string, args wire.Raw, reply func([]NodeReply, error)) {
	patterns := slices.Clone(nodes)
	m.post(func() { m.queryNodes(patterns, method, args, reply) }, func(err error) { reply(nil, err) })
}
