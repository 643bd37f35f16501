package workload

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Bounds.
const (
	MaxWorkloads  = 10_000
	MaxOperations = 1_000 // under way at a time
	inboxCapacity = 1024
)

// Engine is the core. Make one with New, then Run.
type Engine struct {
	loop   *loop.Loop
	fleet  Fleet
	store  Store
	events Events
	log    *slog.Logger

	specs      map[string]*Spec
	nodes      map[string]*node
	operations map[uint32]*operation
	reserved   map[string]bool // workloads for which something is being saved
	lastID     uint32
	lastTask   uint64
	over       bool
}

// node is what is known of one member of the fleet.
type node struct {
	name     string
	online   bool
	able     bool              // its agent takes bundles
	labels   map[string]string // of the last session
	listed   bool              // statuses are of this session
	statuses map[string]bundle.Status
	sizes    map[string]int // of what was said of each
	size     int            // of all of it
	orphans  []string
	queue    []*task
	current  *task
}

const (
	keyNode     = "node"
	keyWorkload = "workload"
)

// New makes a core that knows what an earlier one has saved.
func New(specs []*Spec, fleet Fleet, store Store, events Events, log *slog.Logger) *Engine {
	e := &Engine{
		loop: loop.New(inboxCapacity), fleet: fleet, store: store, events: events, log: log,
		specs: make(map[string]*Spec), nodes: make(map[string]*node), operations: make(map[uint32]*operation), reserved: make(map[string]bool),
		// Ids of tasks live on nodes: those of an earlier manager must not come again.
		lastTask: uint64(time.Now().UnixNano()),
	}
	for _, s := range specs {
		e.specs[s.Name] = s
	}
	return e
}

// Run serves until ctx ends. Operations under way end as canceled; nodes go on with what they
// have begun.
func (e *Engine) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { e.loop.Defer(e.shutDown) })
	defer stop()
	e.loop.Run(context.Background())
}

func (e *Engine) shutDown() {
	e.over = true
	for _, id := range slices.Sorted(maps.Keys(e.operations)) {
		e.operations[id].abandon(wire.ResultCanceled)
	}
	e.loop.Stop()
}

func errShuttingDown() error { return wire.ErrShuttingDown.With("the manager is shutting down") }

func ignore(error) {}

// post runs fn on the core, or refuse where the core has ended.
func (e *Engine) post(fn func(), refuse func(error)) {
	ok := e.loop.Post(func() {
		if e.over {
			refuse(errShuttingDown())
			return
		}
		fn()
	})
	if !ok {
		refuse(errShuttingDown())
	}
}

// later runs fn on the core, for answers to what the core asked.
func (e *Engine) later(fn func()) {
	e.loop.Defer(func() {
		if !e.over {
			fn()
		}
	})
}

// ChangeFleet says which nodes are new in the fleet, and offline, and which have left it. What
// those should have is not forgotten. As all that the manager's core tells, it never blocks.
func (e *Engine) ChangeFleet(added, removed []string) {
	e.later(func() {
		for _, name := range added {
			if e.nodes[name] == nil {
				e.nodes[name] = &node{name: name}
			}
		}
		for _, name := range removed {
			if n := e.nodes[name]; n != nil {
				delete(e.nodes, name)
				e.lose(n)
			}
		}
	})
}

// NodeOnline says that a node has begun a session. able is whether its agent takes bundles.
func (e *Engine) NodeOnline(name string, able bool, labels map[string]string) {
	e.later(func() {
		n := e.nodes[name]
		if n == nil {
			n = &node{name: name}
			e.nodes[name] = n
		}
		e.lose(n)
		n.online, n.able, n.labels = true, able, labels
		if able {
			e.askListing(n, func() {})
		}
	})
}

// NodeOffline says that a node's session has ended.
func (e *Engine) NodeOffline(name string) {
	e.later(func() {
		if n := e.nodes[name]; n != nil {
			e.lose(n)
		}
	})
}

// lose ends what was under way with a node.
func (e *Engine) lose(n *node) {
	n.online, n.listed = false, false
	tasks := n.queue
	if n.current != nil {
		tasks = append([]*task{n.current}, tasks...)
	}
	n.queue, n.current = nil, nil
	for _, t := range tasks {
		t.finish(bundle.Result{}, offline(n.name))
	}
}

func offline(node string) error { return wire.ErrNodeOffline.With("node %q is offline", node) }

// matches reports whether a placement means a node.
func (p Placement) matches(n *node) bool {
	for _, pattern := range p.Nodes {
		if pattern == n.name {
			return true
		}
		if glob, err := unit.CompileGlob(pattern); err == nil && unit.HasGlob(pattern) && glob.Match(n.name) {
			return true
		}
	}
	if len(p.Selector) == 0 {
		return false
	}
	for key, value := range p.Selector {
		if n.labels[key] != value {
			return false
		}
	}
	return true
}

// dynamic reports whether nodes that come later may be meant too.
func (p Placement) dynamic() bool {
	return len(p.Selector) > 0 || slices.ContainsFunc(p.Nodes, unit.HasGlob)
}

// place lists the nodes that a placement means, by name. Names of no node are errors, and so
// is a placement that means nobody.
func (e *Engine) place(p Placement) ([]string, error) {
	if len(p.Nodes) == 0 && len(p.Selector) == 0 {
		return nil, wire.ErrInvalidArgs.With("no node is named: say on which nodes the workload belongs, by --node, --all-nodes, spec.nodes or spec.nodeSelector")
	}
	for _, name := range p.Nodes {
		if unit.HasGlob(name) {
			if _, err := unit.CompileGlob(name); err != nil {
				return nil, wire.ErrInvalidArgs.With("node %v", err)
			}
		} else if e.nodes[name] == nil {
			return nil, wire.ErrNoSuchNode.With("node %.80q is not in the fleet; list the nodes to see which are", name)
		}
	}
	var out []string
	for name, n := range e.nodes {
		if p.matches(n) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, wire.ErrNoSuchNode.With("no node of the fleet is meant by %s", p)
	}
	slices.Sort(out)
	return out, nil
}

// String says a placement for people.
func (p Placement) String() string {
	text := ""
	for _, name := range p.Nodes {
		text += " " + name
	}
	for _, key := range slices.Sorted(maps.Keys(p.Selector)) {
		text += " " + key + "=" + p.Selector[key]
	}
	if text == "" {
		return "nothing"
	}
	return text[1:]
}
