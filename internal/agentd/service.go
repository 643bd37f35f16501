package agentd

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/agentbus"
	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/delivery"
	"example.org/ctrl/internal/journal"
	"example.org/ctrl/internal/logging"
	"example.org/ctrl/internal/managerlink"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/systemd"
	"example.org/ctrl/internal/version"
	"example.org/ctrl/internal/wire"
)

// service is a running agent.
type service struct {
	env    *daemon.Env
	log    *slog.Logger
	cfg    *config.Agent // what is in effect
	store  *pki.Store    // nil without certificates
	core   *agent.Agent
	dialer *managerlink.Dialer
	// actions is the action log.
	actions *actionlog.Log
	node    atomic.Pointer[string] // the name in effect, for whoever is not Reload

	workloads *delivery.Delivery // nil: it takes none
	journal   *journal.Journal

	running, onBus, onSystemd, status *daemon.Component
	delivering                        *daemon.Component // nil as workloads

	renewing *daemon.Component
	renewal  atomic.Pointer[renewal] // the one that runs, for the core's goroutine
}

// start brings everything up. It waits for nobody: manager, systemd and bus may come later.
func start(ctx context.Context, c *config.Agent, e *daemon.Env) (*service, error) {
	s := &service{env: e, log: e.Logger(), cfg: c, actions: actionlog.New(e.Log.Always())}
	if err := s.secure(); err != nil {
		return nil, err
	}
	address, err := busAddress(e.Options.User)
	if err != nil {
		return nil, err
	}
	bus := agentbus.New(agentbus.Options{
		Address: address, Authorizer: authorizer(e.Options.User), Daemon: s, Log: s.log, Acted: s.acted,
	})
	events := &events{Bus: bus, changed: daemon.NewLatch(), online: s.renewIfDue}
	local := systemd.New(systemd.Options{User: e.Options.User}, s.log)
	s.workloads = s.newWorkloads(e.Options.User, local)
	s.journal = s.newJournal(e.Options.User)
	s.dialer = managerlink.New(s.linkSettings(), s.log)
	s.core = agent.New(s.coreConfig(), local, s.dialer, events, s.log)
	s.dialer.Bind(s.core)
	if err := bus.Connect(ctx, s.core); err != nil {
		s.log.Warn("the node's own API is not there yet; units are managed without it", "err", err)
	}
	s.keepRenewal(ctx)
	s.running, s.onBus = daemon.Go(s.core.Run), daemon.Go(bus.Run)
	heard := s.systemdCore()
	s.onSystemd = daemon.Go(func(ctx context.Context) { local.Run(ctx, heard) })
	if s.workloads != nil {
		s.delivering = daemon.Go(s.workloads.Run)
	}
	s.status = daemon.Go(func(ctx context.Context) { s.keepStatus(ctx, events.changed) })
	return s, nil
}

func (s *service) secure() error {
	if s.cfg.Insecure() {
		s.log.Warn("TLS=no: whoever is at the manager's address controls this node")
	}
	var err error
	s.store, err = openStore(s.cfg, s.log)
	return err
}

func busAddress(user bool) (string, error) {
	if user {
		return peer.UserBusAddress()
	}
	return peer.SystemBusAddress(), nil
}

// authorizer lets root do everything and, on a user's bus, that user.
func authorizer(user bool) *authz.ByUID {
	if user {
		return authz.NewByUID(0, uint32(os.Getuid()))
	}
	return authz.NewByUID(0)
}

func (s *service) coreConfig() agent.Config {
	c := s.cfg
	s.node.Store(&c.NodeName)
	return agent.Config{
		Actions: s.actions, Policy: s.policy(), Workloads: s.holder(), Logs: s.journal,
		Node: c.NodeName, Addresses: c.Addresses(),
		HeartbeatInterval: c.HeartbeatInterval, HeartbeatThreshold: c.ManagerHeartbeatThreshold,
		CallTimeout: c.CallTimeout, ReconnectMin: c.ReconnectMin, ReconnectMax: c.ReconnectMax,
		QuietAfter: c.ConnectionRetryCountUntilQuiet,
		Facts: map[string]wire.Value{
			wire.FactAgentVersion: peer.MustValue(version.Short()),
			wire.FactFeatures:     peer.MustValue(s.features()),
		},
		ExitOnDisconnect:  c.ExitOnDisconnect,
		ProxyStartTimeout: c.ProxyStartTimeout, OnNodeLoss: nodeLoss(c.OnNodeLoss), ParseNodeLoss: parseNodeLoss,
		OnDisconnectUnit: c.OnDisconnectUnit, OnDisconnectUnitAfter: c.OnDisconnectUnitAfter,
		CheckAddress: checkAddress, SetLogLevel: s.setLogLevel, Shutdown: s.env.Shutdown, Fail: s.env.Fail,
		RenewNow: s.renewNow,
	}
}

