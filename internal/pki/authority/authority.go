// Package authority is the fleet's certificate authority: it says in certificates who is the
// manager and who is which node, and remembers to whom that has been said.
//
// All of it lives in one directory, which only the manager's user may enter:
//
//	authority-N.pem  an authority's certificate and key
//	fleet            the ledger: nodes with their generations, and tokens without their secrets
//	manager.pem      the manager's certificate, the authority behind it, and the key
//	ca.crt           the authorities that nodes trust, made from the files above
package authority

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"example.org/ctrl/internal/pki"
)

const (
	ledgerFile  = "fleet"
	managerFile = "manager.pem"
	trustFile   = "ca.crt"
)

// Authority issues certificates. All methods are safe from any goroutine. Those that change
// something wait for the disk; Check and Outdated never do.
type Authority struct {
	log    *slog.Logger
	folder *folder
	view   atomic.Pointer[ledger]
	tell   func(Change)

	mu      sync.Mutex // of those who change something
	issuers map[int]*issuer
	failed  string // what was last logged about the manager's certificate
	warned  bool   // of the authority's end
	unsaved bool   // the ledger is newer than its file
	save    chan struct{}
}

// Change says what others must look at again.
type Change struct {
	// Fleet: which nodes there are is another list now.
	Fleet bool
	// Revoked: certificates that were good are so no longer.
	Revoked bool
	// Trust: nodes should renew their certificates now.
	Trust bool
}

// Open reads the authority's directory, which is "pki" below the state directory, and makes
// what is missing when there is nothing yet. tell hears of changes, after they are on the
// disk and before the call that made them returns; it must not call back but for Check,
// Outdated and Members. A file that is damaged is a *DamagedError that names it, and stays as
// it is.
func Open(stateDir string, tell func(Change), log *slog.Logger) (*Authority, error) {
	folder, err := openFolder(filepath.Join(stateDir, "pki"))
	if err != nil {
		return nil, judged(err)
	}
	a := &Authority{log: log, folder: folder, tell: tell, issuers: make(map[int]*issuer), save: make(chan struct{}, 1)}
	if err := a.load(time.Now()); err != nil {
		folder.close()
		return nil, judged(err)
	}
	return a, nil
}

// Close writes what there is to write, and lets another process have the directory.
func (a *Authority) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.flush(); err != nil {
		a.log.Error("renewed certificates were not noted; their nodes renew them again", "err", err)
	}
	a.folder.close()
}

// Files are the files of the manager's own certificate, for pki.Open.
func (a *Authority) Files() pki.Config {
	manager := a.folder.file(managerFile)
	return pki.Config{Role: pki.Manager, CertFile: manager, KeyFile: manager, CAFile: a.folder.file(trustFile), Joining: true}
}

func (a *Authority) load(now time.Time) error {
	l, err := a.readLedger()
	if errors.Is(err, fs.ErrNotExist) {
		if l, err = a.firstLedger(); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	a.view.Store(l)
	if err := a.folder.tidy(ledgerFile, managerFile, trustFile, issuerFile(1)); err != nil {
		return err
	}
	for _, id := range l.Authorities {
		if err := a.folder.tidy(issuerFile(id), issuerFile(id+1)); err != nil {
			return err
		}
		if err := a.readIssuer(id); err != nil {
			return err
		}
	}
	if len(l.Authorities) == 0 {
		if err := a.begin(now); err != nil {
			return err
		}
	}
	if err := a.forgetReplaced(); err != nil {
		return err
	}
	if err := a.writeTrust(); err != nil {
		return err
	}
	a.warnOfEnd(now)
	if err := a.renewManager(now); !errors.Is(err, errAuthorityExpired) {
		return err
	}
	return nil // only a manager that runs can replace it
}

// warnBefore is how long before the end of an authority the log begins to say so.
const warnBefore = 365 * 24 * time.Hour

// warnOfEnd says once that the authority must be replaced before long.
func (a *Authority) warnOfEnd(now time.Time) {
	end := a.issuers[a.view.Load().issuing()].cert.NotAfter
	if left := end.Sub(now); left < warnBefore && !a.warned {
		a.log.Warn("the fleet's authority ends; `ctl pki rotate` makes a new one", "expires", end.UTC().Format(time.RFC3339))
		a.warned = true
	}
}

// forgetReplaced deletes the key of an authority whose replacement ended in the middle.
func (a *Authority) forgetReplaced() error {
	old := issuerFile(a.view.Load().Authorities[0] - 1)
	if _, err := a.folder.read(old); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	a.log.Info("deleting an authority that was replaced", "file", old)
	return a.folder.remove(old)
}

func (a *Authority) readLedger() (*ledger, error) {
	data, err := a.folder.read(ledgerFile)
	if err != nil {
		return nil, err
	}
	l, err := decodeLedger(data)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s: %w", a.folder.file(ledgerFile), err)
	}
	return l, nil
}

