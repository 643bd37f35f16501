package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"time"

	"example.org/ctrl/internal/wire"
)

// NewKeyAndCSR makes a node's key (ECDSA P-256) and the request for a certificate that goes
// with it, both PEM. The key is for a file with mode 0600 and for nobody else. The name may
// be "" where only the manager knows it.
func NewKeyAndCSR(node string) (key, csr []byte, err error) {
	if node != "" && !wire.ValidNodeName(node) {
		return nil, nil, wire.ErrInvalidArgs.With("node name %s is not valid: %s", clip(node), wire.NodeNameRule)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: node}}
	if node != "" {
		template.URIs = []*url.URL{{Scheme: "ctrl", Host: "node", Path: "/" + node}}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, private)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a certificate request: %w", err)
	}
	if key, err = encodeKey(private); err != nil {
		return nil, nil, err
	}
	return key, encodePEM("CERTIFICATE REQUEST", der), nil
}

func encodeKey(private *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a key: %w", err)
	}
	return encodePEM("PRIVATE KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Issued is what an authority has given to a node, checked.
type Issued struct {
	Node        string // the name in the certificate
	Certificate []byte // PEM, for CertFile=
	CA          []byte // PEM, for CAFile=
	NotAfter    time.Time
}

// CheckIssued looks at what came back for a request before any of it is used: the
// certificate belongs to the key, is a node's (of the name node, unless that is ""), is valid
// now, and comes from one of the authorities in ca. All are PEM.
func CheckIssued(node string, key, certificate, ca []byte) (Issued, error) {
	const cert, authorities = "the answer's certificate", "the answer's list of authorities"
	chain, err := decodeCertificates(certificate)
	if err != nil {
		return Issued{}, fmt.Errorf("%s cannot be used: %w", cert, err)
	}
	roots, err := decodeCertificates(ca)
	if err != nil {
		return Issued{}, fmt.Errorf("%s cannot be used: %w", authorities, err)
	}
	private, err := parseKey("", key)
	if err != nil {
		return Issued{}, err
	}
	leaf := chain[0]
	if public, ok := private.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(leaf.PublicKey) {
		return Issued{}, fmt.Errorf("%s is for another key", cert)
	}
	name, err := nodeOf(leaf)
	switch {
	case err != nil:
		return Issued{}, fmt.Errorf("%s cannot be used: %w", cert, err)
	case node != "" && name != node:
		return Issued{}, fmt.Errorf("%s is for node %q instead of %q", cert, name, node)
	}
	now := time.Now()
	if err := checkValidity("the manager's answer", leaf, now); err != nil {
		return Issued{}, err
	}
	if err := verifyChain(chain, roots, x509.ExtKeyUsageClientAuth, now); err != nil {
		return Issued{}, fmt.Errorf("%s comes from none of the authorities that came with it: %w", cert, err)
	}
	return Issued{Node: name, Certificate: certificate, CA: ca, NotAfter: leaf.NotAfter}, nil
}

func verifyChain(chain, authorities []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range authorities {
		if c.IsCA {
			roots.AddCert(c)
		}
	}
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	return err
}

// maxPEM bounds what is parsed of a message: a chain of a few certificates is far below.
const maxPEM = 64 << 10

func decodeCertificates(data []byte) ([]*x509.Certificate, error) {
	if len(data) > maxPEM {
		return nil, fmt.Errorf("it is larger than %d KiB", maxPEM>>10)
	}
	var out []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it holds a %s", clip(block.Type))
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate number %d cannot be read: %w", len(out)+1, err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no certificate in PEM form")
	}
	return out, nil
}
