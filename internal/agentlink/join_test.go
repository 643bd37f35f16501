package agentlink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/authority"
	"example.org/ctrl/internal/wire"
)

// enrolment is a real authority as the links see it.
type enrolment struct{ *authority.Authority }

func (e enrolment) Join(_, node, token string, csr []byte) (string, []byte, []byte, error) {
	g, err := e.Authority.Join(node, token, csr)
	return g.Node, g.Certificate, g.CA, err
}

func (e enrolment) Renew(node string, generation uint64, csr []byte) ([]byte, []byte, time.Time, error) {
	g, err := e.Authority.Renew(node, generation, csr)
	return g.Certificate, g.CA, g.NotAfter, err
}

// fleet is a server with an authority of its own, over real TLS.
type fleet struct {
	*Server
	t         *testing.T
	authority *authority.Authority
	store     *pki.Store
	core      *fakeCore
	l         net.Listener
	log       *lines
}

// lines is a log that tests read.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, core: newFakeCore(), l: listen(t), log: &lines{}}
	var err error
	f.authority, err = authority.Open(t.TempDir(), func(authority.Change) { f.Recheck() }, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.authority.Close)
	if f.store, err = pki.Open(f.authority.Files(), quiet); err != nil {
		t.Fatal(err)
	}
	set := plain()
	set.Enrolment = enrolment{f.authority}
	set.Secure = func(ctx context.Context, nc net.Conn) (net.Conn, Proof, error) {
		c, p, err := f.store.Accept(ctx, nc)
		return c, Proof{Node: p.Node, Generation: p.Generation, NotAfter: p.NotAfter}, err
	}
	f.Server = New(f.core, set, slog.New(slog.NewTextHandler(f.log, nil)))
	f.Serve(f.l)
	t.Cleanup(f.Close)
	return f
}

func (f *fleet) add(name string) pki.Token {
	f.t.Helper()
	token, err := f.authority.AddNode(name, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	return token
}

// newcomer is a machine with a token that has made sure of the manager.
func (f *fleet) newcomer(token pki.Token) *agent {
	f.t.Helper()
	secure, err := pki.ConnectToJoin(f.t.Context(), dial(f.t, f.l), token)
	if err != nil {
		f.t.Fatal(err)
	}
	return dbus(f.t, secure, noCalls)
}

func (a *agent) join(ctx context.Context, node, token string, csr []byte) (certificate, ca []byte, err error) {
	m, err := a.Call(ctx, peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalJoinInterface, Member: wire.MemberJoin, Body: peer.MustEncode(node, token, csr),
	})
	if err == nil {
		err = peer.Decode(m.Body, &certificate, &ca)
	}
	return certificate, ca, err
}

// joined makes a machine a node, as its agent does, and gives its certificates.
func (f *fleet) joined(name string) *pki.Store {
	f.t.Helper()
	token := f.add(name)
	key, csr, err := pki.NewKeyAndCSR(name)
	if err != nil {
		f.t.Fatal(err)
	}
	a := f.newcomer(token)
	certificate, ca, err := a.join(f.t.Context(), name, token.String(), csr)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := <-a.gone; !errors.Is(err, wire.ErrDisconnected) && err == nil {
		f.t.Errorf("the connection ended with %v", err)
	}
	if _, err := token.CheckJoined(name, key, certificate, ca); err != nil {
		f.t.Fatal(err)
	}
	dir := f.t.TempDir()
	cfg := pki.Config{Role: pki.Node, NodeName: name, CertFile: filepath.Join(dir, "c"), KeyFile: filepath.Join(dir, "k"), CAFile: filepath.Join(dir, "a")}
	for path, data := range map[string][]byte{cfg.CertFile: certificate, cfg.KeyFile: key, cfg.CAFile: ca} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	s, err := pki.Open(cfg, quiet)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fleet) connect(s *pki.Store) *agent {
	f.t.Helper()
	secure, err := s.Connect(f.t.Context(), dial(f.t, f.l))
	if err != nil {
		f.t.Fatal(err)
	}
	return dbus(f.t, secure, noCalls)
}

