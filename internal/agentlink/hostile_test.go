package agentlink

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/pkitest"
	"example.org/ctrl/internal/wire"
)

// hello is what a client sends before its first message.
const hello = "\x00AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n"

// registersFrom shows that a good agent gets in.
func registersFrom(t *testing.T, core *fakeCore, nc net.Conn) {
	t.Helper()
	a := dbus(t, nc, noCalls)
	a.mustRegister(t, core, "good")
}

// TestGarbage: whatever comes, only its own connection ends.
func TestGarbage(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	var log lockedBuffer
	s := New(core, plain(), slog.New(slog.NewTextHandler(&log, nil)))
	s.Serve(l)
	t.Cleanup(s.Close)
	huge := []byte{'l', 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}
	binary.LittleEndian.PutUint32(huge[4:], 2<<30)
	for name, sent := range map[string]string{
		"not D-Bus":       "GET / HTTP/1.1\r\n\r\n",
		"noise":           "\xff\xfe\x1b]0;evil\a\n\x00\x00",
		"no BEGIN":        "\x00" + strings.Repeat("AUTH NONSENSE\r\n", 20),
		"endless line":    "\x00" + strings.Repeat("A", 4096),
		"2 GiB length":    hello + string(huge),
		"no message":      hello + strings.Repeat("\x00", 64),
		"half a message":  hello + string(huge[:7]),
		"much, no answer": hello + strings.Repeat(signal(t), 1+registerBytes/len(signal(t))),
	} {
		t.Run(name, func(t *testing.T) {
			nc := dial(t, l)
			go func() {
				io.WriteString(nc, sent)
				if strings.HasPrefix(name, "half") {
					nc.(*net.TCPConn).CloseWrite()
				}
			}()
			io.Copy(io.Discard, nc) // ends when the manager closes
		})
	}
	registersFrom(t, core, dial(t, l))
	s.Close()
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "address=127.0.0.1") || strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x1b\a\x00") {
			t.Errorf("log line %q", line)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != complaintBurst {
		t.Errorf("%d lines were logged, want %d", n, complaintBurst)
	}
}

func TestAllowance(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		far.Write(make([]byte, registerBytes+1))
		far.Write(make([]byte, 1))
		far.Close()
	}()
	a := &allowance{Conn: near}
	n, err := io.Copy(io.Discard, a)
	if n != registerBytes+1 || !errors.Is(err, errTooMuch) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	a.lifted.Store(true)
	if n, err := io.Copy(io.Discard, a); n != 1 || err != nil {
		t.Errorf("afterwards: read %d bytes, %v", n, err)
	}
}

// signal is a message of 1 KiB that nobody asked for.
func signal(t *testing.T) string {
	t.Helper()
	far, near := net.Pipe()
	got := make(chan []byte)
	go func() {
		buf := make([]byte, 8<<10)
		near.Read(buf)
		io.WriteString(near, "DATA\r\nOK 0123\r\n")
		n, _ := near.Read(buf)
		got <- buf[:n]
	}()
	c, err := peer.Client(t.Context(), far, peer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Signal(wire.InternalPath, wire.InternalAgentInterface, "Noise", peer.MustEncode(strings.Repeat("x", 1024)))
	b := <-got
	c.Close(errors.New("done"))
	near.Close()
	return string(b)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestTimeToRegister: there is an end to it, whatever the peer does meanwhile.
func TestTimeToRegister(t *testing.T) {
	slowly := func(text string) func(net.Conn) {
		return func(nc net.Conn) {
			for i := 0; ; i++ {
				if _, err := nc.Write([]byte{text[i%len(text)]}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}
	}
	for name, test := range map[string]struct {
		behave func(net.Conn)
		want   time.Duration
	}{
		"silent":             {func(net.Conn) {}, peer.DefaultHandshakeTimeout},
		"slow bytes":         {slowly(hello), peer.DefaultHandshakeTimeout},
		"only authenticates": {func(nc net.Conn) { io.WriteString(nc, hello) }, registerTime},
		"slow message": {func(nc net.Conn) {
			io.WriteString(nc, hello)
			slowly("l\x01\x00\x01\x40\x00\x00\x00\x01\x00\x00\x00\x40")(nc)
		}, registerTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, l := newFakeCore(), newPipes()
				serve(t, core, plain(), l)
				nc := l.dial(t, "192.0.2.1")
				defer nc.Close()
				begin := time.Now()
				done := make(chan struct{})
				go func() { defer close(done); test.behave(nc) }()
				io.Copy(io.Discard, nc) // ends when the manager closes
				if d := time.Since(begin); d != test.want {
					t.Errorf("the connection was held for %v, want %v", d, test.want)
				}
				<-done
				registersFrom(t, core, l.dial(t, "192.0.2.1"))
			})
		})
	}
}

// TestDecidedTooLate: a core that is busy for longer than an agent may take to register
// accepts one whose connection is gone, and hears of that.
func TestDecidedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, l := newFakeCore(), newPipes()
		core.hold = make(chan struct{})
		serve(t, core, plain(), l)
		a := dbus(t, l.dial(t, "192.0.2.1"), noCalls)
		if _, err := a.register(t.Context(), "node1"); !errors.Is(err, wire.ErrDisconnected) {
			t.Errorf("got %v", err)
		}
		close(core.hold)
		core.want(t, "register 1 node1 ", "closed 1 "+errNoRegister.Error())
	})
}

