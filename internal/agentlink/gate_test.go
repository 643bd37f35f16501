package agentlink

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }

func TestGatePerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(maxPendingPerAddress)
		evicted := -1
		var tickets []*ticket
		for i := range maxPendingPerAddress {
			tickets = append(tickets, g.enter(address(1), func() { evicted = i }))
		}
		if g.enter(address(1), func() {}) != nil {
			t.Error("one more than the limit was admitted")
		}
		if g.enter(address(2), func() {}) == nil {
			t.Error("another address was refused")
		}
		time.Sleep(grace - 1)
		if g.enter(address(1), func() {}) != nil || evicted != -1 {
			t.Errorf("connection %d had to make room within its grace", evicted)
		}
		time.Sleep(time.Nanosecond)
		if g.enter(address(1), func() {}) == nil || evicted != 0 {
			t.Errorf("connection %d made room, want the oldest", evicted)
		}
		tickets[0].leave() // evicted already: must not count twice
		if n := g.byAddress[address(1)]; n != maxPendingPerAddress {
			t.Errorf("%d places are counted", n)
		}
		tickets[1].leave()
		tickets[1].leave()
		if n := g.byAddress[address(1)]; n != maxPendingPerAddress-1 || g.pending.Len() != n+1 {
			t.Errorf("%d places are counted, %d in all", n, g.pending.Len())
		}
	})
}

func TestGateForgetsAddresses(t *testing.T) {
	g := newGate(maxPendingPerAddress)
	for i := range 1000 {
		g.enter(address(i), func() {}).leave()
	}
	if len(g.byAddress) != 0 || g.pending.Len() != 0 {
		t.Errorf("%d addresses and %d places are left", len(g.byAddress), g.pending.Len())
	}
}

func TestGateInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(maxPendingPerAddress)
		var tickets []*ticket
		evicted := -1
		for i := range maxPending {
			if !g.wait(t.Context()) {
				t.Fatal("no room")
			}
			tickets = append(tickets, g.enter(address(i), func() { evicted = i }))
		}
		waited := make(chan time.Duration)
		begin := time.Now()
		wait := func() {
			if g.wait(t.Context()) {
				waited <- time.Since(begin)
			}
		}
		go wait()
		time.Sleep(time.Second)
		tickets[3].leave()
		if d := <-waited; d != time.Second || evicted != -1 {
			t.Errorf("waited %v, connection %d made room", d, evicted)
		}
		g.enter(address(3), func() {})
		go wait()
		if d := <-waited; d != grace || evicted != 0 {
			t.Errorf("waited %v, connection %d made room; want %v and the oldest", d, evicted, grace)
		}
	})
}

func TestGateStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(0)
		for range maxPending {
			g.enter(netip.Addr{}, func() { t.Error("made room") })
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan bool)
		go func() { stopped <- !g.wait(ctx) }()
		synctest.Wait()
		cancel()
		if !<-stopped {
			t.Error("wait found room after the end")
		}
	})
}

func TestComplaints(t *testing.T) {
	c := newComplaints(nil)
	now := time.Now()
	count := func(a netip.Addr, tries int) (logged, suppressed int) {
		for range tries {
			n, ok := c.admit(a, now)
			suppressed += n
			if ok {
				logged++
			}
		}
		return logged, suppressed
	}
	if n, _ := count(address(1), 100); n != complaintBurst {
		t.Errorf("%d lines about one address", n)
	}
	if n, _ := count(address(2), 1); n != 1 {
		t.Error("another address was not heard")
	}
	now = now.Add(complaintPeriod)
	if n, suppressed := count(address(1), 1); n != 1 || suppressed != 100-complaintBurst {
		t.Errorf("after a period: %d lines, %d suppressed", n, suppressed)
	}
	total := 0
	for i := range 10 * maxComplainers {
		n, _ := count(address(i), 1)
		total += n
	}
	if len(c.peers) > maxComplainers+1 || total > maxComplainers+complaintBurst {
		t.Errorf("%d addresses are remembered, %d lines", len(c.peers), total)
	}
	now = now.Add(complaintPeriod)
	if n, _ := count(address(12345), 1); n != 1 || len(c.peers) > 2 {
		t.Errorf("%d lines, %d addresses are remembered after a quiet period", n, len(c.peers))
	}
}
