package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/wire"
)

// Bus connects to the system bus of a node, from this process.
func Bus(ctx context.Context, n *lab.Node) (*dbus.Conn, error) {
	address := fmt.Sprintf("unix:path=/proc/%d/root/run/dbus/system_bus_socket", n.PID())
	return dbus.Connect(address, dbus.WithContext(ctx))
}

// WaitOnline waits until a node is online, or offline, by the manager's own word.
func (f *Fleet) WaitOnline(ctx context.Context, node string, online bool) error {
	want := wire.NodeOffline
	if online {
		want = wire.NodeOnline
	}
	return awaitStatus(ctx, f.Boss, statusOf{wire.BusName, wire.NodePath(node), wire.NodeInterface}, want)
}

// WaitAgent waits until a node's agent says that it is connected to the manager.
func (f *Fleet) WaitAgent(ctx context.Context, node string) error {
	return awaitStatus(ctx, f.Nodes[node], statusOf{wire.AgentBusName, wire.RootPath, wire.AgentInterface}, wire.NodeOnline)
}

// statusOf is an object with a property Status that emits its changes.
type statusOf struct {
	name  string
	path  wire.ObjectPath
	iface string
}

func awaitStatus(ctx context.Context, on *lab.Node, of statusOf, want string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	bus, err := Bus(ctx, on)
	if err != nil {
		return err
	}
	defer bus.Close()
	signals := make(chan *dbus.Signal, 1024)
	bus.Signal(signals)
	path := dbus.ObjectPath(of.path)
	if err := bus.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(path),
		dbus.WithMatchInterface(wire.PropertiesInterface)); err != nil {
		return err
	}
	var status dbus.Variant
	get := bus.Object(of.name, path).CallWithContext(ctx, wire.PropertiesInterface+".Get", 0, of.iface, "Status")
	if err := get.Store(&status); err != nil {
		return err
	}
	for status.Value() != want {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s on %s is %v, not %s: %w", of.path, on.Name, status.Value(), want, ctx.Err())
		case s, open := <-signals:
			if !open {
				return errors.New("the bus has gone")
			}
			if len(s.Body) < 2 || s.Path != path {
				continue
			}
			if changed, ok := s.Body[1].(map[string]dbus.Variant); ok && changed["Status"].Value() != nil {
				status = changed["Status"]
			}
		}
	}
	return nil
}
