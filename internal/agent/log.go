package agent

import "example.org/ctrl/internal/wire"

// Logs is this node's journal, as the core needs it.
type Logs interface {
	// Call carries out a method of wire.LogMethods. It does not block; done is called once,
	// from any goroutine.
	Call(method string, args wire.Raw, done func(wire.Raw, error))
	// SessionEnded ends all reading; calls that wait are answered.
	SessionEnded()
}

// callLogs passes a call for the journal on, if the node lets the manager read it. It is asked
// for each piece, so that AllowLogs=no takes effect with the next one.
func (a *Agent) callLogs(s Session, m *wire.LogMethod, args wire.Raw, reply func(wire.Raw, error)) {
	if err := a.mayReadLogs(s, m, args); err != nil {
		reply(wire.Raw{}, err)
		return
	}
	a.conn.calls++
	a.cfg.Logs.Call(m.Name, args, func(body wire.Raw, err error) {
		a.loop.Defer(func() {
			a.conn.calls--
			reply(body, err)
		})
	})
}

func (a *Agent) mayReadLogs(s Session, m *wire.LogMethod, args wire.Raw) error {
	switch {
	case a.current(s) != nil:
		return a.current(s)
	case a.cfg.Logs == nil:
		return wire.ErrUnknownMethod.With("this agent reads no journal")
	case args.Sig != m.In:
		return wire.ErrInvalidArgs.With("%s takes arguments of type %q, not %q", m.Name, string(m.In), string(args.Sig))
	case a.conn.calls >= MaxCalls:
		return wire.ErrLimitsExceeded.With("%d calls are under way on this node already", a.conn.calls)
	case m.Name == wire.MemberCloseLog:
		return nil
	}
	return a.cfg.Policy.Logs()
}
