package peer

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

func TestSizesAreChecked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var size int
		server, client := pair(t, Options{Handler: func(c *Conn, m *Message) {
			if m.Member == "Echo" {
				c.Reply(m, m.Body)
				return
			}
			c.Reply(m, MustEncode(strings.Repeat("x", size)))
		}}, Options{})
		ask := func(n int) error {
			size = n
			_, err := client.Call(t.Context(), call("Big"))
			return err
		}
		const overhead = 200 // bounds what a header may take
		if err := ask(4<<20 - overhead); err != nil {
			t.Errorf("an answer of just 4 MiB: %v", err)
		}
		if err := ask(4 << 20); !errors.Is(err, wire.ErrLimitsExceeded) || strings.Contains(err.Error(), "ListUnitsFiltered") {
			t.Errorf("an answer over 4 MiB: %v", err)
		}
		if _, err := client.Call(t.Context(), call("Echo", strings.Repeat("x", 4<<20))); !errors.Is(err, wire.ErrLimitsExceeded) {
			t.Errorf("a call over 4 MiB: %v", err)
		}
		if err := client.Signal("/a", "a.b", "C", MustEncode(strings.Repeat("x", 4<<20))); !errors.Is(err, wire.ErrLimitsExceeded) {
			t.Errorf("a signal over 4 MiB: %v", err)
		}
		if err := client.Signal(wire.ObjectPath("/"+strings.Repeat("x", 64<<10)), "a.b", "C", wire.Raw{}); !errors.Is(err, wire.ErrLimitsExceeded) {
			t.Errorf("a header over 64 KiB: %v", err)
		}
		if err := client.Signal(wire.ObjectPath("/"+strings.Repeat("x", 63<<10)), "a.b", "C", wire.Raw{}); err != nil {
			t.Errorf("a header of nearly 64 KiB: %v", err)
		}
		for _, n := range []int{0, 3900, 4096, 5000, 64 << 10, 65<<10 + 1, 1 << 20} {
			text := strings.Repeat("y", n)
			m, err := client.Call(t.Context(), call("Echo", text))
			var back string
			if err != nil || Decode(m.Body, &back) != nil || back != text {
				t.Errorf("a call of %d bytes came back as %d, %v", n, len(back), err)
			}
		}
		rawSend(t, client, &Message{Type: TypeSignal, Path: "/a", Interface: "a.b", Member: "C", Body: MustEncode(strings.Repeat("x", 4<<20))})
		endsWith(t, server, "at most 4194304")
	})
}

func TestOwnAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server, client := pair(t, Options{}, Options{})
		hello := Call{Path: wire.DBusPath, Interface: wire.DBusInterface, Member: "Hello"}
		for range 2 {
			m, err := client.Call(t.Context(), hello)
			var name string
			if err != nil || Decode(m.Body, &name) != nil || name != ":1.0" {
				t.Errorf("Hello answers %q, %v", name, err)
			}
		}
		if _, err := server.Call(t.Context(), hello); !errors.Is(err, wire.ErrUnknownMethod) {
			t.Errorf("Hello to a client: %v", err)
		}
		for name, c := range map[string]*Conn{"client": client, "server": server} {
			if m, err := c.Call(t.Context(), Call{Path: "/any/object", Interface: wire.PeerInterface, Member: "Ping"}); err != nil || m.Body.Sig != "" {
				t.Errorf("%s's Ping: %v, %v", name, m, err)
			}
			m, err := c.Call(t.Context(), Call{Path: "/", Interface: wire.PeerInterface, Member: "GetMachineId"})
			want, readErr := os.ReadFile("/etc/machine-id")
			var id string
			switch {
			case readErr != nil || len(strings.TrimSpace(string(want))) != 32:
				if !errors.Is(err, wire.ErrFailed) {
					t.Errorf("%s: a machine without id answers %v", name, err)
				}
			case err != nil || Decode(m.Body, &id) != nil || id != strings.TrimSpace(string(want)):
				t.Errorf("%s's machine id is %q, %v", name, id, err)
			}
			for _, wrong := range []Call{{Path: "/", Interface: wire.PeerInterface, Member: "Pong"}, call("C")} {
				if _, err := c.Call(t.Context(), wrong); !errors.Is(err, wire.ErrUnknownMethod) || !strings.Contains(err.Error(), wrong.Member) {
					t.Errorf("%s: %s: %v", name, wrong.Member, err)
				}
			}
		}
	})
}

