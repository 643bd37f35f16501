package busobject

import (
	"errors"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Outcome is how a call ended that needs more than the right to look, or that was refused.
type Outcome struct {
	Call   *Call
	Method string
	Verb   string // ctl's word for it
	About
	UID   uint32 // of the caller
	Known bool   // the uid; the bus may not have said
	// Answer is the first value that the call was answered with, where there is one.
	Answer any
	Err    error
}

// identifier is an Authorizer that knows who callers are.
type identifier interface {
	// UID is the user of a caller that was checked.
	UID(conn *peer.Conn, sender string) (uid uint32, known bool)
}

// judged notes that a call's right was checked: from now on its end is an outcome. The uid
// is kept, since the caller may be gone by then.
func (c *Call) judged(err error) {
	refused := errors.Is(err, wire.ErrAccessDenied) || errors.Is(err, wire.ErrInteractiveAuth)
	if !c.changes() && !refused {
		return
	}
	c.checked = true
	if id, ok := c.server.authorizer.(identifier); ok {
		c.uid, c.known = id.UID(c.conn, c.Sender)
	}
}

// end tells the outcome of a call. It is told when the answer is given and not when it
// leaves: a bus that is gone undoes no act.
func (c *Call) end(answer any, err error) {
	if c.checked && c.server.acted != nil {
		c.server.acted(Outcome{
			Call: c, Method: c.spec.Name, Verb: c.spec.Verb, About: c.about, UID: c.uid, Known: c.known, Answer: answer, Err: err,
		})
	}
}

func first(values []any) any {
	if len(values) == 0 {
		return nil
	}
	return values[0]
}

// Concerns says what a call is about where only its handler finds out, for the outcome.
func (c *Call) Concerns(about About) { c.about = about }

// User is the uid of the caller of a call that changes something, where the bus has said it.
func (c *Call) User() (uid uint32, known bool) { return c.uid, c.known }
