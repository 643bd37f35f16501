package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/pkitest"
	"example.org/ctrl/internal/wire"
)

// joinedBy is the server's side of one handshake with somebody who has a token, and what it
// could read.
type joinedBy struct {
	err   error
	read  []byte
	chain int // certificates that the peer showed
}

// serveChain plays a manager with any certificate and any chain behind it.
func serveChain(nc net.Conn, cert, key []byte, behind ...[]byte) <-chan joinedBy {
	out := make(chan joinedBy, 1)
	go func() {
		var got joinedBy
		own, err := tls.X509KeyPair(bytes.Join(append([][]byte{cert}, behind...), nil), key)
		if err != nil {
			out <- joinedBy{err: err}
			return
		}
		c := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12})
		if got.err = c.Handshake(); got.err == nil {
			got.chain = len(c.ConnectionState().PeerCertificates)
			got.read, got.err = io.ReadAll(c)
		}
		nc.Close()
		out <- got
	}()
	return out
}

// TestTokenPinsTheManager: a machine with a token speaks to the manager of its fleet and to
// nobody else, and gives the others nothing.
func TestTokenPinsTheManager(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	token := pki.NewToken(ca.Cert)
	node := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	manager := pkitest.ManagerLeaf()
	late := manager
	late.NotBefore = time.Now().Add(time.Hour)
	expired := manager
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	const fleet = "does not come from the authority that the token was made for"
	tests := map[string]struct {
		ca     *pkitest.CA
		leaf   pkitest.Leaf
		behind [][]byte
		want   string
	}{
		"the manager":              {ca, manager, [][]byte{ca.PEM}, ""},
		"another authority":        {other, manager, [][]byte{other.PEM}, fleet},
		"without the authority":    {ca, manager, nil, fleet},
		"a borrowed authority":     {other, manager, [][]byte{ca.PEM}, "no authority in the token has signed it"},
		"both, by the wrong one":   {other, manager, [][]byte{other.PEM, ca.PEM}, "no authority in the token has signed it"},
		"a node":                   {ca, pkitest.NodeLeaf("node1"), [][]byte{ca.PEM}, "it was not issued for this purpose"},
		"a node for both":          {ca, pkitest.Leaf{URIs: []string{"ctrl://node/a"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, [][]byte{ca.PEM}, "it is a node's"},
		"a manager by wrong usage": {ca, pkitest.Leaf{URIs: []string{"ctrl://manager"}, Usage: node}, [][]byte{ca.PEM}, "it was not issued for this purpose"},
		"a manager by DNS name":    {ca, pkitest.Leaf{DNS: []string{"manager"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, [][]byte{ca.PEM}, "it is not a manager's"},
		"expired":                  {ca, expired, [][]byte{ca.PEM}, "expired at"},
		"by a clock that is slow":  {ca, late, [][]byte{ca.PEM}, "set the clock"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cert, key, err := test.ca.Issue(test.leaf)
			if err != nil {
				t.Fatal(err)
			}
			client, server := pair(t)
			heard := serveChain(server, cert, key, test.behind...)
			c, err := pki.ConnectToJoin(deadline(t), client, token)
			if err == nil {
				io.WriteString(c, "the token")
				c.Close()
			} else {
				client.Close()
			}
			got := <-heard
			if got.chain != 0 {
				t.Error("a certificate was shown")
			}
			if test.want == "" {
				if err != nil || string(got.read) != "the token" {
					t.Errorf("%v; the manager read %q", err, got.read)
				}
				return
			}
			if err == nil || !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if len(got.read) > 0 {
				t.Errorf("the other side read %q", got.read)
			}
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		client, server := pair(t)
		server.Write([]byte("ERROR \"this port has no TLS\"\r\n"))
		if _, err := pki.ConnectToJoin(deadline(t), client, token); err == nil || !strings.Contains(err.Error(), "there is no TLS at the other end") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("TLS 1.2", func(t *testing.T) {
		client, server := pair(t)
		cert, key, _ := ca.Issue(manager)
		own, _ := tls.X509KeyPair(append(cert, ca.PEM...), key)
		go tls.Server(server, &tls.Config{Certificates: []tls.Certificate{own}, MaxVersion: tls.VersionTLS12}).Handshake()
		if _, err := pki.ConnectToJoin(deadline(t), client, token); err == nil || !strings.Contains(err.Error(), "TLS 1.3") && !strings.Contains(err.Error(), "protocol version") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a manager that has no authority", func(t *testing.T) {
		files := write(t, ca, manager)
		client, server := pair(t)
		go open(t, config(pki.Manager, files)).Accept(deadline(t), server)
		c, err := pki.ConnectToJoin(deadline(t), client, token)
		if err == nil {
			t.Fatal(c.RemoteAddr())
		}
		if !strings.Contains(err.Error(), fleet) { // its chain does not hold the authority
			t.Errorf("got %v", err)
		}
	})
}

func TestCheckIssued(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	token := pki.NewToken(ca.Cert)
	cert, key, err := ca.Issue(pkitest.NodeLeaf("node1"))
	if err != nil {
		t.Fatal(err)
	}
	wrong, _, _ := ca.Issue(pkitest.NodeLeaf("node1"))
	_, foreign, _ := ca.Issue(pkitest.NodeLeaf("node1"))
	manager, managerKey, _ := ca.Issue(pkitest.ManagerLeaf())
	old := pkitest.NodeLeaf("node1")
	old.NotBefore, old.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	expired, expiredKey, _ := ca.Issue(old)
	tests := map[string]struct {
		node          string
		key, cert, ca []byte
		want          string
	}{
		"good":                 {"node1", key, cert, ca.PEM, ""},
		"name not known":       {"", key, cert, ca.PEM, ""},
		"both authorities":     {"node1", key, cert, append(bytes.Clone(other.PEM), ca.PEM...), ""},
		"other name":           {"node2", key, cert, ca.PEM, `is for node "node1" instead of "node2"`},
		"other certificate":    {"node1", key, wrong, ca.PEM, "is for another key"},
		"other key":            {"node1", foreign, cert, ca.PEM, "is for another key"},
		"a manager's":          {"", managerKey, manager, ca.PEM, "it is a manager's"},
		"expired":              {"node1", expiredKey, expired, ca.PEM, "expired at"},
		"no certificate":       {"node1", key, nil, ca.PEM, "holds no certificate"},
		"no authority":         {"node1", key, cert, nil, "holds no certificate"},
		"a key as certificate": {"node1", key, key, ca.PEM, "holds a \"PRIVATE KEY\""},
		"other authority":      {"node1", key, cert, other.PEM, "comes from none of the authorities"},
		"huge":                 {"node1", key, bytes.Repeat([]byte("x"), 1<<20), ca.PEM, "larger than"},
	}
	for name, test := range tests {
		got, err := token.CheckJoined(test.node, test.key, test.cert, test.ca)
		if test.want == "" {
			if err != nil || got.Node != "node1" || got.NotAfter.Before(time.Now()) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	foreignCert, foreignKey, _ := other.Issue(pkitest.NodeLeaf("node1"))
	if _, err := token.CheckJoined("node1", foreignKey, foreignCert, other.PEM); err == nil || !strings.Contains(err.Error(), "is not among those") {
		t.Errorf("another fleet's answer gave %v", err)
	}
}

func TestNewKeyAndCSR(t *testing.T) {
	for name, ok := range map[string]bool{"node1": true, "": true, "a/b": false, "*": false, strings.Repeat("x", 65): false, "a\nb": false} {
		key, csr, err := pki.NewKeyAndCSR(name)
		if (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
		if ok && (!strings.HasPrefix(string(key), "-----BEGIN PRIVATE KEY") || !strings.HasPrefix(string(csr), "-----BEGIN CERTIFICATE REQUEST")) {
			t.Errorf("%q: %.40s %.40s", name, key, csr)
		}
	}
}
