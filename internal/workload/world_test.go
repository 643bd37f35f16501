package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/wire"
)

// world is a core with faked nodes, disk and listeners, in fake time. Its history holds what
// was told and what was asked of nodes, in order.
type world struct {
	t       *testing.T
	e       *Engine
	mu      sync.Mutex // history
	history []string
	state   sync.Mutex // nodes and disk
	nodes   map[string]*fakeNode
	specs   map[string]string // the disk
	packs   map[string][]byte
	full    bool // of the disk
	cancel  context.CancelFunc
	ended   chan struct{}
}

// fakeNode is a node that does what package bundle promises.
type fakeNode struct {
	w        *world
	name     string
	online   bool
	uploads  map[string][]byte
	has      map[string]bundle.Status
	fails    map[string]bool // digests of bundles that do not come up
	hangs    bool            // it does not say what it has
	mute     bool            // it takes requests and says nothing more
	held     []bundle.Request
	revision uint64
}

func in(t *testing.T, names []string, scenario func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, nodes: make(map[string]*fakeNode), specs: make(map[string]string), packs: make(map[string][]byte)}
		for _, name := range names {
			w.nodes[name] = &fakeNode{w: w, name: name, uploads: make(map[string][]byte), has: make(map[string]bundle.Status), fails: make(map[string]bool)}
		}
		w.boot()
		for _, name := range names {
			w.join(name, nil)
		}
		w.take()
		scenario(w)
		w.stop()
	})
}

// boot starts a manager that knows what is on the disk.
func (w *world) boot() {
	var specs []*Spec
	for _, name := range slices.Sorted(maps.Keys(w.specs)) {
		var s Spec
		if err := json.Unmarshal([]byte(w.specs[name]), &s); err != nil {
			w.t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			w.t.Fatalf("a saved spec is refused: %v", err)
		}
		specs = append(specs, &s)
	}
	w.e = New(specs, w, w, w, slog.New(slog.DiscardHandler))
	w.e.ChangeFleet(slices.Sorted(maps.Keys(w.nodes)), nil)
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel, w.ended = cancel, make(chan struct{})
	go func() { w.e.Run(ctx); close(w.ended) }()
}

func (w *world) stop() {
	w.cancel()
	<-w.ended
}

func (w *world) join(name string, labels map[string]string) {
	synctest.Wait()
	w.nodes[name].online = true
	w.e.NodeOnline(name, true, labels)
	synctest.Wait()
}

