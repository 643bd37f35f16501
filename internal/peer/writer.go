package peer

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"example.org/ctrl/internal/wire"
)

// writeChunk is how many bytes the peer must take within WriteTimeout.
const writeChunk = 256 << 10

// admit refuses a message that cannot be sent: wrong names, too large, or the connection is
// closed. The lock is held.
func (c *Conn) admit(m *Message) error {
	switch {
	case c.err != nil:
		return disconnected(c.err)
	case c.broken != nil:
		return disconnected(c.broken)
	case c.ending != nil:
		return disconnected(c.ending)
	}
	if err := c.sent.check(m); err != nil {
		return err
	}
	header := headerSize(m)
	if header > maxHeader {
		return wire.ErrLimitsExceeded.With("header of %d bytes is larger than %d", header, maxHeader)
	}
	if size := header + len(m.Body.Data); size > c.opt.MaxMessage {
		return c.sizeError(size)
	}
	return nil
}

func (c *Conn) sizeError(size int) error {
	hint := ""
	if c.bus {
		hint = "; ask for less, for example with ListUnitsFiltered"
	}
	return wire.ErrLimitsExceeded.With("message of %d bytes is larger than %d%s", size, c.opt.MaxMessage, hint)
}

// send queues a message that expects no answer.
func (c *Conn) send(m *Message) error {
	if checkedBuild {
		mustBeValid(m.Body)
	}
	c.mu.Lock()
	if err := c.admit(m); err != nil {
		c.mu.Unlock()
		return err
	}
	err := c.queue(m, c.nextSerial())
	c.mu.Unlock()
	if err != nil {
		c.Close(err)
		return disconnected(err)
	}
	return nil
}

// queue appends a message to what is waiting and sees that it is written. The lock is held.
// On an error the connection must be closed.
func (c *Conn) queue(m *Message, serial uint32) error {
	if c.out == nil {
		c.out = getBuffer()
	}
	before := len(c.out.b)
	c.out.b = appendMessage(c.out.b, m, serial)
	queued := c.queued.Add(int64(len(c.out.b) - before))
	if queued > int64(c.opt.WriteCap) {
		return fmt.Errorf("peer reads too slowly: more than %d bytes wait to be sent", c.opt.WriteCap)
	}
	if !c.writing {
		c.writing = true
		go c.write()
	}
	return nil
}

// nextSerial is never 0 and never that of a call that still waits. The lock is held.
func (c *Conn) nextSerial() uint32 {
	for {
		c.serial++
		if c.serial != 0 && !c.calls.has(c.serial) {
			return c.serial
		}
	}
}

// writeAll is the writer goroutine. It lives as long as there is something to write: each turn
// takes all that has gathered meanwhile.
func (c *Conn) writeAll() {
	c.mu.Lock()
	for c.out != nil && c.err == nil && c.broken == nil {
		buf := c.out
		c.out = nil
		c.mu.Unlock()
		err := c.writeOut(buf.b)
		putBuffer(buf)
		if err != nil {
			c.writeFailed(err)
		}
		c.mu.Lock()
	}
	c.writing = false
	c.changed.Broadcast()
	c.mu.Unlock()
}

func (c *Conn) writeOut(b []byte) error {
	for len(b) > 0 {
		chunk := b[:min(len(b), writeChunk)]
		c.nc.SetWriteDeadline(time.Now().Add(c.opt.WriteTimeout))
		if _, err := c.nc.Write(chunk); err != nil {
			return err
		}
		b = b[len(chunk):]
		was := c.queued.Add(-int64(len(chunk))) + int64(len(chunk))
		if half := int64(c.opt.WriteCap / 2); was > half && was-int64(len(chunk)) <= half {
			c.mu.Lock()
			c.changed.Broadcast()
			c.mu.Unlock()
		}
	}
	return nil
}

// writeFailed ends the connection. A peer that is gone may have said why before it went, so
// what has arrived is still read.
func (c *Conn) writeFailed(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.Close(fmt.Errorf("peer does not read: it took too few bytes within %v", c.opt.WriteTimeout))
		return
	}
	c.mu.Lock()
	c.broken = fmt.Errorf("cannot write: %w", err)
	c.mu.Unlock()
	c.nc.SetReadDeadline(time.Now().Add(lingerTime))
}

// Send sends a call that wants no answer.
func (c *Conn) Send(call Call) error {
	return c.send(&Message{
		Type: TypeCall, Flags: call.Flags | FlagNoReply, Path: call.Path, Interface: call.Interface,
		Member: call.Member, Destination: call.Destination, Body: call.Body,
	})
}

// Signal sends a signal to the peer, or on a bus to all who have asked for it. An error
// says that nothing was sent: wrong names, too large, or closed.
func (c *Conn) Signal(path wire.ObjectPath, iface, member string, body wire.Raw) error {
	return c.SignalTo("", path, iface, member, body)
}

// SignalTo sends a signal to one client of the bus.
func (c *Conn) SignalTo(destination string, path wire.ObjectPath, iface, member string, body wire.Raw) error {
	return c.send(&Message{
		Type: TypeSignal, Flags: FlagNoReply, Path: path, Interface: iface, Member: member,
		Destination: destination, Body: body,
	})
}

// Reply answers a call; m may be the message itself or a clone. An answer that is too large
// becomes an error of kind LimitsExceeded, for the caller and here. Where the caller wants
// no answer nothing is sent.
func (c *Conn) Reply(m *Message, body wire.Raw) error {
	if m.Type != TypeCall || m.NoReply() {
		return nil
	}
	err := c.send(&Message{
		Type: TypeReturn, Flags: FlagNoReply, ReplySerial: m.Serial, Destination: m.Sender, Body: body,
	})
	if errors.Is(err, wire.ErrLimitsExceeded) {
		c.ReplyError(m, err)
	}
	return err
}

// maxErrorText bounds the text of an error, which may quote what others have sent.
const maxErrorText = 16 << 10

// ReplyError answers a call with wire.AsError(err). A text that is not valid on D-Bus is
// made so.
func (c *Conn) ReplyError(m *Message, err error) error {
	if m.Type != TypeCall || m.NoReply() {
		return nil
	}
	e := wire.AsError(err)
	if e == nil || !validInterface(e.Name) {
		e = wire.ErrFailed.With("%v", err)
	}
	text := e.Text
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	return c.send(&Message{
		Type: TypeError, Flags: FlagNoReply, ReplySerial: m.Serial, Destination: m.Sender,
		ErrorName: e.Name, Body: MustEncode(text),
	})
}
