// Package authz decides whether a caller on the bus may call a method: by its uid alone, or
// by asking polkit.
package authz

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// lookupTimeout bounds how long the bus may take to say who a caller is.
const lookupTimeout = 5 * time.Second

// ByUID lets some users do everything and all others nothing. It asks the bus who a caller
// is, once for each of them.
type ByUID struct {
	allowed []uint32
	// The bus answers on its connection's goroutine, questions come on the server's.
	mu      sync.Mutex
	known   map[caller]uint32
	waiting map[caller][]waiter
}

// caller is a unique name, which means something on its own bus only and is never used
// again there.
type caller struct {
	conn *peer.Conn
	name string
}

type waiter struct {
	request busobject.Request
	done    func(error)
}

// NewByUID allows these users: uid 0, and on a user bus the daemon's own.
func NewByUID(allowed ...uint32) *ByUID {
	return &ByUID{
		allowed: slices.Clone(allowed), known: make(map[caller]uint32), waiting: make(map[caller][]waiter),
	}
}

// Check implements busobject.Authorizer. A refusal is of kind wire.ErrAccessDenied and
// names the right.
func (b *ByUID) Check(r busobject.Request, done func(error)) (decided bool, err error) {
	who := caller{r.Conn, r.Sender}
	b.mu.Lock()
	uid, known := b.known[who]
	if known {
		b.mu.Unlock()
		return true, b.judge(r, uid)
	}
	b.waiting[who] = append(b.waiting[who], waiter{r, done})
	first := len(b.waiting[who]) == 1
	b.mu.Unlock()
	if first {
		b.lookUp(who)
	}
	return false, nil
}

func (b *ByUID) lookUp(who caller) {
	args, err := peer.Encode(who.name)
	if err != nil {
		b.found(who, 0, err)
		return
	}
	who.conn.Go(userOf(args), lookupTimeout, func(m *peer.Message, err error) {
		var uid uint32
		if err == nil {
			err = peer.Decode(m.Body, &uid)
		}
		b.found(who, uid, err)
	})
}

// found answers all that wait for it, in the order of their questions.
func (b *ByUID) found(who caller, uid uint32, err error) {
	b.mu.Lock()
	waiting := b.waiting[who]
	delete(b.waiting, who)
	if err == nil {
		b.known[who] = uid
	}
	b.mu.Unlock()
	for _, q := range waiting {
		if err != nil {
			q.done(unknownCaller(q.request, err))
			continue
		}
		q.done(b.judge(q.request, uid))
	}
}

func (b *ByUID) judge(r busobject.Request, uid uint32) error {
	if slices.Contains(b.allowed, uid) {
		return nil
	}
	return wire.ErrAccessDenied.With("%s needs the right %s, which %s has; the caller is uid %d", r.Verb, r.Action, b.holders(), uid)
}

func (b *ByUID) holders() string {
	var names []string
	for _, uid := range b.allowed {
		names = append(names, fmt.Sprintf("uid %d", uid))
	}
	return "only " + strings.Join(names, " or ")
}

// Trusted implements busobject.Authorizer.
func (b *ByUID) Trusted(conn *peer.Conn, sender string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid, known := b.known[caller{conn, sender}]
	return known && slices.Contains(b.allowed, uid)
}

// UID is the user of a caller that was checked and has not left since.
func (b *ByUID) UID(conn *peer.Conn, name string) (uid uint32, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid, known = b.known[caller{conn, name}]
	return uid, known
}

// Left implements busobject.Authorizer.
func (b *ByUID) Left(conn *peer.Conn, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if name != "" {
		delete(b.known, caller{conn, name})
		return
	}
	for who := range b.known {
		if who.conn == conn {
			delete(b.known, who)
		}
	}
}
