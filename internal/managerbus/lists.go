package managerbus

import (
	"errors"
	"slices"
	"sync"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Bounds of questions to the whole fleet, whose answers may be large.
const (
	maxLists   = 8   // under way at a time
	maxWaiting = 256 // for one of them to end
)

// gate lets a few through at a time and others wait, in order.
type gate struct {
	most, wait int        // inside, and waiting
	what       string     // what there are too many of
	mu         sync.Mutex // entered on the server's goroutine, left on others
	inside     int
	waiting    []func()
}

// enter runs fn now or later; whoever has entered leaves. It refuses where too many wait.
func (g *gate) enter(fn func()) error {
	g.mu.Lock()
	switch {
	case g.inside < g.most:
		g.inside++
		g.mu.Unlock()
		fn()
		return nil
	case len(g.waiting) >= g.wait:
		g.mu.Unlock()
		return wire.ErrLimitsExceeded.With("%d %s are under way or wait; try again later", g.most+g.wait, g.what)
	}
	g.waiting = append(g.waiting, fn)
	g.mu.Unlock()
	return nil
}

// leave lets the next one in, on this goroutine.
func (g *gate) leave() {
	g.mu.Lock()
	if len(g.waiting) == 0 {
		g.inside--
		g.mu.Unlock()
		return
	}
	next := g.waiting[0]
	g.waiting = g.waiting[1:]
	g.mu.Unlock()
	next()
}

// listAll answers with what a method of the Node interface gives on every node.
func (b *Bus) listAll(method string) func(*busobject.Call) {
	return func(c *busobject.Call) { b.query(c, nil, method, wire.Raw{}) }
}

// listFiltered is for some nodes; they do the rest.
func (b *Bus) listFiltered(c *busobject.Call) {
	first, rest, err := peer.SplitBody(c.Args, 1)
	var nodes []string
	if err == nil {
		err = peer.Decode(first, &nodes)
	}
	if err != nil {
		c.Fail(err)
		return
	}
	b.query(c, nodes, "ListUnitsFiltered", rest)
}

func (b *Bus) query(c *busobject.Call, nodes []string, method string, args wire.Raw) {
	err := b.lists.enter(func() {
		b.core.QueryNodes(nodes, method, args, func(replies []manager.NodeReply, err error) {
			// Not on the core's goroutine: this copies up to 64 MiB.
			b.work.Go(func() {
				defer b.lists.leave()
				var body wire.Raw
				if err == nil {
					body, err = joinReplies(method, replies)
				}
				if err != nil {
					c.Fail(err)
					return
				}
				c.ReplyBody(body)
			})
		})
	})
	if err != nil {
		c.Fail(err)
	}
}

// joinReplies makes "a{sa(…)}" of the arrays that nodes gave, without opening them. Nodes
// that gave none are left out.
func joinReplies(method string, replies []manager.NodeReply) (wire.Raw, error) {
	found, _ := wire.NodeMethodByName(method)
	size, refused := 0, error(nil)
	for _, r := range replies {
		size += len(r.Body.Data) + len(r.Node) + 24
		if errors.Is(r.Err, wire.ErrInvalidArgs) && refused == nil {
			refused = r.Err
		}
	}
	// The core drops answers that together are too much to hold, which is more than this.
	if size > busobject.MaxAnswer {
		return wire.Raw{}, busobject.ErrTooLarge(method)
	}
	answered := slices.DeleteFunc(slices.Clone(replies), func(r manager.NodeReply) bool { return r.Err != nil })
	if len(answered) == 0 && refused != nil {
		return wire.Raw{}, refused
	}
	return spliceArrays(found.Out, answered)
}

func spliceArrays(array wire.Signature, replies []manager.NodeReply) (wire.Raw, error) {
	var e peer.Encoder
	dict := e.BeginArray('{')
	for _, r := range replies {
		if r.Body.Sig != array {
			continue // not what the node was asked for
		}
		elem, content, err := peer.ArrayContent(r.Body)
		if err != nil {
			continue
		}
		e.BeginStruct()
		e.String(r.Node)
		list := e.BeginArray(elem[0])
		e.AppendElements(elem, content)
		e.EndArray(list)
		e.EndStruct()
	}
	e.EndArray(dict)
	return e.Body("a{s" + array + "}")
}
