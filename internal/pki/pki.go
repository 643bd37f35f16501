// Package pki proves who manager and nodes are: it loads certificates from files and makes
// mutual TLS 1.3 of a connection, with the rules for identities of ctrl.
package pki

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/ctrl/internal/wire"
)

// Role is the side of a connection that a certificate speaks for.
type Role uint8

const (
	// Manager accepts connections; its certificate says ctrl://manager or, with a PKI of
	// one's own, only a DNS name that agents expect.
	Manager Role = iota
	// Node connects; its certificate says ctrl://node/NAME or has NAME as its only DNS name.
	Node
)

// Config names the files and what must be in them.
type Config struct {
	Role     Role
	CertFile string // the certificate, then intermediate ones, PEM
	KeyFile  string // its private key, PEM, not encrypted
	CAFile   string // the authorities that vouch for the other side, PEM
	// NodeName, for a Node, is the name that the certificate must carry.
	NodeName string
	// ManagerName, for a Node, is the DNS name to expect in the manager's certificate
	// instead of ctrl://manager.
	ManagerName string
	// Joining, for a Manager whose files are those of package authority: a peer may come
	// without a certificate, to ask for one, and certificates have a generation.
	Joining bool
}

// Peer is who a TLS peer has proved to be.
type Peer struct {
	// Node is "" where the peer has no certificate, which only Joining allows.
	Node string
	// Generation counts the certificates that were revoked before this one, and NotAfter is
	// its end. Both are given only where the fleet's own authority has issued it.
	Generation uint64
	NotAfter   time.Time
}

// Store holds one consistent set of files and follows their changes: each handshake uses
// what they hold at its time. A set that is not consistent, as files are for a moment while
// they are being replaced, is not taken: the one before stays in use, and a warning says so.
// All methods are safe from any goroutine.
type Store struct {
	log *slog.Logger

	mu      sync.Mutex
	cfg     Config
	current *material
	seen    stamps // of the files when they were last read, good or not
	settled bool   // seen is old enough that no later change can look the same
	problem string // what was last warned about
}

// Open loads and checks the files. The time is not checked: a machine that boots with a
// wrong clock must not have to be started again when the clock is set; see CheckTime.
func Open(cfg Config, log *slog.Logger) (*Store, error) {
	s := &Store{log: log}
	if err := s.Reconfigure(cfg); err != nil {
		return nil, err
	}
	return s, nil
}

// Reconfigure reads the files that cfg names. On an error the set before stays in use.
func (s *Store) Reconfigure(cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := stat(cfg)
	m, err := load(cfg)
	if err != nil {
		return err
	}
	s.cfg = cfg
	s.take(m, seen)
	return nil
}

// complete refuses an empty file name and says which two ways lead on.
func (c Config) complete() error {
	var missing []string
	for _, f := range c.files() {
		if f.path == "" {
			missing = append(missing, f.key+"=")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("TLS needs certificates, and %s %s not set; either make certificates and set CertFile=, KeyFile= and CAFile=, "+
		"or write TLS=no to do without any proof of who is at the other end", strings.Join(missing, " and "),
		map[bool]string{true: "is", false: "are"}[len(missing) == 1])
}

// CheckTime says whether the own certificate is valid now.
func (s *Store) CheckTime() error { return s.fresh().checkTime(time.Now()) }

// Name is who the own certificate says this is: a node's name, or "manager".
func (s *Store) Name() string { return s.fresh().name }

// Expires is the end of the own certificate's validity.
func (s *Store) Expires() time.Time { return s.fresh().leaf().NotAfter }

// RenewAt is when two thirds of the own certificate's life are over.
func (s *Store) RenewAt() time.Time {
	c := s.fresh().leaf()
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3)
}

// fresh looks at the files and returns the set to use.
func (s *Store) fresh() *material {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := stat(s.cfg)
	if s.settled && seen == s.seen {
		return s.current
	}
	m, err := load(s.cfg)
	switch {
	case err == nil && m.sum == s.current.sum:
		s.note(seen)
		s.problem = ""
	case err == nil && s.current.checkTime(time.Now()) == nil && m.checkTime(time.Now()) != nil:
		s.keep(m.checkTime(time.Now()), seen)
	case err == nil:
		s.take(m, seen)
	default:
		s.keep(err, seen)
	}
	return s.current
}

// settleTime is how old a change must be before an equal stamp proves that nothing changed:
// file systems stamp in steps, some of a whole second or two.
const settleTime = 2 * time.Second

func (s *Store) note(seen stamps) {
	s.seen = seen
	s.settled = time.Since(seen.newest()) > settleTime
}

func (s *Store) take(m *material, seen stamps) {
	changed := s.current != nil
	s.current, s.problem = m, ""
	s.note(seen)
	if changed {
		s.log.Info("certificates were read again", "file", s.cfg.CertFile, "expires", m.leaf().NotAfter.UTC().Format(time.RFC3339))
	}
	for _, warning := range m.warnings(time.Now()) {
		s.log.Warn("certificate needs attention", "file", s.cfg.CertFile, "reason", warning)
	}
}

func (s *Store) keep(err error, seen stamps) {
	s.note(seen)
	if text := err.Error(); text != s.problem {
		s.problem = text
		s.log.Warn("changed certificate files cannot be used; the ones before stay in use", "err", text)
	}
}

// expiresSoon is when a warning about the coming end of a certificate begins, at the latest
// when two thirds of its life are over.
const expiresSoon = 14 * 24 * time.Hour

func (m *material) warnings(now time.Time) []string {
	var out []string
	if err := m.checkTime(now); err != nil {
		out = append(out, err.Error())
	} else if left := m.leaf().NotAfter.Sub(now); left < min(expiresSoon, m.leaf().NotAfter.Sub(m.leaf().NotBefore)/3) {
		out = append(out, fmt.Sprintf("it expires in %s; issue a new one", left.Round(time.Minute)))
	}
	if !m.signedByOwn() {
		out = append(out, fmt.Sprintf("none of the authorities in CAFile=%s has signed it; another side that has the same CAFile= will refuse it", m.cfg.CAFile))
	}
	return out
}

func (m *material) signedByOwn() bool {
	intermediates := x509.NewCertPool()
	for _, c := range m.chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := m.leaf().Verify(x509.VerifyOptions{
		Roots: m.roots, Intermediates: intermediates, CurrentTime: m.leaf().NotAfter,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	// An authority that ends before its certificates do is no reason for this warning.
	invalid, ok := err.(x509.CertificateInvalidError)
	return err == nil || ok && invalid.Reason == x509.Expired
}

// refusal is an error of the kind that says: one side did not accept who the other is.
func refusal(format string, args ...any) error { return wire.ErrAccessDenied.With(format, args...) }

// hasUsage wants the usage named: a certificate for any purpose could play both sides.
func hasUsage(c *x509.Certificate, usage x509.ExtKeyUsage) bool {
	return slices.Contains(c.ExtKeyUsage, usage)
}