// TestIdleConnections: a thousand that only sit there keep nobody out.
func TestIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, l := newFakeCore(), newPipes()
		serve(t, core, plain(), l)
		var idle []net.Conn
		for range 1000 {
			idle = append(idle, l.dial(t, "192.0.2.1"))
		}
		open := 0
		for _, nc := range idle {
			nc.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				open++
			}
		}
		if open != maxPendingPerAddress {
			t.Errorf("%d connections of one address are open", open)
		}
		begin := time.Now()
		registersFrom(t, core, l.dial(t, "192.0.2.2"))
		if d := time.Since(begin); d != 0 {
			t.Errorf("another address had to wait %v", d)
		}
		time.Sleep(grace)
		registersFrom(t, core, l.dial(t, "192.0.2.1"))
		for i := range 1000 {
			l.dial(t, fmt.Sprintf("198.51.%d.%d", i/250, i%250))
		}
		begin = time.Now()
		registersFrom(t, core, l.dial(t, "192.0.2.3"))
		if d := time.Since(begin); d > grace {
			t.Errorf("behind a thousand addresses one had to wait %v", d)
		}
	})
}

// TestResets: connections that are reset at once, and given up half-way through
// authentication, leave nothing behind (cases.md, 11).
func TestResets(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	s := serve(t, core, plain(), l)
	for i := range 300 {
		nc := dial(t, l)
		switch i % 3 {
		case 1:
			io.WriteString(nc, "\x00AUTH EXTERNAL\r\n")
		case 2:
			io.WriteString(nc, hello)
			nc.Close()
			continue
		}
		nc.(*net.TCPConn).SetLinger(0)
		nc.Close()
	}
	var a *agent
	for a == nil {
		a = tryRegister(t, core, dial(t, l))
	}
	a.Close(errors.New("done"))
	s.Close()
	s.links.Wait()
}

// tryRegister returns nil where the manager has no place at the moment.
func tryRegister(t *testing.T, core *fakeCore, nc net.Conn) *agent {
	t.Helper()
	conn, err := peer.Client(t.Context(), nc, peer.Options{})
	if err != nil {
		return nil
	}
	a := &agent{Conn: conn}
	t.Cleanup(func() { conn.Close(nil); <-conn.Done() })
	if _, err := a.register(t.Context(), "good"); err != nil {
		return nil
	}
	return a
}

// TestAcceptErrors: a process without file descriptors neither spins nor gives up.
func TestAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, l := newFakeCore(), newPipes()
		var log lockedBuffer
		for range 20 {
			l.errs <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
		}
		s := New(core, plain(), slog.New(slog.NewTextHandler(&log, nil)))
		s.Serve(l)
		defer s.Close()
		time.Sleep(5 * time.Second)
		l.mu.Lock()
		tries := l.accepted
		l.mu.Unlock()
		if tries > 16 {
			t.Errorf("%d tries within 5 s", tries)
		}
		registersFrom(t, core, l.dial(t, "192.0.2.1"))
		if n := strings.Count(log.String(), "LimitNOFILE="); n != 1 {
			t.Errorf("logged %d times: %s", n, log.String())
		}
	})
}

func TestCloseEndsTheUnregistered(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	s := serve(t, core, plain(), l)
	silent, half := dial(t, l), dial(t, l)
	io.WriteString(half, hello)
	if _, err := half.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	registersFrom(t, core, dial(t, l))
	s.Close()
	io.Copy(io.Discard, silent)
	io.Copy(io.Discard, half)
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("still listens")
	}
	s.Serve(l) // too late: must not start anything
}

func TestTLS(t *testing.T) {
	ca, err := pkitest.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	store := func(role pki.Role, leaf pkitest.Leaf) *pki.Store {
		f, err := ca.Write(t.TempDir(), "own", leaf)
		if err != nil {
			t.Fatal(err)
		}
		s, err := pki.Open(pki.Config{Role: role, CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	core, l := newFakeCore(), listen(t)
	set := plain()
	manager := store(pki.Manager, pkitest.ManagerLeaf())
	set.Secure = func(ctx context.Context, nc net.Conn) (net.Conn, Proof, error) {
		c, p, err := manager.Accept(ctx, nc)
		return c, Proof{Node: p.Node}, err
	}
	serve(t, core, set, l)
	node := store(pki.Node, pkitest.NodeLeaf("node1"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	secure, err := node.Connect(ctx, dial(t, l))
	if err != nil {
		t.Fatal(err)
	}
	a := dbus(t, secure, noCalls)
	if _, err := a.register(ctx, "node1"); err != nil {
		t.Fatal(err)
	}
	core.want(t, "register 1 node1 node1")

	t.Run("without TLS", func(t *testing.T) {
		_, err := peer.Client(ctx, dial(t, l), peer.Options{})
		if err == nil || !strings.Contains(err.Error(), "needs TLS") {
			t.Errorf("got %v", err)
		}
	})
}
