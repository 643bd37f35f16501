package pki_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/pkitest"
	"example.org/ctrl/internal/wire"
)

var quiet = slog.New(slog.DiscardHandler)

func newCA(t *testing.T) *pkitest.CA {
	t.Helper()
	ca, err := pkitest.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// write issues a certificate below the test's own directory.
func write(t *testing.T, ca *pkitest.CA, l pkitest.Leaf) pkitest.Files {
	t.Helper()
	f, err := ca.Write(t.TempDir(), "own", l)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func config(role pki.Role, f pkitest.Files) pki.Config {
	return pki.Config{Role: role, CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA}
}

func open(t *testing.T, cfg pki.Config) *pki.Store {
	t.Helper()
	s, err := pki.Open(cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pair is one connection on loopback. A pipe would not do: an end that gives up would wait
// for the other to read its last words.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// rawNode connects with any certificate whatsoever, which pki itself would not load, and
// returns what it hears from the manager in the end.
func rawNode(ctx context.Context, nc net.Conn, f pkitest.Files, without bool) error {
	cfg := &tls.Config{InsecureSkipVerify: true}
	if !without {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	c := tls.Client(nc, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

func TestManagerAcceptsOnlyNodes(t *testing.T) {
	client, server := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	both := append(client, server...)
	hour := time.Hour
	tests := map[string]struct {
		leaf  pkitest.Leaf
		alien bool   // signed by another authority of the same name
		bare  bool   // no certificate at all
		node  string // accepted as this node
		want  string // else: part of the error
	}{
		"node":                 {leaf: pkitest.NodeLeaf("node1"), node: "node1"},
		"odd name":             {leaf: pkitest.NodeLeaf("Lab_Pi.3-x"), node: "Lab_Pi.3-x"},
		"only DNS name":        {leaf: pkitest.Leaf{DNS: []string{"node1.example.net"}, Usage: client}, node: "node1.example.net"},
		"both usages":          {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, Usage: both}, node: "a"},
		"URI beside a DNS":     {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, DNS: []string{"b"}, Usage: client}, node: "a"},
		"other authority":      {leaf: pkitest.NodeLeaf("node1"), alien: true, want: "no authority in CAFile="},
		"none":                 {bare: true, want: "didn't provide a certificate"},
		"expired":              {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, Usage: client, NotAfter: time.Now().Add(-hour), NotBefore: time.Now().Add(-2 * hour)}, want: "expired at"},
		"not yet":              {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, Usage: client, NotBefore: time.Now().Add(hour)}, want: "not valid before"},
		"manager":              {leaf: pkitest.Leaf{URIs: []string{"ctrl://manager"}, Usage: both}, want: "it is a manager's"},
		"two URIs":             {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a", "ctrl://node/b"}, Usage: client}, want: "2 URI names"},
		"node and manager":     {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a", "ctrl://manager"}, Usage: both}, want: "2 URI names"},
		"foreign URI":          {leaf: pkitest.Leaf{URIs: []string{"spiffe://x/node/a"}, DNS: []string{"a"}, Usage: client}, want: "its URI name is"},
		"URI with a path":      {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a/b"}, Usage: client}, want: "it names node \"a/b\""},
		"URI with escapes":     {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/%61"}, Usage: client}, want: "it names node"},
		"URI with a query":     {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a?b"}, Usage: client}, want: "it names node"},
		"URI without a name":   {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/"}, Usage: client}, want: "it names node \"\""},
		"URI with a user":      {leaf: pkitest.Leaf{URIs: []string{"ctrl://x@node/a"}, Usage: client}, want: "its URI name is"},
		"URI of other case":    {leaf: pkitest.Leaf{URIs: []string{"ctrl://Node/a"}, Usage: client}, want: "its URI name is"},
		"two DNS names":        {leaf: pkitest.Leaf{DNS: []string{"a", "b"}, Usage: client}, want: "it names no node"},
		"no name":              {leaf: pkitest.Leaf{Usage: client}, want: "it names no node"},
		"wildcard":             {leaf: pkitest.Leaf{DNS: []string{"*.example.net"}, Usage: client}, want: "a node name is"},
		"server usage":         {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, Usage: server}, want: "not issued for this purpose"},
		"no usage":             {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}}, want: "does not name clientAuth"},
		"any usage":            {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}, want: "does not name clientAuth"},
		"authority":            {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, Usage: client, IsCA: true}, want: "it is an authority's"},
		"key for agreement":    {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, Usage: client, KeyUsage: x509.KeyUsageKeyAgreement}, want: "digitalSignature"},
		"control bytes in URI": {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/" + strings.Repeat("%1b", 200)}, Usage: client}, want: "…"},
	}
	ca, other := newCA(t), newCA(t)
	manager := open(t, config(pki.Manager, write(t, ca, pkitest.ManagerLeaf())))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := deadline(t)
			signer := ca
			if test.alien {
				signer = other
			}
			far, near := pair(t)
			files := write(t, signer, test.leaf)
			heard := make(chan error, 1)
			go func() { heard <- rawNode(ctx, far, files, test.bare) }()
			secure, peer, err := manager.Accept(ctx, near)
			if err == nil {
				secure.Close()
			}
			near.Close()
			told := <-heard
			if test.want == "" {
				if want := (pki.Peer{Node: test.node}); err != nil || peer != want {
					t.Fatalf("got %+v, error %v; want %+v", peer, err, want)
				}
				return
			}
			if err == nil {
				t.Fatalf("accepted as node %q", peer.Node)
			}
			if !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q is not of kind AccessDenied or does not contain %q", err, test.want)
			}
			if strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 600 {
				t.Errorf("error %q is not fit for a log", err)
			}
			if told == nil || !strings.Contains(told.Error(), "tls: ") {
				t.Errorf("the peer was told %v, want a TLS alert", told)
			}
		})
	}
}

