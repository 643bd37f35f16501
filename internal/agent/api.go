package agent

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"example.org/ctrl/internal/backoff"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/wire"
)

// Agent is the core. Make one with New and run it with Run.
//
// Every method is safe from any goroutine but the core's own, and each reply is called
// exactly once, on the core's goroutine, or at once on the caller's when the core has ended.
type Agent struct {
	loop    *loop.Loop
	log     *slog.Logger
	systemd Systemd
	dialer  Dialer
	events  Events
	random  func() float64

	// All below is owned by the loop's goroutine.
	cfg     Config
	facts   map[string]wire.Value // of systemd; nil until it was reached for the first time
	ups     int                   // how often it was reached
	over    bool
	conn    connection
	jobs    jobs
	watched watched
	alone   alone
	deps    dependencies
	metered bool // in the present session
	// watching is what waits until systemd knows which signals are wanted.
	watching []func()
	// petitions are what the manager asks for and the node has not judged yet, in order.
	petitions []*petition

	lastSeen       time.Time
	disconnectedAt time.Time
}

// inbox is how many calls from outside may wait for the core; a caller past it waits.
const inbox = 1024

// Time limits where the configuration gives none: no wait is without one.
const (
	DefaultCallTimeout     = 30 * time.Second
	DefaultRegisterTimeout = 10 * time.Second
	DefaultReconnectMin    = 100 * time.Millisecond
	DefaultReconnectMax    = 10 * time.Second
)

// New makes a core. It does nothing until Run.
func New(cfg Config, systemd Systemd, dialer Dialer, events Events, log *slog.Logger) *Agent {
	a := &Agent{
		loop: loop.New(inbox), log: log, systemd: systemd, dialer: dialer, events: events,
		random: rand.Float64, jobs: newJobs(), watched: newWatched(), deps: newDependencies(),
		conn: connection{state: machine.State[sessionState]{Is: machine.New}},
	}
	a.configure(cfg)
	// Before anything that may be posted from now on, also before Run.
	a.loop.Defer(func() { a.move(sessionIdle, "the agent runs") })
	return a
}

func (a *Agent) configure(cfg Config) {
	orDefault := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	orDefault(&cfg.CallTimeout, DefaultCallTimeout)
	orDefault(&cfg.RegisterTimeout, DefaultRegisterTimeout)
	orDefault(&cfg.ReconnectMin, DefaultReconnectMin)
	orDefault(&cfg.ReconnectMax, DefaultReconnectMax)
	a.cfg = cfg
	a.conn.backoff = backoff.Backoff{Min: cfg.ReconnectMin, Max: cfg.ReconnectMax}
	a.conn.addresses, a.conn.at = cfg.Addresses, 0
}

// Run dials, registers and serves until ctx ends, then closes the link and returns. It
// stops no unit. Dialling begins when systemd has been reached for the first time.
func (a *Agent) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { a.loop.Defer(a.shutDown) })
	defer stop()
	a.loop.Run(context.Background())
}

func (a *Agent) shutDown() {
	if a.over {
		return
	}
	a.over = true
	a.endProxies()
	wasOnline := a.conn.state.Is == sessionOnline
	a.hangUp("agent is shutting down")
	a.move(sessionStopped, "agent is shutting down")
	a.systemd.Watch(nil)
	if wasOnline {
		a.events.StatusChanged(a.info())
	}
	a.loop.Stop()
}

func errShuttingDown() error { return wire.ErrShuttingDown.With("the agent is shutting down") }

// post runs fn on the core, or refuse where the core has ended.
func (a *Agent) post(fn func(), refuse func(error)) {
	ok := a.loop.Post(func() {
		if a.over {
			refuse(errShuttingDown())
			return
		}
		fn()
	})
	if !ok {
		refuse(errShuttingDown())
	}
}

// later runs fn on the core after what is posted already, unless the core has ended: for
// the answers to what the core itself asked.
func (a *Agent) later(fn func()) {
	a.loop.Defer(func() {
		if !a.over {
			fn()
		}
	})
}

func ignore(error) {}

// Reconfigure applies a changed configuration. A changed node name or address ends the
// session, and the next one is begun with them.
func (a *Agent) Reconfigure(cfg Config) { a.post(func() { a.reconfigure(cfg) }, ignore) }

// StartJob is the manager asking for a job. A nil error says that systemd has taken it.
// Errors: ErrDisconnected for an old session, ErrInvalidArgs, ErrAccessDenied,
// ErrLimitsExceeded, ErrTimeout, ErrShuttingDown, systemd's.
func (a *Agent) StartJob(s Session, req JobRequest, reply func(error)) {
	a.post(func() { a.startJob(s, req, reply) }, reply)
}

