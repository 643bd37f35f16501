package daemon

import (
	"context"
	"log/slog"
	"time"

	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/logging"
	"example.org/ctrl/internal/sockopt"
)

// TCP is what the configuration says about connections, where threshold is how long nothing
// may be heard from the other end.
func TCP(c *config.Common, threshold time.Duration) sockopt.TCP {
	return sockopt.TCP{
		KeepAliveTime: c.TCPKeepAliveTime, KeepAliveInterval: c.TCPKeepAliveInterval,
		KeepAliveCount: c.TCPKeepAliveCount, ReceiveErrors: c.IPReceiveErrors, UserTimeout: threshold,
	}
}

// KeepUntilRestart gives c the values of now for those keys of both daemons that take effect
// at the next start only.
func KeepUntilRestart(c, now *config.Common) {
	c.TLS = now.TLS
	c.TCPKeepAliveTime, c.TCPKeepAliveInterval = now.TCPKeepAliveTime, now.TCPKeepAliveInterval
	c.TCPKeepAliveCount, c.IPReceiveErrors = now.TCPKeepAliveCount, now.IPReceiveErrors
	c.LogTarget, c.LogIsQuiet = now.LogTarget, now.LogIsQuiet
}

// SayRestart logs which changed keys a reload did not apply.
func SayRestart(log *slog.Logger, keys []string) {
	for _, key := range keys {
		log.Warn("a changed key takes effect at the next start only", logging.KeyConfig, key)
	}
}

// Component is a part of a daemon that runs until it is ended.
type Component struct {
	end  context.CancelFunc
	done chan struct{}
}

// Go starts a component.
func Go(fn func(context.Context)) *Component {
	ctx, end := context.WithCancel(context.Background())
	c := &Component{end: end, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		fn(ctx)
	}()
	return c
}

// End ends a component and waits for it, until ctx ends. A nil component has ended.
func (c *Component) End(ctx context.Context) {
	if c == nil {
		return
	}
	c.end()
	select {
	case <-c.done:
	case <-ctx.Done():
	}
}

// Latch wakes one goroutine, however often it is set before that looks.
type Latch chan struct{}

// NewLatch makes a latch that is not set.
func NewLatch() Latch { return make(chan struct{}, 1) }

// Set never blocks.
func (l Latch) Set() {
	select {
	case l <- struct{}{}:
	default:
	}
}
