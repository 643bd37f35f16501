package pki_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/pkitest"
)

func TestNodeState(t *testing.T) {
	dir := t.TempDir()
	state := pki.NewNodeState(dir)
	if state.Joined() {
		t.Error("joined without a certificate")
	}
	unlock, err := state.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := state.Lock(); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the lock is given twice: %v", err)
	}
	key, request, err := state.NewRequest("node1")
	if err != nil {
		t.Fatal(err)
	}
	again, same, err := state.NewRequest("node1")
	if err != nil || !bytes.Equal(key, again) || !bytes.Equal(request, same) {
		t.Errorf("after a lost answer the key is another: %v", err)
	}
	pending := filepath.Join(dir, "pki", "join.pem")
	if err := os.WriteFile(pending, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if anew, _, err := state.NewRequest("node1"); err != nil || bytes.Equal(anew, key) {
		t.Errorf("from a damaged file came %v", err)
	}
	ca := newCA(t)
	cert, key, err := ca.Issue(pkitest.NodeLeaf("node1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Write(key, pki.Issued{Node: "node1", Certificate: cert, CA: ca.PEM}); err != nil {
		t.Fatal(err)
	}
	unlock()
	if _, err := os.Stat(pending); err == nil {
		t.Error("the key under way is still there")
	}
	store, err := pki.Open(state.Config("node1"), quiet)
	if err != nil || store.Name() != "node1" || !state.Joined() {
		t.Errorf("the store says %v", err)
	}
	const life = 25 * time.Hour // of a leaf without times
	if left := store.Expires().Sub(store.RenewAt()); left.Round(time.Second) != life/3 {
		t.Errorf("it is to be renewed %v before its end", left)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "pki")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v, %v", info.Mode(), err)
	}
}
