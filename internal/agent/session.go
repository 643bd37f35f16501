package agent

import (
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"example.org/ctrl/internal/backoff"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/machine"
	"example.org/ctrl/internal/wire"
)

type sessionState string

const (
	sessionIdle        sessionState = "idle"
	sessionDialing     sessionState = "dialing"
	sessionRegistering sessionState = "registering"
	sessionOnline      sessionState = "online"
	sessionWaiting     sessionState = "waiting"
	sessionStopped     sessionState = "stopped"
)

var sessionMachine = machine.Table[sessionState]{
	Name: "Session (agent)",
	Moves: []machine.Move[sessionState]{
		{From: machine.New, To: sessionIdle, Why: "the agent runs"},
		{From: sessionIdle, To: sessionDialing, Why: "systemd was reached"},
		{From: sessionDialing, To: sessionRegistering, Why: "connected, both sides have proved who they are"},
		{From: sessionDialing, To: sessionDialing, Why: "failed, so the next address, or SwitchManager"},
		{From: sessionDialing, To: sessionWaiting, Why: "failed, no address is left"},
		{From: sessionRegistering, To: sessionOnline, Why: "Register succeeded"},
		{From: sessionRegistering, To: sessionDialing, Why: "failed, so the next address, or SwitchManager"},
		{From: sessionRegistering, To: sessionWaiting, Why: "failed, no address is left"},
		{From: sessionOnline, To: sessionWaiting, Why: "the link is lost"},
		{From: sessionOnline, To: sessionDialing, Why: "SwitchManager, or a changed configuration"},
		{From: sessionWaiting, To: sessionDialing, Why: "the delay is over, or SwitchManager"},
		{From: sessionIdle, To: sessionStopped, Why: "shutdown"},
		{From: sessionDialing, To: sessionStopped, Why: "shutdown"},
		{From: sessionRegistering, To: sessionStopped, Why: "shutdown"},
		{From: sessionOnline, To: sessionStopped, Why: "shutdown"},
		{From: sessionWaiting, To: sessionStopped, Why: "shutdown"},
	},
}

// Machines lists the state machines of the core, for the test that holds docs/states.md.
func Machines() []machine.Drawing {
	return []machine.Drawing{sessionMachine.Drawing(), jobMachine.Drawing(), proxyMachine.Drawing()}
}

// connection is the agent's way to a manager: at most one session, or the next try.
type connection struct {
	state     machine.State[sessionState]
	addresses []string
	at        int // the address that is tried or used
	backoff   backoff.Backoff
	failures  int       // tries in a row that failed
	began     time.Time // of the first of the tries since the last delay
	try       int       // counts tries, so that the outcome of an abandoned one is told apart
	cancel    func()
	delay     *loop.Timer

	session Session
	link    ManagerLink
	pulse   pulse
	settled *loop.Timer
	calls   int // under way in systemd

	complaints map[string]complaint // by address
}

// settleTime is how long a session must live for the back-off to begin anew: a manager that
// accepts and then drops everybody must not be dialled without delay.
const settleTime = 10 * time.Second

func (c *connection) presentAddress() string {
	if len(c.addresses) == 0 {
		return ""
	}
	return c.addresses[c.at]
}

func (a *Agent) move(to sessionState, why string) {
	from := a.conn.state.Is
	switch {
	case to == sessionOnline || to == sessionStopped:
		a.notAlone()
	case from == sessionOnline || from == machine.New:
		a.beAlone()
	}
	a.conn.state.Transition(&sessionMachine, to, a.log, why,
		slog.Uint64(keySession, uint64(a.conn.session)), slog.String(keyAddress, a.conn.presentAddress()))
}

func (a *Agent) systemdUp(facts map[string]wire.Value) {
	a.ups++
	first := a.facts == nil
	a.listDependencies()
	a.facts = maps.Clone(facts)
	if a.facts == nil {
		a.facts = make(map[string]wire.Value)
	}
	if first {
		a.dialAnew("systemd was reached")
		return
	}
	a.log.Info("connection to systemd is back")
	a.resyncJobs()
	a.resyncUnits()
}

// resyncPause is the delay before systemd is asked again what has become of things.
const resyncPause = time.Second

// again repeats what could not be found out after systemd came back. If the connection has
// been lost again, SystemdUp will come anew.
func (a *Agent) again(err error, what func()) {
	if errors.Is(err, wire.ErrDisconnected) {
		return
	}
	a.log.Warn("cannot find out what systemd did meanwhile, trying again", keyErr, err)
	session, up := a.conn.session, a.ups
	a.loop.After(resyncPause, func() {
		if a.same(session, up) {
			what()
		}
	})
}

