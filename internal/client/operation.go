package client

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/wire"
)

// OperationEvent is one piece of news about an operation on a workload: a step of a node, the
// end of a node, or the end of it all.
type OperationEvent struct {
	Operation uint32
	Node      string // "" at the end of the operation
	// Change is set for a step; Step of Steps that the node has planned.
	Change      *bundle.Change
	Step, Steps uint32
	// Result is set where a node has ended.
	Result *bundle.Result
	// Ended is the operation's result at its end: done, failed, pending or canceled.
	Ended string
}

// Operations receives news of all operations, from before the first is asked for.
type Operations struct {
	c    *Client
	list chan OperationEvent
	over chan struct{}
	once sync.Once
	err  error
}

// Operations begins to listen. It ends with the connection, or with the manager.
func (c *Client) Operations(ctx context.Context) (*Operations, error) {
	if err := c.listen(ctx); err != nil {
		return nil, err
	}
	rule := "type='signal',sender='" + wire.BusName + "',interface='" + wire.WorkloadsInterface + "'"
	if _, err := c.read(ctx, busDaemon(), "AddMatch", rule); err != nil {
		return nil, err
	}
	o := &Operations{c: c, list: make(chan OperationEvent, eventQueue), over: make(chan struct{})}
	return o, c.jobs.addOperations(o)
}

// Next waits for the next news.
func (o *Operations) Next(ctx context.Context) (OperationEvent, error) {
	select {
	case e := <-o.list:
		return e, nil
	default:
	}
	select {
	case e := <-o.list:
		return e, nil
	case <-o.over:
		return OperationEvent{}, o.err
	case <-ctx.Done():
		return OperationEvent{}, ended(ctx)
	}
}

func (o *Operations) end(err error) {
	o.once.Do(func() {
		o.err = err
		close(o.over)
	})
}

// deliver hands news over, on the connection's reading goroutine. It blocks while the reader
// is slow, as a monitor does.
func (o *Operations) deliver(member string, body []any) {
	e, ok := operationEvent(member, body)
	if !ok {
		return
	}
	select {
	case o.list <- e:
	case <-o.c.conn.Context().Done():
	}
}

func operationEvent(member string, body []any) (OperationEvent, bool) {
	var e OperationEvent
	var change bundle.Change
	var workload, verb, outcome, text string
	switch member {
	case "NodeProgress":
		e.Change = &change
		return e, dbus.Store(body, &e.Operation, &e.Node, &e.Step, &e.Steps, &change.What, &change.Name, &change.Result) == nil
	case "NodeResult":
		if dbus.Store(body, &e.Operation, &e.Node, &outcome, &text) != nil || json.Unmarshal([]byte(text), &e.Result) != nil || e.Result == nil {
			return e, false
		}
		e.Result.Outcome = bundle.Outcome(outcome)
		return e, true
	case "OperationRemoved":
		return e, dbus.Store(body, &e.Operation, &workload, &verb, &e.Ended) == nil
	}
	return e, false
}

func (f *follower) addOperations(o *Operations) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.manager == "" { // it left since it was asked for
		return f.dead
	}
	f.operations = append(f.operations, o)
	return nil
}

// followers are those that want the operations of a signal.
func (f *follower) followers(s *dbus.Signal) []*Operations {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.manager == "" || s.Sender != f.manager {
		return nil
	}
	return f.operations
}
