package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"example.org/ctrl/internal/wire"
)

// buffer is memory for messages that comes from and goes back to a pool, so that an idle
// connection holds none.
type buffer struct{ b []byte }

var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, 512)} }}

const maxPooled = 1 << 20

func getBuffer() *buffer { return buffers.Get().(*buffer) }

func putBuffer(b *buffer) {
	if cap(b.b) <= maxPooled {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}

// readMessages reads and dispatches until the connection ends, and says why it did.
func (c *Conn) readMessages() error {
	c.names = new(interner)
	defer c.br.release()
	for {
		b, err := c.br.Peek(fixedHeader)
		if err != nil {
			return c.readError(err, len(b) > 0)
		}
		f, err := parseFrame(b)
		if err != nil {
			return violation(err)
		}
		switch {
		case f.header > maxHeader || f.total() > uint64(c.opt.MaxMessage):
			err = c.tooLarge(&f)
		case f.total() <= readBuffer:
			err = c.readSmall(&f)
		default:
			err = c.readLarge(&f)
		}
		if err != nil {
			return err
		}
	}
}

func violation(err error) error { return fmt.Errorf("peer breaks the protocol: %w", err) }

// readError says why reading ended; within is true in the middle of a message.
func (c *Conn) readError(err error, within bool) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // set by writeFailed only
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.broken
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		if within {
			return fmt.Errorf("%w in the middle of a message", errPeerClosed)
		}
		return errPeerClosed
	}
	return fmt.Errorf("cannot read: %w", err)
}

// readSmall handles a message that fits into the reader's buffer, in place.
func (c *Conn) readSmall(f *frame) error {
	n := int(f.total())
	b, err := c.br.Peek(n)
	if err != nil {
		return c.readError(err, true)
	}
	if err := c.deliver(f, b); err != nil {
		return err
	}
	spoil(b)
	_, err = c.br.Discard(n)
	return err
}

// readLarge handles any other message. Memory grows with what has come, not with what the
// peer says will come.
func (c *Conn) readLarge(f *frame) error {
	const first = 64 << 10
	buf := getBuffer()
	defer putBuffer(buf)
	total := int(f.total())
	for have := 0; have < total; have = len(buf.b) {
		if have == cap(buf.b) {
			grown := make([]byte, have, max(first, min(total, 2*have)))
			copy(grown, buf.b)
			buf.b = grown
		}
		n, err := io.ReadFull(&c.br, buf.b[have:min(total, cap(buf.b))])
		buf.b = buf.b[:have+n]
		if err != nil {
			return c.readError(err, true)
		}
	}
	if err := c.deliver(f, buf.b); err != nil {
		return err
	}
	spoil(buf.b)
	return nil
}

// spoil makes the use of a body after its callback show in tests.
func spoil(b []byte) {
	if checkedBuild {
		for i := range b {
			b[i] = 0xdb
		}
	}
}

// tooLarge closes the connection to a peer. A bus's framing is good, and any of its users
// may send us anything: there the message is left out, and the caller told.
func (c *Conn) tooLarge(f *frame) error {
	err := fmt.Errorf("message of %d bytes with a header of %d: at most %d and %d are accepted",
		f.total(), f.header, c.opt.MaxMessage, maxHeader)
	if !c.bus {
		return violation(err)
	}
	if f.header > readBuffer {
		c.leaveOut(nil, err)
	} else {
		b, readErr := c.br.Peek(f.header)
		if readErr != nil {
			return c.readError(readErr, true)
		}
		m := &c.msg
		if c.names.parseHeader(m, f, b) != nil {
			m = nil
		}
		c.leaveOut(m, err)
	}
	for left := f.total(); left > 0; {
		n, err := c.br.Discard(int(min(left, 1<<20)))
		left -= uint64(n)
		if err != nil {
			return c.readError(err, true)
		}
	}
	return nil
}

// leaveOut tells whom it concerns that a message from the bus is not delivered; m is nil
// where its header cannot be read.
func (c *Conn) leaveOut(m *Message, err error) {
	level := slog.LevelDebug // whoever sends such a message can send a million
	if !c.warned {
		level, c.warned = slog.LevelWarn, true
	}
	c.opt.Log.Log(context.Background(), level, "message from the bus left out", "err", err)
	if m == nil {
		return
	}
	m.Body = wire.Raw{}
	failed := wire.ErrLimitsExceeded.With("message not accepted: %v", err)
	switch m.Type {
	case TypeCall:
		c.ReplyError(m, failed)
	case TypeReturn, TypeError:
		c.answered(m, failed)
	}
}

// deliver checks a whole message and hands it to whom it is for.
func (c *Conn) deliver(f *frame, b []byte) error {
	m := &c.msg
	err := c.names.parseHeader(m, f, b[:f.header])
	header := err == nil
	if header {
		err = parseBody(m, f, b[f.header:])
	}
	switch {
	case err == nil:
	case !c.bus:
		return violation(err)
	case header:
		c.leaveOut(m, err)
		return nil
	default:
		c.leaveOut(nil, err)
		return nil
	}
	if !c.bus {
		m.Sender = ""
	}
	c.dispatch(m)
	return nil
}

func (c *Conn) dispatch(m *Message) {
	switch m.Type {
	case TypeCall:
		c.awaitRoom()
		if c.deaf.Load() {
			return
		}
		if !c.answerOwn(m) {
			c.handle(m)
		}
	case TypeSignal:
		if !c.deaf.Load() {
			c.handle(m)
		}
	case TypeReturn:
		c.answered(m, nil)
	case TypeError:
		c.answered(m, m.asError())
	}
}

func (c *Conn) handle(m *Message) {
	if c.opt.Handler != nil {
		c.busy.Store(true)
		defer c.busy.Store(false)
		c.opt.Handler(c, m)
		return
	}
	if m.Type == TypeCall {
		c.ReplyError(m, UnknownMethod(m))
	}
}

// UnknownMethod is the error for a call that nobody here handles.
func UnknownMethod(m *Message) error {
	return wire.ErrUnknownMethod.With("no method %q in interface %q on object %s", m.Member, m.Interface, m.Path)
}

// awaitRoom holds up further calls while answers to earlier ones pile up, so that a peer
// that sends faster than it reads is slowed down by TCP and not closed.
func (c *Conn) awaitRoom() {
	high := int64(c.opt.WriteCap / 2)
	if c.queued.Load() <= high {
		return
	}
	c.mu.Lock()
	for c.queued.Load() > high && c.err == nil {
		c.changed.Wait()
	}
	c.mu.Unlock()
}
