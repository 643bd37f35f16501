package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/ctrl/internal/wire"
)

// Call is a method call to be sent. Destination is for a bus only; Interface may be "".
type Call struct {
	Destination string
	Path        wire.ObjectPath
	Interface   string
	Member      string
	Body        wire.Raw
	Flags       Flags
}

// pending is one call that waits for its answer.
type pending struct {
	serial   uint32
	at       int           // its place in callTable.queue
	deadline time.Duration // since the connection began
	timeout  time.Duration
	member   string
	done     func(*Message, error)
}

// callTable holds the calls that wait, by serial and in a heap by deadline. It makes no
// garbage: entries are used again.
type callTable struct {
	bySerial map[uint32]*pending
	queue    []*pending
	free     []*pending
}

const maxFree = 1024

func (t *callTable) has(serial uint32) bool {
	if len(t.bySerial) == 0 {
		return false
	}
	_, ok := t.bySerial[serial]
	return ok
}

func (t *callTable) add(serial uint32) *pending {
	var p *pending
	if n := len(t.free); n > 0 {
		p, t.free = t.free[n-1], t.free[:n-1]
	} else {
		p = new(pending)
	}
	if t.bySerial == nil {
		t.bySerial = make(map[uint32]*pending)
	}
	p.serial = serial
	t.bySerial[serial] = p
	return p
}

// enqueue puts p into the heap by its deadline.
func (t *callTable) enqueue(p *pending) {
	p.at = len(t.queue)
	t.queue = append(t.queue, p)
	t.up(p.at)
}

// take removes a call and returns its callback, nil where there is no such call.
func (t *callTable) take(serial uint32) func(*Message, error) {
	p := t.bySerial[serial]
	if p == nil {
		return nil
	}
	return t.remove(p)
}

func (t *callTable) remove(p *pending) func(*Message, error) {
	delete(t.bySerial, p.serial)
	last := len(t.queue) - 1
	at := p.at
	t.swap(at, last)
	t.queue[last] = nil
	t.queue = t.queue[:last]
	if at < last {
		t.down(at)
		t.up(at)
	}
	done := p.done
	if len(t.free) < maxFree {
		*p = pending{}
		t.free = append(t.free, p)
	}
	if last == 0 && cap(t.queue) > maxFree {
		t.queue, t.bySerial = nil, nil // a burst leaves nothing behind
	}
	return done
}

func (t *callTable) takeAll() []func(*Message, error) {
	slices.SortFunc(t.queue, func(a, b *pending) int { return cmp.Compare(a.serial, b.serial) })
	var all []func(*Message, error)
	for _, p := range t.queue {
		all = append(all, p.done)
	}
	*t = callTable{}
	return all
}

func (t *callTable) swap(i, k int) {
	t.queue[i], t.queue[k] = t.queue[k], t.queue[i]
	t.queue[i].at, t.queue[k].at = i, k
}

func (t *callTable) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.queue[parent].deadline <= t.queue[i].deadline {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *callTable) down(i int) {
	for {
		least := 2*i + 1
		if least >= len(t.queue) {
			return
		}
		if r := least + 1; r < len(t.queue) && t.queue[r].deadline < t.queue[least].deadline {
			least = r
		}
		if t.queue[i].deadline <= t.queue[least].deadline {
			return
		}
		t.swap(i, least)
		i = least
	}
}

// Go sends a call and never blocks. done is called exactly once: with the answer on the
// reader goroutine, in order of arrival, valid only during the callback; with a *wire.Error
// for an error that the other side answers; with one of kind wire.ErrTimeout after timeout
// (0 means 30 s), of kind wire.ErrDisconnected when the connection ends, or with the reason
// why the call could not be sent. Except for answers, done runs on another goroutine than
// the caller's, so it never runs before Go returns because of Go.
// A nil done sends a call that wants no answer.
func (c *Conn) Go(call Call, timeout time.Duration, done func(*Message, error)) {
	if done == nil {
		c.Send(call)
		return
	}
	if _, err := c.begin(&call, timeout, done); err != nil {
		go c.guard(func() { done(nil, err) })
	}
}

