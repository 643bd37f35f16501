package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// isRemoteAlert finds what the other side says with a TLS alert (crypto/tls gives it as an
// operation of this name).
func isRemoteAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// Alerts that a peer ends a connection with (RFC 8446, 6.2), as crypto/tls words them.
const (
	alertBadCertificate  tls.AlertError = 42
	alertRevoked         tls.AlertError = 44
	alertExpired         tls.AlertError = 45
	alertUnknown         tls.AlertError = 46
	alertUnknownCA       tls.AlertError = 48
	alertProtocolVersion tls.AlertError = 70
	alertNoCertificate   tls.AlertError = 116
)

func isAlert(err error, alerts ...tls.AlertError) bool {
	for _, a := range alerts {
		if isRemoteAlert(err) && strings.HasSuffix(err.Error(), a.Error()) {
			return true
		}
	}
	return false
}

// misfitError says why a certificate that an authority vouches for is not the one needed.
type misfitError struct {
	leaf *x509.Certificate
	err  error
}

func (e *misfitError) Error() string { return e.err.Error() }

func misfit(leaf *x509.Certificate, err error) error {
	if err == nil {
		return nil
	}
	return &misfitError{leaf, err}
}

// explainManager turns what went wrong towards a manager into words for the node's log.
func (m *material) explainManager(err error) error {
	var header tls.RecordHeaderError
	var invalid *tls.CertificateVerificationError
	var other *misfitError
	switch {
	case errors.As(err, &other):
		return refusal("the manager's certificate%s is not accepted: %v", subject(other.leaf), other)
	case errors.As(err, &header):
		return refusal("there is no TLS at the other end: either the manager has TLS=no, or the port belongs to another program")
	case errors.As(err, &invalid):
		return refusal("the manager's certificate is not accepted: %s", why(invalid, "CAFile="+m.cfg.CAFile))
	case isAlert(err, alertUnknownCA):
		return refusal("the manager does not accept CertFile=%s: no authority in its own CAFile= has signed it", m.cfg.CertFile)
	case isAlert(err, alertExpired):
		return refusal("the manager does not accept CertFile=%s: by its clock it is expired or not valid yet", m.cfg.CertFile)
	case isAlert(err, alertBadCertificate, alertUnknown, alertRevoked, alertNoCertificate):
		return refusal("the manager does not accept CertFile=%s: the manager's log says why", m.cfg.CertFile)
	case isAlert(err, alertProtocolVersion):
		return refusal("the other end does not speak TLS 1.3, so it is no manager: check address and port")
	case isRemoteAlert(err):
		return refusal("the other end refused TLS: %v", err)
	case isBroken(err):
		return fmt.Errorf("the connection broke during the TLS handshake: %w", err)
	}
	return refusal("TLS with the manager failed: %v", err)
}

// explainPeer turns what went wrong with a peer into words for the manager's log.
func (m *material) explainPeer(err error, nc net.Conn) error {
	var header tls.RecordHeaderError
	var invalid *tls.CertificateVerificationError
	var other *misfitError
	switch {
	case errors.As(err, &other):
		return refusal("the peer's certificate%s is not accepted: %v", subject(other.leaf), other)
	case errors.As(err, &header):
		return m.explainPlain(header, nc)
	case errors.As(err, &invalid):
		return refusal("the peer's certificate%s is not accepted: %s", subject(invalid.UnverifiedCertificates[0]), why(invalid, "CAFile="+m.cfg.CAFile))
	case isAlert(err, alertUnknownCA, alertExpired, alertBadCertificate, alertUnknown, alertRevoked):
		return refusal("the peer does not accept this manager's certificate (%v); its own log says why", err)
	case isRemoteAlert(err):
		return refusal("the peer refused TLS: %v", err)
	case isBroken(err):
		return fmt.Errorf("the connection broke during the TLS handshake: %w", err)
	}
	return refusal("TLS with the peer failed: %v", err)
}

// explainPlain says what a peer speaks that does not speak TLS, and tells a D-Bus peer.
func (m *material) explainPlain(header tls.RecordHeaderError, nc net.Conn) error {
	first := header.RecordHeader[:]
	if string(first) == "\x00AUTH" {
		nc.SetWriteDeadline(time.Now().Add(time.Second))
		io.WriteString(nc, "ERROR \"this port needs TLS\"\r\n")
		return refusal("the peer speaks without TLS: it has TLS=no, and this manager has not")
	}
	if printable(first) {
		return refusal("the peer does not speak TLS; its first bytes are %q", first)
	}
	return refusal("the peer does not speak TLS")
}

// why is crypto/x509's verdict with what to do about it.
func why(err *tls.CertificateVerificationError, caFile string) string {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err.Err, &unknown):
		return "no authority in " + caFile + " has signed it; both sides need the certificate of the same authority"
	case errors.As(err.Err, &invalid) && invalid.Reason == x509.Expired:
		if verr := checkValidity("use", invalid.Cert, time.Now()); verr != nil {
			return verr.Error()
		}
	case errors.As(err.Err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return "it was not issued for this purpose (extended key usage)"
	}
	return err.Err.Error()
}

// subject names a certificate by its URI, else by its subject.
func subject(c *x509.Certificate) string {
	if len(c.URIs) > 0 {
		return " for " + clip(c.URIs[0].String())
	}
	return " for " + clip(c.Subject.String())
}

// isBroken tells a network that failed from a peer that was not accepted.
func isBroken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &op) && (op.Op == "read" || op.Op == "write")
}