func TestNodeAcceptsOnlyItsManager(t *testing.T) {
	client, server := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	both := append(client, server...)
	hour := time.Hour
	tests := map[string]struct {
		leaf     pkitest.Leaf
		alien    bool
		expected string // ManagerName=
		want     string // "" is accepted
	}{
		"manager":                     {leaf: pkitest.ManagerLeaf()},
		"expected DNS name":           {leaf: pkitest.Leaf{DNS: []string{"boss", "boss.example.net"}, Usage: server}, expected: "Boss.example.net"},
		"URI and expected DNS name":   {leaf: pkitest.Leaf{URIs: []string{"ctrl://manager"}, DNS: []string{"boss"}, Usage: server}, expected: "boss"},
		"URI without the DNS name":    {leaf: pkitest.ManagerLeaf(), expected: "boss", want: "ManagerName=boss"},
		"other DNS name":              {leaf: pkitest.Leaf{DNS: []string{"boss2"}, Usage: server}, expected: "boss", want: "ManagerName=boss"},
		"DNS name, none expected":     {leaf: pkitest.Leaf{DNS: []string{"boss"}, Usage: server}, want: "it is not a manager's"},
		"node for both usages":        {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, Usage: both}, want: "it is a node's"},
		"node with the expected name": {leaf: pkitest.Leaf{URIs: []string{"ctrl://node/a"}, DNS: []string{"boss"}, Usage: both}, expected: "boss", want: "it is a node's"},
		"manager and more":            {leaf: pkitest.Leaf{URIs: []string{"ctrl://manager", "ctrl://other"}, Usage: server}, want: "it is not a manager's"},
		"client usage":                {leaf: pkitest.Leaf{URIs: []string{"ctrl://manager"}, Usage: client}, want: "not issued for this purpose"},
		"no usage":                    {leaf: pkitest.Leaf{URIs: []string{"ctrl://manager"}}, want: "does not name serverAuth"},
		"other authority":             {leaf: pkitest.ManagerLeaf(), alien: true, want: "no authority in CAFile="},
		"expired":                     {leaf: pkitest.Leaf{URIs: []string{"ctrl://manager"}, Usage: server, NotAfter: time.Now().Add(-hour), NotBefore: time.Now().Add(-2 * hour)}, want: "expired at"},
		"authority":                   {leaf: pkitest.Leaf{URIs: []string{"ctrl://manager"}, Usage: server, IsCA: true}, want: "it is an authority's"},
	}
	ca, other := newCA(t), newCA(t)
	own := write(t, ca, pkitest.NodeLeaf("node1"))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := deadline(t)
			cfg := config(pki.Node, own)
			cfg.ManagerName = test.expected
			node := open(t, cfg)
			signer := ca
			if test.alien {
				signer = other
			}
			f := write(t, signer, test.leaf)
			cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
			if err != nil {
				t.Fatal(err)
			}
			near, far := pair(t)
			told := make(chan error, 1)
			go func() {
				told <- tls.Server(far, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert}).HandshakeContext(ctx)
			}()
			_, err = node.Connect(ctx, near)
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			if !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q is not of kind AccessDenied or does not contain %q", err, test.want)
			}
			if err := <-told; err == nil || !strings.Contains(err.Error(), "tls: ") {
				t.Errorf("the other end was told %v, want a TLS alert", err)
			}
		})
	}
}

