package authority

import (
	"maps"
	"slices"
	"time"
)

// Node is one node that the authority knows.
type Node struct {
	Name       string
	Added      bool // a member of the fleet by `ctl node add` or a reusable token
	Removed    time.Time
	Generation uint64
	Joined     time.Time // zero: not yet, or removed
	NotAfter   time.Time
	Outdated   bool // see Authority.Outdated
}

// Nodes lists all that were added or have joined, also those that were removed, by name.
func (a *Authority) Nodes() []Node {
	l := a.view.Load()
	var out []Node
	for _, name := range slices.Sorted(maps.Keys(l.Nodes)) {
		e := l.Nodes[name]
		out = append(out, Node{name, e.Added, e.Removed, e.Generation, e.Joined, e.NotAfter, a.Outdated(name)})
	}
	return out
}

// Members are the names that were added and not removed, sorted.
func (a *Authority) Members() []string {
	var out []string
	for name, e := range a.view.Load().Nodes {
		if e.Added && e.Removed.IsZero() {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Token is what is known of a token besides its secret.
type Token struct {
	ID               string
	Name             string
	Reusable         bool
	Count, Left      int
	Created, Expires time.Time
}

// Tokens lists those that can still be used, the oldest first.
func (a *Authority) Tokens() []Token {
	now := time.Now()
	var out []Token
	for _, t := range a.view.Load().Tokens {
		if t.usable(now) {
			out = append(out, Token{t.id(), t.Name, t.Reusable, t.Count, t.Left, t.Created, t.Expires})
		}
	}
	return out
}

// Certificate is one that the manager or an authority has.
type Certificate struct {
	Subject             string
	Fingerprint         string // SHA-256 of the certificate, hexadecimal
	NotBefore, NotAfter time.Time
}

// State is the authority as people see it.
type State struct {
	Directory   string
	Authorities []Certificate // the oldest first; two while one replaces the other
	Manager     Certificate
	Waiting     []string // nodes that a replacement waits for
}

// State shows the authority. Errors: the manager's own certificate could not be read.
func (a *Authority) State() (State, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.view.Load()
	s := State{Directory: a.folder.path, Waiting: l.waiting()}
	for _, id := range l.Authorities {
		s.Authorities = append(s.Authorities, describe(a.issuers[id].cert))
	}
	data, err := a.folder.read(managerFile)
	if err != nil {
		return s, err
	}
	cert, err := parseManager(data)
	if err != nil {
		return s, err
	}
	s.Manager = describe(cert)
	return s, nil
}