// CancelJob is the manager cancelling its job.
// Errors: ErrNoSuchJob, ErrTimeout, ErrShuttingDown, systemd's.
func (a *Agent) CancelJob(s Session, job uint32, reply func(error)) {
	a.post(func() { a.cancelJob(s, job, reply) }, reply)
}

// Call is the manager asking for a query or change of wire.NodeMethods, or for something
// of the agent itself. Errors: ErrUnknownMethod, ErrAccessDenied, ErrInvalidArgs,
// ErrTimeout, ErrShuttingDown, systemd's.
func (a *Agent) Call(s Session, method string, args wire.Raw, reply func(wire.Raw, error)) {
	a.post(func() { a.call(s, method, args, reply) }, func(err error) { reply(wire.Raw{}, err) })
}

// Subscribe is the manager asking for events of the units that a name or glob matches. The
// reply is their present state, and no event of theirs comes before it.
// Errors: ErrInvalidArgs, ErrLimitsExceeded, ErrTimeout, ErrShuttingDown, systemd's.
func (a *Agent) Subscribe(s Session, pattern string, reply func([]UnitRow, error)) {
	a.post(func() { a.subscribe(s, pattern, reply) }, func(err error) { reply(nil, err) })
}

// Unsubscribe ends what Subscribe began.
func (a *Agent) Unsubscribe(s Session, pattern string) {
	a.post(func() { a.unsubscribe(s, pattern) }, ignore)
}

// SetMetrics is the manager switching metrics on or off for the rest of session s.
func (a *Agent) SetMetrics(s Session, on bool) {
	a.post(func() {
		if a.current(s) == nil {
			a.metered = on
		}
	}, ignore)
}

// Closed says that the link of session s has died.
func (a *Agent) Closed(s Session, err error) {
	a.later(func() { a.closed(s, err) })
}

// SystemdUp says that the connection to systemd stands, with its version and the facts of
// this node. Jobs that began before are looked up again.
func (a *Agent) SystemdUp(facts map[string]wire.Value) { a.later(func() { a.systemdUp(facts) }) }

// SystemdDown says that the connection to systemd is lost (daemon-reexec closes it).
func (a *Agent) SystemdDown(err error) {
	a.later(func() { a.log.Warn("connection to systemd lost", keyErr, err) })
}

// SystemdJobState is the new state of a job of systemd's, wire.JobRunning or, when another
// job was merged into a running one, wire.JobWaiting.
func (a *Agent) SystemdJobState(job uint32, state string) {
	a.post(func() { a.jobStateChanged(job, state) }, ignore)
}

// SystemdJobRemoved is systemd's signal that a job has ended.
func (a *Agent) SystemdJobRemoved(job uint32, unit, result string) {
	a.post(func() { a.jobRemoved(job, result); a.jobEndedBadly(result) }, ignore)
}

// SystemdUnitNew is systemd's signal that a unit was loaded.
func (a *Agent) SystemdUnitNew(unit string) { a.post(func() { a.unitNew(unit) }, ignore) }

// SystemdUnitRemoved is systemd's signal that a unit was unloaded.
func (a *Agent) SystemdUnitRemoved(unit string) {
	a.post(func() { a.dependencyRemoved(unit); a.unitRemoved(unit) }, ignore)
}

// SystemdUnitChanged is PropertiesChanged of a unit's object.
func (a *Agent) SystemdUnitChanged(unit, iface string, changed map[string]wire.Value) {
	a.post(func() {
		a.dependencyChanged(unit, iface, changed)
		a.unitChanged(unit, iface, changed)
	}, ignore)
}

// SystemdReloaded says that systemd has read its unit files again, so that a name may now
// mean another unit.
func (a *Agent) SystemdReloaded() { a.post(a.resolveNames, ignore) }

// Info tells the local API what to show.
func (a *Agent) Info(reply func(Info)) {
	a.post(func() { reply(a.info()) }, func(error) { reply(Info{Status: wire.NodeOffline}) })
}

// SwitchManager changes the manager's address until the next restart and dials it at once.
// It returns before anything is known about the new manager.
// Errors: ErrInvalidArgs, ErrFailed when the address is the present one, ErrShuttingDown.
func (a *Agent) SwitchManager(address string, reply func(error)) {
	a.post(func() { reply(a.switchManager(address)) }, reply)
}

func (a *Agent) info() Info {
	info := Info{
		Status: wire.NodeOffline, ManagerAddress: a.conn.presentAddress(),
		LastSeen: a.lastSeen, DisconnectedAt: a.disconnectedAt,
	}
	if a.conn.state.Is == sessionOnline {
		info.Status = wire.NodeOnline
		if last := a.conn.link.LastReceived(); last.After(info.LastSeen) {
			info.LastSeen = last
		}
	}
	return info
}
