package agentlink

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
	"time"
)

// Limits of connections on which nobody has registered yet (security.md, "Between manager
// and agent"). Each listener has its own.
const (
	maxPending           = 256
	maxPendingPerAddress = 8
	registerTime         = 10 * time.Second
)

// grace is the age below which a connection does not have to make room for a new one. An
// agent needs a fraction of it to register, so those who only sit there make room, and a
// fleet that comes back all at once does not throw itself out.
const grace = 2 * time.Second

// gate counts the connections of one listener that have not registered, and makes room.
type gate struct {
	max, perAddress int // perAddress 0: no such limit

	mu        sync.Mutex
	pending   list.List // of *ticket, the oldest first
	byAddress map[netip.Addr]int
	freed     chan struct{} // closed and renewed when there is room again
}

// ticket is one connection's place in the gate.
type ticket struct {
	gate    *gate
	address netip.Addr
	since   time.Time
	evict   func() // ends the connection; does not block; nil once the ticket was given back
	place   *list.Element
}

func newGate(perAddress int) *gate {
	return &gate{
		max: maxPending, perAddress: perAddress,
		byAddress: make(map[netip.Addr]int), freed: make(chan struct{}),
	}
}

// wait returns when there is room for one more, or false when ctx has ended. Until then new
// connections wait in the kernel's queue.
func (g *gate) wait(ctx context.Context) bool {
	for {
		g.mu.Lock()
		if g.pending.Len() < g.max {
			g.mu.Unlock()
			return ctx.Err() == nil
		}
		oldest := g.pending.Front().Value.(*ticket)
		freed, age := g.freed, time.Since(oldest.since)
		if age >= grace {
			g.remove(oldest)
			evict := oldest.evict
			g.mu.Unlock()
			evict()
			continue
		}
		g.mu.Unlock()
		timer := time.NewTimer(grace - age)
		select {
		case <-freed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

// enter admits a connection, or returns nil where its address has too many already. evict is
// called if it has to make room.
func (g *gate) enter(address netip.Addr, evict func()) *ticket {
	t := &ticket{gate: g, address: address, since: time.Now(), evict: evict}
	g.mu.Lock()
	var makeRoom func()
	if g.perAddress > 0 && g.byAddress[address] >= g.perAddress {
		oldest := g.oldestOf(address)
		if time.Since(oldest.since) < grace {
			g.mu.Unlock()
			return nil
		}
		g.remove(oldest)
		makeRoom = oldest.evict
	}
	t.place = g.pending.PushBack(t)
	g.byAddress[address]++
	g.mu.Unlock()
	if makeRoom != nil {
		makeRoom()
	}
	return t
}

func (g *gate) oldestOf(address netip.Addr) *ticket {
	for e := g.pending.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*ticket); t.address == address {
			return t
		}
	}
	return nil
}

// leave gives the place back: the connection has registered or is gone. It may be called twice.
func (t *ticket) leave() {
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	t.gate.remove(t)
	t.evict = nil // the link lives on and must not keep what it waited with
}

func (g *gate) remove(t *ticket) {
	if t.place == nil {
		return
	}
	g.pending.Remove(t.place)
	t.place = nil
	if g.byAddress[t.address]--; g.byAddress[t.address] == 0 {
		delete(g.byAddress, t.address)
	}
	close(g.freed)
	g.freed = make(chan struct{})
}
