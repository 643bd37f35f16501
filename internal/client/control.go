package client

import (
	"context"

	"example.org/ctrl/internal/peer"
)

// CheckAddress says what is wrong with the spelling of a D-Bus address.
func CheckAddress(address string) error {
	_, err := peer.ParseAddress(address)
	return err
}

// SetLogLevel sets the manager's log level until it restarts: debug, info, warn or error.
// Error: wire.ErrInvalidArgs.
func (c *Client) SetLogLevel(ctx context.Context, level string) error {
	return second(c.change(ctx, manager(), "SetLogLevel", level))
}

// Shutdown ends the manager as SIGTERM does. It returns before the manager has left the bus.
func (c *Client) Shutdown(ctx context.Context) error {
	return second(c.change(ctx, manager(), "Shutdown"))
}

// SetMetrics switches metrics on or off, on all agents, also on those that connect later.
func (c *Client) SetMetrics(ctx context.Context, on bool) error {
	if on {
		return second(c.change(ctx, manager(), "EnableMetrics"))
	}
	return second(c.change(ctx, manager(), "DisableMetrics"))
}

// SetLogLevel sets the log level of the node's agent until it restarts.
func (n NodeAPI) SetLogLevel(ctx context.Context, level string) error {
	return second(n.change(ctx, "SetLogLevel", level))
}

// SwitchManager makes the node's agent a node of the manager at a D-Bus address, until it
// restarts. It returns before the address has been tried. Error: wire.ErrInvalidArgs.
func (n NodeAPI) SwitchManager(ctx context.Context, address string) error {
	return second(n.change(ctx, "SwitchManager", address))
}

// Shutdown ends the node's agent as SIGTERM does; units on the node go on. It returns before
// the agent has left.
func (n NodeAPI) Shutdown(ctx context.Context) error { return second(n.change(ctx, "Shutdown")) }