func TestBothSides(t *testing.T) {
	ca := newCA(t)
	manager := open(t, config(pki.Manager, write(t, ca, pkitest.ManagerLeaf())))
	node := open(t, config(pki.Node, write(t, ca, pkitest.NodeLeaf("node1"))))
	ctx := deadline(t)
	far, near := pair(t)
	connected := make(chan error, 1)
	go func() {
		c, err := node.Connect(ctx, far)
		if err == nil {
			_, err = io.WriteString(c, "hello")
		}
		connected <- err
	}()
	secure, peer, err := manager.Accept(ctx, near)
	if err != nil || peer.Node != "node1" {
		t.Fatalf("%+v, error %v", peer, err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(secure, got); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	if err := <-connected; err != nil {
		t.Error(err)
	}
	state := secure.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState()
	if state.Version != tls.VersionTLS13 {
		t.Errorf("TLS version %x", state.Version)
	}
}

// TestNodeHearsWhyItIsRefused: in TLS 1.3 the manager's verdict reaches the node after its
// handshake has ended, as the error of a read.
func TestNodeHearsWhyItIsRefused(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	mixed := write(t, other, pkitest.NodeLeaf("node1"))
	mixed.CA = write(t, ca, pkitest.NodeLeaf("x")).CA // trusts the right authority, is signed by another one
	expired := pkitest.NodeLeaf("node1")
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	tests := map[string]struct {
		files pkitest.Files
		want  string
	}{
		"other authority": {mixed, "no authority in its own CAFile="},
	}
	manager := open(t, config(pki.Manager, write(t, ca, pkitest.ManagerLeaf())))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := deadline(t)
			node := open(t, config(pki.Node, test.files))
			far, near := pair(t)
			verdict := make(chan error, 1)
			go func() {
				_, _, err := manager.Accept(ctx, near)
				near.Close()
				verdict <- err
			}()
			c, err := node.Connect(ctx, far)
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if err == nil || !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want kind AccessDenied and %q", err, test.want)
			}
			if err := <-verdict; err == nil {
				t.Error("the manager accepted")
			}
		})
	}
	t.Run("own certificate expired", func(t *testing.T) {
		node := open(t, config(pki.Node, write(t, ca, expired)))
		far, _ := pair(t)
		_, err := node.Connect(deadline(t), far)
		if !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), "expired at") {
			t.Errorf("got %v", err)
		}
	})
}

func TestWrongProtocol(t *testing.T) {
	ca := newCA(t)
	manager := open(t, config(pki.Manager, write(t, ca, pkitest.ManagerLeaf())))
	node := open(t, config(pki.Node, write(t, ca, pkitest.NodeLeaf("node1"))))
	t.Run("towards the manager", func(t *testing.T) {
		for sent, want := range map[string]string{
			"\x00AUTH EXTERNAL\r\n":             "it has TLS=no",
			"GET / HTTP/1.1\r\n\r\n":            `first bytes are "GET /"`,
			"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8 ": "the peer does not speak TLS",
		} {
			far, near := pair(t)
			if _, err := io.WriteString(far, sent); err != nil {
				t.Fatal(err)
			}
			_, _, err := manager.Accept(deadline(t), near)
			if err == nil || !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q gave %v, want kind AccessDenied and %q", sent, err, want)
			}
			if !strings.HasPrefix(sent, "\x00AUTH") {
				continue
			}
			answer := make([]byte, 64)
			n, err := far.Read(answer)
			if err != nil || !strings.Contains(string(answer[:n]), "needs TLS") {
				t.Errorf("a D-Bus peer without TLS was told %q, %v", answer[:n], err)
			}
		}
	})
	t.Run("from the manager", func(t *testing.T) {
		near, far := pair(t)
		if _, err := io.WriteString(far, "REJECTED EXTERNAL\r\n"); err != nil {
			t.Fatal(err)
		}
		_, err := node.Connect(deadline(t), near)
		if err == nil || !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), "TLS=no") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a dead end is no verdict", func(t *testing.T) {
		near, far := pair(t)
		far.Close()
		_, err := node.Connect(deadline(t), near)
		if err == nil || errors.Is(err, wire.ErrAccessDenied) {
			t.Errorf("got %v, want an error of the network", err)
		}
		far, near = pair(t)
		far.Close()
		if _, _, err := manager.Accept(deadline(t), near); err == nil || errors.Is(err, wire.ErrAccessDenied) {
			t.Errorf("got %v, want an error of the network", err)
		}
	})
	t.Run("older TLS", func(t *testing.T) {
		far, near := pair(t)
		f := write(t, ca, pkitest.NodeLeaf("node1"))
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan error, 1)
		go func() {
			old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
			told <- tls.Client(far, old).HandshakeContext(deadline(t))
		}()
		if _, _, err := manager.Accept(deadline(t), near); !errors.Is(err, wire.ErrAccessDenied) {
			t.Errorf("got %v", err)
		}
		if err := <-told; err == nil {
			t.Error("TLS 1.2 was accepted")
		}
	})
}