func (a *agent) renew(ctx context.Context, csr []byte) (certificate, ca []byte, err error) {
	m, err := a.Call(ctx, peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalManagerInterface, Member: wire.MemberRenew, Body: peer.MustEncode(csr),
	})
	if err == nil {
		err = peer.Decode(m.Body, &certificate, &ca)
	}
	return certificate, ca, err
}

// TestJoin goes from nothing to a node that has registered.
func TestJoin(t *testing.T) {
	f := newFleet(t)
	a := f.connect(f.joined("node1"))
	if _, err := a.register(t.Context(), "node1"); err != nil {
		t.Fatal(err)
	}
	f.core.want(t, "register 1 node1 node1")
	b := f.connect(f.joined("node2"))
	if _, err := b.register(t.Context(), "node1"); err != nil {
		t.Fatal(err) // the core of this test lets everybody be anybody
	}
	f.core.want(t, "register 2 node1 node2") // the core sees who it is, and decides
	if got := f.log.String(); !strings.Contains(got, `msg="a machine has joined" node=node1 address=127.0.0.1`) {
		t.Errorf("logged %s", got)
	}
}

// TestStrangersMayOnlyJoin: a peer without a certificate may call Join, once, and nothing else.
func TestStrangersMayOnlyJoin(t *testing.T) {
	f := newFleet(t)
	token := f.add("node1")
	_, csr, err := pki.NewKeyAndCSR("node1")
	if err != nil {
		t.Fatal(err)
	}
	call := func(path wire.ObjectPath, iface, member string, args ...any) peer.Call {
		return peer.Call{Path: path, Interface: iface, Member: member, Body: peer.MustEncode(args...)}
	}
	for name, c := range map[string]peer.Call{
		"Register": call(wire.InternalPath, wire.InternalManagerInterface, wire.MemberRegister, "node1", someFacts),
		"Renew":    call(wire.InternalPath, wire.InternalManagerInterface, wire.MemberRenew, csr),
		"a query":  call(wire.InternalPath, wire.InternalAgentInterface, "ListUnits"),
		"a path":   call("/x", wire.InternalJoinInterface, wire.MemberJoin, "node1", token.String(), csr),
		"no types": call(wire.InternalPath, wire.InternalJoinInterface, wire.MemberJoin),
		"types":    call(wire.InternalPath, wire.InternalJoinInterface, wire.MemberJoin, "node1", token.String(), "csr"),
	} {
		a := f.newcomer(token)
		if _, err := a.Call(t.Context(), c); !errors.Is(err, wire.ErrAccessDenied) && !errors.Is(err, wire.ErrInvalidArgs) {
			t.Errorf("%s: %v", name, err)
		}
		<-a.gone
	}
	a := f.newcomer(token)
	a.report(t, wire.MemberUnitNew, "a.service", "real")
	a.report(t, wire.MemberClosing, "bye")
	second := make(chan error, 1)
	if _, _, err := a.join(t.Context(), "node1", token.String(), csr); err != nil {
		t.Error(err)
	}
	go func() { _, _, err := a.join(t.Context(), "node1", token.String(), csr); second <- err }()
	if err := <-second; err == nil {
		t.Error("a second call on one connection was answered")
	}
	select {
	case event := <-f.core.events:
		t.Errorf("the core heard %s", event)
	default:
	}
}

// TestJoinElsewhere: who has a certificate, or speaks without TLS, is told what Join is.
func TestJoinElsewhere(t *testing.T) {
	core, l := newFakeCore(), listen(t)
	serve(t, core, plain(), l)
	a := dbus(t, dial(t, l), noCalls)
	if _, _, err := a.join(t.Context(), "node1", "x", nil); !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), "only Register may be called") {
		t.Errorf("got %v", err)
	}
	b := dbus(t, dial(t, l), noCalls)
	b.mustRegister(t, core, "node1")
	if _, _, err := b.renew(t.Context(), nil); !errors.Is(err, wire.ErrFailed) || !strings.Contains(err.Error(), "issues no certificates") {
		t.Errorf("got %v", err)
	}
}

