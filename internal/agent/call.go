package agent

import (
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// MaxCalls is how many calls of the manager may be with systemd at a time.
const MaxCalls = 4096

func (a *Agent) call(s Session, name string, args wire.Raw, reply func(wire.Raw, error)) {
	if m, ok := wire.BundleMethodByName(name); ok {
		a.callWorkloads(s, m, args, reply)
		return
	}
	if m, ok := wire.LogMethodByName(name); ok {
		a.callLogs(s, m, args, reply)
		return
	}
	if err := a.mayCall(s, name, args); err != nil {
		reply(wire.Raw{}, err)
		return
	}
	method, _ := wire.NodeMethodByName(name)
	a.conn.calls++
	act := actOfCall(method, args)
	done := func(body wire.Raw, err error) {
		a.conn.calls--
		a.write(act, 0, "", err)
		reply(body, err)
	}
	a.admit(act, func(err error) {
		if err == nil {
			err = a.current(s)
		}
		switch {
		case err != nil:
			done(wire.Raw{}, err)
		case method.Kind == wire.AgentMethod:
			done(wire.Raw{}, a.callSelf(name, args))
		default:
			a.systemd.Call(name, args, a.cfg.CallTimeout, func(body wire.Raw, err error) {
				a.loop.Defer(func() { done(body, err) })
			})
		}
	})
}

func (a *Agent) mayCall(s Session, name string, args wire.Raw) error {
	method, ok := wire.NodeMethodByName(name)
	switch {
	case a.current(s) != nil:
		return a.current(s)
	case !ok || method.Kind == wire.JobMethod:
		return wire.ErrUnknownMethod.With("%q is no query or change of a node", name)
	case args.Sig != method.In:
		return wire.ErrInvalidArgs.With("%s takes arguments of type %q, not %q", name, string(method.In), string(args.Sig))
	case a.conn.calls >= MaxCalls:
		return wire.ErrLimitsExceeded.With("%d calls are under way on this node already", a.conn.calls)
	}
	// GetUnitFileState also takes the path of a file.
	if first, _ := args.FirstStrings(); method.UnitArg && name != "GetUnitFileState" {
		check := unit.CheckInstance
		if name == "ReadUnitFiles" {
			check = unit.CheckName // a template has files
		}
		if err := check(first[0]); err != nil {
			return wire.ErrInvalidArgs.With("%v", err)
		}
	}
	return nil
}

// callSelf is what the manager asks of the agent itself.
func (a *Agent) callSelf(name string, args wire.Raw) error {
	var arg string
	if first, ok := args.FirstStrings(); ok {
		arg = first[0]
	}
	switch {
	case name == "SwitchManager":
		if err := a.maySwitch(arg); err != nil {
			return err
		}
		// After the answer has left: the link ends with it.
		a.later(func() {
			if err := a.switchManager(arg); err != nil {
				a.log.Warn("cannot switch to another manager", keyErr, err)
			}
		})
		return nil
	case name == "SetLogLevel" && a.cfg.SetLogLevel != nil:
		return a.cfg.SetLogLevel(arg)
	case name == "Shutdown" && a.cfg.Shutdown != nil:
		a.log.Info("shutting down at the manager's request")
		a.later(a.cfg.Shutdown)
		return nil
	}
	return wire.ErrUnknownMethod.With("this agent does not know %s", name)
}
