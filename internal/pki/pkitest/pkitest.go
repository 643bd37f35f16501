// Package pkitest makes certificates for tests: authorities, and certificates with any fault
// that a test needs.
package pkitest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// CA is a certificate authority.
type CA struct {
	Cert *x509.Certificate
	PEM  []byte
	key  *ecdsa.PrivateKey
}

// Leaf describes a certificate. The zero times mean valid since an hour, for a day.
type Leaf struct {
	URIs      []string
	DNS       []string
	Usage     []x509.ExtKeyUsage
	KeyUsage  x509.KeyUsage // 0: digital signature
	IsCA      bool
	NotBefore time.Time
	NotAfter  time.Time
}

// ManagerLeaf is what a manager needs.
func ManagerLeaf() Leaf {
	return Leaf{URIs: []string{"ctrl://manager"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
}

// NodeLeaf is what the node called name needs.
func NodeLeaf(name string) Leaf {
	return Leaf{URIs: []string{"ctrl://node/" + name}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// Files are the paths of a certificate, its key and the authority.
type Files struct {
	Cert, Key, CA string
}

// New makes an authority that is valid since an hour, for ten days.
func New(name string) (*CA, error) {
	return NewFor(name, time.Now().Add(-time.Hour), time.Now().Add(10*24*time.Hour))
}

// NewFor makes an authority with a validity of one's choice.
func NewFor(name string, notBefore, notAfter time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: notBefore, NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &CA{Cert: cert, PEM: block("CERTIFICATE", der), key: key}, nil
}

// Issue makes a certificate and its key, both PEM.
func (ca *CA) Issue(l Leaf) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	cert, err = ca.IssueFor(private.Public(), l)
	return cert, block("PRIVATE KEY", keyDER), err
}

// IssueFor makes a certificate, PEM, for a key that somebody else has.
func (ca *CA) IssueFor(public crypto.PublicKey, l Leaf) ([]byte, error) {
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "test"},
		NotBefore: l.NotBefore, NotAfter: l.NotAfter, DNSNames: l.DNS,
		KeyUsage: l.KeyUsage, ExtKeyUsage: l.Usage, IsCA: l.IsCA, BasicConstraintsValid: true,
	}
	if l.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if l.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	if l.KeyUsage == 0 {
		template.KeyUsage = x509.KeyUsageDigitalSignature
	}
	for _, uri := range l.URIs {
		u, err := url.Parse(uri)
		if err != nil {
			return nil, err
		}
		template.URIs = append(template.URIs, u)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, public, ca.key)
	if err != nil {
		return nil, err
	}
	return block("CERTIFICATE", der), nil
}

// Write issues a certificate and writes NAME.crt, NAME.key (mode 0600) and ca.crt to dir.
func (ca *CA) Write(dir, name string, l Leaf) (Files, error) {
	f := Files{
		Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.crt"),
	}
	cert, key, err := ca.Issue(l)
	if err != nil {
		return f, fmt.Errorf("cannot issue a certificate for %s: %w", name, err)
	}
	for _, out := range []struct {
		path string
		data []byte
		mode os.FileMode
	}{{f.Cert, cert, 0o644}, {f.Key, key, 0o600}, {f.CA, ca.PEM, 0o644}} {
		if err := os.WriteFile(out.path, out.data, out.mode); err != nil {
			return f, err
		}
	}
	return f, nil
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the kernel's random source does not fail
	}
	return n
}
