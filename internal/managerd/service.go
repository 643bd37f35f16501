package managerd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/agentlink"
	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/logging"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/managerbus"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/authority"
	"example.org/ctrl/internal/version"
	"example.org/ctrl/internal/workload"
	"example.org/ctrl/internal/workloadstore"
)

// service is a running manager.
type service struct {
	env    *daemon.Env
	log    *slog.Logger
	store  *pki.Store    // nil without TLS
	polkit *authz.Polkit // nil on a user's bus
	core   *manager.Manager
	bus    *managerbus.Bus
	agents *agentlink.Server
	// actions is the action log.
	actions *actionlog.Log

	workloads     *workload.Engine
	workloadStore *workloadstore.Store

	authority *authority.Authority // nil where certificates come from elsewhere

	port int // on which agents are awaited, 0 where they are not over TCP

	mu  sync.Mutex      // held while the core is given a configuration
	cfg *config.Manager // what is in effect; changed by Reload only

	running, onBus, status, renewing, delivering, saving *daemon.Component
}

// start brings everything up in an order in which nothing is offered before it works: the
// sockets, the bus with its name, the core, and only then the agents.
func start(ctx context.Context, c *config.Manager, e *daemon.Env) (*service, error) {
	s := &service{env: e, log: e.Logger(), cfg: c, actions: actionlog.New(e.Log.Always())}
	sockets, err := listen(c)
	if err != nil {
		return nil, err
	}
	if err := s.bringUp(ctx, sockets); err != nil {
		sockets.close()
		if s.authority != nil {
			s.authority.Close()
		}
		return nil, err
	}
	return s, nil
}

func (s *service) bringUp(ctx context.Context, sockets *sockets) error {
	s.port = sockets.port()
	if err := s.secure(sockets); err != nil {
		return err
	}
	address, err := busAddress(s.env.Options.User)
	if err != nil {
		return err
	}
	if err := s.openWorkloads(); err != nil {
		return err
	}
	s.bus = managerbus.New(managerbus.Options{
		Address: address, Authorizer: s.authorizer(), Daemon: s, Enrolment: s, Workloads: s.workloads, Version: version.Short(), Log: s.log,
		Actions: s.actions,
	})
	events := &events{Bus: s.bus, changed: daemon.NewLatch(), service: s}
	s.core = manager.New(coreConfig(s.cfg, s.added()), events, s.log)
	s.agents = agentlink.New(paced{s.core, s.bus}, s.linkSettings(), s.log)
	if err := s.bus.Connect(ctx, s.core); err != nil {
		return err
	}
	s.saving, s.delivering = daemon.Go(s.workloadStore.Run), daemon.Go(s.workloads.Run)
	s.running, s.onBus = daemon.Go(s.core.Run), daemon.Go(s.bus.Run)
	s.tellFleet()
	for _, l := range sockets.all {
		s.log.Info("waiting for agents", logging.KeyAddress, describe(l))
		s.agents.Serve(l)
	}
	if s.authority != nil {
		s.renewing = daemon.Go(s.authority.Run)
	}
	s.status = daemon.Go(func(ctx context.Context) { s.keepStatus(ctx, events.changed) })
	return nil
}

func busAddress(user bool) (string, error) {
	if user {
		return peer.UserBusAddress()
	}
	return peer.SystemBusAddress(), nil
}

// authorizer leaves callers to polkit; on a user's bus that user may do everything.
func (s *service) authorizer() busobject.Authorizer {
	if s.env.Options.User {
		return authz.NewByUID(0, uint32(os.Getuid()))
	}
	s.polkit = authz.NewPolkit(s.log)
	return s.polkit
}

func describe(l net.Listener) string {
	a := l.Addr()
	return a.Network() + " " + a.String()
}

func (s *service) linkSettings() agentlink.Settings {
	set := agentlink.Settings{
		TCP:   daemon.TCP(&s.cfg.Common, s.cfg.NodeHeartbeatThreshold),
		User:  os.Getuid(), // who could do as the manager anyway
		Group: agentlink.NoGroup, Workloads: s.workloads,
	}
	if s.store != nil {
		set.Secure = s.accept
	}
	if s.authority != nil {
		set.Enrolment = enrolment{s.authority, s.actions}
	}
	if group, err := groupID(s.cfg.SocketGroup); err == nil { // it was checked before
		set.Group = group
	}
	return set
}

// accept proves who a peer is.
func (s *service) accept(ctx context.Context, nc net.Conn) (net.Conn, agentlink.Proof, error) {
	secure, p, err := s.store.Accept(ctx, nc)
	return secure, agentlink.Proof{Node: p.Node, Generation: p.Generation, NotAfter: p.NotAfter}, err
}

// config is what is in effect, for other goroutines than Reload's.
func (s *service) config() *config.Manager {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// Reload implements daemon.Service.
func (s *service) Reload(next *config.Manager) {
	applied, restart := s.cfg.Changed(next)
	daemon.SayRestart(s.log, restart)
	s.reloadFiles(next)
	level := s.cfg.LogLevel
	s.mu.Lock()
	s.cfg = effective(s.cfg, next)
	s.core.Reconfigure(coreConfig(s.cfg, s.added()))
	s.mu.Unlock()
	if s.cfg.LogLevel != level {
		s.SetLogLevel(s.cfg.LogLevel)
	}
	s.agents.Apply(s.linkSettings())
	s.log.Info("configuration was read again", "applied", strings.Join(applied, " "))
}

// effective is the next configuration with those of its values replaced that take effect at
// the next start only.
func effective(now, next *config.Manager) *config.Manager {
	out := *next
	out.Port, out.UseTCP, out.UseUDS = now.Port, now.UseTCP, now.UseUDS
	out.SocketGroup, out.AllowInsecureNetwork = now.SocketGroup, now.AllowInsecureNetwork
	daemon.KeepUntilRestart(&out.Common, &now.Common)
	return &out
}

// Alive implements daemon.Service.
func (s *service) Alive(reply func()) { s.core.Status(func(string) { reply() }) }

// Stop implements daemon.Service: no new agents, then the ends of all jobs and sessions, then
// the last words to agents and to the bus.
func (s *service) Stop(ctx context.Context) {
	s.agents.Close()
	s.delivering.End(ctx)
	s.saving.End(ctx)
	s.running.End(ctx)
	s.agents.Drain(ctx)
	s.onBus.End(ctx)
	if s.polkit != nil {
		s.polkit.Wait()
	}
	s.actions.Close()
	s.status.End(ctx)
	if s.authority != nil {
		s.renewing.End(ctx)
		s.authority.Close()
	}
}

// LogLevel implements managerbus.Daemon.
func (s *service) LogLevel() string { return strings.ToUpper(logging.LevelWord(s.env.Log.Level())) }

// SetLogLevel implements managerbus.Daemon.
func (s *service) SetLogLevel(level string) {
	if l, err := logging.ParseLevel(level); err == nil {
		s.env.Log.SetLevel(l)
		s.log.Info("log level changed", "level", level)
	}
}

// LogTarget implements managerbus.Daemon.
func (s *service) LogTarget() string { return s.env.Log.Target().String() }

// Shutdown implements managerbus.Daemon.
func (s *service) Shutdown() { s.env.Shutdown() }

// paced is the core for agents: what their units do is read as fast as the bus takes it.
type paced struct {
	*manager.Manager
	bus *managerbus.Bus
}

// UnitEvent implements agentlink.Core, on the goroutine of the agent's connection.
func (p paced) UnitEvent(id manager.Session, e manager.UnitEvent) {
	p.bus.WaitForEvents()
	p.Manager.UnitEvent(id, e)
}

// events passes everything on to the bus and notes what systemd's status line shows.
type events struct {
	*managerbus.Bus
	changed daemon.Latch
	service *service
}

// NodeChanged implements manager.Events.
func (e *events) NodeChanged(n manager.NodeInfo) {
	e.Bus.NodeChanged(n)
	e.changed.Set()
	e.service.tellWorkloads(n)
}

// FleetChanged implements manager.Events.
func (e *events) FleetChanged(added, removed []manager.NodeInfo) {
	e.Bus.FleetChanged(added, removed)
	e.changed.Set()
	e.service.workloads.ChangeFleet(nodeNames(added), nodeNames(removed))
}

// keepStatus tells systemd how many nodes there are.
func (s *service) keepStatus(ctx context.Context, changed <-chan struct{}) {
	for {
		answer := make(chan string, 1)
		s.core.Online(func(online, all int) { answer <- fmt.Sprintf("%d of %d nodes online", online, all) })
		select {
		case text := <-answer:
			s.env.Status(text)
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
