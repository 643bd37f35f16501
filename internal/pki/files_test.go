package pki_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/pkitest"
)

func TestFilesAreChecked(t *testing.T) {
	ca := newCA(t)
	other := write(t, ca, pkitest.NodeLeaf("node2"))
	overwrite := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(ecKey)
	if err != nil {
		t.Fatal(err)
	}
	sec1 := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	tests := map[string]struct {
		spoil func(*pki.Config)
		want  []string
	}{
		"nothing set":       {func(c *pki.Config) { *c = pki.Config{Role: c.Role} }, []string{"CertFile= and KeyFile= and CAFile= are not set", "TLS=no"}},
		"one not set":       {func(c *pki.Config) { c.CAFile = "" }, []string{"CAFile= is not set"}},
		"missing":           {func(c *pki.Config) { os.Remove(c.CertFile) }, []string{"CertFile=", "does not exist"}},
		"directory":         {func(c *pki.Config) { c.CAFile = filepath.Dir(c.CAFile) }, []string{"CAFile=", "not a regular file"}},
		"pipe":              {func(c *pki.Config) { os.Remove(c.KeyFile); syscall.Mkfifo(c.KeyFile, 0o600) }, []string{"KeyFile=", "not a regular file"}},
		"key for all":       {func(c *pki.Config) { os.Chmod(c.KeyFile, 0o644) }, []string{"KeyFile=", "mode 0644", "chmod 0600"}},
		"key for a group":   {func(c *pki.Config) { os.Chmod(c.KeyFile, 0o660) }, []string{"KeyFile=", "mode 0660", "chmod 0600"}},
		"authority for all": {func(c *pki.Config) { os.Chmod(c.CAFile, 0o666) }, []string{"CAFile=", "mode 0666", "chmod o-w"}},
		"empty":             {func(c *pki.Config) { overwrite(c.CertFile, "") }, []string{"CertFile=", "holds no certificate"}},
		"huge":              {func(c *pki.Config) { overwrite(c.CAFile, strings.Repeat("x", 2<<20)) }, []string{"CAFile=", "larger than"}},
		"key as cert":       {func(c *pki.Config) { overwrite(c.CertFile, read(c.KeyFile)) }, []string{"CertFile=", "holds a PRIVATE KEY and no certificate"}},
		"cert as key":       {func(c *pki.Config) { overwrite(c.KeyFile, read(c.CertFile)) }, []string{"KeyFile=", "holds a CERTIFICATE and no private key"}},
		"half a cert":       {func(c *pki.Config) { overwrite(c.CertFile, read(c.CertFile)[:200]) }, []string{"CertFile=", "holds no certificate"}},
		"damaged cert":      {func(c *pki.Config) { overwrite(c.CertFile, block("CERTIFICATE", "xyz")) }, []string{"CertFile=", "number 1 cannot be read"}},
		"damaged key":       {func(c *pki.Config) { overwrite(c.KeyFile, block("PRIVATE KEY", "xyz")) }, []string{"KeyFile=", "damaged"}},
		"encrypted key":     {func(c *pki.Config) { overwrite(c.KeyFile, block("ENCRYPTED PRIVATE KEY", "xyz")) }, []string{"KeyFile=", "passphrase"}},
		"text as key":       {func(c *pki.Config) { overwrite(c.KeyFile, "secret") }, []string{"KeyFile=", "no private key in PEM form"}},
		"other key":         {func(c *pki.Config) { c.KeyFile = other.Key }, []string{"KeyFile=", "does not belong to the certificate in CertFile="}},
		"other key, EC":     {func(c *pki.Config) { overwrite(c.KeyFile, sec1) }, []string{"does not belong to the certificate"}},
		"cert as authority": {func(c *pki.Config) { c.CAFile = other.Cert }, []string{"CAFile=", "no authority's"}},
		"other node":        {func(c *pki.Config) { c.NodeName = "node2" }, []string{"is for node \"node1\"", "set NodeName=node1"}},
		"not a manager's":   {func(c *pki.Config) { c.Role = pki.Manager }, []string{"cannot be a manager's certificate", "ctrl://manager"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := config(pki.Node, write(t, ca, pkitest.NodeLeaf("node1")))
			cfg.NodeName = "node1"
			if _, err := pki.Open(cfg, quiet); err != nil {
				t.Fatalf("the good files gave %v", err)
			}
			test.spoil(&cfg)
			_, err := pki.Open(cfg, quiet)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
	manager := config(pki.Manager, write(t, ca, pkitest.NodeLeaf("node1")))
	if _, err := pki.Open(manager, quiet); err == nil || !strings.Contains(err.Error(), "cannot be a manager's") {
		t.Errorf("a manager with a node's certificate gave %v", err)
	}
}

func block(kind, data string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(data)}))
}

