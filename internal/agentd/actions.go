package agentd

import (
	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/busobject"
)

// acted writes down what somebody on the node asked of the agent itself.
func (s *service) acted(o busobject.Outcome) {
	e := actionlog.Entry{Verb: o.Verb, Caller: actionlog.Caller{Name: o.Call.Sender, UID: o.UID, Known: o.Known}}
	if name := s.node.Load(); name != nil {
		e.Node = *name
	}
	e.Judge(o.Method, o.Err)
	s.actions.Write(e)
}
