package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// rawPeer is the other end of a server connection, in the hands of the test.
func rawPeer(t testing.TB, opt Options) (server *Conn, raw net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { b.Close() })
	go func() {
		io.WriteString(b, "\x00AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n")
		answer := make([]byte, len("DATA\r\nOK \r\n")+32)
		io.ReadFull(b, answer)
	}()
	server, err := Server(t.Context(), a, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close(nil); <-server.Done() })
	return server, b
}

// inBubble runs a test with fake time. The bubble fails a test that leaves a goroutine.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func call(member string, args ...any) Call {
	return Call{Path: "/a", Interface: "a.b", Member: member, Body: MustEncode(args...)}
}

func TestCallIsAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, client := pair(t, Options{Handler: func(c *Conn, m *Message) {
			var s string
			if err := Decode(m.Body, &s); err != nil {
				c.ReplyError(m, err)
				return
			}
			if m.Path != "/a" || m.Interface != "a.b" || m.Member != "C" || m.Type != TypeCall || m.AllowInteraction() {
				c.ReplyError(m, fmt.Errorf("got %+v", m))
				return
			}
			c.Reply(m, MustEncode(s+"!", uint32(7)))
		}}, Options{})
		m, err := client.Call(t.Context(), call("C", "hello"))
		if err != nil {
			t.Fatal(err)
		}
		var s string
		var n uint32
		if err := Decode(m.Body, &s, &n); err != nil || s != "hello!" || n != 7 {
			t.Errorf("answer %q %d, %v", s, n, err)
		}
		if _, err = client.Call(t.Context(), call("C", true)); !errors.Is(err, wire.ErrInvalidArgs) {
			t.Errorf("wrong arguments gave %v", err)
		}
	})
}

func TestEverythingArrivesInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const count = 3000
		var next uint32 // of the server's handler
		var problems, got []string
		note := func(word string, m *Message) {
			var n uint32
			Decode(m.Body, &n)
			got = append(got, fmt.Sprint(word, n))
		}
		_, client := pair(t, Options{Handler: func(c *Conn, m *Message) {
			var n uint32
			if err := Decode(m.Body, &n); err != nil || n != next {
				problems = append(problems, fmt.Sprintf("%v has %d, want %d, %v", m, n, next, err))
			}
			next++
			// An answer between two signals, as JobNew, reply, JobRemoved.
			c.Signal("/a", "a.b", "Before", m.Body)
			c.Reply(m, m.Body)
			c.Signal("/a", "a.b", "After", m.Body)
		}}, Options{Handler: func(_ *Conn, m *Message) { note(m.Member, m) }})
		for n := range uint32(count) {
			if n%2 == 0 {
				client.Go(call("C", n), time.Minute, func(m *Message, err error) { note("answer", m) })
			} else {
				client.Signal("/a", "a.b", "S", MustEncode(n))
			}
		}
		synctest.Wait()
		if len(problems) > 0 || next != count {
			t.Fatalf("%d messages came, %d out of order, first: %v", next, len(problems), problems[:min(1, len(problems))])
		}
		at := 0
		for n := range count {
			words := []string{"Before", "answer", "After"}
			if n%2 == 1 {
				words = []string{"Before", "After"}
			}
			for _, w := range words {
				if want := fmt.Sprint(w, n); at >= len(got) || got[at] != want {
					t.Fatalf("at %d came %v, want %s", at, got[at:min(at+1, len(got))], want)
				}
				at++
			}
		}
	})
}

func TestCallsTimeOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var asked []*Message
		server, client := pair(t, Options{Handler: func(_ *Conn, m *Message) { asked = append(asked, m.CloneHeader()) }}, Options{})
		began := time.Now()
		ended := map[string]time.Duration{}
		for _, one := range []struct {
			member  string
			timeout time.Duration
		}{{"A", 30 * time.Second}, {"B", 2 * time.Second}, {"C", 5 * time.Second}, {"D", 0}, {"E", time.Millisecond}} {
			member := one.member
			client.Go(call(member), one.timeout, func(_ *Message, err error) {
				if _, twice := ended[member]; twice {
					t.Errorf("%s ended twice", member)
				}
				ended[member] = time.Since(began)
				if !errors.Is(err, wire.ErrTimeout) || !strings.Contains(err.Error(), member) {
					t.Errorf("%s: %v", member, err)
				}
			})
		}
		synctest.Wait()
		client.Go(call("F"), time.Hour, func(_ *Message, err error) { ended["F"] = time.Since(began) })
		time.Sleep(40 * time.Second)
		synctest.Wait()
		for _, m := range asked { // of which only F is waited for
			server.Reply(m, wire.Raw{})
		}
		synctest.Wait()
		for member, want := range map[string]time.Duration{"A": 30 * time.Second, "B": 2 * time.Second, "C": 5 * time.Second,
			"D": DefaultCallTimeout, "E": time.Millisecond, "F": 40 * time.Second} {
			if ended[member] != want {
				t.Errorf("%s ended after %v, want %v", member, ended[member], want)
			}
		}
		if len(client.calls.bySerial) != 0 || len(client.calls.queue) != 0 {
			t.Errorf("%d calls are left in the table", len(client.calls.queue))
		}
	})
}

func TestBlockingCallEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, client := pair(t, Options{Handler: func(*Conn, *Message) {}}, Options{})
		began := time.Now()
		took := func() time.Duration { d := time.Since(began); began = time.Now(); return d }

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := client.Call(ctx, call("A")); !errors.Is(err, wire.ErrTimeout) || took() != 3*time.Second {
			t.Errorf("deadline of the context: %v", err)
		}
		if _, err := client.Call(ctx, call("B")); !errors.Is(err, wire.ErrTimeout) || took() != 0 {
			t.Errorf("a deadline that has passed: %v", err)
		}
		if _, err := client.Call(t.Context(), call("C")); !errors.Is(err, wire.ErrTimeout) || took() != DefaultCallTimeout {
			t.Errorf("no deadline: %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := client.Call(ctx, call("D")); !errors.Is(err, context.Canceled) || took() != time.Second {
			t.Errorf("cancelled: %v", err)
		}
		if _, err := client.Call(ctx, call("E")); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		if _, err := client.Call(t.Context(), Call{Path: "no path", Member: "F"}); !errors.Is(err, wire.ErrInvalidArgs) {
			t.Errorf("wrong path: %v", err)
		}
		if len(client.calls.bySerial) != 0 {
			t.Errorf("%d calls are left in the table", len(client.calls.bySerial))
		}
	})
}

func TestCloseFailsWhatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		reason := errors.New("heartbeat missed")
		var log []string
		_, client := pair(t, Options{Handler: func(*Conn, *Message) {}}, Options{OnClose: func(c *Conn, err error) {
			log = append(log, "closed: "+err.Error())
			select {
			case <-c.Done():
				t.Error("done before OnClose has returned")
			default:
			}
		}})
		for _, member := range []string{"A", "B", "C"} {
			client.Go(call(member), time.Minute, func(m *Message, err error) {
				log = append(log, fmt.Sprint(member, m, errors.Is(err, wire.ErrDisconnected), strings.Contains(err.Error(), reason.Error())))
			})
		}
		synctest.Wait()
		client.Close(reason)
		client.Close(errors.New("another reason"))
		<-client.Done()
		want := "A<nil> true true|B<nil> true true|C<nil> true true|closed: heartbeat missed"
		if got := strings.Join(log, "|"); got != want {
			t.Errorf("got %s", got)
		}
		if client.Err() != reason {
			t.Errorf("reason is %v", client.Err())
		}
		returned := make(chan struct{})
		client.Go(call("D"), time.Minute, func(_ *Message, err error) {
			<-returned // Go does not call back itself
			log = append(log, fmt.Sprint("D", errors.Is(err, wire.ErrDisconnected)))
		})
		close(returned)
		synctest.Wait()
		if log[len(log)-1] != "Dtrue" || len(log) != 5 {
			t.Errorf("a call afterwards: %v", log)
		}
		if err := client.Signal("/a", "a.b", "C", wire.Raw{}); !errors.Is(err, wire.ErrDisconnected) {
			t.Errorf("a signal afterwards: %v", err)
		}
	})
}

func TestOnCloseComesLast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		release := make(chan struct{})
		log := make(chan string, 2)
		_, client := pair(t, Options{Handler: func(*Conn, *Message) {}}, Options{OnClose: func(*Conn, error) { log <- "closed" }})
		client.Go(call("C"), time.Second, func(*Message, error) { <-release; log <- "timed out" })
		time.Sleep(time.Second)
		synctest.Wait() // the timer is within the callback
		client.Close(nil)
		synctest.Wait()
		close(release)
		<-client.Done()
		if first, second := <-log, <-log; first != "timed out" || second != "closed" {
			t.Errorf("first %s, then %s", first, second)
		}
	})
}

