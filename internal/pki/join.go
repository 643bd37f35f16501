package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// JoinTLS is the TLS of a machine that has a token and no certificate yet. It accepts the
// manager of the fleet that the token is for and nobody else: the manager's chain must end
// in the authority whose SHA-256 the token holds.
func JoinTLS(t Token) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		// As in material.config: host names play no part, VerifyConnection does all of it.
		InsecureSkipVerify: true,
		VerifyConnection:   func(state tls.ConnectionState) error { return t.verifyManager(state.PeerCertificates) },
	}
}

var errOtherFleet = errors.New("it does not come from the authority that the token was made for: the authority was replaced since (ctl pki rotate), " +
	"the address leads to the manager of another fleet, or somebody stands between; `ctl node add NAME` on the right manager prints the line to use")

func (t Token) verifyManager(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("it has no certificate")
	}
	at := slices.IndexFunc(chain, t.isOf)
	if at < 0 {
		return misfit(chain[0], errOtherFleet)
	}
	if err := verifyChain(chain, chain[at:at+1], x509.ExtKeyUsageServerAuth, time.Now()); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return misfit(chain[0], checkManager(chain[0], ""))
}

// ConnectToJoin makes TLS of a connection to a manager, within ctx, for one call of Join.
// Only after it has succeeded may the token be sent. It does not close nc on an error. An
// error of kind wire.ErrAccessDenied says that the other side is not the one to join.
func ConnectToJoin(ctx context.Context, nc net.Conn, t Token) (net.Conn, error) {
	c := tls.Client(nc, JoinTLS(t))
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, explainJoin(err)
	}
	return &conn{Conn: c, explain: explainJoin}, nil
}

func explainJoin(err error) error {
	var invalid *tls.CertificateVerificationError
	switch {
	case errors.As(err, &invalid):
		return refusal("the manager's certificate is not accepted: %s", why(invalid, "the token"))
	case isAlert(err, alertNoCertificate, alertBadCertificate):
		return refusal("the manager wants a certificate already, so it lets nobody join with a token: it uses certificates from files (CertFile=), or is older than this agent")
	case isRemoteAlert(err) || isBroken(err):
		return fmt.Errorf("the connection broke during the TLS handshake: %w", err)
	}
	return (&material{}).explainManager(err)
}

// CheckJoined is CheckIssued for the answer to Join: the authorities must include the one
// that the token was made for.
func (t Token) CheckJoined(node string, key, certificate, ca []byte) (Issued, error) {
	out, err := CheckIssued(node, key, certificate, ca)
	if err != nil {
		return Issued{}, err
	}
	authorities, err := decodeCertificates(ca)
	if err != nil {
		return Issued{}, err
	}
	if !slices.ContainsFunc(authorities, t.isOf) {
		return Issued{}, errors.New("the authority that the token was made for is not among those that the manager gave")
	}
	return out, nil
}