// TestRefusedJoin: what a peer sends reaches neither the log nor a terminal as it is, and the
// token reaches neither at all.
func TestRefusedJoin(t *testing.T) {
	f := newFleet(t)
	token, other := f.add("node1"), f.add("node2")
	_, csr, _ := pki.NewKeyAndCSR("")
	for name, test := range map[string]struct{ node, word, want string }{
		"another node's":     {"node1", other.String(), `the token is for node "node2", not for "node1"`},
		"unknown":            {"node1", newToken(t).String(), "the manager knows no such token"},
		"no token":           {"node1", "x\x1b[2J\n", "this is not a token of ctrl"},
		"a name with tricks": {"no\x1b[31mde\nfake log line", token.String(), `node name "no\x1b[31mde\nfake log line" is not valid`},
	} {
		a := f.newcomer(token)
		_, _, err := a.join(t.Context(), test.node, test.word, csr)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		<-a.gone
	}
	f.Close()
	got := f.log.String()
	for _, secret := range []string{token.String()[5:31], other.String()[5:31], "\x1b"} {
		if strings.Contains(got, secret) {
			t.Errorf("the log holds %q:\n%s", secret, got)
		}
	}
	if strings.Count(got, "join refused") != 4 || strings.Count(got, "\n") != strings.Count(got, "level=") {
		t.Errorf("logged %s", got)
	}
}

func newToken(t *testing.T) pki.Token {
	t.Helper()
	a, err := authority.Open(t.TempDir(), func(authority.Change) {}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	token, err := a.AddNode("node1", 0)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestGuessing: 100,000 tries let nobody in, take weeks from one source, and fill neither
// the memory nor the log. Others are not delayed.
func TestGuessing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, err := authority.Open(dir, func(authority.Change) {}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		good, err := a.AddNode("node1", authority.MaxTokenLife)
		if err != nil {
			t.Fatal(err)
		}
		log := &lines{}
		s := New(newFakeCore(), Settings{Enrolment: enrolment{a}}, slog.New(slog.NewTextHandler(log, nil)))
		from := func(address string) *pending {
			return &pending{server: s, settings: s.settings.Load(), address: netip.MustParseAddr(address), name: address}
		}
		_, csr, _ := pki.NewKeyAndCSR("node1")
		guesser, start := from("192.0.2.1"), time.Now()
		const tries = 100_000
		for i := range tries {
			word := []byte(good.String())
			copy(word[5:], fmt.Sprintf("%010d", i)) // also what is no token at all
			_, _, err := guesser.tryJoin(t.Context(), joinCall{node: "node1", token: string(word), csr: csr})
			switch {
			case errors.Is(err, wire.ErrLimitsExceeded):
				time.Sleep(maxDelay)
			case !errors.Is(err, wire.ErrAccessDenied):
				t.Fatalf("try %d: %v", i, err)
			}
			s.complaints.about(guesser.address, guesser.name, "join refused", err)
		}
		if took := time.Since(start); took < 14*24*time.Hour {
			t.Errorf("%d tries took %v", tries, took)
		}
		if n := strings.Count(log.String(), "\n"); n > int(time.Since(start)/time.Minute)*complaintBurst+complaintBurst {
			t.Errorf("%d lines", n)
		}
		// Another machine is not held up.
		before := time.Now()
		if _, _, err := from("192.0.2.2").tryJoin(t.Context(), joinCall{node: "node1", token: good.String(), csr: csr}); err != nil || time.Since(before) > 0 {
			t.Errorf("after %v: %v", time.Since(before), err)
		}
	})
}

// TestGuessers: many at once from one source wait for each other, and many sources need a
// bounded memory.
func TestGuessers(t *testing.T) {
	var g guesses
	now := time.Now()
	one := sourceOf(netip.MustParseAddr("2001:db8::1"))
	if other := sourceOf(netip.MustParseAddr("2001:db8::ffff:2")); one != other {
		t.Error("a network counts as two")
	}
	if wait, err := g.admit(one, now); wait != 0 || err != nil {
		t.Errorf("at first: %v, %v", wait, err)
	}
	var waits []time.Duration
	g.wrong(one, now)
	g.wrong(one, now)
	for {
		wait, err := g.admit(one, now)
		if err != nil {
			if !errors.Is(err, wire.ErrLimitsExceeded) || !strings.Contains(err.Error(), "try again in") {
				t.Error(err)
			}
			break
		}
		waits = append(waits, wait)
	}
	if !slices.IsSorted(waits) || waits[0] != 500*time.Millisecond || waits[1] != time.Second || waits[len(waits)-1] > maxJoinWait {
		t.Errorf("waits are %v", waits)
	}
	if wait, err := g.admit(one, now.Add(2*guessMemory)); wait != 0 || err != nil {
		t.Errorf("much later: %v, %v", wait, err)
	}
	for i := range 5000 {
		g.wrong(sourceOf(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})), now)
	}
	if len(g.sources) > maxGuessers+1 {
		t.Errorf("%d sources are remembered", len(g.sources))
	}
	if _, err := g.admit(sourceOf(netip.MustParseAddr("10.2.0.1")), now); !errors.Is(err, wire.ErrLimitsExceeded) {
		t.Errorf("past the bound: %v", err)
	}
}

