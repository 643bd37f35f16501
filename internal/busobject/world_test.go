package busobject

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// patience bounds every wait of these tests; nothing passes because of it.
const patience = 30 * time.Second

const testName = "org.example.ctrl1.Test"

// testXML is an interface with a method that changes something, one that only looks, and a
// property of each kind.
const testXML = `<node><interface name="org.example.ctrl1.Test">
  <method name="Change"><annotation name="org.example.ctrl1.Action" value="org.example.ctrl1.manage-units"/>
    <arg name="what" type="s" direction="in"/><arg name="done" type="s" direction="out"/></method>
  <method name="Look"><annotation name="org.example.ctrl1.Action" value="org.example.ctrl1.inspect"/>
    <arg name="what" type="s" direction="in"/><arg name="seen" type="s" direction="out"/></method>
  <signal name="Happened"><arg name="what" type="s"/></signal>
  <property name="True" type="s" access="read"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="true"/></property>
  <property name="Name" type="s" access="read"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="invalidates"/></property>
  <property name="Const" type="s" access="read"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="const"/></property>
  <property name="Quiet" type="s" access="read"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="false"/></property>
</interface></node>`

// world is a server with one object on a bus of its own.
type world struct {
	t      *testing.T
	bus    *bustest.Bus
	server *Server
	iface  *Interface
	root   Object
	log    *strings.Builder
	stop   func()
}

// newWorld makes a server; run connects and runs it.
func newWorld(t *testing.T, a Authorizer) *world {
	t.Helper()
	found, err := api.Parse(testXML)
	if err != nil {
		t.Fatal(err)
	}
	echo := Method{Serve: func(c *Call) {
		var what string
		if err := c.Decode(&what); err != nil {
			c.Fail(err)
			return
		}
		c.Reply(what)
	}}
	get := Property(func(s string) any { return s })
	w := &world{t: t, bus: bustest.Start(t), log: &strings.Builder{}}
	w.iface = &Interface{
		Spec: found[0], Methods: map[string]Method{"Change": echo, "Look": echo},
		Properties: map[string]Getter{"True": get, "Name": get, "Const": get, "Quiet": get},
	}
	class := &Class{
		At: func(p wire.ObjectPath) bool { return p == wire.RootPath }, Fixed: wire.RootPath,
		Load:       func(_ wire.ObjectPath, reply func(any, error)) { reply("state", nil) },
		Interfaces: []*Interface{w.iface},
	}
	w.root = Object{Path: wire.RootPath, Class: class, State: "state"}
	w.server = New(Options{
		Address: w.bus.Address, Name: testName, Authorizer: a, Root: class,
		Log: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	return w
}

func (w *world) run() *world {
	w.t.Helper()
	if err := w.server.Connect(w.ctx()); err != nil {
		w.t.Fatal(err)
	}
	w.start()
	return w
}

func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var ends sync.WaitGroup
	ends.Go(func() { w.server.Run(ctx) })
	w.stop = sync.OnceFunc(func() {
		cancel()
		ends.Wait()
	})
	w.t.Cleanup(w.stop)
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

// client is another process on the bus. What it gets is noted in order.
type client struct {
	w    *world
	conn *peer.Conn
	got  chan string
}

func (w *world) client() *client {
	w.t.Helper()
	c := &client{w: w, got: make(chan string, 4*MaxCallsPerCaller)}
	conn, err := peer.DialBus(w.ctx(), w.bus.Address, peer.Options{Handler: func(_ *peer.Conn, m *peer.Message) {
		if m.Interface != wire.DBusInterface {
			c.got <- "signal " + m.Member
		}
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	c.conn = conn
	w.t.Cleanup(c.leave)
	return c
}

func (c *client) leave() {
	c.conn.Close(nil)
	<-c.conn.Done()
}

// call sends a call and does not wait; its answer is noted as the argument, or as the last
// word of the error's name.
func (c *client) call(member, what string, flags peer.Flags) {
	call := peer.Call{Destination: testName, Path: wire.RootPath, Member: member, Flags: flags, Body: peer.MustEncode(what)}
	if member == "Get" {
		call.Body = peer.MustEncode(testName, "True")
	}
	c.conn.Go(call, patience, func(_ *peer.Message, err error) {
		if err != nil {
			name := wire.AsError(err).Name
			what += " " + name[strings.LastIndexByte(name, '.')+1:]
		}
		c.got <- what
	})
}

func (c *client) expect(want ...string) {
	c.w.t.Helper()
	for _, s := range want {
		if got := wait(c.w.t, c.got); got != s {
			c.w.t.Fatalf("got %q, want %q", got, s)
		}
	}
}

// wait receives, or fails the test when nothing comes.
func wait[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("nothing has come")
	}
	return v
}

// allowAll lets everyone do everything.
type allowAll struct{}

func (allowAll) Check(Request, func(error)) (bool, error) { return true, nil }
func (allowAll) Left(*peer.Conn, string)                  {}
func (allowAll) Trusted(*peer.Conn, string) bool          { return true }

// asker hands every question about a change to the test.
type asker struct {
	asked chan question
	left  chan string
}

type question struct {
	Request
	answer func(error)
}

func newAsker() *asker {
	return &asker{asked: make(chan question, 4*MaxCallsPerCaller), left: make(chan string, 16)}
}

func (a *asker) Check(r Request, done func(error)) (bool, error) {
	if r.Action == wire.ActionInspect {
		return true, nil
	}
	a.asked <- question{r, done}
	return false, nil
}

func (a *asker) Left(_ *peer.Conn, name string)  { a.left <- name }
func (a *asker) Trusted(*peer.Conn, string) bool { return false }
