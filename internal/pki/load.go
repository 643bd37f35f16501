package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"
)

// material is one consistent set of files. It never changes.
type material struct {
	cfg         Config
	chain       []*x509.Certificate // the own certificate first
	key         crypto.Signer
	authorities []*x509.Certificate
	roots       *x509.CertPool
	name        string // who the own certificate says this is
	sum         [sha256.Size]byte
	tls         *tls.Config
}

func (m *material) leaf() *x509.Certificate { return m.chain[0] }

// load reads the files and checks all that does not depend on the time.
func load(cfg Config) (*material, error) {
	m := &material{cfg: cfg}
	cert, err := readFile("CertFile", cfg.CertFile, false)
	if err != nil {
		return nil, err
	}
	key, err := readFile("KeyFile", cfg.KeyFile, true)
	if err != nil {
		return nil, err
	}
	ca, err := readFile("CAFile", cfg.CAFile, false)
	if err != nil {
		return nil, err
	}
	m.sum = sha256.Sum256(bytes.Join([][]byte{cert, key, ca}, []byte{0}))
	if m.chain, err = parseCertificates("CertFile", cfg.CertFile, cert); err != nil {
		return nil, err
	}
	if m.key, err = parseKey(cfg.KeyFile, key); err != nil {
		return nil, err
	}
	if m.authorities, err = parseCertificates("CAFile", cfg.CAFile, ca); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	m.tls = m.config()
	return m, nil
}

// check wants a certificate and a key that belong together, a name, and real authorities.
func (m *material) check() error {
	cfg := m.cfg
	public, ok := m.key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(m.leaf().PublicKey) {
		return fmt.Errorf("the key in KeyFile=%s does not belong to the certificate in CertFile=%s, which must come first in its file; "+
			"name two files that were made together", cfg.KeyFile, cfg.CertFile)
	}
	if err := m.checkName(); err != nil {
		return err
	}
	m.roots = x509.NewCertPool()
	for _, c := range m.authorities {
		if !c.IsCA {
			return fmt.Errorf("CAFile=%s holds a certificate that is no authority's (subject %s); "+
				"only the certificates of authorities belong there", cfg.CAFile, clip(c.Subject.String()))
		}
		m.roots.AddCert(c)
	}
	return nil
}

func (m *material) checkName() error {
	cfg := m.cfg
	if cfg.Role == Manager {
		m.name = "manager"
		if err := checkOwnManager(m.leaf()); err != nil {
			return fmt.Errorf("CertFile=%s cannot be a manager's certificate: %w; issue one with the URI name %s and extended key usage serverAuth",
				cfg.CertFile, err, managerURI)
		}
		return nil
	}
	name, err := nodeOf(m.leaf())
	if err != nil {
		return fmt.Errorf("CertFile=%s cannot be a node's certificate: %w; issue one with the URI name %s and extended key usage clientAuth",
			cfg.CertFile, err, NodeURI(orName(cfg.NodeName)))
	}
	if cfg.NodeName != "" && name != cfg.NodeName {
		return fmt.Errorf("CertFile=%s is for node %q, but this node is %q; set NodeName=%s, or use the certificate of this node",
			cfg.CertFile, name, cfg.NodeName, name)
	}
	m.name = name
	return nil
}

func orName(name string) string {
	if name == "" {
		return "NAME"
	}
	return name
}

// checkOwnManager is checkManager from the manager's side, which does not know the DNS name
// that agents expect: any will do.
func checkOwnManager(c *x509.Certificate) error {
	expected := ""
	if len(c.URIs) == 0 && len(c.DNSNames) > 0 {
		expected = c.DNSNames[0]
	}
	return checkManager(c, expected)
}

// checkTime says whether the own certificate, and an authority, are valid at a time.
func (m *material) checkTime(now time.Time) error {
	if err := checkValidity("CertFile="+m.cfg.CertFile, m.leaf(), now); err != nil {
		if m.cfg.Role == Node && now.After(m.leaf().NotAfter) {
			return fmt.Errorf("%w; a node that joined with a token joins again: `ctl node add %s` on the manager prints the line to run here", err, m.name)
		}
		return err
	}
	var first error
	for _, c := range m.authorities {
		err := checkValidity("CAFile="+m.cfg.CAFile, c, now)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func checkValidity(file string, c *x509.Certificate, now time.Time) error {
	const form = "2006-01-02 15:04:05 UTC"
	clock := now.UTC().Format(form)
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate in %s expired at %s, and it is %s now by this machine's clock; issue a new one, or set the clock",
			file, c.NotAfter.UTC().Format(form), clock)
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate in %s is not valid before %s, and it is %s now by this machine's clock; set the clock",
			file, c.NotBefore.UTC().Format(form), clock)
	}
	return nil
}

func parseCertificates(key, path string, data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	found := ""
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			found = block.Type
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: certificate number %d cannot be read: %w", key, path, len(out)+1, err)
		}
		out = append(out, c)
	}
	switch {
	case len(out) > 0:
		return out, nil
	case found != "":
		return nil, fmt.Errorf("%s=%s holds a %s and no certificate", key, path, found)
	}
	return nil, fmt.Errorf("%s=%s holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)", key, path)
}

func parseKey(path string, data []byte) (crypto.Signer, error) {
	found := ""
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		found = block.Type
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
			return nil, fmt.Errorf("the key in KeyFile=%s is encrypted, and a daemon has nobody to ask for the passphrase; store it without one, mode 0600", path)
		}
		parse, ok := keyForms[block.Type]
		if !ok {
			continue // "EC PARAMETERS" stands before what openssl ecparam makes
		}
		key, err := parse(block.Bytes)
		if err != nil {
			// The parser's own words may hold bytes of the key.
			return nil, fmt.Errorf("the key in KeyFile=%s cannot be read: its %s is damaged", path, block.Type)
		}
		return key, nil
	}
	if found != "" {
		return nil, fmt.Errorf("KeyFile=%s holds a %s and no private key", path, found)
	}
	return nil, fmt.Errorf("KeyFile=%s holds no private key in PEM form (-----BEGIN PRIVATE KEY-----)", path)
}

var keyForms = map[string]func([]byte) (crypto.Signer, error){
	"PRIVATE KEY": func(der []byte) (crypto.Signer, error) {
		key, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return nil, err
		}
		switch key := key.(type) {
		case *ecdsa.PrivateKey:
			return key, nil
		case *rsa.PrivateKey:
			return key, nil
		case ed25519.PrivateKey:
			return key, nil
		}
		return nil, fmt.Errorf("it is a %T", key)
	},
	"EC PRIVATE KEY":  func(der []byte) (crypto.Signer, error) { return x509.ParseECPrivateKey(der) },
	"RSA PRIVATE KEY": func(der []byte) (crypto.Signer, error) { return x509.ParsePKCS1PrivateKey(der) },
}
