package client

import (
	"context"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// AgentAPI is the interface of the agent on the bus of its own node.
type AgentAPI struct{ c *Client }

// Agent is the interface of the agent that is on the same bus.
func (c *Client) Agent() AgentAPI { return AgentAPI{c} }

func agentTarget() target {
	return target{wire.AgentBusName, dbus.ObjectPath(wire.RootPath), wire.AgentInterface}
}

// AgentInfo is what the agent says about itself.
type AgentInfo struct {
	Status         string // wire.NodeOnline or wire.NodeOffline
	ManagerAddress string
	LogLevel       string
	LogTarget      string
}

// Info reads the agent's properties. Errors: ErrNotRunning.
func (a AgentAPI) Info(ctx context.Context) (AgentInfo, error) {
	props, err := a.c.properties(ctx, agentTarget())
	if err != nil {
		return AgentInfo{}, err
	}
	return AgentInfo{Status: text(props["Status"]), ManagerAddress: text(props["ManagerAddress"]), LogLevel: text(props["LogLevel"]), LogTarget: text(props["LogTarget"])}, nil
}

// SwitchManager makes the agent a node of the manager at a D-Bus address. It returns before
// the address has been tried.
func (a AgentAPI) SwitchManager(ctx context.Context, address string) error {
	return second(a.c.change(ctx, agentTarget(), "SwitchManager", address))
}

// noLimit is for calls whose end the agent decides.
const noLimit = 100 * 365 * 24 * time.Hour

// CreateProxy asks that the unit of another node for which a local unit stands be started, and
// returns when it is up. How long that may take is the agent's ProxyStartTimeout= and the
// target's own time limits.
func (a AgentAPI) CreateProxy(ctx context.Context, local, node, unit string) error {
	return second(a.c.call(ctx, noLimit, agentTarget(), "CreateProxy", []any{local, node, unit}))
}

// RemoveProxy says that a proxy is not needed any more.
func (a AgentAPI) RemoveProxy(ctx context.Context, local, node, unit string) error {
	return second(a.c.change(ctx, agentTarget(), "RemoveProxy", local, node, unit))
}

// WaitDependents returns when no unit of another node has to be stopped before this one is.
func (a AgentAPI) WaitDependents(ctx context.Context, unit string) error {
	return second(a.c.call(ctx, noLimit, agentTarget(), "WaitDependents", []any{unit}))
}
