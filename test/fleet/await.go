package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	return awaitProperty(ctx, f.Boss, property{wire.BusName, dbus.ObjectPath(wire.NodePath(node)), wire.NodeInterface, "Status"}, want)
}

// WaitAgent waits until a node's agent says that it is connected to the manager.
func (f *Fleet) WaitAgent(ctx context.Context, node string) error {
	return awaitProperty(ctx, f.Nodes[node], property{wire.AgentBusName, dbus.ObjectPath(wire.RootPath), wire.AgentInterface, "Status"}, wire.NodeOnline)
}

// WaitManager waits until the manager is on the bus of its machine and answers.
func (f *Fleet) WaitManager(ctx context.Context) error {
	status := property{wire.BusName, dbus.ObjectPath(wire.RootPath), wire.ManagerInterface, "Status"}
	return await(ctx, f.Boss, wire.BusName, nil, func(ctx context.Context, bus *dbus.Conn) (string, error) {
		_, err := status.get(ctx, bus)
		return "", err
	})
}

// WaitUnit waits until a unit of a node has one of these active states, by systemd's word.
func WaitUnit(ctx context.Context, n *lab.Node, unit string, states ...string) error {
	const name, path = wire.SystemdName, dbus.ObjectPath(wire.SystemdPath)
	// Not the signals of the Manager interface: looking at a unit that is not loaded makes some.
	rules := []dbus.MatchOption{dbus.WithMatchSender(name), dbus.WithMatchPathNamespace(path), dbus.WithMatchInterface(wire.PropertiesInterface)}
	subscribed := false
	return await(ctx, n, name, rules, func(ctx context.Context, bus *dbus.Conn) (string, error) {
		manager := bus.Object(name, path)
		if !subscribed {
			if err := manager.CallWithContext(ctx, name+".Manager.Subscribe", 0).Err; err != nil {
				return "", err
			}
			subscribed = true
		}
		var object dbus.ObjectPath
		if err := manager.CallWithContext(ctx, name+".Manager.LoadUnit", 0, unit).Store(&object); err != nil {
			return "", err
		}
		state, err := property{name, object, name + ".Unit", "ActiveState"}.get(ctx, bus)
		if err != nil || slices.Contains(states, state) {
			return "", err
		}
		return fmt.Sprintf("%s is %s, not %s", unit, state, strings.Join(states, " or ")), nil
	})
}

const waitLimit = 30 * time.Second

// isGone reports that nobody was there to answer, or died before it did.
func isGone(err error) bool {
	var e dbus.Error
	return errors.As(err, &e) && slices.Contains([]string{wire.ErrServiceUnknown.Name, wire.ErrNameHasNoOwner.Name, wire.ErrNoReply.Name}, e.Name)
}

// property is a property of type string.
type property struct {
	name  string
	path  dbus.ObjectPath
	iface string
	key   string
}

func (p property) get(ctx context.Context, bus *dbus.Conn) (string, error) {
	var value dbus.Variant
	err := bus.Object(p.name, p.path).CallWithContext(ctx, wire.PropertiesInterface+".Get", 0, p.iface, p.key).Store(&value)
	text, _ := value.Value().(string)
	return text, err
}

func awaitProperty(ctx context.Context, n *lab.Node, p property, want string) error {
	rules := []dbus.MatchOption{dbus.WithMatchObjectPath(p.path), dbus.WithMatchInterface(wire.PropertiesInterface)}
	return await(ctx, n, p.name, rules, func(ctx context.Context, bus *dbus.Conn) (string, error) {
		value, err := p.get(ctx, bus)
		if err != nil || value == want {
			return "", err
		}
		return fmt.Sprintf("%s of %s is %s, not %s", p.key, p.path, value, want), nil
	})
}

// await looks, on the bus of a node, for what is still missing: at first, and again after
// each signal that matches the rules and whenever somebody takes or leaves name. Whoever has
// that name may be gone, or die over the question, and come back.
func await(ctx context.Context, n *lab.Node, name string, rules []dbus.MatchOption, look func(context.Context, *dbus.Conn) (missing string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	bus, err := Bus(ctx, n)
	if err != nil {
		return fmt.Errorf("the bus of %s: %w", n.Name, err)
	}
	defer bus.Close()
	signals := make(chan *dbus.Signal, 1024)
	bus.Signal(signals)
	owner := []dbus.MatchOption{dbus.WithMatchInterface(wire.DBusInterface), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, name)}
	for _, match := range [][]dbus.MatchOption{owner, rules} {
		if match == nil {
			continue
		}
		if err := bus.AddMatchSignalContext(ctx, match...); err != nil {
			return fmt.Errorf("the bus of %s: %w", n.Name, err)
		}
	}
	for {
		missing, err := look(ctx, bus)
		if isGone(err) {
			missing, err = err.Error(), nil
		}
		if err != nil {
			return fmt.Errorf("on %s: %w", n.Name, err)
		}
		if missing == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("on %s: %s: %w", n.Name, missing, ctx.Err())
		case _, open := <-signals:
			if !open {
				return errors.New("the bus of " + n.Name + " has gone")
			}
		}
	}
}
