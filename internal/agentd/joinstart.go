package agentd

import (
	"context"
	"fmt"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

const (
	agentUnit = "ctrl-agent.service"
	startTime = 60 * time.Second
)

// start makes systemd run the agent, now and at each boot, and waits until it is online.
func (j *joining) start(ctx context.Context) error {
	by := "systemctl enable --now " + agentUnit
	if j.opt.user {
		by = "systemctl --user enable --now " + agentUnit
	}
	if j.opt.noStart {
		fmt.Fprintf(j.out, "to start the agent: %s\n", by)
		return nil
	}
	address, err := busAddress(j.opt.user)
	if err != nil {
		return fmt.Errorf("the agent is not started: %w; start it with %s", err, by)
	}
	if err := startAgent(ctx, address); err != nil {
		return fmt.Errorf("the agent is not started: %w; try %s", err, by)
	}
	ctx, cancel := context.WithTimeout(ctx, onlineTime)
	defer cancel()
	if err := awaitOnline(ctx, address); err != nil {
		return fmt.Errorf("%s is started, but not connected to the manager yet: %w; see journalctl -u %s", agentUnit, err, agentUnit)
	}
	fmt.Fprintf(j.out, "%s is started and online\n", agentUnit)
	return nil
}

// startAgent enables the unit and starts it, or starts it anew.
func startAgent(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	ended := make(chan jobEnd, 64)
	conn, err := peer.DialBus(ctx, address, peer.Options{Handler: func(_ *peer.Conn, m *peer.Message) {
		var end jobEnd
		if m.Member == "JobRemoved" && peer.Decode(m.Body, &end.id, &end.job, &end.unit, &end.result) == nil && end.unit == agentUnit {
			select {
			case ended <- end:
			default: // 64 jobs of this one unit are not ours
			}
		}
	}})
	if err != nil {
		return err
	}
	defer conn.Close(nil)
	rule := "type='signal',sender='" + wire.SystemdName + "',interface='" + wire.SystemdManagerInterface + "',member='JobRemoved'"
	if err := conn.AddMatch(ctx, rule); err != nil {
		return err
	}
	systemd := func(member string, out any, args ...any) error {
		body, err := peer.Encode(args...)
		if err != nil {
			return err
		}
		m, err := conn.Call(ctx, peer.Call{Destination: wire.SystemdName, Path: wire.SystemdPath, Interface: wire.SystemdManagerInterface, Member: member, Body: body})
		if err != nil || out == nil {
			return err
		}
		return peer.Decode(m.Body, out)
	}
	for _, step := range []func() error{
		func() error { return systemd("Subscribe", nil) },
		func() error { return systemd("EnableUnitFiles", nil, []string{agentUnit}, false, true) },
		func() error { return systemd("Reload", nil) },
		func() error { return systemd("ResetFailedUnit", nil, agentUnit) },
	} {
		if err := step(); err != nil && !isNotLoaded(err) {
			return err
		}
	}
	var job wire.ObjectPath
	if err := systemd("RestartUnit", &job, agentUnit, "replace"); err != nil {
		return err
	}
	for {
		select {
		case end := <-ended:
			if end.job == job && end.result != wire.ResultDone {
				return fmt.Errorf("systemd says that its start ended as %s; see journalctl -u %s", end.result, agentUnit)
			}
			if end.job == job {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// jobEnd is systemd's signal JobRemoved.
type jobEnd struct {
	id     uint32
	job    wire.ObjectPath
	unit   string
	result string
}

func isNotLoaded(err error) bool { return wire.ErrSystemdNoSuchUnit.Is(wire.AsError(err)) }

// awaitOnline waits until the agent says on the node's bus that it has a session.
func awaitOnline(ctx context.Context, address string) error {
	changed := make(chan struct{}, 1)
	conn, err := peer.DialBus(ctx, address, peer.Options{Handler: func(_ *peer.Conn, m *peer.Message) {
		if m.Type == peer.TypeSignal {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}})
	if err != nil {
		return err
	}
	defer conn.Close(nil)
	for _, rule := range []string{
		"type='signal',path='" + string(wire.RootPath) + "',interface='" + wire.PropertiesInterface + "'",
		"type='signal',sender='" + wire.DBusName + "',member='NameOwnerChanged',arg0='" + wire.AgentBusName + "'",
	} {
		if err := conn.AddMatch(ctx, rule); err != nil {
			return err
		}
	}
	body, err := peer.Encode(wire.AgentInterface, "Status")
	if err != nil {
		return err
	}
	for {
		var status wire.Value
		m, err := conn.Call(ctx, peer.Call{Destination: wire.AgentBusName, Path: wire.RootPath, Interface: wire.PropertiesInterface, Member: "Get", Body: body})
		if err == nil {
			err = peer.Decode(m.Body, &status)
		}
		var word string
		if err == nil && peer.DecodeValue(status, &word) == nil && word == wire.NodeOnline {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
