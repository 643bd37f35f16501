package bundle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"example.org/ctrl/internal/loop"
)

// Engine carries out what is asked of the workloads of one node, one operation after the
// other. Make one with New and run it with Run.
//
// Every method is safe from any goroutine but the engine's own. Each reply is called exactly
// once, on the engine's goroutine, or at once on the caller's when the engine has ended.
type Engine struct {
	loop    *loop.Loop
	log     *slog.Logger
	files   Files
	systemd Systemd
	events  Events

	// All below is owned by the loop's goroutine.
	cfg       Config
	loaded    bool
	failed    error // why the disk could not be read
	workloads map[string]*workload
	broken    map[string]string
	marked    map[string]string // path → workload
	stored    map[string]int64
	uploads   uploads
	queue     []*operation
	current   *operation
	waiting   []func() // for what is loaded
}

// workload is what the engine has in memory of one.
type workload struct {
	state    State
	bundle   Bundle // of state.Current
	contents map[uint64][]string
}

// Bounds of the engine: callers past them are refused.
const (
	MaxWorkloads = 1000
	MaxQueued    = 16 // operations that wait
	inbox        = 256
)

// Configure changes what the node allows, for operations that begin from now on.
func (e *Engine) Configure(filePaths []string, judge func(Bundle) error) {
	e.post(func() { e.cfg.FilePaths, e.cfg.Judge = filePaths, judge }, func(error) {})
}

// ErrEnded is the answer of an engine that has ended.
var ErrEnded = errors.New("the agent is shutting down")

// New makes an engine. It does nothing until Run.
func New(cfg Config, files Files, systemd Systemd, events Events, log *slog.Logger) *Engine {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Engine{
		loop: loop.New(inbox), log: log, files: files, systemd: systemd, events: events, cfg: cfg,
		workloads: make(map[string]*workload), stored: make(map[string]int64),
	}
}

// Run reads what the node has, ends what a crash has left half-done, and serves until ctx
// ends. An operation under way is left as a crash would leave it.
func (e *Engine) Run(ctx context.Context) {
	e.loop.Defer(e.load)
	e.loop.Run(ctx)
	refuseAll := e.queue
	if e.current != nil {
		refuseAll = append(refuseAll, e.current)
	}
	for _, op := range refuseAll {
		op.end(Result{Outcome: Failed, Code: CodeBusy, Error: ErrEnded.Error()})
	}
}

// post runs fn on the engine, when the disk has been read, or refuse.
func (e *Engine) post(fn func(), refuse func(error)) {
	ok := e.loop.Post(func() {
		switch {
		case e.failed != nil:
			refuse(e.failed)
		case !e.loaded && len(e.waiting) >= inbox:
			refuse(&Refusal{CodeBusy, "the agent is still reading what this node has; try again"})
		case !e.loaded:
			e.waiting = append(e.waiting, func() {
				if e.failed != nil {
					refuse(e.failed)
					return
				}
				fn()
			})
		default:
			fn()
		}
	})
	if !ok {
		refuse(ErrEnded)
	}
}

// load reads the disk, queues what is to be recovered, and lets in what waits.
func (e *Engine) load() {
	e.files.Load(func(d Disk, err error) {
		e.loop.Defer(func() {
			if err != nil {
				e.failed = fmt.Errorf("cannot read the workloads of this node: %w", err)
				e.log.Error("cannot read the workloads of this node; none of them is changed", keyErr, err)
			} else {
				e.take(d)
			}
			e.loaded = true
			for _, fn := range e.waiting {
				fn()
			}
			e.waiting = nil
			e.next()
		})
	})
}

func (e *Engine) take(d Disk) {
	e.broken, e.marked = d.Broken, d.Marked
	maps.Copy(e.stored, d.Stored)
	slices.SortFunc(d.States, func(a, b State) int { return a.Changed.Compare(b.Changed) })
	for _, s := range d.States {
		w := &workload{state: s, bundle: d.Current[s.Workload], contents: d.Contents[s.Workload]}
		if w.contents == nil {
			w.contents = make(map[uint64][]string)
		}
		e.workloads[s.Workload] = w
		if s.Pending != nil {
			e.log.Info("an operation was interrupted and is brought to an end", keyWorkload, s.Workload, "phase", string(s.Pending.Phase))
			e.queue = append(e.queue, &operation{kind: opRecover, workload: s.Workload})
		}
	}
	for name, why := range d.Broken {
		e.log.Error("the state of a workload cannot be used; it is left alone", keyWorkload, name, keyErr, why)
	}
}

// claims are the paths and units of all other workloads.
func (e *Engine) claims(but string) map[string]string {
	claims := make(map[string]string)
	for name, w := range e.workloads {
		if name == but {
			continue
		}
		for _, u := range w.bundle.Units {
			if !u.Foreign {
				claims[u.Name] = name
			}
		}
		for _, f := range w.bundle.Files {
			if f.Write {
				claims[f.Path] = name
			}
		}
	}
	return claims
}

// next begins the operation that has waited longest.
func (e *Engine) next() {
	if e.current != nil || len(e.queue) == 0 || !e.loaded {
		return
	}
	e.current, e.queue = e.queue[0], e.queue[1:]
	e.begin(e.current)
}

// Attribute keys of this package's log lines.
const (
	keyErr      = "err"
	keyWorkload = "workload"
	keyStep     = "step"
)