// firstLedger begins an empty fleet. The ledger comes first: an authority without one has lost
// its memory of who was removed.
func (a *Authority) firstLedger() (*ledger, error) {
	if _, err := a.folder.read(issuerFile(1)); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing beside %s, and with it who is in the fleet and who was removed; put the file of a backup there, "+
			"or move the whole directory away to begin with a new fleet authority, which every node must then join",
			a.folder.file(ledgerFile), issuerFile(1))
	}
	l := &ledger{Nodes: make(map[string]entry)}
	return l, a.write(l)
}

func (a *Authority) readIssuer(id int) error {
	data, err := a.folder.read(issuerFile(id))
	if err != nil {
		return err
	}
	i, err := parseIssuer(id, data)
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", a.folder.file(issuerFile(id)), err)
	}
	a.issuers[id] = i
	return nil
}

// begin makes the first authority.
func (a *Authority) begin(now time.Time) error {
	if err := a.makeIssuer(1, now); err != nil {
		return err
	}
	next := a.view.Load().clone()
	next.Authorities, next.Manager, next.Trust = []int{1}, 1, 1
	if err := a.commit(next); err != nil {
		return err
	}
	a.log.Info("made an authority for the fleet", "directory", a.folder.path)
	return nil
}

func (a *Authority) makeIssuer(id int, now time.Time) error {
	i, file, err := newIssuer(id, now)
	if err != nil {
		return err
	}
	if err := a.folder.write(issuerFile(id), file); err != nil {
		return err
	}
	a.issuers[id] = i
	return nil
}

// commit makes a ledger the one that counts: first on the disk, then for all to see.
func (a *Authority) commit(next *ledger) error {
	if err := a.write(next); err != nil {
		return err
	}
	a.view.Store(next)
	a.unsaved = false
	return nil
}

// keep makes a ledger the one that counts, and writes it later, with those that follow. A crash
// may forget it: good for what a node does again by itself, which a renewal is. A whole fleet
// renews at once when its authority is replaced, and one write for each would be a queue.
func (a *Authority) keep(next *ledger) error {
	a.view.Store(next)
	a.unsaved = true
	select {
	case a.save <- struct{}{}:
	default:
	}
	return nil
}

// flush writes what keep has left.
func (a *Authority) flush() error {
	if !a.unsaved {
		return nil
	}
	return a.commit(a.view.Load())
}

func (a *Authority) write(l *ledger) error {
	data, err := l.encode()
	if err != nil {
		return err
	}
	return a.folder.write(ledgerFile, data)
}

// trusted are the certificates of the authorities that nodes trust, PEM.
func (a *Authority) trusted() []byte {
	var all []byte
	for _, id := range a.view.Load().Authorities {
		all = append(all, a.issuers[id].pem...)
	}
	return all
}

// writeTrust brings ca.crt up to date, which holds nothing of its own.
func (a *Authority) writeTrust() error {
	want := a.trusted()
	have, err := a.folder.read(trustFile)
	if err == nil && bytes.Equal(have, want) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return a.folder.write(trustFile, want)
}

// renewManager issues the manager's own certificate where there is none, where it comes from
// another authority than it should, and after two thirds of its life.
func (a *Authority) renewManager(now time.Time) error {
	by := a.issuers[a.view.Load().Manager]
	data, err := a.folder.read(managerFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		cert, err := parseManager(data)
		if err != nil {
			return fmt.Errorf("cannot use %s: %w (this file alone can also be moved away: a new one is then issued)", a.folder.file(managerFile), err)
		}
		if cert.CheckSignatureFrom(by.cert) == nil && now.Before(renewAt(cert)) {
			return nil
		}
	}
	file, err := by.issueManager(now)
	if err != nil {
		return err
	}
	return a.folder.write(managerFile, file)
}

// renewAt is when two thirds of a certificate's life are over.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2)
}

// lookEvery is how often the own certificate is looked at. The clock may be set meanwhile, so
// no timer is set for the day.
const lookEvery = time.Hour

// saveAfter is how long renewals are collected before they are written.
const saveAfter = time.Second

// Run renews the manager's certificate, and writes down renewals of nodes, while ctx lasts.
func (a *Authority) Run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.look(time.Now())
		case <-a.save:
			due = time.After(saveAfter)
		case <-due:
			due = nil
			a.saveNow()
		}
	}
}

func (a *Authority) saveNow() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.flush(); err != nil {
		a.log.Error("cannot note renewed certificates; trying again every hour", "err", err)
	}
}

func (a *Authority) look(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warnOfEnd(now)
	a.finishRotation(now, false) // where the disk was full before
	problem := ""
	if err := errors.Join(a.renewManager(now), a.writeTrust(), a.flush()); err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != a.failed {
		a.log.Error("cannot keep the authority's files up to date; trying again every hour", "err", problem)
	}
	a.failed = problem
}

func equal(a, b hash) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }
