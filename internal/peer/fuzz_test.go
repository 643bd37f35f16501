package peer

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

// FuzzConnection feeds a whole server connection, handshake included. Whatever comes, it
// must not panic, take memory that nobody sent, deliver what is not valid, or leave a
// goroutine behind (which the bubble would notice).
func FuzzConnection(f *testing.F) {
	const auth = "\x00AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n"
	add := func(messages ...[]byte) { f.Add([]byte(auth + string(bytes.Join(messages, nil)))) }
	ping := appendMessage(nil, &Message{Type: TypeCall, Path: "/", Interface: wire.PeerInterface, Member: "Ping"}, 1)
	add()
	add(ping, ping)
	add(message(f, TypeCall, "", hexPath, hexMember), message(f, TypeSignal, "", hexPath, hexInterface, hexMember))
	add(message(f, TypeReturn, "09000000", hexReplySerial, hexSignature), message(f, TypeError, "", "05 017500 01000000", hexErrorName))
	add(appendMessage(nil, &Message{Type: TypeCall, Path: "/a", Member: "C", Body: MustEncode(map[string]wire.Value{"k": MustValue([]pairSU{{"a", 1}})})}, 7))
	add(appendMessage(nil, &Message{Type: TypeCall, Path: "/a", Member: "C", Body: MustEncode(strings.Repeat("x", 5000))}, 7))
	add([]byte("l\x01\x00\x01\xff\xff\xff\x7f\x01\x00\x00\x00\x10\x00\x00\x00"))
	for _, test := range badBodies {
		add(appendMessage(nil, &Message{Type: TypeCall, Path: "/a", Member: "C", Body: wire.Raw{Sig: wire.Signature(test.sig), Data: unhex(f, test.hex)}}, 7))
	}
	f.Add([]byte("\x00AUTH\r\nAUTH ANONYMOUS 00\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n" + string(ping)))
	f.Fuzz(func(t *testing.T, in []byte) {
		synctest.Test(t, func(t *testing.T) { fuzzConnection(t, in) })
	})
}

func fuzzConnection(t *testing.T, in []byte) {
	before := allocated()
	a, b := net.Pipe()
	go io.Copy(io.Discard, b)
	go func() {
		b.Write(in)
		time.Sleep(time.Minute) // so that timeouts are reached as well
		b.Close()
	}()
	closed, delivered := 0, 0
	server, err := Server(t.Context(), a, Options{
		Handler: func(c *Conn, m *Message) {
			delivered++
			mustBeDeliverable(t, m)
			c.Reply(m, m.Body)
			c.Go(Call{Path: "/a", Member: "Back"}, time.Second, func(*Message, error) {})
		},
		OnClose: func(*Conn, error) { closed++ },
	})
	if err == nil {
		<-server.Done()
		if closed != 1 || server.Err() == nil {
			t.Fatalf("OnClose ran %d times, %v", closed, server.Err())
		}
		if delivered > len(in)/fixedHeader {
			t.Fatalf("%d messages were made of %d bytes", delivered, len(in))
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if used := allocated() - before; used > 1<<20+uint64(200*len(in)) {
		t.Fatalf("%d bytes of input took %d bytes of memory", len(in), used)
	}
}

// mustBeDeliverable wants a message that could be sent on as it is.
func mustBeDeliverable(t *testing.T, m *Message) {
	if m.Type != TypeCall && m.Type != TypeSignal || m.Serial == 0 || m.Sender != "" || len(m.Body.Data) > DefaultMaxMessage {
		t.Fatalf("delivered %+v", m)
	}
	var names checkedNames
	if err := names.check(m); err != nil {
		t.Fatalf("delivered %+v: %v", m, err)
	}
	mustBeValid(m.Body)
	b := appendMessage(nil, m, m.Serial)
	if again, err := parse(b); err != nil || again.Body.Sig != m.Body.Sig || !bytes.Equal(again.Body.Data, m.Body.Data) {
		t.Fatalf("delivered %+v, which is no message again: %v", m, err)
	}
}
