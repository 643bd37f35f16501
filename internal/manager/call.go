package manager

import (
	"errors"
	"slices"
	"time"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// maxQueryBytes bounds what the answers of all nodes to one question may hold together:
// no client of a bus could be given more in one message.
const maxQueryBytes = 64 << 20

// checkMethod refuses what CallNode and QueryNodes do not pass on.
func checkMethod(method string, args wire.Raw) error {
	found, ok := wire.NodeMethodByName(method)
	if !ok || found.Kind == wire.JobMethod {
		return wire.ErrUnknownMethod.With("%s is no query or change of a node", quoted(method))
	}
	if args.Sig != found.In {
		return wire.ErrInvalidArgs.With("%s takes arguments of type %q, not %q", method, found.In, args.Sig)
	}
	return nil
}

func (m *Manager) callNode(name, method string, args wire.Raw, reply func(wire.Raw, error)) {
	err := checkMethod(method, args)
	if err != nil {
		reply(wire.Raw{}, err)
		return
	}
	s, err := m.live(name)
	if err != nil {
		reply(wire.Raw{}, err)
		return
	}
	m.pass(s, method, args, m.cfg.CallTimeout, reply)
}

// pass sends a call on and makes sure of one answer.
func (m *Manager) pass(s *session, method string, args wire.Raw, limit time.Duration, reply func(wire.Raw, error)) {
	if err := s.checkRoom(); err != nil {
		reply(wire.Raw{}, err)
		return
	}
	call := s.begin(func(err error) { reply(wire.Raw{}, err) })
	s.link.Call(method, args, limit, func(body wire.Raw, err error) {
		m.loop.Defer(func() {
			if !m.settle(s, call, err) {
				return
			}
			if errors.Is(err, wire.ErrTimeout) {
				err = wire.ErrTimeout.With("node %q did not answer %s within %v", s.node.name, method, limit)
			}
			reply(body, err)
		})
	})
}

// query collects the answers of many nodes to one question.
type query struct {
	replies []NodeReply
	open    int
	bytes   int
	reply   func([]NodeReply, error)
}

func (m *Manager) queryNodes(patterns []string, method string, args wire.Raw, reply func([]NodeReply, error)) {
	err := checkMethod(method, args)
	if err != nil {
		reply(nil, err)
		return
	}
	chosen, err := matchNodes(m.nodes, patterns)
	if err != nil {
		reply(nil, err)
		return
	}
	chosen = slices.DeleteFunc(chosen, func(n *node) bool { return n.session == nil })
	q := &query{replies: make([]NodeReply, len(chosen)), open: len(chosen), reply: reply}
	if q.open == 0 {
		reply(q.replies, nil)
		return
	}
	for i, n := range chosen {
		q.replies[i].Node = n.name
		m.pass(n.session, method, args, m.cfg.QueryTimeout, func(body wire.Raw, err error) { q.answer(i, body, err) })
	}
}

func (q *query) answer(i int, body wire.Raw, err error) {
	if q.bytes += len(body.Data); q.bytes > maxQueryBytes {
		q.bytes -= len(body.Data)
		body, err = wire.Raw{}, wire.ErrLimitsExceeded.With(
			"the answers of all nodes together are larger than %d MiB; ask fewer nodes or with a filter", maxQueryBytes>>20)
	}
	q.replies[i].Body, q.replies[i].Err = body, err
	if q.open--; q.open == 0 {
		q.reply(q.replies, nil)
	}
}

// MaxNodePatterns is how many node patterns one question may have.
const MaxNodePatterns = 1024

// matchNodes lists the nodes whose name is matched by one of the patterns, in the order of
// nodes; no pattern means all. A pattern that matches none is an error.
func matchNodes(nodes []*node, patterns []string) ([]*node, error) {
	if len(patterns) == 0 {
		return slices.Clone(nodes), nil
	}
	if len(patterns) > MaxNodePatterns {
		return nil, wire.ErrLimitsExceeded.With("%d node patterns were given, at most %d are allowed", len(patterns), MaxNodePatterns)
	}
	wanted := make([]bool, len(nodes))
	for _, pattern := range patterns {
		glob, err := unit.CompileGlob(pattern)
		if err != nil {
			return nil, wire.ErrInvalidArgs.With("node %v", err)
		}
		found := false
		for i, n := range nodes {
			if glob.Match(n.name) {
				wanted[i], found = true, true
			}
		}
		if !found {
			return nil, wire.ErrNoSuchNode.With("no node of the fleet matches %s; list the nodes to see which are", quoted(pattern))
		}
	}
	var out []*node
	for i, n := range nodes {
		if wanted[i] {
			out = append(out, n)
		}
	}
	return out, nil
}
