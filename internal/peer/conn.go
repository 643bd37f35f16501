package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"example.org/ctrl/internal/wire"
)

// Defaults of Options.
const (
	DefaultMaxMessage       = 4 << 20
	DefaultBusMaxMessage    = 64 << 20
	DefaultWriteCap         = 8 << 20
	DefaultWriteTimeout     = 10 * time.Second
	DefaultHandshakeTimeout = 5 * time.Second
	DefaultCallTimeout      = 30 * time.Second
	DefaultMaxPending       = 1 << 16
)

const readBuffer = 4 << 10

// Options of a connection. The zero value of each field means its default.
type Options struct {
	// Handler gets method calls and signals one after the other in order of arrival, on the
	// reader goroutine. The message is valid only during the call unless it is cloned. While
	// the handler blocks nothing is read; one that waits must also watch Conn.Closing.
	// Without a handler calls are answered with UnknownMethod and signals dropped.
	Handler func(c *Conn, m *Message)
	// OnClose is called once, after the last callback of the connection, with the reason.
	OnClose func(c *Conn, err error)
	// MaxMessage is the largest message in bytes, both ways: 4 MiB, on a bus 64 MiB.
	MaxMessage int
	// WriteCap is how many bytes may wait to be sent: 8 MiB, on a bus twice MaxMessage. Past
	// it the connection is closed. While half of it waits, no further calls are read.
	WriteCap int
	// WriteTimeout is how long the peer may take no bytes: 10 s.
	WriteTimeout time.Duration
	// HandshakeTimeout bounds all of SASL: 5 s.
	HandshakeTimeout time.Duration
	// MaxPending is how many calls may wait for their answers: 65,536. Further ones fail with
	// LimitsExceeded.
	MaxPending int
	// Log gets panics of callbacks and messages of a bus that were left out.
	Log *slog.Logger
}