// TestDiskTrouble stays between the manager and its log.
func TestDiskTrouble(t *testing.T) {
	if err := forPeer(fmt.Errorf("cannot write /var/lib/x: no space")); strings.Contains(err.Error(), "/var") || !strings.Contains(err.Error(), "Nothing was used up") {
		t.Errorf("a peer hears %v", err)
	}
}

// blockedEnrolment is an authority whose disk hangs.
type blockedEnrolment struct {
	stubEnrolment
	asked, free chan bool
}

func (b *blockedEnrolment) Join(string, string, string, []byte) (string, []byte, []byte, error) {
	b.asked <- true
	<-b.free
	return "node1", []byte("c"), []byte("a"), nil
}

// TestOneJoin: a second call on a connection is refused while the first one is under way.
func TestOneJoin(t *testing.T) {
	l, e := listen(t), &blockedEnrolment{asked: make(chan bool, 8), free: make(chan bool)}
	set := plain()
	set.Enrolment = e
	set.Secure = func(_ context.Context, nc net.Conn) (net.Conn, Proof, error) { return nc, Proof{}, nil }
	serve(t, newFakeCore(), set, l)
	a := dbus(t, dial(t, l), noCalls)
	first := make(chan error, 1)
	go func() { _, _, err := a.join(t.Context(), "", "", nil); first <- err }()
	<-e.asked
	if _, _, err := a.join(t.Context(), "", "", nil); !errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("the second call: %v", err)
	}
	close(e.free)
	if err := <-first; !errors.Is(err, wire.ErrDisconnected) && err != nil {
		t.Errorf("the first call: %v", err)
	}
}

// TestJoinWhileTheManagerEnds: whatever moment the manager ends at, the same machine can try
// again with the same token.
func TestJoinWhileTheManagerEnds(t *testing.T) {
	f := newFleet(t)
	token := f.add("node1")
	key, csr, err := pki.NewKeyAndCSR("node1")
	if err != nil {
		t.Fatal(err)
	}
	// Before the authority was asked: the call waits for its turn.
	source := sourceOf(netip.MustParseAddr("127.0.0.1"))
	for range 5 { // a wait of 4 s, which only the manager's end cuts short
		f.guesses.wrong(source, time.Now())
	}
	a, before := f.newcomer(token), f.guesses.nextOf(source)
	answer := make(chan error, 1)
	go func() { _, _, err := a.join(t.Context(), "node1", token.String(), csr); answer <- err }()
	for f.guesses.nextOf(source).Equal(before) { // until the call was told to wait
		runtime.Gosched()
	}
	f.Close()
	if err := <-answer; err == nil || errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("got %v", err)
	}
	if tokens := f.authority.Tokens(); len(tokens) != 1 || tokens[0].Left != 1 {
		t.Errorf("tokens are %+v", tokens)
	}
	// After it has answered, and the answer was lost.
	if _, _, _, err := (enrolment{f.authority}).Join("", "node1", token.String(), csr); err != nil {
		t.Fatal(err)
	}
	f.Server = New(f.core, *f.settings.Load(), quiet)
	f.l = listen(t)
	f.Serve(f.l)
	t.Cleanup(f.Close)
	certificate, ca, err := f.newcomer(token).join(t.Context(), "node1", token.String(), csr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := token.CheckJoined("node1", key, certificate, ca); err != nil {
		t.Error(err)
	}
}

func (g *guesses) nextOf(source netip.Prefix) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sources[source].next
}
