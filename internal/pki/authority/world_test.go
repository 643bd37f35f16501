package authority

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/wire"
)

var quiet = slog.New(slog.DiscardHandler)

// world is an authority in a directory of the test's own.
type world struct {
	*Authority
	t       *testing.T
	dir     string
	changes []Change
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.open()
	t.Cleanup(func() { w.Close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	a, err := Open(w.dir, func(c Change) { w.changes = append(w.changes, c) }, quiet)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Authority = a
}

// restart is what a manager finds after it has ended.
func (w *world) restart() {
	w.t.Helper()
	w.Close()
	w.open()
}

func (w *world) path(name string) string { return filepath.Join(w.dir, "pki", name) }

func (w *world) add(name string) pki.Token {
	w.t.Helper()
	token, err := w.AddNode(name, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// machine is one that joins: its key, and the request for it.
type machine struct{ key, csr []byte }

func (w *world) machine(name string) machine {
	w.t.Helper()
	key, csr, err := pki.NewKeyAndCSR(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return machine{key, csr}
}

// join lets a machine be a node, and looks at what it gets.
func (w *world) join(m machine, name string, token pki.Token) Granted {
	w.t.Helper()
	g, err := w.Join(name, token.String(), m.csr)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := token.CheckJoined(g.Node, m.key, g.Certificate, g.CA); err != nil {
		w.t.Fatal(err)
	}
	return g
}

// refused wants an error of kind AccessDenied that holds some words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, wire.ErrAccessDenied) {
		t.Errorf("got %v, want a refusal", err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not contain %q", err, word)
		}
	}
}

func parse(t *testing.T, certificate []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certificate)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// files are the names and contents of all files but the lock.
func (w *world) files() map[string]string {
	w.t.Helper()
	entries, err := os.ReadDir(w.path(""))
	if err != nil {
		w.t.Fatal(err)
	}
	out := make(map[string]string)
	for _, e := range entries {
		if e.Name() == "lock" {
			continue
		}
		data, err := os.ReadFile(w.path(e.Name()))
		if err != nil {
			w.t.Fatal(err)
		}
		out[e.Name()] = string(data)
	}
	return out
}

func (w *world) names() []string {
	var names []string
	for name := range w.files() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
