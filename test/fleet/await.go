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
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := f.awaitStatus(ctx, node, want); err != nil {
		return fmt.Errorf("node %s did not become %s: %w", node, want, err)
	}
	return nil
}

func (f *Fleet) awaitStatus(ctx context.Context, node, want string) error {
	bus, err := Bus(ctx, f.Boss)
	if err != nil {
		return err
	}
	defer bus.Close()
	signals := make(chan *dbus.Signal, 1024)
	bus.Signal(signals)
	path := dbus.ObjectPath(wire.NodePath(node))
	if err := bus.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(path),
		dbus.WithMatchInterface(wire.PropertiesInterface)); err != nil {
		return err
	}
	object := bus.Object(wire.BusName, path)
	var status dbus.Variant
	if err := object.CallWithContext(ctx, wire.PropertiesInterface+".Get", 0, wire.NodeInterface, "Status").Store(&status); err != nil {
		return err
	}
	for status.Value() != want {
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is %v: %w", status.Value(), ctx.Err())
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
