package managerlink

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/agentlink"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/pkitest"
	"example.org/ctrl/internal/wire"
)

func portOf(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }

// names is a resolver that knows one name with an address of each family.
func names() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go answerDNS(far)
		return near, nil
	}}
}

// answerDNS answers questions over TCP (RFC 1035, 4.1): A with 127.0.0.1, AAAA with ::1.
func answerDNS(nc net.Conn) {
	defer nc.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(nc, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(nc, question); err != nil {
			return
		}
		end := 12
		for question[end] != 0 {
			end += int(question[end]) + 1
		}
		kind := question[end+2]
		address := []byte(net.ParseIP("127.0.0.1").To4())
		if kind == 28 {
			address = net.ParseIP("::1")
		}
		answer := append([]byte{}, question[:end+5]...)
		copy(answer[2:], []byte{0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0})
		answer = append(answer, 0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, byte(len(address)))
		answer = append(answer, address...)
		nc.Write(binary.BigEndian.AppendUint16(nil, uint16(len(answer))))
		nc.Write(answer)
	}
}

// TestBothFamilies: a name has an IPv6 and an IPv4 address, and the manager listens on one of
// them only (cases.md, 20).
func TestBothFamilies(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			b := newBoss(t, listen(t, net.JoinHostPort(host, "0")), nil)
			d := newDialer(newFakeCore(), Settings{})
			d.resolver = names()
			if _, err := dialled(t, d, "tcp:host=manager.example,port="+portOf(b.l)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAddressList(t *testing.T) {
	dead := listen(t, "127.0.0.1:0")
	dead.Close()
	b := newBoss(t, listen(t, "127.0.0.1:0"), nil)
	d := newDialer(newFakeCore(), Settings{})
	if _, err := dialled(t, d, addressOf(dead)+";"+addressOf(b.l)); err != nil {
		t.Error(err)
	}
	_, err := dialled(t, d, addressOf(dead)+";unix:path=/nonexistent/s")
	if err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
	if _, err := dialled(t, d, "carrier-pigeon:coop=1"); err == nil || !strings.Contains(err.Error(), "carrier-pigeon") {
		t.Errorf("got %v", err)
	}
}

// TestSameFailureSameText: what is logged once only must not differ in a port number.
func TestSameFailureSameText(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			nc.Read(make([]byte, 1))
			nc.(*net.TCPConn).SetLinger(0)
			nc.Close()
		}
	}()
	defer l.Close()
	d := newDialer(newFakeCore(), Settings{})
	_, first := dialled(t, d, addressOf(l))
	_, second := dialled(t, d, addressOf(l))
	if first == nil || second == nil || first.Error() != second.Error() || !strings.Contains(first.Error(), "reset by peer") {
		t.Errorf("got %v and %v", first, second)
	}
}

func TestCancel(t *testing.T) {
	l := listen(t, "127.0.0.1:0") // accepts, and then says nothing
	defer l.Close()
	d := newDialer(newFakeCore(), Settings{})
	results := make(chan error, 2)
	cancel := d.Dial(addressOf(l), func(_ agent.ManagerLink, err error) { results <- err })
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	cancel()
	cancel()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	d.Drain(t.Context())
	if _, err := io.Copy(io.Discard, nc); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection ended with %v", err)
	}
}

func TestSilentManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(newFakeCore(), Settings{})
		near, far := net.Pipe()
		defer far.Close()
		go io.Copy(io.Discard, far)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), openTime)
		defer cancel()
		_, err := d.newLink(ctx, near)
		if took := time.Since(begin); err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || took != peer.DefaultHandshakeTimeout {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// acceptAll is a manager's core that takes every node.
type acceptAll struct{ nodes chan string }

func (a acceptAll) Register(r manager.Registration, reply func(manager.Welcome, error)) {
	a.nodes <- r.Node + " " + r.Identity.Node + " " + r.Identity.Address
	go reply(manager.Welcome{Session: 9, HeartbeatInterval: time.Second, HeartbeatThreshold: 3 * time.Second}, nil)
}
func (acceptAll) Closed(manager.Session, string)                            {}
func (acceptAll) JobState(manager.Session, uint32, string)                  {}
func (acceptAll) JobDone(manager.Session, uint32, string)                   {}
func (acceptAll) UnitEvent(manager.Session, manager.UnitEvent)              {}
func (acceptAll) UnitAlias(manager.Session, manager.UnitRow)                {}
func (acceptAll) JobMetrics(manager.Session, string, string, time.Duration) {}
func (acceptAll) Proxies(manager.Session, []manager.ProxyReport, []string)  {}
func (acceptAll) ProxyNew(manager.Session, manager.ProxyReport)             {}
func (acceptAll) ProxyRemoved(manager.Session, string)                      {}
func (acceptAll) TargetState(manager.Session, string, string)               {}
func (acceptAll) TargetLeaving(manager.Session, string, bool)               {}
func (acceptAll) DepState(manager.Session, string, bool)                    {}

// TestWithAgentlink: both adapters together, with and without TLS on either side.
func TestWithAgentlink(t *testing.T) {
	ca, err := pkitest.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	other, err := pkitest.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	store := func(ca, trusted *pkitest.CA, role pki.Role, leaf pkitest.Leaf) *pki.Store {
		dir := t.TempDir()
		f, err := ca.Write(dir, "own", leaf)
		if err == nil {
			err = os.WriteFile(f.CA, trusted.PEM, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := pki.Open(pki.Config{Role: role, CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	serve := func(s *pki.Store) (net.Listener, acceptAll) {
		core := acceptAll{make(chan string, 16)}
		set := agentlink.Settings{Group: agentlink.NoGroup}
		if s != nil {
			manager := s
			set.Secure = func(ctx context.Context, nc net.Conn) (net.Conn, agentlink.Proof, error) {
				c, p, err := manager.Accept(ctx, nc)
				return c, agentlink.Proof{Node: p.Node}, err
			}
		}
		server := agentlink.New(core, set, quiet)
		l := listen(t, "127.0.0.1:0")
		server.Serve(l)
		t.Cleanup(server.Close)
		return l, core
	}
	secure, secureCore := serve(store(ca, ca, pki.Manager, pkitest.ManagerLeaf()))
	plain, plainCore := serve(nil)
	good := store(ca, ca, pki.Node, pkitest.NodeLeaf("node1"))
	tests := map[string]struct {
		manager net.Listener
		node    *pki.Store
		node1   string // the identity that the manager sees
		want    string
	}{
		"TLS":              {secure, good, "node1 node1 127.0.0.1", ""},
		"no TLS":           {plain, nil, "node1  127.0.0.1", ""},
		"only the manager": {secure, nil, "", "the manager wants TLS, and this agent has TLS=no"},
		"only the node":    {plain, good, "", "no TLS at the other end"},
		"other authority":  {secure, store(other, ca, pki.Node, pkitest.NodeLeaf("node1")), "", "no authority in its own CAFile="},
		"other manager":    {secure, store(ca, other, pki.Node, pkitest.NodeLeaf("node1")), "", "the manager's certificate is not accepted"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			set := Settings{}
			if test.node != nil {
				set.Secure = test.node.Connect
			}
			core := newFakeCore()
			d := newDialer(core, set)
			l, err := dialled(t, d, addressOf(test.manager))
			if test.want != "" {
				if err == nil || !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want kind AccessDenied and %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w, err := registered(l, 5, time.Minute)
			if err != nil || w.ManagerSession != 9 {
				t.Errorf("welcome %+v, %v", w, err)
			}
			nodes := plainCore.nodes
			if test.manager == secure {
				nodes = secureCore.nodes
			}
			if got := <-nodes; got != test.node1 {
				t.Errorf("the manager saw %q, want %q", got, test.node1)
			}
			l.Close("done")
			core.want(t, "closed 5 done")
			d.Drain(t.Context())
		})
	}
}