// same reports whether both the session and the connection to systemd are still those.
func (a *Agent) same(session Session, up int) bool { return a.current(session) == nil && a.ups == up }

// dialAnew begins a round of tries, over all addresses.
func (a *Agent) dialAnew(why string) {
	a.conn.began = time.Now()
	a.dial(why)
}

// dial tries the present address.
func (a *Agent) dial(why string) {
	c := &a.conn
	c.delay.Stop()
	c.try++
	try := c.try
	a.move(sessionDialing, why)
	if len(c.addresses) == 0 {
		a.failed(errors.New("no manager address is configured: set ManagerHost= or ManagerAddress= in agent.conf"))
		return
	}
	c.cancel = a.dialer.Dial(c.presentAddress(), func(link ManagerLink, err error) {
		if !a.loop.Defer(func() { a.dialed(try, link, err) }) && err == nil {
			link.Close("agent is shutting down")
		}
	})
}

func (a *Agent) dialed(try int, link ManagerLink, err error) {
	c := &a.conn
	if a.over || try != c.try {
		if err == nil {
			link.Close("no longer wanted")
		}
		return
	}
	c.cancel = nil
	if err != nil {
		a.failed(err)
		return
	}
	c.session++
	c.link = link
	a.move(sessionRegistering, "connected")
	facts := maps.Clone(a.cfg.Facts)
	if facts == nil {
		facts = make(map[string]wire.Value)
	}
	maps.Copy(facts, a.facts)
	session := c.session
	link.Register(session, a.cfg.Node, facts, a.cfg.RegisterTimeout, func(w Welcome, err error) {
		a.later(func() { a.registered(session, w, err) })
	})
}

func (a *Agent) registered(session Session, w Welcome, err error) {
	c := &a.conn
	if session != c.session || c.state.Is != sessionRegistering {
		return
	}
	if err != nil {
		c.link.Close("registration failed")
		c.link = nil
		a.failed(err)
		return
	}
	a.move(sessionOnline, "registered")
	a.lastSeen, a.disconnectedAt = time.Now(), time.Time{}
	c.complaints = nil
	a.jobs, a.watched = newJobs(), newWatched()
	a.log.Info("connected to the manager", keyAddress, c.presentAddress(), keySession, session, "node", a.cfg.Node)
	a.applyLogLevel(w.LogLevel)
	a.metered = w.Metrics
	a.startPulse(w)
	c.settled = a.loop.After(settleTime, func() { c.failures = 0 })
	a.events.StatusChanged(a.info())
	a.reportAll()
}

// applyLogLevel sets the level that the manager wants its agents to have.
func (a *Agent) applyLogLevel(level string) {
	if level == "" || a.cfg.Policy.ReadOnly() || a.cfg.SetLogLevel == nil {
		return
	}
	if err := a.cfg.SetLogLevel(level); err != nil {
		a.log.Warn("cannot set the log level that the manager wants", "level", level, keyErr, err)
	}
}

// failed goes on to the next address, or waits where all were tried.
func (a *Agent) failed(err error) {
	c := &a.conn
	a.complain(err)
	if c.at+1 < len(c.addresses) {
		c.at++
		a.dial("next address")
		return
	}
	c.at = 0
	a.wait(hopeless(err), err.Error())
}

// hopeless reports whether trying again soon cannot help: one side does not accept who the
// other is.
func hopeless(err error) bool {
	return errors.Is(err, wire.ErrAccessDenied) || errors.Is(err, wire.ErrNodeNotAllowed)
}

func (a *Agent) wait(atMost bool, why string) {
	c := &a.conn
	a.move(sessionWaiting, why)
	step := c.failures
	if atMost {
		step = math.MaxInt
	}
	c.failures++
	// On a network that loses everything a try takes its whole time limit. A node is not to be
	// away for that and the longest delay after it is healed, so the one makes the other shorter,
	// but not so much that a fleet would come back in step.
	b := c.backoff
	b.Max = max(b.Min, b.Max-min(time.Since(c.began), b.Max/2))
	c.delay = a.loop.After(b.Delay(step, a.random()), func() { a.dialAnew("the delay is over") })
}

func (a *Agent) closed(session Session, err error) {
	c := &a.conn
	if session != c.session || c.link == nil {
		return
	}
	switch c.state.Is {
	case sessionOnline:
		a.lost(err)
	case sessionRegistering:
		c.link = nil
		a.failed(err)
	}
}