func (w *world) leave(name string) {
	synctest.Wait()
	w.nodes[name].online = false
	w.nodes[name].uploads = make(map[string][]byte)
	w.e.NodeOffline(name)
	synctest.Wait()
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

func (w *world) take() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.history
	w.history = nil
	return got
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	if got := w.take(); !slices.Equal(got, want) {
		w.t.Errorf("told was\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// expectSorted is expect where nodes work side by side.
func (w *world) expectSorted(want ...string) {
	w.t.Helper()
	got := w.take()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("told was, sorted,\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Fleet

func (w *world) Upload(name, digest string, size, offset uint64, chunk []byte, done func(uint64, error)) {
	w.state.Lock()
	defer w.state.Unlock()
	n := w.nodes[name]
	if !n.online {
		go done(0, offline(name))
		return
	}
	n.uploads[digest] = append(n.uploads[digest][:offset], chunk...)
	go done(uint64(len(n.uploads[digest])), nil)
}

func (w *world) Ask(name, method, request string, done func(string, error)) {
	w.state.Lock()
	defer w.state.Unlock()
	n := w.nodes[name]
	if !n.online {
		go done("", offline(name))
		return
	}
	switch method {
	case wire.MemberListWorkloads:
		if n.hangs {
			return
		}
		l := bundle.Listing{}
		for _, key := range slices.Sorted(maps.Keys(n.has)) {
			l.Workloads = append(l.Workloads, n.has[key])
		}
		go done(toJSON(l), nil)
		return
	case wire.MemberGetHistory:
		go done(toJSON(bundle.History{Current: n.has[request].Revision}), nil)
		return
	}
	r, err := bundle.DecodeRequest(request)
	if err != nil {
		w.t.Errorf("%s: %v", method, err)
	}
	w.note("%s< %s %s gen %d", name, strings.TrimSuffix(strings.TrimSuffix(method, "Workload"), "Bundle"), r.Workload, r.Generation)
	if method == wire.MemberPlanBundle {
		go done(toJSON(bundle.PlanResult{Outcome: bundle.Created}), nil)
		return
	}
	if st := n.has[r.Workload]; r.Generation < st.Generation && r.Generation != 0 {
		go done("", wire.ErrFailed.With("stale"))
		return
	}
	go func() {
		done("", nil)
		w.state.Lock()
		mute := n.mute
		if mute {
			n.held = append(n.held, r)
		}
		w.state.Unlock()
		if mute {
			return
		}
		n.carryOut(method, r)
	}()
}

func (n *fakeNode) carryOut(method string, r bundle.Request) {
	st, result := n.change(method, r)
	n.w.e.Progress(n.name, toJSON(bundle.Event{ID: r.ID, Workload: r.Workload, Done: true, Result: &result}))
	n.w.e.Changed(n.name, toJSON(st))
}

func (n *fakeNode) change(method string, r bundle.Request) (bundle.Status, bundle.Result) {
	n.w.state.Lock()
	defer n.w.state.Unlock()
	st := n.has[r.Workload]
	st.Workload = r.Workload
	result := bundle.Result{Outcome: bundle.Configured}
	switch method {
	case wire.MemberApplyBundle:
		p, err := bundle.DecodePackage(n.uploads[r.Package])
		if err != nil {
			n.w.t.Errorf("%s got a package: %v", n.name, err)
		}
		digest := p.Bundle.Digest()
		switch {
		case n.fails[digest]:
			result = bundle.Result{Outcome: bundle.Failed, Error: "it does not come up", Revision: st.Revision, Digest: st.Digest}
			if r.Options.RollbackOnFailure {
				result.Outcome = bundle.RolledBack
			}
		case st.Digest == digest && !st.Deleted:
			result.Outcome = bundle.Unchanged
		default:
			if st.Revision == 0 {
				result.Outcome = bundle.Created
			}
			n.revision++
			st.Revision, st.Digest, st.Deleted = n.revision, digest, false
		}
		st.Generation = r.Generation
	case wire.MemberDeleteWorkload:
		st = bundle.Status{Workload: r.Workload, Generation: r.Generation, Deleted: true}
		result.Outcome = bundle.Deleted
	case wire.MemberRollbackWorkload:
		n.revision++
		st.Revision, st.Digest, result.Outcome = n.revision, fmt.Sprintf("digest of %d", r.To), bundle.RolledBack
	case wire.MemberControlWorkload:
		result.Outcome = map[string]bundle.Outcome{"start": bundle.Started, "stop": bundle.Stopped, "restart": bundle.Started}[r.Verb]
	}
	if result.OK() {
		result.Revision, result.Digest = st.Revision, st.Digest
	}
	st.Last, st.State = result.Outcome, bundle.StateRunning
	n.has[r.Workload] = st
	return st, result
}

func (w *world) Revision(name, workload string, number uint64, done func(string, error)) {
	go done(fmt.Sprintf("%s of %s, %d", workload, name, number), nil)
}

func (w *world) Collect(name string, dryRun bool, done func(string, error)) {
	go done(toJSON(bundle.Garbage{Bytes: 7}), nil)
}

// Store

var errFull = errors.New("no space left on device")

func (w *world) SaveSpec(s *Spec, done func(error)) {
	w.state.Lock()
	defer w.state.Unlock()
	if w.full {
		go done(errFull)
		return
	}
	w.specs[s.Name] = toJSON(s)
	go done(nil)
}

func (w *world) RemoveSpec(name string, done func(error)) {
	w.state.Lock()
	defer w.state.Unlock()
	delete(w.specs, name)
	go done(nil)
}

func (w *world) SavePackage(digest string, data []byte, done func(error)) {
	w.state.Lock()
	defer w.state.Unlock()
	w.packs[digest] = data
	go done(nil)
}

func (w *world) Package(digest string, done func([]byte, error)) {
	w.state.Lock()
	defer w.state.Unlock()
	data, ok := w.packs[digest]
	if !ok {
		go done(nil, errors.New("it is missing"))
		return
	}
	go done(data, nil)
}

func (w *world) Forget(digests []string) {
	w.state.Lock()
	defer w.state.Unlock()
	for _, d := range digests {
		delete(w.packs, d)
	}
}

// Events

func (w *world) OperationNew(o OperationInfo) {
	w.note("%s %s begins on %v", o.Verb, o.Workload, o.Nodes)
}
func (w *world) NodeProgress(uint32, string, bundle.Event) {}
func (w *world) NodeResult(_ OperationInfo, r NodeResult)  { w.note("%s: %s", r.Node, r.Result.Outcome) }
func (w *world) OperationRemoved(o OperationInfo, result string) {
	w.note("%s %s ends: %s", o.Verb, o.Workload, result)
}

func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// pack is a bundle of one unit, whose text differs by version.
func pack(workload, version string) []byte {
	b := bundle.Bundle{Format: bundle.Format, Workload: workload, Units: []bundle.Unit{{
		Name: workload + ".service", Text: "[Service]\nExecStart=/bin/" + version + "\n",
	}}}
	return bundle.Package{Bundle: b}.Encode()
}

func digest(workload, version string) string {
	p, err := bundle.DecodePackage(pack(workload, version))
	if err != nil {
		panic(err)
	}
	return p.Bundle.Digest()
}

func request(workload, version string, nodes ...string) Request {
	return Request{Workload: workload, Package: pack(workload, version), Placement: Placement{Nodes: nodes}, Actor: "root"}
}

// asked notes what became of a call that begins an operation.
func (w *world) asked(_ uint32, err error) {
	if err != nil {
		name := wire.AsError(err).Name
		w.note("refused: %s", name[strings.LastIndexByte(name, '.')+1:])
	}
}

func (w *world) apply(r Request) {
	w.e.Apply(r, w.asked)
	synctest.Wait()
}

func (w *world) rows() (out []string) {
	w.e.List(nil, nil, func(rows []Row, err error) {
		for _, r := range rows {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Workload, r.Node, r.Desired, r.State)))
		}
	})
	synctest.Wait()
	return out
}

func (w *world) shows(want ...string) {
	w.t.Helper()
	if got := w.rows(); !slices.Equal(got, want) {
		w.t.Errorf("the list is\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
