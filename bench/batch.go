package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// batch is a number of jobs with some of them under way. The next one is asked for where the
// end of one is read, on the connection's goroutine, so that the client adds no switch between
// goroutines to what it measures.
type batch struct {
	mu      sync.Mutex
	calls   []peer.Call
	next    int
	began   []time.Time
	took    []int64
	left    int
	pending map[wire.ObjectPath]int
	early   map[wire.ObjectPath]end // JobRemoved read before the answer of the call
	done    chan error              // nil while no batch is under way
}

type end struct {
	at     time.Time
	result string
}

func target(i int) string { return fmt.Sprintf("bench-%d.target", i) }

// jobs asks for jobs of t.Count targets on each node and waits for their ends.
func (c *client) jobs(ctx context.Context, member string, t task) ([]int64, error) {
	var calls []peer.Call
	for i := range t.Count {
		for _, node := range t.Nodes {
			path, iface := c.dialect.node(node)
			calls = append(calls, peer.Call{Destination: c.dialect.name, Path: path, Interface: iface, Member: member,
				Body: peer.MustEncode(target(t.From+i), "replace")})
		}
	}
	done := make(chan error, 1)
	b := &c.batch
	b.mu.Lock()
	b.calls, b.next, b.left, b.done = calls, 0, len(calls), done
	b.began, b.took = make([]time.Time, len(calls)), make([]int64, len(calls))
	b.pending, b.early = make(map[wire.ObjectPath]int), make(map[wire.ObjectPath]end)
	for range min(t.Window, len(calls)) {
		c.ask()
	}
	b.mu.Unlock()
	select {
	case err := <-done:
		return b.took, err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s of %d targets did not end: %w", member, len(calls), ctx.Err())
	}
}

// ask makes the next call. The batch is locked.
func (c *client) ask() {
	b := &c.batch
	if b.next == len(b.calls) {
		return
	}
	i := b.next
	b.next++
	b.began[i] = time.Now()
	// Go never calls back before it returns.
	c.Go(b.calls[i], taskLimit, func(m *peer.Message, err error) { c.answered(i, m, err) })
}

func (c *client) answered(i int, m *peer.Message, err error) {
	b := &c.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	var path wire.ObjectPath
	if err == nil {
		err = peer.Decode(m.Body, &path)
	}
	if err != nil {
		b.finish(err)
		return
	}
	b.pending[path] = i
	if e, ok := b.early[path]; ok {
		c.ended(path, e)
	}
}

func (c *client) signal(m *peer.Message) {
	if m.Member != "JobRemoved" {
		return
	}
	now := time.Now()
	var id uint32
	var path wire.ObjectPath
	var node, unit, result string
	var err error
	if m.Body.Sig == "uoss" {
		err = peer.Decode(m.Body, &id, &path, &unit, &result)
	} else {
		err = peer.Decode(m.Body, &id, &path, &node, &unit, &result)
	}
	c.batch.mu.Lock()
	defer c.batch.mu.Unlock()
	if err != nil {
		c.batch.finish(err)
		return
	}
	c.ended(path, end{now, result})
}

func (c *client) ended(path wire.ObjectPath, e end) {
	b := &c.batch
	if b.done == nil {
		return
	}
	i, ok := b.pending[path]
	if !ok {
		b.early[path] = e
		return
	}
	delete(b.pending, path)
	if e.result != "done" {
		b.finish(fmt.Errorf("job %s ended with %q", path, e.result))
		return
	}
	b.took[i] = e.at.Sub(b.began[i]).Nanoseconds()
	if b.left--; b.left == 0 {
		b.finish(nil)
		return
	}
	c.ask()
}

func (b *batch) finish(err error) {
	if b.done != nil {
		b.done <- err
		b.done = nil
	}
}
