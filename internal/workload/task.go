package workload

import (
	"encoding/json"
	"errors"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/wire"
)

// task is one conversation with one node: a package is uploaded where there is one, a request
// is sent, and where it is queued there its end is awaited. A node has one at a time.
type task struct {
	e        *Engine
	n        *node
	method   string
	request  bundle.Request
	pack     string              // digest of the package to upload, "" for none
	answered func(answer string) // for requests that are answered at once; nil: an Event ends it
	progress func(bundle.Event)
	done     func(bundle.Result, error)

	timer interface{ Stop() }
	over  bool
}

// grace is how much longer than its own time limit an operation of a node may take to say so:
// others may be queued there before it.
const grace = 2 * time.Minute

// enqueue gives a node something to do.
func (e *Engine) enqueue(n *node, t *task) {
	t.e, t.n = e, n
	switch {
	case !n.online:
		t.finish(bundle.Result{}, offline(n.name))
		return
	case !n.able:
		t.finish(bundle.Result{}, wire.ErrFailed.With("the agent of node %q does not take workloads: it is too old; update ctrl-agent there", n.name))
		return
	}
	n.queue = append(n.queue, t)
	e.next(n)
}

func (e *Engine) next(n *node) {
	if n.current != nil || len(n.queue) == 0 {
		return
	}
	t := n.queue[0]
	n.queue = n.queue[1:]
	n.current = t
	e.lastTask++
	t.request.ID = e.lastTask
	if t.pack == "" {
		t.ask()
		return
	}
	e.store.Package(t.pack, func(data []byte, err error) {
		e.later(func() {
			switch {
			case t.over:
			case err != nil:
				t.finish(bundle.Result{}, wire.ErrFailed.With("the package of workload %s cannot be read any more: %v; apply it again", t.request.Workload, err))
			default:
				t.upload(data, 0)
			}
		})
	})
}

// upload sends the package from offset on, piece by piece.
func (t *task) upload(data []byte, offset uint64) {
	size := uint64(len(data))
	if offset >= size {
		t.request.Package = t.pack
		t.ask()
		return
	}
	chunk := data[offset:min(size, offset+wire.MaxBundleChunk)]
	t.e.fleet.Upload(t.n.name, t.pack, size, offset, chunk, func(received uint64, err error) {
		t.e.later(func() {
			switch {
			case t.over:
			case err != nil:
				t.finish(bundle.Result{}, err)
			case received != offset+uint64(len(chunk)):
				t.finish(bundle.Result{}, wire.ErrFailed.With("node %q has %d bytes of the package after %d were sent", t.n.name, received, offset+uint64(len(chunk))))
			default:
				t.upload(data, received)
			}
		})
	})
}

func (t *task) ask() {
	text, err := json.Marshal(t.request)
	if err != nil {
		t.finish(bundle.Result{}, err)
		return
	}
	if t.answered == nil {
		t.timer = t.e.loop.After(t.request.Options.Timeout()+grace, func() {
			t.finish(bundle.Result{}, wire.ErrTimeout.With("node %q did not say in time how it ended; see ctl workload describe %s", t.n.name, t.request.Workload))
		})
	}
	t.e.fleet.Ask(t.n.name, t.method, string(text), func(answer string, err error) {
		t.e.later(func() {
			switch {
			case t.over:
			case err != nil:
				t.finish(bundle.Result{}, err)
			case t.answered != nil:
				t.answered(answer)
				t.finish(bundle.Result{}, nil)
			}
		})
	})
}

// finish ends a task once, and begins the node's next one.
func (t *task) finish(r bundle.Result, err error) {
	if t.over {
		return
	}
	t.over = true
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.n.current == t {
		t.n.current = nil
		defer t.e.next(t.n)
	}
	t.done(r, err)
}

// Progress is a node's signal about an operation. It waits while the core has much to do.
func (e *Engine) Progress(nodeName, text string) {
	e.post(func() {
		n := e.nodes[nodeName]
		var event bundle.Event
		if n == nil || json.Unmarshal([]byte(text), &event) != nil {
			return
		}
		t := n.current
		if t == nil || t.request.ID != event.ID {
			return // of an earlier session, or of another manager
		}
		if t.progress != nil {
			t.progress(event)
		}
		if event.Done && event.Result != nil {
			t.finish(*event.Result, nil)
		}
	}, ignore)
}

// isOffline reports that a node was not there, or has gone: what it was asked is still wanted.
func isOffline(err error) bool {
	return errors.Is(err, wire.ErrNodeOffline) || errors.Is(err, wire.ErrTimeout) || errors.Is(err, wire.ErrDisconnected)
}