func TestNoReplyIsRespected(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		handled := 0
		server, raw := rawPeer(t, Options{Handler: func(c *Conn, m *Message) {
			handled++
			if m.Type == TypeCall && !m.NoReply() {
				t.Error("a call that wants no answer does not say so")
			}
			if err := errors.Join(c.Reply(m, wire.Raw{}), c.ReplyError(m, errors.New("x"))); err != nil {
				t.Error(err)
			}
		}})
		var b []byte
		for i, m := range []Message{
			{Type: TypeCall, Flags: FlagNoReply, Path: "/a", Member: "C"},
			{Type: TypeCall, Flags: FlagNoReply, Path: "/a", Interface: wire.PeerInterface, Member: "Ping"},
			{Type: TypeSignal, Path: "/a", Interface: "a.b", Member: "C"},
		} {
			b = appendMessage(b, &m, uint32(i+1))
		}
		raw.Write(b)
		synctest.Wait()
		if handled != 2 || server.queued.Load() != 0 {
			t.Errorf("%d handled, %d bytes of answers", handled, server.queued.Load())
		}

		got := make(chan *Message, 1)
		_, client := pair(t, Options{Handler: func(_ *Conn, m *Message) { got <- m.Clone() }}, Options{})
		client.Go(call("C", "x"), 0, nil)
		if m := <-got; !m.NoReply() || len(client.calls.bySerial) != 0 {
			t.Errorf("Go without a callback sent %v with flags %d", m, m.Flags)
		}
		if err := client.Send(Call{Path: "/a", Member: "C", Flags: FlagAllowInteraction}); err != nil {
			t.Error(err)
		}
		if m := <-got; !m.NoReply() || !m.AllowInteraction() || m.Interface != "" {
			t.Errorf("Send sent %v with flags %d", m, m.Flags)
		}
	})
}

func TestErrorsTravel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var err error
		_, client := pair(t, Options{Handler: func(c *Conn, m *Message) { c.ReplyError(m, err) }}, Options{})
		long := strings.Repeat("ä", maxErrorText)
		for _, test := range []struct {
			in         error
			name, text string
		}{
			{wire.ErrNodeOffline.With("node1 is offline"), wire.ErrNodeOffline.Name, "node1 is offline"},
			{errors.New("plain"), wire.ErrFailed.Name, "plain"},
			{&wire.Error{Name: "org.example.Custom"}, "org.example.Custom", ""},
			{&wire.Error{Name: "not a name", Text: "x"}, wire.ErrFailed.Name, "x"},
			{&wire.Error{Name: "a.b", Text: "x\xffy\x00z"}, "a.b", "x\uFFFDy\uFFFDz"},
			{nil, wire.ErrFailed.Name, "%!v(<nil>)"},
			{errors.New(long), wire.ErrFailed.Name, long[:maxErrorText] + "…"},
		} {
			err = test.in
			_, got := client.Call(t.Context(), call("C"))
			var e *wire.Error
			if !errors.As(got, &e) || e.Name != test.name || test.in != nil && e.Text != test.text {
				t.Errorf("%v came as %#v", test.in, got)
			}
		}
		// Other implementations send errors without a text, or with something else.
		server, raw := rawPeer(t, Options{})
		for serial, body := range []wire.Raw{{}, MustEncode(uint32(7)), MustEncode("text", uint32(7))} {
			errs := make(chan error, 1)
			server.Go(call("C"), time.Minute, func(_ *Message, err error) { errs <- err })
			readMessage(t, raw)
			raw.Write(appendMessage(nil, &Message{Type: TypeError, ErrorName: "a.b", ReplySerial: uint32(serial + 1), Body: body}, 1))
			var e *wire.Error
			if err := <-errs; !errors.As(err, &e) || e.Name != "a.b" || e.Text != "" && e.Text != "text" {
				t.Errorf("error with body %q came as %#v", body.Sig, err)
			}
		}
	})
}

// readMessage reads one message from the raw end of a connection.
func readMessage(t testing.TB, nc net.Conn) *Message {
	t.Helper()
	b := make([]byte, fixedHeader)
	if _, err := io.ReadFull(nc, b); err != nil {
		t.Fatal(err)
	}
	f, err := parseFrame(b)
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, make([]byte, f.total()-fixedHeader)...)
	if _, err := io.ReadFull(nc, b[fixedHeader:]); err != nil {
		t.Fatal(err)
	}
	m, err := parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMessagesMustBeCloned(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var kept, cloned, header *Message
		var body wire.Raw
		_, client := pair(t, Options{Handler: func(c *Conn, m *Message) {
			if m.Member == "First" {
				kept, cloned, header, body = m, m.Clone(), m.CloneHeader(), CloneRaw(m.Body)
			}
			c.Reply(m, wire.Raw{})
		}}, Options{})
		client.Call(t.Context(), call("First", "the first body"))
		client.Call(t.Context(), call("Second", "something else"))
		var s string
		if err := Decode(cloned.Body, &s); err != nil || s != "the first body" || cloned.Member != "First" {
			t.Errorf("clone is %v with %q, %v", cloned, s, err)
		}
		if err := Decode(body, &s); err != nil || s != "the first body" {
			t.Errorf("cloned body is %q, %v", s, err)
		}
		if header.Member != "First" || header.Serial != 1 || header.Body.Sig != "" {
			t.Errorf("cloned header is %+v", header)
		}
		if kept.Member != "Second" {
			t.Errorf("a message that was kept without Clone is still %v", kept)
		}
	})
}

