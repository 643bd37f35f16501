package fakemanager

import (
	"fmt"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"example.org/ctrl/internal/wire"
)

// Agent is the agent of the machine that a bus is on: what ctl is-online agent asks.
type Agent struct {
	conn  *dbus.Conn
	props *prop.Properties
}

// StartAgent connects to a bus and owns the agent's name there.
func StartAgent(address, status string) (*Agent, error) {
	conn, err := dbus.Connect(address)
	if err != nil {
		return nil, err
	}
	a := &Agent{conn: conn}
	a.props, err = prop.Export(conn, dbus.ObjectPath(wire.RootPath), prop.Map{wire.AgentInterface: {
		"Status":         {Value: status, Emit: prop.EmitTrue},
		"ManagerAddress": {Value: "tcp:host=boss,port=842", Emit: prop.EmitTrue},
		"LogLevel":       {Value: "INFO", Emit: prop.EmitFalse},
		"LogTarget":      {Value: "stderr", Emit: prop.EmitFalse},
	}})
	if err == nil {
		var reply dbus.RequestNameReply
		reply, err = conn.RequestName(wire.AgentBusName, dbus.NameFlagDoNotQueue)
		if err == nil && reply != dbus.RequestNameReplyPrimaryOwner {
			err = fmt.Errorf("the name %s is taken", wire.AgentBusName)
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return a, nil
}

// SetStatus changes the agent's status.
func (a *Agent) SetStatus(status string) { a.props.SetMust(wire.AgentInterface, "Status", status) }

// Stop leaves the bus.
func (a *Agent) Stop() { _ = a.conn.Close() }
