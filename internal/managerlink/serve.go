package managerlink

import (
	"fmt"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// handle gets the manager's calls and signals, on the reader goroutine.
func (l *link) handle(m *peer.Message) {
	if m.Type == peer.TypeSignal {
		l.handleSignal(m)
		return
	}
	switch {
	case m.Path != wire.InternalPath || m.Interface != wire.InternalAgentInterface && m.Interface != "":
		l.conn.ReplyError(m, peer.UnknownMethod(m))
	case !l.registered:
		l.conn.ReplyError(m, wire.ErrAccessDenied.With("this agent has not registered yet"))
	default:
		l.call(m)
	}
}

func (l *link) handleSignal(m *peer.Message) {
	if m.Path == wire.InternalPath && m.Interface == wire.InternalProxyInterface {
		l.handleProxyWord(m)
		return
	}
	if m.Path != wire.InternalPath || m.Interface != wire.InternalManagerInterface {
		return
	}
	switch m.Member {
	case wire.MemberClosing:
		l.told(m)
	case wire.MemberRenewNow:
		if l.registered {
			l.core.RenewNow(l.session)
		}
	} // else Heartbeat: that it came is all it says
}

// told is the manager's last word.
func (l *link) told(m *peer.Message) {
	var reason string
	if err := peer.Decode(m.Body, &reason); err != nil {
		l.conn.Close(fmt.Errorf("manager breaks the protocol: signal %s: %w", m.Member, err))
		return
	}
	l.conn.Close(fmt.Errorf("the manager ended the session: %s", reason))
}

// call passes a call on to the core.
func (l *link) call(m *peer.Message) {
	if m.Member == wire.MemberCancelJob {
		var job uint32
		if err := peer.Decode(m.Body, &job); err != nil {
			l.conn.ReplyError(m, err)
			return
		}
		l.core.CancelJob(l.session, job, l.empty(m))
		return
	}
	if l.subscription(m) || l.ordered(m) || l.setMetrics(m) {
		return
	}
	if w, ok := wire.BundleMethodByName(m.Member); ok {
		l.passOn(m, w.Name, w.In)
		return
	}
	if j, ok := wire.LogMethodByName(m.Member); ok {
		l.passOn(m, j.Name, j.In)
		return
	}
	method, ok := wire.NodeMethodByName(m.Member)
	switch {
	case !ok:
		l.conn.ReplyError(m, peer.UnknownMethod(m))
	case method.Kind == wire.JobMethod:
		l.startJob(m, method)
	default:
		l.passOn(m, method.Name, method.In)
	}
}

// passOn passes a call on unopened, if its arguments have the right type.
func (l *link) passOn(m *peer.Message, method string, in wire.Signature) {
	if m.Body.Sig != in {
		l.conn.ReplyError(m, wrongArguments(m, in))
		return
	}
	kept := m.CloneHeader()
	l.core.Call(l.session, method, peer.CloneRaw(m.Body), func(body wire.Raw, err error) {
		if err != nil {
			l.conn.ReplyError(kept, err)
			return
		}
		l.conn.Reply(kept, body)
	})
}

// empty answers a call that has no result.
func (l *link) empty(m *peer.Message) func(error) {
	kept := m.CloneHeader()
	return func(err error) {
		if err != nil {
			l.conn.ReplyError(kept, err)
			return
		}
		l.conn.Reply(kept, wire.Raw{})
	}
}

func wrongArguments(m *peer.Message, want wire.Signature) error {
	return wire.ErrInvalidArgs.With("%s takes arguments of type %q, not %q", m.Member, string(want), string(m.Body.Sig))
}

// startJob passes a job on: the manager's id, the unit, the mode, and for a transient unit
// what makes it.
func (l *link) startJob(m *peer.Message, method *wire.NodeMethod) {
	if want := "u" + method.In; m.Body.Sig != want {
		l.conn.ReplyError(m, wrongArguments(m, want))
		return
	}
	head, tail, err := peer.SplitBody(m.Body, 3)
	if err != nil {
		l.conn.ReplyError(m, err)
		return
	}
	var req agent.JobRequest
	if err := peer.Decode(head, &req.ID, &req.Unit, &req.Mode); err != nil {
		l.conn.ReplyError(m, err)
		return
	}
	if verb, ok := wire.VerbOfMethod(method.Name); ok {
		req.Verb = verb
	} else { // StartTransientUnit starts what it makes
		transient := peer.CloneRaw(tail)
		req.Verb, req.Transient = wire.Start, &transient
	}
	l.core.StartJob(l.session, req, l.empty(m))
}
