package peer

import (
	"net"
	"testing"

	"example.org/ctrl/internal/wire"
)

// pair connects a server and a client over net.Pipe, closed at the test's end.
func pair(t testing.TB, serverOpt, clientOpt Options) (server, client *Conn) {
	t.Helper()
	a, b := net.Pipe()
	ready := make(chan error, 1)
	go func() {
		var err error
		server, err = Server(t.Context(), a, serverOpt)
		ready <- err
	}()
	client, err := Client(t.Context(), b, clientOpt)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close(nil)
		server.Close(nil)
		<-client.Done()
		<-server.Done()
	})
	return server, client
}

func TestCallIsAnswered(t *testing.T) {
	_, client := pair(t, Options{Handler: func(c *Conn, m *Message) {
		var s string
		if err := Decode(m.Body, &s); err != nil {
			c.ReplyError(m, err)
			return
		}
		c.Reply(m, MustEncode(s+"!", uint32(7)))
	}}, Options{})
	m, err := client.Call(t.Context(), Call{Path: "/a", Interface: "a.b", Member: "C", Body: MustEncode("hello")})
	if err != nil {
		t.Fatal(err)
	}
	var s string
	var n uint32
	if err := Decode(m.Body, &s, &n); err != nil || s != "hello!" || n != 7 {
		t.Fatalf("answer %q %d, %v", s, n, err)
	}
	_, err = client.Call(t.Context(), Call{Path: "/a", Member: "C", Body: MustEncode(true)})
	if e := wire.AsError(err); e == nil || e.Name != wire.ErrInvalidArgs.Name {
		t.Fatalf("wrong arguments gave %v", err)
	}
}
