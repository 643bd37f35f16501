// Package client is the typed Go client of ctrl's public D-Bus APIs.
package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// Client is one connection to the bus that a manager is on. Its methods are safe from any
// goroutine. Errors are of type *wire.Error, with the kinds of the API and those of this
// package, except where a context was canceled: then they are context.Cause.
type Client struct {
	conn  *dbus.Conn
	bus   string // what is at the other end, in words
	slots chan struct{}
	jobs  *follower

	before  sync.Once
	prepare func()
}

// maxCalls is how many calls may be under way at a time; a call past it waits. The system
// bus allows 128 pending replies per connection (dbus-daemon(1), max_replies_per_connection).
const maxCalls = 64

// Time limits of a call whose context has none. They are longer than the manager's own, so
// that its answer says what went wrong.
const (
	readLimit   = 40 * time.Second
	changeLimit = 2 * time.Minute // somebody may have to type a password
)

func newClient(conn *dbus.Conn, bus string, jobs *follower) *Client {
	return &Client{conn: conn, bus: bus, slots: make(chan struct{}, maxCalls), jobs: jobs}
}

// BeforeChange has prepare called once, before the first call that changes something. It is
// set before any call.
func (c *Client) BeforeChange(prepare func()) { c.prepare = prepare }

// Close ends the connection; calls under way fail.
func (c *Client) Close() { _ = c.conn.Close() }

// target is an interface of an object.
type target struct {
	dest  string
	path  dbus.ObjectPath
	iface string
}

func manager() target {
	return target{wire.BusName, dbus.ObjectPath(wire.RootPath), wire.ManagerInterface}
}

func node(name string) target {
	return target{wire.BusName, dbus.ObjectPath(wire.NodePath(name)), wire.NodeInterface}
}

func busDaemon() target {
	return target{wire.DBusName, dbus.ObjectPath(wire.DBusPath), wire.DBusInterface}
}

// message is a call that allows to ask the user for a password; godbus's own calls leave
// that flag out.
func (t target) message(member string, args []any) *dbus.Message {
	headers := map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(t.path), dbus.FieldDestination: dbus.MakeVariant(t.dest),
		dbus.FieldInterface: dbus.MakeVariant(t.iface), dbus.FieldMember: dbus.MakeVariant(member),
	}
	if len(args) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(args...))
	}
	return &dbus.Message{Type: dbus.TypeMethodCall, Flags: dbus.FlagAllowInteractiveAuthorization, Headers: headers, Body: args}
}

func (t target) properties() target {
	t.iface = wire.PropertiesInterface
	return t
}

// read calls a method that only reads.
func (c *Client) read(ctx context.Context, t target, member string, args ...any) ([]any, error) {
	return c.call(ctx, readLimit, t, member, args)
}

// change calls a method that changes something; whoever decides about rights may ask the user.
func (c *Client) change(ctx context.Context, t target, member string, args ...any) ([]any, error) {
	if c.prepare != nil {
		c.before.Do(c.prepare)
	}
	return c.call(ctx, changeLimit, t, member, args)
}

func (c *Client) call(ctx context.Context, limit time.Duration, t target, member string, args []any) ([]any, error) {
	if err := checkStrings(args); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-limited.Done():
		return nil, c.failure(ctx, limit, t.dest, limited.Err())
	}
	done := make(chan *dbus.Call, 1)
	c.conn.SendWithContext(limited, t.message(member, args), done)
	call := <-done
	if call.Err != nil {
		return nil, c.failure(ctx, limit, t.dest, call.Err)
	}
	return call.Body, nil
}

// checkStrings refuses what D-Bus cannot carry, with a text of our own.
func checkStrings(args []any) error {
	for _, arg := range args {
		list, ok := arg.([]string)
		if s, one := arg.(string); one {
			list, ok = []string{s}, true
		}
		if ok && slices.ContainsFunc(list, func(s string) bool {
			return strings.ContainsRune(s, 0) || strings.ToValidUTF8(s, "") != s
		}) {
			return wire.ErrInvalidArgs.With("%q is not valid UTF-8 text", list)
		}
	}
	return nil
}

// failure makes the error of a call that did not succeed; ctx is the caller's.
func (c *Client) failure(ctx context.Context, limit time.Duration, dest string, err error) error {
	var reply dbus.Error
	var format dbus.FormatError
	switch {
	case errors.As(err, &reply):
		return c.refusal(dest, reply)
	case ctx.Err() != nil:
		return ended(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return wire.ErrTimeout.With("no answer within %s", limit)
	case errors.As(err, &format):
		return wire.ErrInvalidArgs.With("%v", err)
	}
	return ErrManagerGone.With("the connection to %s was lost", c.bus) // EOF, EPIPE, closed: whichever came first
}

// ended is the error of a context that has ended: a cause of its own, or the kind Timeout.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return wire.ErrTimeout.With("the time is up")
	}
	return cause
}

// refusal makes the error that an error reply stands for.
func (c *Client) refusal(dest string, reply dbus.Error) error {
	who := "the manager"
	switch dest {
	case wire.AgentBusName:
		who = "the agent"
	case wire.DBusName:
		dest = wire.BusName // the question was who owns it
	}
	text := ""
	if len(reply.Body) > 0 {
		text, _ = reply.Body[0].(string)
	}
	switch reply.Name {
	case wire.ErrServiceUnknown.Name, wire.ErrNameHasNoOwner.Name:
		return ErrNotRunning.With("%s is not running: nobody owns %s on %s", who, dest, c.bus)
	case wire.ErrNoReply.Name:
		return ErrManagerGone.With("%s left %s without an answer", who, c.bus)
	}
	if reply.Name == wire.ErrAccessDenied.Name && byPolicy(text) {
		text = "the policy of " + c.bus + " does not let this user call " + who
	}
	return &wire.Error{Name: reply.Name, Text: text}
}

// byPolicy reports that the bus itself refused a message: its text is about rules and senders,
// and nobody's but the bus's.
func byPolicy(text string) bool {
	return strings.HasPrefix(text, "Rejected send message") || // dbus-daemon
		strings.HasPrefix(text, "Sender is not authorized to send message") // dbus-broker
}

// store puts an answer into variables; what has another type is an error.
func store(body []any, into ...any) error {
	if err := dbus.Store(body, into...); err != nil {
		return badAnswer(err.Error())
	}
	return nil
}

// only takes the one argument of an answer as it is: unlike store it keeps the signatures of
// variants, and costs nothing.
func only[T any](body []any, err error) (T, error) {
	var v T
	if err != nil {
		return v, err
	}
	if len(body) == 1 && take(body[0], &v) {
		return v, nil
	}
	return v, badAnswer(fmt.Sprintf("%T is wanted", v))
}

func take[T any](v any, into *T) (ok bool) {
	*into, ok = v.(T)
	return ok
}

func badAnswer(what string) error {
	return wire.ErrFailed.With("the answer is not as the API says: %s", what)
}
