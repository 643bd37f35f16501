package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

const testName = "org.example.Test"

// dialGodbus is a godbus client of the bus.
func dialGodbus(t testing.TB, address string) *dbus.Conn {
	t.Helper()
	c, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestBusClient(t *testing.T) {
	address, stop := startBus(t)
	signals := make(chan *Message, 10)
	closed := make(chan error, 1)
	a := busClient(t, address, Options{
		Handler: func(_ *Conn, m *Message) {
			if m.Type == TypeSignal && m.Member != "NameAcquired" {
				signals <- m.Clone()
			}
		},
		OnClose: func(_ *Conn, err error) { closed <- err },
	})
	b := busClient(t, address, Options{})
	ctx := limited(t)
	if !strings.HasPrefix(a.UniqueName(), ":1.") || a.UniqueName() == b.UniqueName() {
		t.Errorf("unique names are %q and %q", a.UniqueName(), b.UniqueName())
	}
	steps := []struct {
		c     *Conn
		flags NameFlags
		want  NameReply
	}{{a, NameDoNotQueue, NamePrimaryOwner}, {a, 0, NameAlreadyOwner}, {b, NameDoNotQueue, NameExists}, {b, 0, NameInQueue}}
	for i, step := range steps {
		if got, err := step.c.RequestName(ctx, testName, step.flags); got != step.want || err != nil {
			t.Errorf("request %d: got %d, %v, want %d", i, got, err, step.want)
		}
	}
	if owner, err := b.NameOwner(ctx, testName); owner != a.UniqueName() || err != nil {
		t.Errorf("owner is %q, %v", owner, err)
	}
	if _, err := b.NameOwner(ctx, "org.example.Nobody"); !errors.Is(err, wire.ErrNameHasNoOwner) {
		t.Errorf("owner of nothing: %v", err)
	}
	if _, err := b.Call(ctx, Call{Destination: "org.example.Nobody", Path: "/", Member: "C"}); !errors.Is(err, wire.ErrServiceUnknown) {
		t.Errorf("call of nobody: %v", err)
	}
	if _, err := a.RequestName(ctx, "no name", 0); !errors.Is(err, wire.ErrInvalidArgs) {
		t.Errorf("a wrong name: %v", err)
	}
	if err := a.AddMatch(ctx, "nonsense"); err == nil {
		t.Error("a wrong match rule was accepted")
	}
	const rule = "type='signal',interface='a.b'"
	if err := a.AddMatch(ctx, rule); err != nil {
		t.Fatal(err)
	}
	b.Signal("/a", "a.b", "One", MustEncode("x"))
	b.SignalTo(a.UniqueName(), "/a", "c.d", "Two", wire.Raw{})
	for _, want := range []string{"One", "Two"} {
		if m := <-signals; m.Member != want || m.Sender != b.UniqueName() {
			t.Errorf("got %v from %q, want %s", m, m.Sender, want)
		}
	}
	if err := errors.Join(a.RemoveMatch(ctx, rule), a.ReleaseName(ctx, testName)); err != nil {
		t.Error(err)
	}
	b.Signal("/a", "a.b", "Three", wire.Raw{})
	b.SignalTo(a.UniqueName(), "/a", "c.d", "Four", wire.Raw{})
	for range 2 { // NameLost of the released name comes first
		if m := <-signals; m.Member != "NameLost" && m.Member != "Four" {
			t.Errorf("got %v", m)
		}
	}
	stop()
	if err := <-closed; err == nil || a.Err() == nil {
		t.Errorf("the bus is gone: %v, %v", err, a.Err())
	}
	if _, err := a.NameOwner(ctx, testName); !errors.Is(err, wire.ErrDisconnected) {
		t.Errorf("a call when the bus is gone: %v", err)
	}
	if _, err := DialBus(ctx, address, Options{}); err == nil {
		t.Error("a bus that is gone was dialled")
	}
}

func TestGodbusCallsUsInOrder(t *testing.T) {
	address, _ := startBus(t)
	const count = 500
	var next uint32
	server := busClient(t, address, Options{Handler: func(c *Conn, m *Message) {
		var n uint32
		switch err := Decode(m.Body, &n); {
		case m.Type != TypeCall:
			return
		case err != nil:
			c.ReplyError(m, err)
		case n != next:
			c.ReplyError(m, wire.ErrFailed.With("call %d came instead of %d", n, next))
		default:
			next++
			// What the public API promises: JobNew, the reply, JobRemoved.
			c.Signal("/j", "a.b", "JobNew", MustEncode(n))
			c.Reply(m, MustEncode(n))
			c.Signal("/j", "a.b", "JobRemoved", MustEncode(n))
		}
	}})
	if _, err := server.RequestName(limited(t), testName, NameDoNotQueue); err != nil {
		t.Fatal(err)
	}
	client := dialGodbus(t, address)
	if err := client.AddMatchSignal(dbus.WithMatchInterface("a.b")); err != nil {
		t.Fatal(err)
	}
	signals := make(chan *dbus.Signal, 4*count)
	client.Signal(signals)
	object := client.Object(testName, "/a")
	calls := make([]*dbus.Call, count)
	for n := range calls {
		calls[n] = object.Go("a.b.C", 0, nil, uint32(n))
	}
	for n, c := range calls {
		<-c.Done
		var got uint32
		if err := c.Store(&got); err != nil || got != uint32(n) {
			t.Fatalf("call %d: got %d, %v", n, got, err)
		}
	}
	for n := range 2 * count {
		s := <-signals
		want := []string{"a.b.JobNew", "a.b.JobRemoved"}[n%2]
		if s.Name != want || s.Body[0] != uint32(n/2) || s.Sender != server.UniqueName() {
			t.Fatalf("signal %d is %s %v from %s", n, s.Name, s.Body, s.Sender)
		}
	}
	var e dbus.Error
	if err := object.Call("a.b.C", 0, "text").Err; !errors.As(err, &e) || e.Name != wire.ErrInvalidArgs.Name {
		t.Errorf("wrong arguments: %v", err)
	}
	if err := object.Call(wire.PeerInterface+".Ping", 0).Err; err != nil {
		t.Errorf("Ping: %v", err)
	}
}

type greeter struct{}

func (greeter) Greet(name string, props map[string]dbus.Variant) (string, []map[string]uint32, *dbus.Error) {
	if name == "" {
		return "", nil, dbus.NewError("org.example.Error.Nobody", []any{"who?"})
	}
	return "hello " + name, []map[string]uint32{{"props": uint32(len(props))}}, nil
}

func TestWeCallGodbus(t *testing.T) {
	address, _ := startBus(t)
	server := dialGodbus(t, address)
	if err := server.Export(greeter{}, "/greeter", "org.example.Greeter"); err != nil {
		t.Fatal(err)
	}
	client := busClient(t, address, Options{})
	ask := func(args ...any) (*Message, error) {
		return client.Call(limited(t), Call{
			Destination: server.Names()[0], Path: "/greeter", Interface: "org.example.Greeter", Member: "Greet", Body: MustEncode(args...),
		})
	}
	props := map[string]wire.Value{"a": MustValue(uint64(1)), "b": MustValue([]string{"x"}), "c": MustValue(MustValue(true))}
	m, err := ask("you", props)
	if err != nil {
		t.Fatal(err)
	}
	var text string
	var list []map[string]uint32
	if err := Decode(m.Body, &text, &list); err != nil || text != "hello you" || len(list) != 1 || list[0]["props"] != 3 {
		t.Errorf("got %q %v, %v", text, list, err)
	}
	if m.Sender != server.Names()[0] {
		t.Errorf("answer is from %q", m.Sender)
	}
	_, err = ask("", props)
	if e := wire.AsError(err); e.Name != "org.example.Error.Nobody" || e.Text != "who?" {
		t.Errorf("error came as %#v", err)
	}
	if _, err = ask(uint32(1)); err == nil {
		t.Error("wrong arguments were accepted")
	}
}

func TestBusLimits(t *testing.T) {
	address, _ := startBus(t)
	got := make(chan string, 10)
	server := busClient(t, address, Options{MaxMessage: 1 << 20, Handler: func(c *Conn, m *Message) {
		if m.Type != TypeCall {
			return
		}
		got <- m.Member
		if m.Member == "Big" {
			c.Reply(m, MustEncode(strings.Repeat("x", 1<<20)))
			return
		}
		c.Reply(m, wire.Raw{})
	}})
	client := busClient(t, address, Options{})
	send := func(path wire.ObjectPath, member string, args ...any) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := client.Call(ctx, Call{Destination: server.UniqueName(), Path: path, Interface: "a.b", Member: member, Body: MustEncode(args...)})
		return err
	}
	if err := send("/a", "Big"); !errors.Is(err, wire.ErrLimitsExceeded) || !strings.Contains(err.Error(), "ListUnitsFiltered") {
		t.Errorf("an answer that is too large: %v", err)
	}
	if err := send("/a", "TooBig", strings.Repeat("x", 1<<20)); !errors.Is(err, wire.ErrLimitsExceeded) {
		t.Errorf("a call that is too large: %v", err)
	}
	// A header over 64 KiB passes the daemon. Nobody can be answered, but the bus stays.
	client.send(&Message{Type: TypeCall, Flags: FlagNoReply, Path: "/" + wire.ObjectPath(strings.Repeat("x", 60<<10)), Member: "Header", Destination: server.UniqueName()})
	rawSend(t, client, &Message{Type: TypeCall, Flags: FlagNoReply, Path: "/" + wire.ObjectPath(strings.Repeat("x", 70<<10)), Member: "Header2", Destination: server.UniqueName()})
	// Nor can for a signature that the daemon takes and the specification does not: it counts
	// arrays within each other only where they follow each other directly.
	nested := wire.Signature(strings.Repeat("aa(", 20) + "y" + strings.Repeat(")", 20))
	rawSend(t, client, &Message{Type: TypeCall, Flags: FlagNoReply, Path: "/a", Member: "Nested", Destination: server.UniqueName(),
		Body: wire.Raw{Sig: nested, Data: make([]byte, 4)}})
	if err := send("/a", "Last"); err != nil {
		t.Errorf("a call behind them: %v", err)
	}
	for _, want := range []string{"Big", "Header", "Last"} {
		if member := <-got; member != want {
			t.Errorf("got %s, want %s", member, want)
		}
	}
	// Answers that are too large fail the call at once.
	_, err := server.Call(limited(t), Call{Destination: client.UniqueName(), Path: "/", Interface: wire.PeerInterface, Member: "Ping"})
	if err != nil {
		t.Error(err)
	}
}

