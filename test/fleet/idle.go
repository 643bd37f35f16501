package fleet

import (
	"context"
	"fmt"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/wire"
)

// WaitFor waits until ok, which is looked at again after each change of a unit of a node.
func WaitFor(ctx context.Context, n *lab.Node, what string, ok func() bool) error {
	const name, path = wire.SystemdName, dbus.ObjectPath(wire.SystemdPath)
	rules := []dbus.MatchOption{dbus.WithMatchSender(name), dbus.WithMatchPathNamespace(path)}
	subscribed := false
	return await(ctx, n, name, rules, func(ctx context.Context, bus *dbus.Conn) (string, error) {
		if !subscribed {
			if err := bus.Object(name, path).CallWithContext(ctx, name+".Manager.Subscribe", 0).Err; err != nil {
				return "", err
			}
			subscribed = true
		}
		if ok() {
			return "", nil
		}
		return "waiting for " + what, nil
	})
}

// WaitIdle waits until a node's systemd has no job.
func WaitIdle(ctx context.Context, n *lab.Node) error {
	const name, path = wire.SystemdName, dbus.ObjectPath(wire.SystemdPath)
	rules := []dbus.MatchOption{dbus.WithMatchSender(name), dbus.WithMatchObjectPath(path), dbus.WithMatchMember("JobRemoved")}
	subscribed := false
	return await(ctx, n, name, rules, func(ctx context.Context, bus *dbus.Conn) (string, error) {
		manager := bus.Object(name, path)
		if !subscribed {
			if err := manager.CallWithContext(ctx, name+".Manager.Subscribe", 0).Err; err != nil {
				return "", err
			}
			subscribed = true
		}
		var jobs []struct {
			ID                uint32
			Unit, Type, State string
			Path, UnitPath    dbus.ObjectPath
		}
		if err := manager.CallWithContext(ctx, name+".Manager.ListJobs", 0).Store(&jobs); err != nil || len(jobs) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d jobs, among them %s of %s", len(jobs), jobs[0].Type, jobs[0].Unit), nil
	})
}
