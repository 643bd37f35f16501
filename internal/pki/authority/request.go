package authority

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"

	"example.org/ctrl/internal/wire"
)

// maxRequest bounds a request, in bytes: one with an RSA key of 4096 bits has 2 KiB.
const maxRequest = 16 << 10

// request is what counts of a certificate request: the key. The name comes from the token or
// from the session, everything else from us.
type request struct {
	public any
	key    hash
}

// parseRequest reads a request in PEM form, and makes sure that who made it has the key.
func parseRequest(csr []byte) (request, error) {
	bad := func(format string, args ...any) (request, error) {
		return request{}, wire.ErrInvalidArgs.With("the certificate request cannot be used: "+format, args...)
	}
	if len(csr) > maxRequest {
		return bad("it has %d bytes, and %d KiB are allowed", len(csr), maxRequest>>10)
	}
	block, rest := pem.Decode(csr)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return bad("it is not one request in PEM form (-----BEGIN CERTIFICATE REQUEST-----)")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return bad("it is damaged")
	}
	switch key := r.PublicKey.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		// Also a bound for the work of checking its signature.
		if bits := key.N.BitLen(); bits < 2048 || bits > 4096 {
			return bad("%v", errNoKey)
		}
	default:
		return bad("%v", errNoKey)
	}
	if err := r.CheckSignature(); err != nil {
		return bad("its signature is wrong")
	}
	return request{r.PublicKey, sha256.Sum256(r.RawSubjectPublicKeyInfo)}, nil
}