// rawSend sends a message past the checks of its own side.
func rawSend(t testing.TB, c *Conn, m *Message) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.queue(m, c.nextSerial()); err != nil {
		t.Fatal(err)
	}
}

func TestAnswerTooLargeFromBus(t *testing.T) {
	address, _ := startBus(t)
	server := busClient(t, address, Options{Handler: func(c *Conn, m *Message) {
		if m.Type == TypeCall {
			c.Reply(m, MustEncode(strings.Repeat("x", 2<<20)))
		}
	}})
	client := busClient(t, address, Options{MaxMessage: 1 << 20})
	for range 2 {
		_, err := client.Call(limited(t), Call{Destination: server.UniqueName(), Path: "/", Member: "C"})
		if !errors.Is(err, wire.ErrLimitsExceeded) {
			t.Errorf("got %v", err)
		}
	}
}

// Other clients of the bus may speak big-endian, and what the bus passes on we accept.
func TestBigEndianClientOfTheBus(t *testing.T) {
	address, _ := startBus(t)
	got := make(chan *Message, 1)
	server := busClient(t, address, Options{Handler: func(c *Conn, m *Message) {
		if m.Type == TypeCall {
			c.Reply(m, m.Body)
			got <- m.Clone()
		}
	}})
	nc, err := DialAddress(limited(t), address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	br := bufio.NewReader(nc)
	if err := offerSASL(br, nc); err != nil {
		t.Fatal(err)
	}
	sendBig(t, nc, 1, wire.DBusName, wire.DBusPath, wire.DBusName, "Hello")
	body := []any{"text", uint16(7), []uint64{1, 2}, dbus.MakeVariant(map[string]int32{"x": -1})}
	sendBig(t, nc, 2, server.UniqueName(), "/a", "a.b", "C", body...)
	m := <-got
	want := MustEncode("text", uint16(7), []uint64{1, 2}, MustValue(map[string]int32{"x": -1}))
	if m.Body.Sig != want.Sig || !bytes.Equal(m.Body.Data, want.Data) || !strings.HasPrefix(m.Sender, ":1.") {
		t.Errorf("got %+v, want %+v", m, want)
	}
	for {
		reply, err := dbus.DecodeMessage(br)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Type == dbus.TypeMethodReply && reply.Headers[dbus.FieldReplySerial].Value() == uint32(2) {
			if len(reply.Body) != 4 || reply.Body[0] != "text" || reply.Body[1] != uint16(7) {
				t.Errorf("answer is %v", reply)
			}
			return
		}
	}
}

func sendBig(t testing.TB, w io.Writer, serial uint32, destination string, path wire.ObjectPath, iface, member string, args ...any) {
	t.Helper()
	m := dbus.Message{Type: dbus.TypeMethodCall, Body: args, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(destination),
		dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath(path)),
		dbus.FieldInterface:   dbus.MakeVariant(iface),
		dbus.FieldMember:      dbus.MakeVariant(member),
	}}
	if len(args) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(args...))
	}
	var buf bytes.Buffer
	if err := m.EncodeTo(&buf, binary.BigEndian); err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(buf.Bytes()[8:], serial)
	if _, err := w.Write(buf.Bytes()); err != nil {
		t.Fatal(err)
	}
}

func TestBusThatIsNone(t *testing.T) {
	address := serve(t, Options{Handler: func(c *Conn, m *Message) { c.ReplyError(m, wire.ErrAccessDenied) }})
	if c, err := DialBus(limited(t), address, Options{}); err != nil || c.UniqueName() != ":1.0" {
		t.Errorf("our own server: %v", err)
	} else {
		c.Close(nil)
	}
	a, b := net.Pipe()
	go func() {
		br := bufio.NewReader(b)
		if acceptSASL(br, b) == nil {
			readMessage(t, connReader{b, br})
			b.Write(appendMessage(nil, &Message{Type: TypeError, ErrorName: wire.ErrAccessDenied.Name, ReplySerial: 1}, 1))
		}
		io.Copy(io.Discard, b)
	}()
	if _, err := ClientBus(limited(t), a, Options{}); !errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("a bus that does not let us in: %v", err)
	}
}

// connReader reads what a buffer has taken from its connection.
type connReader struct {
	net.Conn
	br *bufio.Reader
}

func (c connReader) Read(b []byte) (int, error) { return c.br.Read(b) }
