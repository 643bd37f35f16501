package pki

import (
	"crypto/x509"
	"fmt"
	"strings"

	"example.org/ctrl/internal/wire"
)

// What the URI subject alternative name of a certificate says.
const (
	managerURI = "ctrl://manager"
	nodePrefix = "ctrl://node/"
)

// ManagerURI is the subject alternative name of a manager's certificate.
func ManagerURI() string { return managerURI }

// NodeURI is the subject alternative name of the certificate of the node called name.
func NodeURI(name string) string { return nodePrefix + name }

// nodeOf is the node that a certificate speaks for: its only URI is ctrl://node/NAME or,
// where it has no URI at all, NAME is its only DNS name. Anything beside that is refused,
// so that no certificate speaks for two.
func nodeOf(c *x509.Certificate) (string, error) {
	name := ""
	switch {
	case len(c.URIs) == 1:
		uri := c.URIs[0].String()
		if uri == managerURI {
			return "", fmt.Errorf("it is a manager's (%s), and a node is needed", managerURI)
		}
		rest, ok := strings.CutPrefix(uri, nodePrefix)
		if !ok {
			return "", fmt.Errorf("its URI name is %s instead of %sNAME", clip(uri), nodePrefix)
		}
		name = rest
	case len(c.URIs) > 1:
		return "", fmt.Errorf("it has %d URI names instead of only %sNAME", len(c.URIs), nodePrefix)
	case len(c.DNSNames) == 1:
		name = c.DNSNames[0]
	default:
		return "", fmt.Errorf("it names no node: it needs the URI name %sNAME, or NAME as its only DNS name, and has %d DNS names",
			nodePrefix, len(c.DNSNames))
	}
	if !wire.ValidNodeName(name) {
		return "", fmt.Errorf("it names node %s, but %s", clip(name), wire.NodeNameRule)
	}
	return name, checkLeaf(c, x509.ExtKeyUsageClientAuth, "clientAuth")
}

// checkManager accepts a certificate as a manager's: its only URI is ctrl://manager or,
// where a DNS name is expected instead, it has that one. A node's is never accepted.
func checkManager(c *x509.Certificate, dnsName string) error {
	for _, uri := range c.URIs {
		if strings.HasPrefix(uri.String(), nodePrefix) {
			return fmt.Errorf("it is a node's (%s), and a manager is needed", clip(uri.String()))
		}
	}
	if err := checkLeaf(c, x509.ExtKeyUsageServerAuth, "serverAuth"); err != nil {
		return err
	}
	if dnsName != "" {
		for _, name := range c.DNSNames {
			if strings.EqualFold(name, dnsName) {
				return nil
			}
		}
		return fmt.Errorf("ManagerName=%s is none of its DNS names (%s)", dnsName, clip(strings.Join(c.DNSNames, ", ")))
	}
	if len(c.URIs) != 1 || c.URIs[0].String() != managerURI {
		return fmt.Errorf("it is not a manager's: its only URI name must be %s, or ManagerName= must say which DNS name to expect", managerURI)
	}
	return nil
}

// checkLeaf wants a certificate that may sign a handshake, for this one purpose by name: one
// without any named purpose would be good for both sides.
func checkLeaf(c *x509.Certificate, usage x509.ExtKeyUsage, word string) error {
	if c.IsCA {
		return fmt.Errorf("it is an authority's, not one that an authority has issued to a program")
	}
	if !hasUsage(c, usage) {
		return fmt.Errorf("its extended key usage does not name %s", word)
	}
	if c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return fmt.Errorf("its key usage does not allow digitalSignature")
	}
	return nil
}

// maxQuoted bounds what a peer can put into one error text.
const maxQuoted = 128

// clip quotes text that comes from a certificate, and cuts it.
func clip(s string) string {
	if len(s) > maxQuoted {
		return fmt.Sprintf("%q…", s[:maxQuoted])
	}
	return fmt.Sprintf("%q", s)
}
