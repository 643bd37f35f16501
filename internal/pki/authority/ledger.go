package authority

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// ledger is everything that must not be forgotten. One that others may see is never changed:
// a change makes a copy, writes it, and only then puts it in the place of the one before.
type ledger struct {
	// Authorities are those that nodes trust, the oldest first. The last one issues to nodes.
	Authorities []int `json:"authorities"`
	// Manager is the one that the manager's own certificate comes from.
	Manager int `json:"manager"`
	// Trust counts the changes of Authorities.
	Trust  int              `json:"trust"`
	Nodes  map[string]entry `json:"nodes"`
	Tokens []ticket         `json:"tokens"`
}

// entry is one node, or one that was removed: its generation must not begin anew.
type entry struct {
	Added      bool      `json:"added"` // a member of the fleet by AddNode or by a reusable token
	Removed    time.Time `json:"removed,omitzero"`
	Generation uint64    `json:"generation"` // of the certificate that counts, 0: none yet
	Joined     time.Time `json:"joined,omitzero"`
	NotAfter   time.Time `json:"not_after,omitzero"`
	Authority  int       `json:"authority,omitempty"` // that the certificate comes from
	Trust      int       `json:"trust,omitempty"`     // ledger.Trust as the node was last told
	Key        hash      `json:"key,omitzero"`        // of the public key that joined
	Token      hash      `json:"token,omitzero"`      // that it joined with
}

// live reports whether a certificate of the node counts.
func (e entry) live() bool { return e.Removed.IsZero() && e.Generation > 0 && !e.Joined.IsZero() }

// ticket is a token without its secret.
type ticket struct {
	Hash      hash      `json:"hash"`
	Name      string    `json:"name"` // of the node; a glob where Reusable
	Reusable  bool      `json:"reusable"`
	Count     int       `json:"count"` // how many nodes it lets in
	Left      int       `json:"left"`
	Authority int       `json:"authority"` // that it pins
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires"`
	Used      time.Time `json:"used,omitzero"` // for the last time
	Withdrawn time.Time `json:"withdrawn,omitzero"`
}

// usable reports whether the token can still let somebody in.
func (t ticket) usable(now time.Time) bool {
	return t.Left > 0 && t.Withdrawn.IsZero() && now.Before(t.Expires)
}

// ended is when it was over, the zero time where it is not.
func (t ticket) ended(now time.Time) time.Time {
	switch {
	case !t.Withdrawn.IsZero():
		return t.Withdrawn
	case t.Left == 0:
		return t.Used
	case !now.Before(t.Expires):
		return t.Expires
	}
	return time.Time{}
}

// id names a token for people. It says nothing about the secret.
func (t ticket) id() string { return hex.EncodeToString(t.Hash[:4]) }

// hash is a SHA-256, in hexadecimal in the file.
type hash pki.TokenHash

func (h hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

func (h *hash) UnmarshalText(text []byte) error {
	if len(text) != 2*len(h) {
		return errors.New("a hash has the wrong length")
	}
	_, err := hex.Decode(h[:], text)
	return err
}

func (h hash) IsZero() bool { return h == hash{} }

func (l *ledger) clone() *ledger {
	c := *l
	c.Authorities = slices.Clone(l.Authorities)
	c.Nodes = maps.Clone(l.Nodes)
	c.Tokens = slices.Clone(l.Tokens)
	return &c
}

// issuing is the authority that issues to nodes.
func (l *ledger) issuing() int { return l.Authorities[len(l.Authorities)-1] }

// find looks a token up. It looks at all of them, each in constant time: how long it takes
// says nothing about how near a guess was.
func (l *ledger) find(wanted hash) int {
	found := -1
	for i := range l.Tokens {
		if equal(l.Tokens[i].Hash, wanted) {
			found = i
		}
	}
	return found
}

// The file begins with a line that holds the SHA-256 of the rest: a file that a crash, a full
// disk or a hand has changed is not believed.
const ledgerHead = "ctrl fleet 1 "

func (l *ledger) encode() ([]byte, error) {
	body, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		return nil, fmt.Errorf("cannot encode the fleet's state: %w", err)
	}
	sum := sha256.Sum256(body)
	return slices.Concat([]byte(ledgerHead), []byte(hex.EncodeToString(sum[:])), []byte("\n"), body), nil
}

var errCorrupt = errors.New("it is damaged, and is left as it is; put the file of a backup in its place, " +
	"or move the whole directory away to begin with a new fleet authority, which every node must then join")

func decodeLedger(data []byte) (*ledger, error) {
	head, body, found := bytes.Cut(data, []byte("\n"))
	sum := sha256.Sum256(body)
	if !found || string(head) != ledgerHead+hex.EncodeToString(sum[:]) {
		return nil, errCorrupt
	}
	l := new(ledger)
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(l); err != nil {
		return nil, fmt.Errorf("it is of another version of ctrl: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errCorrupt
	}
	if l.Nodes == nil {
		l.Nodes = make(map[string]entry)
	}
	return l, l.check()
}

// check holds what the rest of the package relies on.
func (l *ledger) check() error {
	sorted := slices.IsSorted(l.Authorities) && len(slices.Compact(slices.Clone(l.Authorities))) == len(l.Authorities)
	if !sorted || len(l.Authorities) > 2 || len(l.Authorities) > 0 && (l.Authorities[0] < 1 || !slices.Contains(l.Authorities, l.Manager)) {
		return fmt.Errorf("it names the authorities %v and %d", l.Authorities, l.Manager)
	}
	for name := range l.Nodes {
		if !wire.ValidNodeName(name) {
			return fmt.Errorf("it holds the name %.80q, and %s", name, wire.NodeNameRule)
		}
	}
	for _, t := range l.Tokens {
		if t.Left < 0 || t.Left > t.Count || t.Count > MaxCount {
			return fmt.Errorf("it holds a token for %d of %d nodes", t.Left, t.Count)
		}
		if _, err := unit.CompileGlob(t.Name); err != nil {
			return fmt.Errorf("it holds a token for %.80q: %w", t.Name, err)
		}
	}
	return nil
}