// lost ends a live session whose link has died or is given up.
func (a *Agent) lost(err error) {
	a.log.Warn("connection to the manager lost", keyAddress, a.conn.presentAddress(), keyErr, err)
	a.hangUp(err.Error())
	a.conn.at = 0
	a.conn.began = time.Now() // this is no try that failed: the whole delay counts
	a.wait(false, err.Error())
	a.events.StatusChanged(a.info())
}

// hangUp ends whatever is under way, without deciding what comes next. Units go on.
func (a *Agent) hangUp(reason string) {
	c := &a.conn
	c.try++
	c.delay.Stop()
	c.settled.Stop()
	c.pulse.stop()
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
	if c.link != nil {
		if c.state.Is == sessionOnline {
			if last := c.link.LastReceived(); last.After(a.lastSeen) {
				a.lastSeen = last
			}
			a.disconnectedAt = time.Now()
		}
		c.link.Close(reason)
		c.link = nil
	}
	a.proxiesOffline()
	c.session++ // what the old link still says is of nobody
	a.endWatched()
	a.writeLost(reason)
	a.jobs = newJobs()
	if a.cfg.Workloads != nil {
		a.cfg.Workloads.SessionEnded()
	}
	if a.cfg.Logs != nil {
		a.cfg.Logs.SessionEnded()
	}
}

// redial leaves the present manager, if any, for the first of the addresses.
func (a *Agent) redial(why string) {
	wasOnline := a.conn.state.Is == sessionOnline
	a.hangUp(why)
	a.conn.at, a.conn.failures, a.conn.complaints = 0, 0, nil
	if a.conn.state.Is == sessionIdle {
		return // dialling begins once systemd was reached
	}
	a.dialAnew(why)
	if wasOnline {
		a.events.StatusChanged(a.info())
	}
}

// maySwitch refuses what is no address, and the one that is in use.
func (a *Agent) maySwitch(address string) error {
	if a.cfg.CheckAddress != nil {
		if err := a.cfg.CheckAddress(address); err != nil {
			return wire.ErrInvalidArgs.With("manager address %q: %v", address, err)
		}
	}
	if len(a.conn.addresses) == 1 && a.conn.addresses[0] == address {
		return wire.ErrFailed.With("%s is the manager's address already", address)
	}
	return nil
}

func (a *Agent) switchManager(address string) error {
	if err := a.maySwitch(address); err != nil {
		return err
	}
	a.log.Info("switching to another manager", keyAddress, address)
	a.conn.addresses, a.conn.at = []string{address}, 0
	// The order is what watchers rely on: the address changes first, then the status.
	a.events.ManagerAddressChanged(a.info())
	a.redial("switching to another manager")
	return nil
}

func (a *Agent) reconfigure(cfg Config) {
	before, at, old := a.conn.addresses, a.conn.at, a.cfg
	a.configure(cfg)
	if a.conn.state.Is != sessionOnline {
		a.armAlone()
	}
	if slices.Equal(old.Addresses, cfg.Addresses) {
		// SwitchManager holds until the addresses are configured anew.
		a.conn.addresses, a.conn.at = before, at
	}
	if !slices.Equal(before, a.conn.addresses) {
		a.events.ManagerAddressChanged(a.info())
	}
	if !slices.Equal(before, a.conn.addresses) || old.Node != cfg.Node {
		a.redial("configuration changed")
	}
}

// complaint remembers what was logged last of one address, so that each reason is logged
// once.
type complaint struct {
	text  string
	times int
}

// complain logs why a try failed: each reason when it first appears, then a reminder when
// it has come QuietAfter times, then nothing until it changes.
func (a *Agent) complain(err error) {
	address, text := a.conn.presentAddress(), err.Error()
	c := a.conn.complaints[address]
	if c.text != text {
		c = complaint{text: text}
	}
	c.times++
	if a.conn.complaints == nil {
		a.conn.complaints = make(map[string]complaint)
	}
	a.conn.complaints[address] = c
	switch {
	case c.times == 1:
		a.log.Warn("cannot reach the manager", keyAddress, address, keyErr, err)
	case c.times == a.cfg.QuietAfter:
		a.log.Warn("still cannot reach the manager; the same reason is not logged again",
			keyAddress, address, "tries", c.times, keyErr, err)
	}
}

// Attribute keys of this package's log lines.
const (
	keyErr     = "err"
	keySession = "session"
	keyAddress = "address"
	keyUnit    = "unit"
	keyJob     = "job"
)
