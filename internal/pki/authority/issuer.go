package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strconv"
	"time"

	"example.org/ctrl/internal/pki"
)

// Lives of certificates.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	// Life is that of the certificates of nodes and of the manager. They are renewed after
	// two thirds of it.
	Life = 90 * 24 * time.Hour
	// early is how long before it is made a certificate is valid: clocks of nodes may be slow.
	early = 2 * time.Hour
)

// issuer is one authority: a certificate and its key, in one file.
type issuer struct {
	id   int
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte // the certificate
}

func issuerFile(id int) string { return "authority-" + strconv.Itoa(id) + ".pem" }

// newIssuer makes an authority, and its file's content.
func newIssuer(id int, now time.Time) (*issuer, []byte, error) {
	if now.Year() < 2000 {
		return nil, nil, passing(fmt.Errorf("the clock of this machine says %s, so no authority is made for the fleet; set the clock", now.UTC().Format(time.DateOnly)))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key for the fleet's authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "ctrl fleet authority " + strconv.Itoa(id)},
		NotBefore: now.Add(-early), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make the fleet's authority: %w", err)
	}
	private, err := encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	file := append(encodePEM("CERTIFICATE", der), private...)
	i, err := parseIssuer(id, file)
	return i, file, err
}

// parseIssuer reads an authority's file, and makes sure that it is whole: certificate and key
// belong together.
func parseIssuer(id int, file []byte) (*issuer, error) {
	block, rest := pem.Decode(file)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errCorrupt
	}
	private, rest := pem.Decode(rest)
	if private == nil || private.Type != "PRIVATE KEY" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errCorrupt
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, errCorrupt
	}
	parsed, err := x509.ParsePKCS8PrivateKey(private.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok || !cert.IsCA || !key.PublicKey.Equal(cert.PublicKey) || cert.CheckSignatureFrom(cert) != nil {
		return nil, errCorrupt
	}
	return &issuer{id: id, cert: cert, key: key, pem: encodePEM("CERTIFICATE", block.Bytes)}, nil
}

// issue makes a certificate for a public key.
func (i *issuer) issue(subject pkix.Name, uri string, usage x509.ExtKeyUsage, public any, now time.Time) (cert []byte, notAfter time.Time, err error) {
	name, err := url.Parse(uri)
	if err != nil {
		return nil, time.Time{}, err
	}
	notAfter = now.Add(Life)
	if notAfter.After(i.cert.NotAfter) {
		notAfter = i.cert.NotAfter
	}
	if !now.Before(notAfter) {
		return nil, time.Time{}, fmt.Errorf("%w at %s; `ctl pki rotate` makes a new one", errAuthorityExpired, notAfter.UTC().Format(time.RFC3339))
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(), Subject: subject, URIs: []*url.URL{name},
		NotBefore: now.Add(-early), NotAfter: notAfter, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, i.cert, public, i.key)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("cannot issue a certificate: %w", err)
	}
	return encodePEM("CERTIFICATE", der), notAfter.Truncate(time.Second), nil
}

// issueNode makes a node's certificate. The generation stands in the subject's serial number.
func (i *issuer) issueNode(node string, generation uint64, public any, now time.Time) ([]byte, time.Time, error) {
	subject := pkix.Name{CommonName: node, SerialNumber: strconv.FormatUint(generation, 10)}
	return i.issue(subject, pki.NodeURI(node), x509.ExtKeyUsageClientAuth, public, now)
}

// issueManager makes the manager's file: key, certificate, and the authority behind it, since
// those who join know the authority by its hash only.
func (i *issuer) issueManager(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key for the manager: %w", err)
	}
	cert, _, err := i.issue(pkix.Name{CommonName: "ctrl manager"}, pki.ManagerURI(), x509.ExtKeyUsageServerAuth, key.Public(), now)
	if err != nil {
		return nil, err
	}
	private, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{cert, i.pem, private}, nil), nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a key: %w", err)
	}
	return encodePEM("PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	b[0] &= 0x7f
	b[0] |= 0x40
	return new(big.Int).SetBytes(b[:])
}

// parseManager reads the first certificate of the manager's file, which must have its key.
func parseManager(file []byte) (*x509.Certificate, error) {
	var cert *x509.Certificate
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		switch {
		case block.Type == "CERTIFICATE" && cert == nil:
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, errCorrupt
			}
			cert = c
		case block.Type == "PRIVATE KEY" && cert != nil:
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			key, ok := parsed.(*ecdsa.PrivateKey)
			if err != nil || !ok || !key.PublicKey.Equal(cert.PublicKey) {
				return nil, errCorrupt
			}
			return cert, nil
		}
	}
	return nil, errCorrupt
}

var errAuthorityExpired = errors.New("the fleet's authority expired")

var errNoKey = errors.New("it holds no key that ctrl accepts: ECDSA, Ed25519, or RSA of 2048 to 4096 bits")

func describe(c *x509.Certificate) Certificate {
	sum := sha256.Sum256(c.Raw)
	return Certificate{c.Subject.String(), hex.EncodeToString(sum[:]), c.NotBefore, c.NotAfter}
}
