package agent

import (
	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/wire"
)

// Workloads is what this node holds of workloads, as the core needs it. It has an owner and
// a state of its own, which outlive every session.
type Workloads interface {
	// Call carries out a method of wire.BundleMethods. It does not block; done is called
	// once, from any goroutine.
	Call(method string, args wire.Raw, done func(wire.Raw, error))
	// SessionEnded says that what a manager has uploaded and not used is wanted no more.
	SessionEnded()
}

// workloadVerbs are ctl's words for what changes workloads.
var workloadVerbs = map[string]string{
	wire.MemberApplyBundle: "apply", wire.MemberRollbackWorkload: "rollback", wire.MemberDeleteWorkload: "delete",
	wire.MemberControlWorkload: "control", wire.MemberCollectGarbage: "gc",
}

// callWorkloads passes a call for workloads on, if the node lets the manager do that.
func (a *Agent) callWorkloads(s Session, m *wire.BundleMethod, args wire.Raw, reply func(wire.Raw, error)) {
	err := a.mayCallWorkloads(s, m, args)
	if err != nil {
		a.writeWorkload(m.Name, err)
		reply(wire.Raw{}, err)
		return
	}
	a.conn.calls++
	a.cfg.Workloads.Call(m.Name, args, func(body wire.Raw, err error) {
		a.loop.Defer(func() {
			a.conn.calls--
			a.writeWorkload(m.Name, err)
			reply(body, err)
		})
	})
}

func (a *Agent) mayCallWorkloads(s Session, m *wire.BundleMethod, args wire.Raw) error {
	switch {
	case a.current(s) != nil:
		return a.current(s)
	case a.cfg.Workloads == nil:
		return wire.ErrUnknownMethod.With("this agent holds no workloads")
	case args.Sig != m.In:
		return wire.ErrInvalidArgs.With("%s takes arguments of type %q, not %q", m.Name, string(m.In), string(args.Sig))
	case a.conn.calls >= MaxCalls:
		return wire.ErrLimitsExceeded.With("%d calls are under way on this node already", a.conn.calls)
	case m.Changes:
		return a.cfg.Policy.Apply()
	}
	return nil
}

// writeWorkload writes down that the manager has asked for a change. What then comes of it
// is told by WorkloadDone.
func (a *Agent) writeWorkload(method string, err error) {
	verb := workloadVerbs[method]
	if verb == "" {
		return
	}
	e := actionlog.Entry{Node: a.cfg.Node, Verb: verb, Result: actionlog.ResultQueued, Caller: a.manager()}
	if err != nil {
		e.Result = ""
	}
	e.Judge(method, err)
	a.cfg.Actions.Write(e)
}

// WorkloadEvent passes an event on to the manager: member is one of the internal Agent
// interface's signals about workloads, text its JSON. Without a session it is nobody's: what
// there is then, ListWorkloads tells the next one.
func (a *Agent) WorkloadEvent(member, text string) {
	a.later(func() {
		if a.conn.state.Is == sessionOnline {
			a.conn.link.WorkloadEvent(member, text)
		}
	})
}
