package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strconv"
	"time"
)

// config makes the TLS configuration of this side.
func (m *material) config() *tls.Config {
	own := tls.Certificate{PrivateKey: m.key, Leaf: m.leaf()}
	for _, c := range m.chain {
		own.Certificate = append(own.Certificate, c.Raw)
	}
	cfg := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{own},
		// A resumed connection would skip the check of a certificate that may have been
		// replaced or run out since.
		SessionTicketsDisabled: true,
	}
	if m.cfg.Role == Manager {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		if m.cfg.Joining {
			cfg.ClientAuth = tls.VerifyClientCertIfGiven
		}
		cfg.ClientCAs = m.roots
		cfg.VerifyConnection = func(state tls.ConnectionState) error {
			_, err := m.peerOf(state)
			return err
		}
		return cfg
	}
	// Sent whatever authorities the manager asks for, so that the manager can say what is
	// wrong with it.
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	// crypto/tls can only check host names, which play no part here: verifyManager does all
	// of it, with the authorities of CAFile= and no others.
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = m.verifyManager
	return cfg
}

func (m *material) verifyManager(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("it has no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	leaf := state.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: m.roots, Intermediates: intermediates,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
	}
	return misfit(leaf, checkManager(leaf, m.cfg.ManagerName))
}

// peerOf is who a peer is, by the certificate that it has shown.
func (m *material) peerOf(state tls.ConnectionState) (Peer, error) {
	if len(state.PeerCertificates) == 0 {
		return Peer{}, nil // crypto/tls lets nobody come this far where a certificate is needed
	}
	leaf := state.PeerCertificates[0]
	node, err := nodeOf(leaf)
	if err != nil {
		return Peer{}, misfit(leaf, err)
	}
	p := Peer{Node: node}
	if m.cfg.Joining {
		p.NotAfter = leaf.NotAfter
		if p.Generation, err = strconv.ParseUint(leaf.Subject.SerialNumber, 10, 64); err != nil {
			return Peer{}, misfit(leaf, errors.New("it says no generation, so it does not come from `ctl node add`"))
		}
	}
	return p, nil
}

// Accept makes the manager's side of TLS on an accepted connection, within ctx, and returns
// who the peer has proved to be. It does not close nc on an error. An error of
// kind wire.ErrAccessDenied says that one side did not accept the other.
func (s *Store) Accept(ctx context.Context, nc net.Conn) (net.Conn, Peer, error) {
	m := s.fresh()
	if err := m.checkTime(time.Now()); err != nil {
		return nil, Peer{}, refusal("%v", err)
	}
	c := tls.Server(nc, m.tls)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, Peer{}, m.explainPeer(err, nc)
	}
	peer, err := m.peerOf(c.ConnectionState())
	if err != nil {
		return nil, Peer{}, refusal("the peer's certificate is not accepted: %v", err)
	}
	return &conn{Conn: c, explain: func(err error) error { return err }}, peer, nil
}

// Connect makes the node's side of TLS on a connection to a manager, within ctx, and makes
// sure that a manager is at the other end. It does not close nc on an error. An error of
// kind wire.ErrAccessDenied says that one side did not accept the other. The manager's word
// about the own certificate comes later, as the error of a read.
func (s *Store) Connect(ctx context.Context, nc net.Conn) (net.Conn, error) {
	m := s.fresh()
	if err := m.checkTime(time.Now()); err != nil {
		return nil, refusal("%v", err)
	}
	c := tls.Client(nc, m.tls)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, m.explainManager(err)
	}
	return &conn{Conn: c, explain: m.explainManager}, nil
}

// conn is a TLS connection whose Close never waits. Closing tls.Conn itself writes a last
// record, for which it waits up to 5 s when the peer does not read.
type conn struct {
	*tls.Conn
	explain func(error) error
}

func (c *conn) Close() error { return c.NetConn().Close() }

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && isRemoteAlert(err) {
		err = c.explain(err)
	}
	return n, err
}