func TestTimeIsNoReasonToRefuseFiles(t *testing.T) {
	ca := newCA(t)
	late := pkitest.ManagerLeaf()
	late.NotBefore, late.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	s := open(t, config(pki.Manager, write(t, ca, late)))
	if err := s.CheckTime(); err == nil || !strings.Contains(err.Error(), "not valid before") || !strings.Contains(err.Error(), "CertFile=") {
		t.Errorf("got %v", err)
	}
	old, err := pkitest.NewFor("old", time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, config(pki.Manager, write(t, old, pkitest.ManagerLeaf())))
	if err := s.CheckTime(); err == nil || !strings.Contains(err.Error(), "CAFile=") || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("an expired authority gave %v", err)
	}
	if s = open(t, config(pki.Manager, write(t, ca, pkitest.ManagerLeaf()))); s.CheckTime() != nil {
		t.Error(s.CheckTime())
	}
}

// TestFilesAreFollowed: the next handshake uses what the files hold then; files that do not
// belong together, as they are while they are being replaced, change nothing.
func TestFilesAreFollowed(t *testing.T) {
	ca, next := newCA(t), newCA(t)
	dir := t.TempDir()
	f, err := ca.Write(dir, "own", pkitest.NodeLeaf("node1"))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := pki.Open(config(pki.Node, f), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	before := s.Expires()
	renewed := pkitest.NodeLeaf("node1")
	renewed.NotAfter = time.Now().Add(36 * time.Hour)
	cert, key, err := next.Issue(renewed)
	if err != nil {
		t.Fatal(err)
	}
	put := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(f.Cert, cert)
	if s.Expires() != before || !strings.Contains(log.String(), "does not belong to the certificate") {
		t.Errorf("half a pair: expires %v (before %v), log %s", s.Expires(), before, log.String())
	}
	s.Expires()
	if n := strings.Count(log.String(), "does not belong"); n != 1 {
		t.Errorf("warned %d times of one thing", n)
	}
	put(f.Key, key)
	put(f.CA, next.PEM)
	if s.Expires().Equal(before) {
		t.Error("the new pair was not taken")
	}
	after := s.Expires()
	expired := pkitest.NodeLeaf("node1")
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	if _, err := next.Write(dir, "own", expired); err != nil {
		t.Fatal(err)
	}
	if s.Expires() != after || s.CheckTime() != nil {
		t.Error("an expired certificate took the place of a good one")
	}
	if err := os.Remove(f.Cert); err != nil {
		t.Fatal(err)
	}
	if s.Expires() != after || !strings.Contains(log.String(), "does not exist") {
		t.Errorf("a removed file: log %s", log.String())
	}
}

func TestReconfigureKeepsWhatWorks(t *testing.T) {
	ca := newCA(t)
	s := open(t, config(pki.Node, write(t, ca, pkitest.NodeLeaf("node1"))))
	if err := s.Reconfigure(pki.Config{Role: pki.Node}); err == nil {
		t.Error("no files were accepted")
	}
	if err := s.Reconfigure(config(pki.Node, pkitest.Files{Cert: "/nonexistent", Key: "/nonexistent", CA: "/nonexistent"})); err == nil {
		t.Error("missing files were accepted")
	}
	if s.Name() != "node1" {
		t.Errorf("name is %q", s.Name())
	}
	if err := s.Reconfigure(config(pki.Node, write(t, ca, pkitest.NodeLeaf("node2")))); err != nil || s.Name() != "node2" {
		t.Errorf("name is %q, error %v", s.Name(), err)
	}
}

// TestAwayForTooLong: a node whose certificate has run out is told how it comes back.
func TestAwayForTooLong(t *testing.T) {
	ca := newCA(t)
	for name, test := range map[string]struct {
		from, to time.Duration
		leaf     pkitest.Leaf
		role     pki.Role
		again    bool
	}{
		"expired node":    {-2 * time.Hour, -time.Hour, pkitest.NodeLeaf("node1"), pki.Node, true},
		"slow clock":      {time.Hour, 2 * time.Hour, pkitest.NodeLeaf("node1"), pki.Node, false},
		"expired manager": {-2 * time.Hour, -time.Hour, pkitest.ManagerLeaf(), pki.Manager, false},
	} {
		test.leaf.NotBefore, test.leaf.NotAfter = time.Now().Add(test.from), time.Now().Add(test.to)
		err := open(t, config(test.role, write(t, ca, test.leaf))).CheckTime()
		if err == nil || strings.Contains(err.Error(), "`ctl node add node1`") != test.again {
			t.Errorf("%s: %v", name, err)
		}
	}
}
