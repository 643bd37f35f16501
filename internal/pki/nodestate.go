package pki

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"example.org/ctrl/internal/atomicfile"
)

// NodeState is the folder in which a node keeps what its fleet's authority has issued:
//
//	node.pem  the certificate and its key, in one file, so that they change in one step
//	ca.pem    the authorities that vouch for the manager
//	join.pem  a key whose certificate is under way, and its request
//
// Who writes to it has the lock.
type NodeState struct{ dir string }

// NewNodeState is the folder "pki" below a state directory. It need not be there yet.
func NewNodeState(stateDir string) NodeState { return NodeState{filepath.Join(stateDir, "pki")} }

func (s NodeState) own() string     { return filepath.Join(s.dir, "node.pem") }
func (s NodeState) ca() string      { return filepath.Join(s.dir, "ca.pem") }
func (s NodeState) pending() string { return filepath.Join(s.dir, "join.pem") }

// Joined reports whether there is a certificate, good or not.
func (s NodeState) Joined() bool {
	_, err := os.Lstat(s.own())
	return !errors.Is(err, fs.ErrNotExist)
}

// Config names the files for Open.
func (s NodeState) Config(node string) Config {
	return Config{Role: Node, CertFile: s.own(), KeyFile: s.own(), CAFile: s.ca(), NodeName: node}
}

// Lock makes the folder and keeps every other process from writing to it until unlock is
// called. It does not wait.
func (s NodeState) Lock() (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make %s: %w", s.dir, reason(err))
	}
	if err := os.Chmod(s.dir, 0o700); err != nil { // it was there with another mode
		return nil, fmt.Errorf("cannot keep others out of %s: %w", s.dir, reason(err))
	}
	name := filepath.Join(s.dir, "lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", name, reason(err))
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another process is writing to %s; try again when it has ended: %w", s.dir, err)
	}
	for _, path := range []string{s.own(), s.ca(), s.pending()} {
		_ = atomicfile.Tidy(path) // what a crash has left costs a few bytes, and is tried again
	}
	return func() { f.Close() }, nil
}

// NewRequest makes a key and a request for it, and keeps the key until Write has taken it in.
// Asked again before that, as after an answer that was lost, it gives the same ones.
func (s NodeState) NewRequest(node string) (key, request []byte, err error) {
	if key, request := s.kept(); key != nil {
		return key, request, nil
	}
	key, request, err = NewKeyAndCSR(node)
	if err != nil {
		return nil, nil, err
	}
	return key, request, atomicfile.Write(s.pending(), append(bytes.Clone(key), request...), 0o600)
}

// kept is what an earlier NewRequest has left. What is damaged is made anew: nobody has
// anything else of it.
func (s NodeState) kept() (key, request []byte) {
	data, err := readFile("join", s.pending(), true)
	if err != nil {
		return nil, nil
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "PRIVATE KEY":
			key = pem.EncodeToMemory(block)
		case "CERTIFICATE REQUEST":
			request = pem.EncodeToMemory(block)
		}
	}
	if key == nil || request == nil {
		return nil, nil
	}
	if _, err := parseKey(s.pending(), key); err != nil {
		return nil, nil
	}
	return key, request
}

// Write takes in what was issued for a key. The authorities come first: with them alone the
// certificate before stays good, since they hold those before until all nodes have renewed.
func (s NodeState) Write(key []byte, issued Issued) error {
	if err := atomicfile.Write(s.ca(), issued.CA, 0o600); err != nil {
		return err
	}
	if err := atomicfile.Write(s.own(), append(bytes.Clone(issued.Certificate), key...), 0o600); err != nil {
		return err
	}
	if err := os.Remove(s.pending()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.SyncDir(s.dir)
}
