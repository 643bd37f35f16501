package manager

import (
	"context"
	"log/slog"

	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/wire"
)

// Manager is the core. Make one with New and run it with Run.
type Manager struct {
	loop   *loop.Loop
	log    *slog.Logger
	events Events
}

// New makes a core. It does nothing until Run.
func New(cfg Config, events Events, log *slog.Logger) *Manager { panic("skeleton") }

// Run owns the state until ctx ends, then ends all jobs as canceled, answers all pending
// calls with wire.ErrShuttingDown, closes all links and returns.
func (m *Manager) Run(ctx context.Context) { panic("skeleton") }

// Reconfigure applies a changed configuration: fleet, heartbeats, time limits. Sessions of
// nodes that are no longer in the fleet are closed.
func (m *Manager) Reconfigure(cfg Config) { panic("skeleton") }

// Register decides whether a peer becomes a node (transport.md, "Session protocol").
// Errors: ErrNodeNotAllowed, ErrNodeExists, ErrInvalidArgs.
func (m *Manager) Register(r Registration, reply func(Welcome, error)) { panic("skeleton") }

// Closed says that a session's link has died, for a reason that people can read.
func (m *Manager) Closed(s Session, reason string) { panic("skeleton") }

// JobState says that a job of session s is now in state.
func (m *Manager) JobState(s Session, job uint32, state string) { panic("skeleton") }

// JobDone says that a job of session s has ended.
func (m *Manager) JobDone(s Session, job uint32, result string) { panic("skeleton") }

// StartJob queues a job (api.md, "Queue"). Events.JobNew comes before the reply, and
// Events.JobRemoved after it, always.
// Errors: ErrNoSuchNode, ErrNodeOffline, ErrUnitBusy, ErrInvalidArgs, ErrTimeout, systemd's.
func (m *Manager) StartJob(req JobRequest, reply func(id uint32, err error)) { panic("skeleton") }

// CancelJob removes a waiting job or cancels a running one in systemd. Error: ErrNoSuchJob.
func (m *Manager) CancelJob(id uint32, reply func(error)) { panic("skeleton") }

// Jobs lists all jobs by id.
func (m *Manager) Jobs(reply func([]JobInfo)) { panic("skeleton") }

// Job finds one job. Error: ErrNoSuchJob.
func (m *Manager) Job(id uint32, reply func(JobInfo, error)) { panic("skeleton") }

// Nodes lists all nodes, in the order of the configuration.
func (m *Manager) Nodes(reply func([]NodeInfo)) { panic("skeleton") }

// Node finds one node. Error: ErrNoSuchNode.
func (m *Manager) Node(name string, reply func(NodeInfo, error)) { panic("skeleton") }

// Status is the fleet's status word: up, degraded or down.
func (m *Manager) Status(reply func(string)) { panic("skeleton") }

// CallNode passes a query or change of wire.NodeMethods to one node.
// Errors: ErrNoSuchNode, ErrNodeOffline, ErrTimeout, systemd's.
func (m *Manager) CallNode(node, method string, args wire.Raw, reply func(wire.Raw, error)) {
	panic("skeleton")
}

// QueryNodes asks all online nodes whose names match one of the globs (none: all) in
// parallel and replies once, within the query time limit, with one entry per asked node in
// the order of Nodes. A pattern without any configured match is ErrNoSuchNode.
func (m *Manager) QueryNodes(nodes []string, method string, args wire.Raw, reply func([]NodeReply, error)) {
	panic("skeleton")
}
