package client

import (
	"context"

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
