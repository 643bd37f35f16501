package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/wire"
)

// tlsPair is a connected pair of TLS connections over loopback TCP.
func tlsPair(t testing.TB) (server, client *tls.Conn) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"x"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return tls.Server(b, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}),
		tls.Client(a, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
}

func TestTLS(t *testing.T) {
	a, b := tlsPair(t)
	servers := make(chan *Conn, 1)
	go func() {
		c, err := Server(limited(t), a, Options{Handler: func(c *Conn, m *Message) {
			if m.Member == "Refuse" {
				c.ReplyError(m, wire.ErrNodeNotAllowed.With("no"))
				c.CloseWhenSent(nil)
				return
			}
			c.Reply(m, m.Body)
		}})
		if err != nil {
			t.Error(err)
		}
		servers <- c
	}()
	client, err := Client(limited(t), b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := <-servers
	for _, n := range []int{1, 100 << 10, 3 << 20} {
		text := strings.Repeat("x", n)
		m, err := client.Call(limited(t), call("C", text))
		var back string
		if err != nil || Decode(m.Body, &back) != nil || back != text {
			t.Fatalf("%d bytes came back as %d, %v", n, len(back), err)
		}
	}
	if client.NetConn().(*tls.Conn).ConnectionState().Version != tls.VersionTLS13 {
		t.Error("the TLS state is out of reach")
	}
	if _, err := client.Call(limited(t), call("Refuse")); !errors.Is(err, wire.ErrNodeNotAllowed) {
		t.Errorf("the last word came as %v", err)
	}
	endsWith(t, server, "closed by this side")
	endsWith(t, client, "peer closed")
}

// Close must not wait for a peer that does not read, which crypto/tls would do for its
// goodbye.
func TestCloseOfTLSDoesNotWait(t *testing.T) {
	a, b := tlsPair(t)
	servers := make(chan *Conn, 1)
	go func() {
		c, _ := Server(limited(t), a, Options{WriteTimeout: time.Hour})
		servers <- c
	}()
	stuck := make(chan struct{})
	defer close(stuck)
	client, err := Client(limited(t), b, Options{Handler: func(*Conn, *Message) { <-stuck }})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(nil)
	server := <-servers
	for i := 0; server.queued.Load() < 3<<20; i++ { // until socket buffers are full
		server.Signal("/a", "a.b", "C", MustEncode(strings.Repeat("x", 64<<10)))
	}
	server.Close(nil)
	endsWith(t, server, "closed by this side")
}

// TestCallsMakeNoGarbage bounds what a call costs once a connection is warm: both ends, all
// goroutines.
func TestCallsMakeNoGarbage(t *testing.T) {
	if checkedBuild {
		return // the race detector allocates for itself
	}
	_, client := tcpPair(t, Options{Handler: echo}, Options{})
	answered := make(chan error, 1)
	done := func(_ *Message, err error) { answered <- err }
	one := func() {
		client.Go(benchCall, time.Minute, done)
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		one()
	}
	if n := testing.AllocsPerRun(1000, one); n > 0 {
		t.Errorf("%v allocations for a call with Go", n)
	}
	if n := testing.AllocsPerRun(1000, func() { client.Call(t.Context(), benchCall) }); n > 6 {
		t.Errorf("%v allocations for a blocking call", n)
	}
}
