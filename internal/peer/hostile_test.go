package peer

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

// endsWith waits for a connection's end and wants a reason that contains a text.
func endsWith(t *testing.T, c *Conn, want string) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(time.Minute):
		t.Fatal("connection does not end")
	}
	if err := c.Err(); !strings.Contains(err.Error(), want) {
		t.Errorf("ended with %q, want %q", err, want)
	}
}

func TestBrokenProtocolCloses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		set := func(b []byte, at int, v ...byte) []byte { copy(b[at:], v); return b }
		ping := func() []byte { return message(t, TypeCall, "", hexPath, hexMember) }
		header := func(fields, body uint32) []byte {
			b := ping()[:fixedHeader]
			binary.LittleEndian.PutUint32(b[4:], body)
			binary.LittleEndian.PutUint32(b[12:], fields)
			return b
		}
		tests := []struct {
			name, want string
			b          []byte
		}{
			{"a text", "byte order", []byte("GET / HTTP/1.1\r\n\r\n")},
			{"body of 2 GiB", "at most 4194304", header(26, 1<<31-1)},
			{"body of 4 GiB", "at most 4194304", header(26, 1<<32-1)},
			{"sum that wraps", "at most 4194304", header(26, 1<<32-48)},
			{"body just too large", "at most 4194304", header(26, 4<<20-48+1)},
			{"header over 64 KiB", "and 65536", header(64<<10-16+1, 0)},
			{"header of 64 MiB", "and 65536", header(1<<26, 0)},
			{"header of 4 GiB", "67108864", header(1<<32-1, 0)},
			{"serial 0", "serial is 0", set(ping(), 8, 0, 0, 0, 0)},
			{"a{bb} with bool 2", "boolean is 2", message(t, TypeCall, "08000000 00000000 01000000 02000000", hexPath, hexMember, "08 016700 05 617b62627d00")},
			{"NameLost with a number", "", message(t, TypeSignal, "", hexPath, "02 017300 03000000 612e6200")},
			{"text that is not UTF-8", "not UTF-8", message(t, TypeCall, "01000000 ff00", hexPath, hexMember, "08 016700 01 7300")},
			{"file descriptors", "not negotiated", message(t, TypeCall, "", hexPath, hexMember, "09 017500 01000000")},
		}
		for _, test := range tests {
			handled := 0
			server, raw := rawPeer(t, Options{Handler: func(*Conn, *Message) { handled++ }})
			go raw.Write(append(test.b, ping()...))
			endsWith(t, server, test.want)
			if !strings.Contains(server.Err().Error(), "protocol") || handled != 0 {
				t.Errorf("%s: %d messages handled, closed with %v", test.name, handled, server.Err())
			}
		}
	})
}

// The message that makes other libraries panic is just a signal here.
func TestNameLostIsOrdinary(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var got []string
		server, raw := rawPeer(t, Options{Handler: func(c *Conn, m *Message) {
			got = append(got, m.Member+" from "+m.Sender)
		}})
		for _, member := range []string{"NameLost", "NameAcquired"} {
			b := appendMessage(nil, &Message{Type: TypeSignal, Path: wire.DBusPath, Interface: wire.DBusInterface, Member: member, Body: MustEncode(uint32(1))}, 1)
			if _, err := raw.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		raw.Write(message(t, TypeSignal, "", hexPath, hexInterface, hexMember, "07 017300 14000000 6f72672e667265656465736b746f702e4442757300"))
		synctest.Wait()
		if want := "NameLost from |NameAcquired from |C from "; strings.Join(got, "|") != want || server.Err() != nil {
			t.Errorf("got %v, %v", got, server.Err())
		}
	})
}

func TestSlowAndHalfMessages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		handled := 0
		server, raw := rawPeer(t, Options{Handler: func(c *Conn, m *Message) { handled++ }})
		big := appendMessage(nil, &Message{Type: TypeSignal, Path: "/a", Interface: "a.b", Member: "C", Body: MustEncode(strings.Repeat("x", 3000))}, 1)
		for _, b := range big {
			raw.Write([]byte{b})
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if handled != 1 {
			t.Fatalf("%d messages of one byte at a time", handled)
		}
		if since := time.Since(server.LastReceived()); since != time.Millisecond {
			t.Errorf("last byte came %v ago", since)
		}
		raw.Write(big[:len(big)-1])
		time.Sleep(time.Hour) // an open half is the business of the heartbeat
		synctest.Wait()
		if handled != 1 || server.Err() != nil || time.Since(server.LastReceived()) != time.Hour {
			t.Errorf("handled %d, last byte %v ago, %v", handled, time.Since(server.LastReceived()), server.Err())
		}
		raw.Write(big[len(big)-1:])
		synctest.Wait()
		if handled != 2 {
			t.Errorf("the second half was lost")
		}
	})
}

func TestMessageSentTogetherWithBegin(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var got []string
		a, b := net.Pipe()
		defer b.Close()
		go func() {
			first := message(t, TypeSignal, "", hexPath, hexInterface, hexMember)
			io.WriteString(b, "\x00AUTH EXTERNAL\r\nDATA\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n"+string(first)+string(first[:30]))
			b.Write(first[30:])
		}()
		go io.Copy(io.Discard, b)
		server, err := Server(t.Context(), a, Options{Handler: func(_ *Conn, m *Message) { got = append(got, m.Member) }})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if strings.Join(got, "") != "CC" {
			t.Errorf("got %v, %v", got, server.Err())
		}
		server.Close(nil)
		<-server.Done()
	})
}

func TestPeerThatDoesNotRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server, _ := rawPeer(t, Options{})
		began := time.Now()
		if err := server.Signal("/a", "a.b", "C", wire.Raw{}); err != nil {
			t.Fatal(err)
		}
		endsWith(t, server, "does not read")
		if d := time.Since(began); d != DefaultWriteTimeout {
			t.Errorf("closed after %v", d)
		}

		server, _ = rawPeer(t, Options{})
		began = time.Now()
		body, sent := MustEncode(strings.Repeat("x", 1<<20)), 0
		for sent = 0; server.Signal("/a", "a.b", "C", body) == nil; sent++ {
			if sent > 100 {
				t.Fatal("100 MiB wait to be sent")
			}
		}
		endsWith(t, server, "reads too slowly")
		if sent != 7 || time.Since(began) != 0 {
			t.Errorf("closed after %d MiB and %v", sent, time.Since(began))
		}
	})
}

func TestPeerThatReadsSlowly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		// 1 MiB at 64 KiB per second takes longer than the write timeout, but it flows.
		server, raw := rawPeer(t, Options{})
		go func() {
			for b := make([]byte, 64<<10); ; time.Sleep(time.Second) {
				if _, err := io.ReadFull(raw, b); err != nil {
					return
				}
			}
		}()
		server.Signal("/a", "a.b", "C", MustEncode(strings.Repeat("x", 1<<20)))
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := server.Err(); err != nil || server.queued.Load() > 64<<10 {
			t.Errorf("%d bytes wait, %v", server.queued.Load(), err)
		}
	})
}

// A peer that sends calls and reads no answers is first held up and then closed, with
// little memory.
func TestFloodOfCallsWithoutReading(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		handled := 0
		server, raw := rawPeer(t, Options{WriteCap: 1 << 20, Handler: func(c *Conn, m *Message) { handled++; c.Reply(m, m.Body) }})
		flood := appendMessage(nil, &Message{Type: TypeCall, Path: "/a", Member: "C", Body: MustEncode(strings.Repeat("x", 1000))}, 1)
		go func() {
			for {
				if _, err := raw.Write(flood); err != nil {
					return
				}
			}
		}()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := server.queued.Load(); n < 512<<10 || n > 514<<10 || handled > 600 {
			t.Errorf("%d bytes wait after %d calls", n, handled)
		}
		endsWith(t, server, "does not read")
	})
}

func TestSlowHandlerStopsReading(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		handled := 0
		server, raw := rawPeer(t, Options{Handler: func(c *Conn, m *Message) {
			handled++
			select {
			case <-time.After(time.Second):
			case <-c.Closing():
			}
		}})
		one := message(t, TypeCall, "", hexPath, hexMember)
		sent := 0
		go func() {
			for range 100000 {
				if _, err := raw.Write(one); err != nil {
					return
				}
				sent++
			}
		}()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if handled != 11 || sent > handled+readBuffer/len(one)+1 {
			t.Errorf("%d of %d handled in 10 s", handled, sent)
		}
		server.Close(nil)
		endsWith(t, server, "closed by this side")
		if handled != 11 {
			t.Errorf("%d handled after the end", handled-11)
		}
	})
}

func TestHandshakeIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		halves := map[string]func(net.Conn) (*Conn, error){
			"server": func(nc net.Conn) (*Conn, error) { return Server(t.Context(), nc, Options{}) },
			"client": func(nc net.Conn) (*Conn, error) { return Client(t.Context(), nc, Options{}) },
		}
		peers := map[string]func(net.Conn){
			"silent":       func(net.Conn) {},
			"reads only":   func(nc net.Conn) { io.Copy(io.Discard, nc) },
			"byte by byte": slowly,
		}
		for half, start := range halves {
			for peer, act := range peers {
				a, b := net.Pipe()
				go act(b)
				began := time.Now()
				_, err := start(a)
				if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != DefaultHandshakeTimeout {
					t.Errorf("%s, peer %s: %v after %v", half, peer, err, time.Since(began))
				}
				if _, err := a.Write([]byte{0}); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("%s, peer %s: socket is still open: %v", half, peer, err)
				}
				b.Close()
				time.Sleep(time.Minute) // so that the peer notices
			}
		}
	})
}

// slowly sends one line that never ends, a byte each second.
func slowly(nc net.Conn) {
	go io.Copy(io.Discard, nc)
	for b := byte(0); ; b = 'A' {
		if _, err := nc.Write([]byte{b}); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

func TestPendingCallsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, client := pair(t, Options{Handler: func(*Conn, *Message) {}}, Options{MaxPending: 3})
		failed := make(chan error, 10)
		begin := func() {
			client.Go(call("C"), time.Second, func(_ *Message, err error) { failed <- err })
			synctest.Wait()
		}
		for range 5 {
			begin()
		}
		if len(failed) != 2 || !errors.Is(<-failed, wire.ErrLimitsExceeded) || !errors.Is(<-failed, wire.ErrLimitsExceeded) {
			t.Error("the fourth and fifth call were not refused")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(failed) != 3 || !errors.Is(<-failed, wire.ErrTimeout) {
			t.Error("the first three calls did not time out")
		}
		begin()
		if len(failed) != 2 {
			t.Error("there is no room again")
		}
	})
}
