package authority

import (
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Bounds of what may be asked for.
const (
	DefaultTokenLife = time.Hour
	MaxTokenLife     = 366 * 24 * time.Hour
	// MaxCount is how many nodes one token can let in.
	MaxCount = 10_000
	// MaxTokens that are usable at a time, and MaxNodes with those that were removed.
	MaxTokens = 1024
	MaxNodes  = 65_536
	// keepEnded is how long a token is remembered that is over, to tell its bearer why.
	keepEnded = 30 * 24 * time.Hour
)

// AddNode makes a name a member of the fleet, and a token with which one machine can become
// that node, once, within life (0: DefaultTokenLife). A token for that name that was not used
// yet is withdrawn. A machine that is that node already stays it until the token is used.
// Errors: ErrInvalidArgs, ErrLimitsExceeded, ErrFailed (the state could not be stored).
func (a *Authority) AddNode(name string, life time.Duration) (pki.Token, error) {
	if !wire.ValidNodeName(name) {
		return pki.Token{}, wire.ErrInvalidArgs.With("node name %.80q is not valid: %s", name, wire.NodeNameRule)
	}
	return a.addToken(ticket{Name: name, Count: 1}, life, func(next *ledger, now time.Time) error {
		e, known := next.Nodes[name]
		if !known && len(next.Nodes) >= MaxNodes {
			return tooManyNodes()
		}
		e.Added, e.Removed = true, time.Time{}
		next.Nodes[name] = e
		withdraw(next, now, func(t ticket) bool { return !t.Reusable && t.Name == name })
		return nil
	})
}

// AddReusable makes a token for up to count machines, each of which chooses a name that
// matches the glob and that no machine has had. Errors: as AddNode.
func (a *Authority) AddReusable(pattern string, count int, life time.Duration) (pki.Token, error) {
	if _, err := unit.CompileGlob(pattern); err != nil {
		return pki.Token{}, wire.ErrInvalidArgs.With("the pattern for node names is not valid: %v", err)
	}
	if count < 1 || count > MaxCount {
		return pki.Token{}, wire.ErrInvalidArgs.With("a token can be for 1 to %d nodes, not for %d", MaxCount, count)
	}
	return a.addToken(ticket{Name: pattern, Reusable: true, Count: count}, life, nil)
}

func (a *Authority) addToken(t ticket, life time.Duration, also func(*ledger, time.Time) error) (pki.Token, error) {
	if life == 0 {
		life = DefaultTokenLife
	}
	if life < time.Second || life > MaxTokenLife {
		return pki.Token{}, wire.ErrInvalidArgs.With("a token can be good for 1s to %d days, not for %v", MaxTokenLife/24/time.Hour, life)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, next := time.Now(), a.view.Load().clone()
	if also != nil {
		if err := also(next, now); err != nil {
			return pki.Token{}, err
		}
	}
	next.Tokens = slices.DeleteFunc(next.Tokens, func(t ticket) bool {
		end := t.ended(now)
		return !end.IsZero() && now.Sub(end) > keepEnded
	})
	// Those that are over are kept only while there is room.
	if over := len(next.Tokens) - 4*MaxTokens; over > 0 {
		next.Tokens = slices.DeleteFunc(next.Tokens, func(t ticket) bool { over--; return over >= 0 && !t.usable(now) })
	}
	if usable(next, now) >= MaxTokens {
		return pki.Token{}, wire.ErrLimitsExceeded.With("there are %d tokens already that can still be used; withdraw some", MaxTokens)
	}
	token := pki.NewToken(a.issuers[next.Manager].cert)
	t.Hash, t.Left, t.Authority = hash(token.Hash()), t.Count, next.Manager
	t.Created, t.Expires = now.UTC(), now.Add(life).UTC()
	next.Tokens = append(next.Tokens, t)
	if err := a.commit(next); err != nil {
		return pki.Token{}, err
	}
	if also != nil {
		a.tell(Change{Fleet: true})
	}
	return token, nil
}

func usable(l *ledger, now time.Time) int {
	n := 0
	for _, t := range l.Tokens {
		if t.usable(now) {
			n++
		}
	}
	return n
}

// withdraw ends the tokens that are usable and chosen.
func withdraw(l *ledger, now time.Time, chosen func(ticket) bool) (n int) {
	for i, t := range l.Tokens {
		if t.usable(now) && chosen(t) {
			l.Tokens[i].Withdrawn = now.UTC()
			n++
		}
	}
	return n
}

// Withdraw ends a token before its time. Errors: ErrInvalidArgs (there is none), ErrFailed.
func (a *Authority) Withdraw(id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.view.Load().clone()
	if withdraw(next, time.Now(), func(t ticket) bool { return t.id() == strings.ToLower(id) }) == 0 {
		return wire.ErrInvalidArgs.With("no token %.80q can be used; list the tokens to see which can", id)
	}
	return a.commit(next)
}

// RemoveNode takes a name out of the fleet: its certificate and the tokens for it are worth
// nothing from the moment on. What files say about the fleet is not looked at.
// Errors: ErrNoSuchNode, ErrFailed.
func (a *Authority) RemoveNode(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, next := time.Now(), a.view.Load().clone()
	e, known := next.Nodes[name]
	if !known || !e.Removed.IsZero() {
		return wire.ErrNoSuchNode.With("node %.80q was not added with `ctl node add`, nor has it joined", name)
	}
	next.Nodes[name] = entry{Removed: now.UTC(), Generation: e.Generation + 1}
	withdraw(next, now, func(t ticket) bool { return !t.Reusable && t.Name == name })
	if err := a.commit(next); err != nil {
		return err
	}
	a.log.Info("node was removed; its certificate is revoked", "node", name)
	a.tell(Change{Fleet: true, Revoked: true})
	a.finishRotation(now, false)
	return nil
}

func tooManyNodes() error {
	return wire.ErrLimitsExceeded.With("the fleet remembers %d nodes, with those that were removed, and there is no room for more", MaxNodes)
}