func (s *service) linkSettings() managerlink.Settings {
	set := managerlink.Settings{TCP: daemon.TCP(&s.cfg.Common, s.cfg.ManagerHeartbeatThreshold)}
	switch {
	case s.store != nil:
		set.Secure = s.store.Connect
	case s.cfg.TLS:
		// An agent that began on a unix socket may be switched to a manager elsewhere.
		set.Secure = func(context.Context, net.Conn) (net.Conn, error) {
			return nil, wire.ErrAccessDenied.With("%v", notJoined(s.cfg))
		}
	}
	return set
}

// reloadTime bounds what a reload waits for.
const reloadTime = 2 * time.Second

// Reload implements daemon.Service.
func (s *service) Reload(next *config.Agent) {
	applied, restart := s.cfg.Changed(next)
	daemon.SayRestart(s.log, restart)
	now := *next
	daemon.KeepUntilRestart(&now.Common, &s.cfg.Common)
	before := s.cfg
	s.cfg = &now
	s.readCertificates()
	if now.LogLevel != before.LogLevel {
		if err := s.setLogLevel(now.LogLevel); err != nil {
			s.log.Error("log level is not changed", "err", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), reloadTime)
	defer cancel()
	s.keepRenewal(ctx)
	s.dialer.Apply(s.linkSettings())
	s.core.Reconfigure(s.coreConfig())
	if s.workloads != nil {
		s.workloads.Configure(filePaths(s.cfg), judge(s.policy()))
	}
	s.log.Info("configuration was read again", "applied", strings.Join(applied, " "))
}

func (s *service) readCertificates() {
	var err error
	switch {
	case s.store != nil && hasFiles(s.cfg):
		err = s.store.Reconfigure(pkiConfig(s.cfg))
	case s.store != nil && joined(s.cfg):
		err = s.store.Reconfigure(nodeState(s.cfg).Config(s.cfg.NodeName))
	default:
		s.store, err = openStore(s.cfg, s.log)
	}
	if err != nil {
		s.log.Error("certificate files cannot be used; the ones before stay in use", "err", err)
	}
}

// Alive implements daemon.Service.
func (s *service) Alive(reply func()) { s.core.Info(func(agent.Info) { reply() }) }

// Stop implements daemon.Service: the manager is told, then the node's bus. Units go on.
func (s *service) Stop(ctx context.Context) {
	if s.renewing != nil {
		s.renewing.End(ctx)
	}
	s.running.End(ctx)
	s.dialer.Drain(ctx)
	if s.delivering != nil {
		s.delivering.End(ctx)
	}
	s.journal.Close(ctx)
	s.onSystemd.End(ctx)
	s.onBus.End(ctx)
	s.actions.Close()
	s.status.End(ctx)
}

// LogLevel implements agentbus.Daemon.
func (s *service) LogLevel() string { return strings.ToUpper(logging.LevelWord(s.env.Log.Level())) }

// LogTarget implements agentbus.Daemon.
func (s *service) LogTarget() string { return s.env.Log.Target().String() }

func (s *service) setLogLevel(word string) error {
	level, err := logging.ParseLevel(word)
	if err != nil {
		return wire.ErrInvalidArgs.With("%v", err)
	}
	s.env.Log.SetLevel(level)
	s.log.Info("log level changed", "level", logging.LevelWord(level))
	return nil
}

// events passes everything on to the bus and notes what systemd's status line shows.
type events struct {
	*agentbus.Bus
	changed daemon.Latch
	online  func() // a session has begun; it does not block
}

// StatusChanged implements agent.Events.
func (e *events) StatusChanged(i agent.Info) {
	e.Bus.StatusChanged(i)
	e.changed.Set()
	if i.Status == wire.NodeOnline {
		e.online()
	}
}

// ManagerAddressChanged implements agent.Events.
func (e *events) ManagerAddressChanged(i agent.Info) {
	e.Bus.ManagerAddressChanged(i)
	e.changed.Set()
}

// keepStatus tells systemd which manager this node has.
func (s *service) keepStatus(ctx context.Context, changed <-chan struct{}) {
	for {
		answer := make(chan agent.Info, 1)
		s.core.Info(func(i agent.Info) { answer <- i })
		select {
		case i := <-answer:
			s.env.Status(statusLine(i))
		case <-ctx.Done():
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func statusLine(i agent.Info) string {
	if i.Status == wire.NodeOnline {
		return "Connected to the manager at " + i.ManagerAddress
	}
	return "Not connected; the manager is awaited at " + i.ManagerAddress
}
