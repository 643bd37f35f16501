package busobject

import (
	"fmt"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Call is one method call. Its arguments have the types that the XML says. It is answered
// once, from any goroutine; answers leave in the order in which they are given, together
// with what Server sends.
type Call struct {
	Path   wire.ObjectPath
	Sender string
	Args   wire.Raw

	server *Server
	conn   *peer.Conn
	msg    *peer.Message
	class  *Class // nil at a path that only leads to objects
	iface  string
	spec   *api.Method
	method Method

	about   About
	checked bool
	uid     uint32
	known   bool
}

// Decode reads the arguments into the pointers dst, all of them.
func (c *Call) Decode(dst ...any) error { return peer.Decode(c.Args, dst...) }

// Reply answers with these values.
func (c *Call) Reply(values ...any) {
	c.end(first(values), nil)
	c.server.Do(func() { c.answerWith(values...) })
}

// ReplyBody answers with a body that is encoded already.
func (c *Call) ReplyBody(body wire.Raw) {
	c.end(nil, nil)
	c.server.Do(func() { c.answer(body, nil) })
}

// Fail answers with an error.
func (c *Call) Fail(err error) {
	c.end(nil, err)
	c.server.Do(func() { c.answer(wire.Raw{}, err) })
}

// answerWith is Reply on the server's goroutine: nothing that was given to the server
// meanwhile comes before it.
func (c *Call) answerWith(values ...any) {
	body, err := peer.Encode(values...)
	c.answer(body, err)
}

// answer sends the answer, on the server's goroutine. An answer that is not what the XML
// promises becomes an error: it may come from a node.
func (c *Call) answer(body wire.Raw, err error) {
	if err == nil {
		err = c.checkAnswer(body)
	}
	if c.msg.NoReply() {
		return
	}
	if err != nil {
		c.conn.ReplyError(c.msg, err)
		return
	}
	c.conn.Reply(c.msg, body)
}

func (c *Call) checkAnswer(body wire.Raw) error {
	if want := api.Signature(c.spec.Out); body.Sig != want {
		return fmt.Errorf("the answer to %s is of type %q instead of %q", c.spec.Name, body.Sig, want)
	}
	if len(body.Data) > MaxAnswer {
		return ErrTooLarge(c.spec.Name)
	}
	return nil
}

// Trusted reports whether the caller may do everything and therefore see secrets too.
func (c *Call) Trusted() bool { return c.server.authorizer.Trusted(c.conn, c.Sender) }

func (c *Call) caller() caller { return caller{c.conn, c.Sender} }

func (c *Call) interactive() bool { return c.msg.AllowInteraction() }

// changes reports whether the call may change something.
func (c *Call) changes() bool {
	return c.spec.Action != "" && c.spec.Action != wire.ActionInspect
}

func (c *Call) request(about About) Request {
	c.about = about
	return Request{
		Conn: c.conn, Sender: c.Sender, Action: c.spec.Action, Verb: c.spec.Verb, About: about,
		Interactive: c.interactive(),
	}
}
