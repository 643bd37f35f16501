// Package managerbus exports the public API on the local bus: calls become posts to the
// core, the core's events become signals.
package managerbus

import (
	"context"
	"log/slog"
	"sync"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

// Core is what of *manager.Manager the public API needs, with its rules.
type Core interface {
	StartJob(req manager.JobRequest, reply func(id uint32, err error))
	CancelJob(id uint32, reply func(error))
	Jobs(reply func([]manager.JobInfo))
	Job(id uint32, reply func(manager.JobInfo, error))
	Nodes(reply func([]manager.NodeInfo))
	Node(name string, reply func(manager.NodeInfo, error))
	Snapshot(reply func(manager.Snapshot))
	Monitors(reply func([]manager.MonitorInfo))
	SetMetrics(on bool, reply func(error))
	Metrics(reply func(on bool))
	CreateMonitor(owner string, reply func(id uint32, err error))
	CloseMonitor(owner string, id uint32, reply func(error))
	Subscribe(owner string, monitor uint32, node string, units []string, reply func(id uint32, err error))
	Unsubscribe(owner string, monitor, subscription uint32, reply func(error))
	AddPeer(owner string, monitor uint32, name string, reply func(id uint32, err error))
	RemovePeer(owner string, monitor, peer uint32, reason string, reply func(error))
	ClientGone(name string)
	LetGo(name, reason string)
	CallNode(node, method string, args wire.Raw, reply func(wire.Raw, error))
	QueryNodes(nodes []string, method string, args wire.Raw, reply func([]manager.NodeReply, error))
}

// Daemon is the process around the core. No method blocks, nor calls the core.
type Daemon interface {
	// LogLevel is DEBUG, INFO, WARN or ERROR.
	LogLevel() string
	// SetLogLevel takes one of these words.
	SetLogLevel(level string)
	// LogTarget is where the log goes, as the configuration words it.
	LogTarget() string
	// Shutdown ends the process as SIGTERM does.
	Shutdown()
}

// Options is what a Bus needs to know.
type Options struct {
	Address    string // D-Bus address of the bus
	Authorizer busobject.Authorizer
	Daemon     Daemon
	Enrolment  Enrolment
	Workloads  Workloads
	Version    string
	Log        *slog.Logger
	Actions    *actionlog.Log // nil: nothing is written down
}

// Bus is the public API. Make one with New, give it to manager.New as Events, give the core
// to Connect, then Run.
type Bus struct {
	server  *busobject.Server
	core    Core
	daemon  Daemon
	version string
	actions *actionlog.Log
	lists   gate

	enrolment Enrolment
	workloads Workloads

	workloadsIface *busobject.Interface
	enrolling      gate // one at a time

	outlets outlets // of the server's goroutine
	events  valve
	work    sync.WaitGroup

	root, nodes, jobs, monitors, metrics                          *busobject.Class
	managerIface, nodeIface, jobIface, monitorIface, metricsIface *busobject.Interface
}

var _ manager.Events = (*Bus)(nil)

// New makes the API. It does nothing until Connect.
func New(opt Options) *Bus {
	b := &Bus{daemon: opt.Daemon, version: opt.Version, actions: opt.Actions, enrolment: opt.Enrolment, workloads: opt.Workloads}
	b.lists = gate{most: maxLists, wait: maxWaiting, what: "lists of the whole fleet"}
	b.enrolling = gate{most: 1, wait: maxEnrolling, what: "calls of " + wire.EnrolmentInterface}
	b.root, b.nodes, b.jobs, b.monitors = b.managerClass(), b.nodeClass(), b.jobClass(), b.monitorClass()
	b.metrics = b.metricsClass()
	b.server = busobject.New(busobject.Options{
		Address: opt.Address, Name: wire.BusName, Authorizer: opt.Authorizer, Log: opt.Log,
		Root: b.root, Classes: []*busobject.Class{b.nodes, b.jobs, b.monitors, b.metrics}, List: b.list,
		ClientGone: b.clientGone, BusGone: b.busGone, Acted: b.acted,
	})
	b.outlets = outlets{after: b.server.After, iface: b.monitorIface, log: opt.Log, max: bounds{MaxHeldUnits, MaxHeldBytes}, letGo: b.letGo}
	return b
}

// Connect reaches the bus and makes the name org.example.ctrl1 ours. It is called once,
// before Run. The error says what to do about it.
func (b *Bus) Connect(ctx context.Context, core Core) error {
	b.core = core
	return b.server.Connect(ctx)
}

// Run serves the API until ctx ends. The core is ended first, so that the ends of its jobs
// still reach the bus.
func (b *Bus) Run(ctx context.Context) {
	b.server.Run(ctx)
	b.events.end()
	b.work.Wait()
}

// list gives all objects below the root, as of one moment.
func (b *Bus) list(reply func([]busobject.Object)) {
	b.core.Snapshot(func(s manager.Snapshot) {
		all := make([]busobject.Object, 0, len(s.Nodes)+len(s.Jobs)+len(s.Monitors))
		for _, n := range s.Nodes {
			all = append(all, b.nodeObject(n))
		}
		for _, j := range s.Jobs {
			all = append(all, b.jobObject(j))
		}
		for _, m := range s.Monitors {
			all = append(all, busobject.Object{Path: wire.MonitorPath(m.ID), Class: b.monitors})
		}
		if s.Metrics {
			all = append(all, b.metricsObject())
		}
		reply(all)
	})
}

// busGone ends all monitors before the next bus gives their owners' names to others.
func (b *Bus) busGone(done func()) {
	b.core.ClientGone("")
	b.inOrder(done)
}