func TestPeerClosing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, test := range []struct {
			name, want string
			bytes      []byte
		}{
			{"between messages", "peer closed the connection", nil},
			{"within the first bytes", "in the middle of a message", []byte("l")},
			{"within a message", "in the middle of a message", message(t, TypeCall, "", hexPath, hexMember)[:20]},
		} {
			closed := make(chan error, 1)
			server, raw := rawPeer(t, Options{OnClose: func(_ *Conn, err error) { closed <- err }})
			raw.Write(test.bytes)
			raw.Close()
			<-server.Done()
			if err := <-closed; err != server.Err() || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v", test.name, err)
			}
		}
	})
}

func TestPanicClosesOneConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		closed := 0
		opt := Options{
			Handler: func(c *Conn, m *Message) {
				if m.Member == "Panic" {
					panic("handler")
				}
				c.Reply(m, wire.Raw{})
			},
			OnClose: func(*Conn, error) { closed++; panic("OnClose") },
		}
		server, client := pair(t, opt, Options{})
		_, other := pair(t, opt, Options{})
		if _, err := client.Call(t.Context(), call("Panic")); !errors.Is(err, wire.ErrDisconnected) {
			t.Errorf("a call whose handler panics: %v", err)
		}
		<-server.Done()
		if err := server.Err(); err == nil || !strings.Contains(err.Error(), "panic") || closed != 1 {
			t.Errorf("closed %d times with %v", closed, err)
		}
		for name, done := range map[string]func(*Conn){
			"answer":  func(c *Conn) { c.Go(call("C"), time.Minute, func(*Message, error) { panic("done") }) },
			"timeout": func(c *Conn) { c.Go(call("C"), 1, func(*Message, error) { panic("done") }) },
			"refused": func(c *Conn) { c.Go(Call{}, 1, func(*Message, error) { panic("done") }) },
		} {
			_, client := pair(t, Options{Handler: func(c *Conn, m *Message) {
				if name == "answer" {
					c.Reply(m, wire.Raw{})
				}
			}}, Options{})
			done(client)
			<-client.Done()
			if !strings.Contains(client.Err().Error(), "panic") {
				t.Errorf("%s: closed with %v", name, client.Err())
			}
		}
		if _, err := other.Call(t.Context(), call("C")); err != nil {
			t.Errorf("the other connection: %v", err)
		}
	})
}

func TestCloseFromEverywhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		reason := errors.New("enough")
		handled := 0
		server, client := pair(t, Options{Handler: func(c *Conn, _ *Message) { handled++; c.Close(reason) }}, Options{})
		for range 5 {
			client.Signal("/a", "a.b", "C", wire.Raw{})
		}
		<-server.Done()
		<-client.Done()
		if handled != 1 || server.Err() != reason {
			t.Errorf("handled %d, %v", handled, server.Err())
		}
		_, client = pair(t, Options{Handler: func(c *Conn, m *Message) { c.Reply(m, wire.Raw{}) }}, Options{})
		client.Go(call("C"), time.Minute, func(*Message, error) { client.Close(reason) })
		<-client.Done()
		_, client = pair(t, Options{Handler: func(*Conn, *Message) {}}, Options{})
		client.Go(call("C"), time.Second, func(*Message, error) { client.Close(reason) })
		<-client.Done()
		if client.Err() != reason {
			t.Errorf("closed with %v", client.Err())
		}
	})
}

// A peer that is made to wait is not one that says nothing.
func TestLastReceivedWhileTheHandlerBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := make(chan bool)
		server, client := pair(t, Options{Handler: func(*Conn, *Message) { <-next }}, Options{})
		for range 2 {
			if err := client.Signal("/a", "a.b", "C", wire.Raw{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if age := time.Since(server.LastReceived()); age > 0 {
			t.Errorf("while the handler holds up reading, nothing was received for %v", age)
		}
		next <- true
		next <- true
		synctest.Wait()
		time.Sleep(time.Second)
		if age := time.Since(server.LastReceived()); age != time.Second {
			t.Errorf("a second later nothing was received for %v", age)
		}
	})
}