func TestSerials(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var serials []uint32
		_, client := pair(t, Options{Handler: func(c *Conn, m *Message) {
			serials = append(serials, m.Serial)
			if m.Member != "Waits" {
				c.Reply(m, wire.Raw{})
			}
		}}, Options{})
		client.Go(call("Waits"), time.Minute, func(*Message, error) {})
		client.Go(call("Waits"), time.Minute, func(*Message, error) {})
		synctest.Wait()
		client.mu.Lock()
		client.serial = math.MaxUint32 - 1
		client.mu.Unlock()
		for range 2 {
			if _, err := client.Call(t.Context(), call("C")); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := serials, []uint32{1, 2, math.MaxUint32, 3}; len(got) != 4 || got[2] != want[2] || got[3] != want[3] {
			t.Errorf("serials are %v, want %v", got, want)
		}
	})
}

func TestCloseWhenSent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		refused := errors.New("not allowed")
		handled := 0
		server, client := pair(t, Options{Handler: func(c *Conn, m *Message) {
			handled++
			c.ReplyError(m, wire.ErrNodeNotAllowed.With("no"))
			c.CloseWhenSent(refused)
			c.CloseWhenSent(refused)
			if err := c.Signal("/a", "a.b", "C", wire.Raw{}); !errors.Is(err, wire.ErrDisconnected) {
				t.Errorf("sent behind the last word: %v", err)
			}
		}}, Options{})
		client.Send(call("Ignored"))
		if _, err := client.Call(t.Context(), call("Register")); !errors.Is(err, wire.ErrDisconnected) {
			t.Errorf("a call behind the last one: %v", err)
		}
		<-server.Done()
		if handled != 1 || server.Err() != refused {
			t.Errorf("%d handled, closed with %v", handled, server.Err())
		}

		server, client = pair(t, Options{Handler: func(c *Conn, m *Message) {
			c.ReplyError(m, wire.ErrNodeNotAllowed.With("no"))
			c.CloseWhenSent(nil)
		}}, Options{})
		if _, err := client.Call(t.Context(), call("Register")); !errors.Is(err, wire.ErrNodeNotAllowed) {
			t.Errorf("the last word came as %v", err)
		}
		endsWith(t, server, "closed by this side")

		server, _ = rawPeer(t, Options{}) // which does not read
		began := time.Now()
		server.Signal("/a", "a.b", "C", wire.Raw{})
		server.CloseWhenSent(refused)
		<-server.Done()
		if time.Since(began) != DefaultWriteTimeout {
			t.Errorf("a peer that does not read was waited for %v", time.Since(began))
		}
		server, _ = rawPeer(t, Options{})
		server.CloseWhenSent(refused)
		endsWith(t, server, "not allowed")
	})
}

// writeBreaks is a connection whose writes begin to fail while there is something to read,
// as when the other side has said why and gone.
type writeBreaks struct {
	net.Conn
	broken chan struct{}
}

func (w writeBreaks) Write(b []byte) (int, error) {
	select {
	case <-w.broken:
		return 0, errors.New("broken pipe")
	default:
		return w.Conn.Write(b)
	}
}

func TestLastWordOfAPeerThatIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, closes := range []bool{true, false} {
			a, b := net.Pipe()
			w := writeBreaks{a, make(chan struct{})}
			go func() {
				io.WriteString(b, "\x00AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n")
				io.CopyN(io.Discard, b, 43)
			}()
			var got []string
			server, err := Server(t.Context(), w, Options{Handler: func(_ *Conn, m *Message) { got = append(got, m.Member) }})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			close(w.broken)
			began := time.Now()
			server.Signal("/a", "a.b", "Lost", wire.Raw{})
			synctest.Wait()
			if err := server.Signal("/a", "a.b", "Later", wire.Raw{}); !errors.Is(err, wire.ErrDisconnected) {
				t.Errorf("sent on a broken connection: %v", err)
			}
			b.Write(message(t, TypeSignal, "", hexPath, hexInterface, hexMember))
			if closes {
				b.Close()
				endsWith(t, server, "peer closed")
			} else {
				endsWith(t, server, "broken pipe")
				b.Close()
			}
			if strings.Join(got, "") != "C" || !closes && time.Since(began) != lingerTime {
				t.Errorf("got %v, ended after %v", got, time.Since(began))
			}
		}
	})
}

func TestHandshakeContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		began := time.Now()
		a, _ := net.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Server(ctx, a, Options{}); err == nil || time.Since(began) != time.Second {
			t.Errorf("deadline: %v after %v", err, time.Since(began))
		}
		a, _ = net.Pipe()
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := Server(ctx, a, Options{}); !errors.Is(err, context.Canceled) || time.Since(began) != 2*time.Second {
			t.Errorf("cancelled: %v after %v", err, time.Since(began))
		}
		ctx, cancel = context.WithCancel(t.Context())
		a, b := net.Pipe()
		go Client(ctx, b, Options{})
		server, err := Server(ctx, a, Options{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the client has its answer
		cancel()        // which bounds the handshake only
		time.Sleep(time.Hour)
		synctest.Wait()
		if server.Err() != nil {
			t.Errorf("an idle connection ended: %v", server.Err())
		}
		server.Close(nil)
		<-server.Done()
		synctest.Wait()
	})
}
