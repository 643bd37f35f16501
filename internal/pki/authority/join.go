package authority

import (
	"time"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Granted is what a node gets.
type Granted struct {
	Node        string
	Generation  uint64
	Certificate []byte // PEM
	CA          []byte // PEM: all that the node is to trust
	NotAfter    time.Time
}

const again = "`ctl node add NAME` on the manager prints a line with a new one"

// errWrongToken says nothing about what is wrong: whoever guesses learns nothing.
func errWrongToken() error {
	return wire.ErrAccessDenied.With("the manager knows no such token; %s", again)
}

// Join lets the bearer of a token be a node. node may be "" where the token is for one name.
// Nothing has happened when it fails. It may be repeated with the same key while the token
// would still be good, for those whose answer was lost.
//
// Errors: ErrAccessDenied (the token; the text may be told to the peer), ErrInvalidArgs (the
// name or the request), ErrLimitsExceeded, ErrFailed (the state could not be stored).
func (a *Authority) Join(node, word string, csr []byte) (Granted, error) {
	token, err := pki.ParseToken(word)
	if err != nil {
		return Granted{}, wire.ErrAccessDenied.With("%v", err)
	}
	secret := hash(token.Hash())
	// Guesses cost no more than this: no lock, and no signature to check.
	if a.view.Load().find(secret) < 0 {
		return Granted{}, errWrongToken()
	}
	r, err := parseRequest(csr)
	if err != nil {
		return Granted{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, next := time.Now(), a.view.Load().clone()
	at := next.find(secret)
	if at < 0 {
		return Granted{}, errWrongToken()
	}
	t := &next.Tokens[at]
	if node, err = t.name(node); err != nil {
		return Granted{}, err
	}
	e, known := next.Nodes[node]
	repeated := e.live() && e.Token == secret && e.Key == r.key
	if err := t.admit(now, node, e, repeated); err != nil {
		return Granted{}, err
	}
	if !known && len(next.Nodes) >= MaxNodes {
		return Granted{}, tooManyNodes()
	}
	before := e
	if !repeated {
		t.Left--
		t.Used = now.UTC()
		e = entry{Added: e.Added || t.Reusable, Generation: e.Generation + 1, Joined: now.UTC(), Key: r.key, Token: secret}
	}
	g, err := a.grant(next, node, e, r, now, a.commit)
	if err != nil {
		return Granted{}, err
	}
	a.log.Info("node has joined", "node", node, "generation", g.Generation, "repeated", repeated)
	a.tell(Change{Fleet: e.Added && !before.Added, Revoked: before.live() && !repeated})
	a.finishRotation(now, false)
	return g, nil
}

// name is the node that a token is for, given what its bearer wants to be.
func (t *ticket) name(asked string) (string, error) {
	if asked != "" && !wire.ValidNodeName(asked) {
		return "", wire.ErrInvalidArgs.With("node name %.80q is not valid: %s", asked, wire.NodeNameRule)
	}
	switch {
	case !t.Reusable && (asked == "" || asked == t.Name):
		return t.Name, nil
	case !t.Reusable:
		return "", wire.ErrAccessDenied.With("the token is for node %q, not for %q; join under that name, or make another token: `ctl node add %s`", t.Name, asked, asked)
	case asked == "":
		return "", wire.ErrInvalidArgs.With("the token is for nodes like %q: say under which name to join (--name)", t.Name)
	}
	if g, err := unit.CompileGlob(t.Name); err != nil || !g.Match(asked) {
		return "", wire.ErrAccessDenied.With("the token is for nodes like %q, and %q is not like that", t.Name, asked)
	}
	return asked, nil
}

// admit says why a token does not let a node in.
func (t *ticket) admit(now time.Time, node string, e entry, repeated bool) error {
	say := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
	switch {
	case !t.Withdrawn.IsZero():
		return wire.ErrAccessDenied.With("the token was withdrawn at %s; %s", say(t.Withdrawn), again)
	case !now.Before(t.Expires):
		return wire.ErrAccessDenied.With("the token expired at %s; %s", say(t.Expires), again)
	case repeated:
		return nil
	case t.Left == 0 && !t.Reusable:
		return wire.ErrAccessDenied.With("the token was used already, at %s; `ctl node add %s` on the manager prints a line with a new one", say(t.Used), node)
	case t.Left == 0:
		return wire.ErrAccessDenied.With("the token was used already for all of its %d nodes; %s", t.Count, again)
	case t.Reusable && !e.Removed.IsZero():
		return wire.ErrAccessDenied.With("node %q was removed from the fleet, so a token for many nodes does not let it in again; `ctl node add %s` does", node, node)
	case t.Reusable && e.Generation > 0:
		return wire.ErrAccessDenied.With("there is a node %q already, whose place a token for many nodes cannot take; choose another name, or use `ctl node add %s`", node, node)
	}
	return nil
}

// grant issues a certificate and makes the ledger with it the one that counts. Whatever fails,
// nobody has got anything.
func (a *Authority) grant(next *ledger, node string, e entry, r request, now time.Time, commit func(*ledger) error) (Granted, error) {
	by := a.issuers[next.issuing()]
	cert, notAfter, err := by.issueNode(node, e.Generation, r.public, now)
	if err != nil {
		return Granted{}, err
	}
	e.NotAfter, e.Authority, e.Trust = notAfter, by.id, next.Trust
	next.Nodes[node] = e
	if err := commit(next); err != nil {
		return Granted{}, err
	}
	return Granted{Node: node, Generation: e.Generation, Certificate: cert, CA: a.trusted(), NotAfter: notAfter}, nil
}

// Renew issues the next certificate of a node whose present one is of a generation.
// It does not wait for the disk. Errors: as Check, ErrInvalidArgs (the request).
func (a *Authority) Renew(node string, generation uint64, csr []byte) (Granted, error) {
	if err := a.Check(node, generation); err != nil {
		return Granted{}, err
	}
	r, err := parseRequest(csr)
	if err != nil {
		return Granted{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.Check(node, generation); err != nil {
		return Granted{}, err
	}
	now, next := time.Now(), a.view.Load().clone()
	g, err := a.grant(next, node, next.Nodes[node], r, now, a.keep)
	if err != nil {
		return Granted{}, err
	}
	a.log.Info("node has renewed its certificate", "node", node, "expires", g.NotAfter.UTC().Format(time.RFC3339))
	a.finishRotation(now, false)
	return g, nil
}

// Check refuses a certificate that is good by its signature and by its dates, but was revoked.
// It never blocks. Errors: ErrAccessDenied, which names the node and says what to do.
func (a *Authority) Check(node string, generation uint64) error {
	l := a.view.Load()
	e, known := l.Nodes[node]
	fix := "; to let it in again: `ctl node add " + node + "`, and run the line that it prints on the node"
	switch {
	case !known:
		return wire.ErrAccessDenied.With("the certificate of node %q is not known to this manager, whose state may be older%s", node, fix)
	case !e.Removed.IsZero():
		return wire.ErrAccessDenied.With("the certificate of node %q was revoked: the node was removed from the fleet at %s%s", node, e.Removed.UTC().Format(time.RFC3339), fix)
	case e.Generation != generation || !e.live():
		return wire.ErrAccessDenied.With("the certificate of node %q was revoked: it is of generation %d, and the node has joined again since (generation %d)%s", node, generation, e.Generation, fix)
	}
	for _, id := range l.Authorities {
		if id == e.Authority {
			return nil
		}
	}
	return wire.ErrAccessDenied.With("the certificate of node %q comes from an authority that was replaced (`ctl pki rotate`)%s", node, fix)
}

// Outdated reports whether a node should renew now: the authorities that it trusts, or the one
// that its certificate comes from, are others than they should be. It never blocks.
func (a *Authority) Outdated(node string) bool {
	l := a.view.Load()
	e := l.Nodes[node]
	return e.live() && (e.Trust != l.Trust || e.Authority != l.issuing())
}