func (o *Options) fill(bus bool) {
	if o.MaxMessage <= 0 {
		o.MaxMessage = DefaultMaxMessage
		if bus {
			o.MaxMessage = DefaultBusMaxMessage
		}
	}
	if o.WriteCap <= 0 {
		o.WriteCap = max(DefaultWriteCap, 2*o.MaxMessage)
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = DefaultWriteTimeout
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = DefaultHandshakeTimeout
	}
	if o.MaxPending <= 0 {
		o.MaxPending = DefaultMaxPending
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Conn is one D-Bus connection. All methods are safe from any goroutine.
type Conn struct {
	nc     net.Conn
	opt    Options
	server bool // answers Hello
	bus    bool // the other side is a bus
	name   atomic.Pointer[string]

	born     time.Time
	received atomic.Int64 // since born
	busy     atomic.Bool  // the handler runs
	br       inbound
	names    *interner
	msg      Message // the one being delivered
	warned   bool    // of a message that was left out

	queued atomic.Int64 // bytes that wait or are being written
	deaf   atomic.Bool  // calls and signals are not delivered any more

	mu       sync.Mutex
	changed  sync.Cond // broadcast when bytes were written and when the state changes
	err      error     // why it was closed
	ending   error     // the reason given to CloseWhenSent: nothing more can be sent
	broken   error     // of the writer: nothing more can be sent
	sent     checkedNames
	out      *buffer
	writing  bool
	write    func() // writeAll, made once: starting it so allocates nothing
	serial   uint32
	calls    callTable
	timer    *time.Timer
	timerAt  time.Duration // since born; 0 when the timer is not set
	sweeping int

	closing chan struct{}
	done    chan struct{}
}

// errClosedHere is the reason of a connection that this side closed without giving one.
var errClosedHere = errors.New("closed by this side")

// Server runs the server's half of SASL on nc and then the connection. ctx bounds the
// handshake only. On an error nc is closed.
func Server(ctx context.Context, nc net.Conn, opt Options) (*Conn, error) {
	return start(ctx, nc, opt, true, false, acceptSASL)
}

// Client runs the client's half of SASL on nc and then the connection. ctx bounds the
// handshake only. On an error nc is closed.
func Client(ctx context.Context, nc net.Conn, opt Options) (*Conn, error) {
	return start(ctx, nc, opt, false, false, offerSASL)
}

func start(ctx context.Context, nc net.Conn, opt Options, server, bus bool,
	handshake func(lines, io.Writer) error) (*Conn, error) {
	opt.fill(bus)
	c := &Conn{
		nc: nc, opt: opt, server: server, bus: bus,
		born:    time.Now(),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	c.changed.L = &c.mu
	c.write = c.writeAll
	c.br.init((*source)(c))
	if err := c.handshake(ctx, handshake); err != nil {
		closeSocket(nc)
		return nil, err
	}
	go c.read()
	return c, nil
}

func (c *Conn) handshake(ctx context.Context, half func(lines, io.Writer) error) error {
	deadline := time.Now().Add(c.opt.HandshakeTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	c.nc.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { c.nc.SetDeadline(time.Unix(1, 0)) })
	err := half(&c.br, c.nc)
	switch inTime := stop(); {
	case err == nil && inTime:
		return c.nc.SetDeadline(time.Time{})
	case !inTime && ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("not finished in time (%w)", err)
	case errors.Is(err, io.EOF):
		err = errPeerClosed
	}
	return fmt.Errorf("cannot open D-Bus connection with %s: handshake: %w", remoteName(c.nc), err)
}

func remoteName(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil && a.String() != "" && a.String() != "@" {
		return a.String()
	}
	return "peer"
}

// source is the connection as the reader's buffer sees it: it notes when bytes come.
type source Conn

func (s *source) Read(b []byte) (int, error) {
	n, err := s.nc.Read(b)
	if n > 0 {
		s.received.Store(int64(time.Since(s.born)))
	}
	return n, err
}

// LastReceived is when the last bytes arrived, or when the connection began. It has a
// monotonic reading. While the handler holds up reading it is now: that nothing comes is not
// the peer's doing then.
func (c *Conn) LastReceived() time.Time {
	if c.busy.Load() {
		c.received.Store(int64(time.Since(c.born)))
	}
	return c.born.Add(time.Duration(c.received.Load()))
}

// Backlog is how many bytes wait to be sent, those included that are being written.
func (c *Conn) Backlog() int { return int(c.queued.Load()) }

// NetConn is the connection below, for its addresses and its TLS state. Nobody else may
// read or write it.
func (c *Conn) NetConn() net.Conn { return c.nc }

// UniqueName is the name that the bus gave to this connection, or "".
func (c *Conn) UniqueName() string {
	if name := c.name.Load(); name != nil {
		return *name
	}
	return ""
}

// Closing is closed as soon as the connection is no longer usable.
func (c *Conn) Closing() <-chan struct{} { return c.closing }

// Done is closed when the connection has ended and OnClose has returned.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection was closed, nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the socket at once and does not wait; what was not sent yet is lost. Calls
// that wait for answers fail with reason, and OnClose follows, also when Close is called
// from a handler. Later calls of Close do nothing.
func (c *Conn) Close(reason error) {
	if reason == nil {
		reason = errClosedHere
	}
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.deaf.Store(true)
		c.err = cmp.Or(c.ending, reason)
		close(c.closing)
		c.changed.Broadcast()
	}
	c.mu.Unlock()
	if first {
		closeSocket(c.nc)
	}
}

// innermost is the connection below all layers such as TLS.
func innermost(nc net.Conn) net.Conn {
	for {
		u, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = u.NetConn()
	}
}

// closeSocket closes the innermost connection first: the Close of a TLS connection would
// first try to say goodbye to a peer that may not read.
func closeSocket(nc net.Conn) {
	inner := innermost(nc)
	inner.Close()
	if inner != nc {
		nc.Close()
	}
}

// lingerTime is how long CloseWhenSent waits for the peer to read and to close.
const lingerTime = time.Second

// CloseWhenSent delivers no more calls and signals, sends what is waiting, and then closes the
// connection, within WriteTimeout and a second: for a last word that the peer should read.
// The connection then ends with this reason, whoever closes it first.
func (c *Conn) CloseWhenSent(reason error) {
	if reason == nil {
		reason = errClosedHere
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.ending != nil {
		return
	}
	c.ending = reason
	c.deaf.Store(true)
	go c.linger()
}

func (c *Conn) linger() {
	c.mu.Lock()
	for c.err == nil && c.writing {
		c.changed.Wait()
	}
	closed := c.err != nil
	c.mu.Unlock()
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && !closed {
		// Closing with unread bytes would make TCP throw away what the peer has not read.
		c.nc.SetWriteDeadline(time.Now().Add(lingerTime))
		if half.CloseWrite() == nil {
			t := time.NewTimer(lingerTime)
			defer t.Stop()
			select {
			case <-c.closing: // the reader has seen the peer's end
			case <-t.C:
			}
		}
	}
	c.Close(nil)
}

var errPeerClosed = errors.New("peer closed the connection")

// disconnected is the error of calls that the connection's end leaves without an answer.
func disconnected(reason error) error {
	return wire.ErrDisconnected.With("connection closed: %v", reason)
}

// read is the reader goroutine.
func (c *Conn) read() {
	defer c.finish()
	defer c.recoverPanic()
	c.Close(c.readMessages())
}

// recoverPanic is deferred around callbacks: their panic ends this connection only.
func (c *Conn) recoverPanic() {
	if p := recover(); p != nil {
		c.opt.Log.Error("panic in a callback of a connection, which is closed for it",
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		c.Close(fmt.Errorf("panic in a callback: %v", p))
	}
}

func (c *Conn) guard(fn func()) {
	defer c.recoverPanic()
	fn()
}

// finish ends what hangs on a closed connection.
func (c *Conn) finish() {
	c.mu.Lock()
	for c.writing || c.sweeping > 0 {
		c.changed.Wait()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	left := c.calls.takeAll()
	err := c.err
	c.mu.Unlock()
	failed := disconnected(err)
	for _, done := range left {
		c.guard(func() { done(nil, failed) })
	}
	if c.opt.OnClose != nil {
		c.guard(func() { c.opt.OnClose(c, err) })
	}
	close(c.done)
}