// begin queues a call. On an error done is not called.
func (c *Conn) begin(call *Call, timeout time.Duration, done func(*Message, error)) (uint32, error) {
	if timeout <= 0 {
		timeout = DefaultCallTimeout
	}
	m := Message{
		Type: TypeCall, Flags: call.Flags &^ FlagNoReply, Path: call.Path, Interface: call.Interface,
		Member: call.Member, Destination: call.Destination, Body: call.Body,
	}
	if checkedBuild {
		mustBeValid(m.Body)
	}
	c.mu.Lock()
	if err := c.admit(&m); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	if len(c.calls.bySerial) >= c.opt.MaxPending {
		c.mu.Unlock()
		return 0, wire.ErrLimitsExceeded.With("%d calls wait for answers already", c.opt.MaxPending)
	}
	serial := c.nextSerial()
	p := c.calls.add(serial)
	p.done, p.member, p.timeout = done, call.Member, timeout
	p.deadline = time.Since(c.born) + timeout
	c.calls.enqueue(p)
	c.armTimer()
	err := c.queue(&m, serial)
	c.mu.Unlock()
	if err != nil {
		c.Close(err) // which fails the call
	}
	return serial, nil
}

// armTimer sees that the one timer fires no later than the first deadline. The lock is held.
func (c *Conn) armTimer() {
	if len(c.calls.queue) == 0 {
		return
	}
	first := c.calls.queue[0].deadline
	if c.timerAt != 0 && c.timerAt <= first {
		return
	}
	c.timerAt = first
	wait := max(0, first-time.Since(c.born))
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.sweep)
	} else {
		c.timer.Reset(wait)
	}
}

// sweep fails the calls whose time is up.
func (c *Conn) sweep() {
	type late struct {
		done func(*Message, error)
		err  error
	}
	var all []late
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	now := time.Since(c.born)
	for len(c.calls.queue) > 0 && c.calls.queue[0].deadline <= now {
		p := c.calls.queue[0]
		err := wire.ErrTimeout.With("no answer to %s within %v", p.member, p.timeout)
		all = append(all, late{c.calls.remove(p), err})
	}
	c.timerAt = 0
	c.armTimer()
	c.sweeping++
	c.mu.Unlock()
	for _, l := range all {
		c.guard(func() { l.done(nil, l.err) })
	}
	c.mu.Lock()
	c.sweeping--
	c.changed.Broadcast()
	c.mu.Unlock()
}

// answered hands an answer to the call it is for. One that nobody waits for is dropped: it
// came too late.
func (c *Conn) answered(m *Message, failed *wire.Error) {
	c.mu.Lock()
	done := c.calls.take(m.ReplySerial)
	c.mu.Unlock()
	switch {
	case done == nil:
	case failed != nil:
		done(nil, failed)
	default:
		done(m, nil)
	}
}

// Call sends a call and waits for its answer, which the caller may keep. Without a deadline
// in ctx it waits 30 s. Errors are those of Go; a cancelled ctx gives ctx.Err. It must not
// be called from a callback of the same connection.
func (c *Conn) Call(ctx context.Context, call Call) (*Message, error) {
	timeout := DefaultCallTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), 1)
	}
	if err := ctx.Err(); err != nil {
		return nil, contextError(call.Member, err)
	}
	type answer struct {
		m   *Message
		err error
	}
	answers := make(chan answer, 1)
	serial, err := c.begin(&call, timeout, func(m *Message, err error) {
		if m != nil {
			m = m.Clone()
		}
		answers <- answer{m, err}
	})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answers:
		return a.m, a.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	given := c.calls.take(serial) != nil
	c.mu.Unlock()
	if given {
		return nil, contextError(call.Member, ctx.Err())
	}
	a := <-answers // it came, or is coming, at the same moment
	return a.m, a.err
}

func contextError(member string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return wire.ErrTimeout.With("no answer to %s in time", member)
	}
	return fmt.Errorf("call of %s given up: %w", member, err)
}
