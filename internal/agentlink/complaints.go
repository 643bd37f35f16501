package agentlink

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// How much one address may have written to the log.
const (
	complaintBurst  = 5
	complaintPeriod = time.Minute
	maxComplainers  = 1024
)

// complaints logs what peers do wrong, a few lines a minute for each address, so that nobody
// fills the log from outside.
type complaints struct {
	log *slog.Logger

	mu    sync.Mutex
	peers map[netip.Addr]*complainer
}

type complainer struct {
	since      time.Time
	logged     int
	suppressed int
}

func newComplaints(log *slog.Logger) *complaints {
	return &complaints{log: log, peers: make(map[netip.Addr]*complainer)}
}

// about logs one line about a peer, unless it has had its share.
func (c *complaints) about(address netip.Addr, name, message string, err error) {
	suppressed, ok := c.admit(address, time.Now())
	if !ok {
		return
	}
	attrs := []any{"address", name, "err", err}
	if suppressed > 0 {
		attrs = append(attrs, "suppressed", suppressed)
	}
	c.log.Warn(message, attrs...)
}

// admit decides whether one more line may be logged, and how many were not before it.
func (c *complaints) admit(address netip.Addr, now time.Time) (suppressed int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[address]
	if p == nil {
		if len(c.peers) >= maxComplainers {
			c.forget(now)
		}
		if len(c.peers) >= maxComplainers {
			// Too many at once: those that are new share one allowance.
			address = netip.Addr{}
			p = c.peers[address]
		}
		if p == nil {
			p = &complainer{since: now}
			c.peers[address] = p
		}
	}
	if now.Sub(p.since) >= complaintPeriod {
		suppressed = p.suppressed
		*p = complainer{since: now}
	}
	if p.logged >= complaintBurst {
		p.suppressed++
		return 0, false
	}
	p.logged++
	return suppressed, true
}

// forget drops the addresses that have been quiet for a period.
func (c *complaints) forget(now time.Time) {
	for address, p := range c.peers {
		if now.Sub(p.since) >= complaintPeriod {
			delete(c.peers, address)
		}
	}
}
