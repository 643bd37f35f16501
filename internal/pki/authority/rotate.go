package authority

import (
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/wire"
)

// Rotate begins to replace the fleet's authority. A new one stands beside the old one and
// issues to nodes from now on; nodes trust both. When the last node has a certificate from
// the new one, the manager takes one too, and the old one is deleted.
// Errors: ErrFailed (a rotation is under way, or the state could not be stored).
func (a *Authority) Rotate() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, next := time.Now(), a.view.Load().clone()
	if len(next.Authorities) > 1 {
		return wire.ErrFailed.With("the authority is being replaced already; %s", waitingText(next))
	}
	id := next.issuing() + 1
	if err := a.makeIssuer(id, now); err != nil {
		return err
	}
	next.Authorities = append(next.Authorities, id)
	next.Trust++
	a.warned = false
	if err := a.commit(next); err != nil {
		return err
	}
	a.log.Info("replacing the fleet's authority", "waiting", len(next.waiting()))
	a.settle(now)
	if !a.finishRotation(now, false) {
		a.tell(Change{Trust: true})
	}
	return nil
}

// FinishRotation ends a rotation without those who have not renewed: they must join again.
// Errors: ErrFailed (no rotation is under way, or the state could not be stored).
func (a *Authority) FinishRotation() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.view.Load().Authorities) < 2 {
		return wire.ErrFailed.With("the authority is not being replaced; `ctl pki rotate` begins that")
	}
	if !a.finishRotation(time.Now(), true) {
		return wire.ErrFailed.With("the state of the fleet could not be stored; the manager's log says why")
	}
	return nil
}

// waiting are the nodes whose certificate comes from the older of two authorities.
func (l *ledger) waiting() []string {
	var names []string
	if len(l.Authorities) < 2 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(l.Nodes)) {
		if e := l.Nodes[name]; e.live() && e.Authority == l.Authorities[0] {
			names = append(names, name)
		}
	}
	return names
}

func waitingText(l *ledger) string {
	names := l.waiting()
	if len(names) > 10 {
		names = append(names[:10:10], "…")
	}
	return "it waits for these nodes to renew their certificates: " + strings.Join(names, ", ") +
		"; `ctl pki rotate --finish` does not wait, and they must join again"
}

// finishRotation deletes the old authority if nobody needs it any more, or in any case, and
// reports whether it has done so. The manager's own certificate changes at the same moment, so
// tokens that pin the old authority are good for nothing.
func (a *Authority) finishRotation(now time.Time, anyway bool) bool {
	next := a.view.Load().clone()
	if len(next.Authorities) < 2 || len(next.waiting()) > 0 && !anyway {
		return false
	}
	old := next.Authorities[0]
	left := len(next.waiting())
	next.Authorities, next.Manager = next.Authorities[1:], next.issuing()
	next.Trust++
	withdraw(next, now, func(t ticket) bool { return t.Authority == old })
	if err := a.commit(next); err != nil {
		a.log.Error("cannot finish replacing the fleet's authority; trying again", "err", err)
		return false
	}
	a.settle(now)
	if err := a.folder.remove(issuerFile(old)); err != nil {
		a.log.Error("the replaced authority could not be deleted", "err", err)
	}
	delete(a.issuers, old)
	a.log.Info("the fleet's authority was replaced", "left out", left)
	a.tell(Change{Revoked: left > 0, Trust: true})
	return true
}

// settle brings the files up to date that follow from the ledger. What fails is tried again by
// Run, and at the next start.
func (a *Authority) settle(now time.Time) {
	if err := a.renewManager(now); err != nil {
		a.log.Error("cannot renew the manager's certificate; trying again every hour", "err", err)
	}
	if err := a.writeTrust(); err != nil {
		a.log.Error("cannot write the list of authorities; trying again every hour", "err", err)
	}
}
