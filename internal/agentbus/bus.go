// Package agentbus exports the agent's local API on its node's bus.
package agentbus

import (
	"context"
	"log/slog"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/wire"
)

// Core is what of *agent.Agent the local API needs, with its rules.
type Core interface {
	Info(reply func(agent.Info))
	SwitchManager(address string, reply func(error))
	CreateProxy(local, node, target string, reply func(error))
	RemoveProxy(local, node, target string, reply func(error))
	WaitDependents(target string, reply func())
}

// Daemon is the process around the core. No method blocks.
type Daemon interface {
	// LogLevel is DEBUG, INFO, WARN or ERROR.
	LogLevel() string
	// LogTarget is where the log goes, as the configuration words it.
	LogTarget() string
}

// Options is what a Bus needs to know.
type Options struct {
	Address    string // D-Bus address of the bus
	Authorizer busobject.Authorizer
	Daemon     Daemon
	Log        *slog.Logger
	// Acted is told how calls ended that change something. It must not block.
	Acted func(busobject.Outcome)
}

// Bus is the local API. Make one with New, give it to agent.New as Events, give the core to
// Connect, then Run.
type Bus struct {
	server *busobject.Server
	core   Core
	root   *busobject.Class
	iface  *busobject.Interface
}

var _ agent.Events = (*Bus)(nil)

// New makes the API. It does nothing until Connect.
func New(opt Options) *Bus {
	b := &Bus{}
	b.root = b.class(opt.Daemon)
	b.server = busobject.New(busobject.Options{
		Address: opt.Address, Name: wire.AgentBusName, Authorizer: opt.Authorizer, Log: opt.Log, Root: b.root, Acted: opt.Acted,
	})
	return b
}

// Connect gives the API its core, reaches the bus and makes the name
// org.example.ctrl1.Agent ours. It is called once, before Run. After an error, which says
// what to do about it, Run may be called all the same and goes on trying.
func (b *Bus) Connect(ctx context.Context, core Core) error {
	b.core = core
	return b.server.Connect(ctx)
}

// Run serves the API until ctx ends. The core is ended first, so that its last change of
// status still reaches the bus.
func (b *Bus) Run(ctx context.Context) { b.server.Run(ctx) }

func (b *Bus) class(daemon Daemon) *busobject.Class {
	b.iface = busobject.NewInterface(wire.AgentInterface, map[string]busobject.Method{
		"SwitchManager":  {Serve: b.switchManager},
		"CreateProxy":    {Serve: func(c *busobject.Call) { proxyCall(c, b.core.CreateProxy) }},
		"RemoveProxy":    {Serve: func(c *busobject.Call) { proxyCall(c, b.core.RemoveProxy) }},
		"WaitDependents": {Serve: b.waitDependents},
	}, map[string]busobject.Getter{
		"Status":                       busobject.Property(func(i agent.Info) any { return i.Status }),
		"ManagerAddress":               busobject.Property(func(i agent.Info) any { return i.ManagerAddress }),
		"LogLevel":                     busobject.Property(func(agent.Info) any { return daemon.LogLevel() }),
		"LogTarget":                    busobject.Property(func(agent.Info) any { return daemon.LogTarget() }),
		"LastSeenTimestamp":            busobject.Property(func(i agent.Info) any { return busobject.Realtime(i.LastSeen) }),
		"LastSeenTimestampMonotonic":   busobject.Property(func(i agent.Info) any { return busobject.Monotonic(i.LastSeen) }),
		"DisconnectTimestamp":          busobject.Property(func(i agent.Info) any { return busobject.Realtime(i.DisconnectedAt) }),
		"DisconnectTimestampMonotonic": busobject.Property(func(i agent.Info) any { return busobject.Monotonic(i.DisconnectedAt) }),
	})
	return &busobject.Class{
		At:    func(p wire.ObjectPath) bool { return p == wire.RootPath },
		Fixed: wire.RootPath,
		Load: func(_ wire.ObjectPath, reply func(any, error)) {
			b.core.Info(func(i agent.Info) { reply(i, nil) })
		},
		Interfaces: []*busobject.Interface{b.iface},
	}
}

func (b *Bus) switchManager(c *busobject.Call) {
	var address string
	if err := c.Decode(&address); err != nil {
		c.Fail(err)
		return
	}
	b.core.SwitchManager(address, func(err error) {
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply()
	})
}

// StatusChanged implements agent.Events.
func (b *Bus) StatusChanged(i agent.Info) {
	b.server.Changed(b.object(i), b.iface, "Status", "DisconnectTimestamp", "DisconnectTimestampMonotonic")
}

// ManagerAddressChanged implements agent.Events.
func (b *Bus) ManagerAddressChanged(i agent.Info) {
	b.server.Changed(b.object(i), b.iface, "ManagerAddress")
}

func (b *Bus) object(i agent.Info) busobject.Object {
	return busobject.Object{Path: wire.RootPath, Class: b.root, State: i}
}
