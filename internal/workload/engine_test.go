package workload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/wire"
)

var three = []string{"node1", "node2", "node3"}

func TestApply(t *testing.T) {
	in(t, three, func(w *world) {
		w.apply(request("web", "one", "node*"))
		w.expect("apply web begins on [node1 node2 node3]", "node1< Apply web gen 1", "node1: created",
			"node2< Apply web gen 1", "node2: created", "node3< Apply web gen 1", "node3: created", "apply web ends: done")
		w.shows("web node1 present Running", "web node2 present Running", "web node3 present Running")
		w.apply(request("web", "one", "node*"))
		w.expect("apply web begins on [node1 node2 node3]", "node1< Apply web gen 2", "node1: unchanged",
			"node2< Apply web gen 2", "node2: unchanged", "node3< Apply web gen 2", "node3: unchanged", "apply web ends: done")
	})
}

// A bundle that does not come up on the first node is tried on no other.
func TestFailureEndsTheApply(t *testing.T) {
	in(t, three, func(w *world) {
		w.apply(request("web", "one", "node*"))
		w.take()
		for _, n := range w.nodes {
			n.fails[digest("web", "two")] = true
		}
		r := request("web", "two", "node*")
		r.Options.RollbackOnFailure = true
		w.apply(r)
		w.expect("apply web begins on [node1 node2 node3]", "node1< Apply web gen 2", "node1: rolled back", "node2: skipped", "node3: skipped", "apply web ends: failed")
		w.shows("web node1 present Running", "web node2 present Held", "web node3 present Held")
		// Nothing goes on by itself, whoever comes back and whatever is said.
		w.leave("node2")
		w.join("node2", nil)
		w.stop()
		w.boot()
		for _, name := range three {
			w.join(name, nil)
		}
		w.expect()
		w.apply(request("web", "three", "node*"))
		if got := w.take(); got[len(got)-1] != "apply web ends: done" {
			t.Errorf("afterwards: %v", got)
		}
	})
}

func TestSeveralNodesAtATime(t *testing.T) {
	in(t, []string{"a", "b", "c", "d"}, func(w *world) {
		for _, n := range w.nodes {
			n.mute = true
		}
		r := request("web", "one", "*")
		r.MaxUnavailable = 2
		w.apply(r)
		w.expectSorted("a< Apply web gen 1", "apply web begins on [a b c d]", "b< Apply web gen 1")
		w.nodes["b"].carryOut(wire.MemberApplyBundle, w.nodes["b"].held[0])
		w.expect("b: created", "c< Apply web gen 1")
		var id uint32
		w.e.Operations(func(list []OperationInfo) { id = list[0].ID })
		synctest.Wait()
		w.e.CancelOperation(id, func(err error) { w.note("cancel: %v", err) })
		w.expect("cancel: <nil>")
		w.nodes["a"].carryOut(wire.MemberApplyBundle, w.nodes["a"].held[0])
		w.nodes["c"].carryOut(wire.MemberApplyBundle, w.nodes["c"].held[0])
		w.expectSorted("a: created", "apply web ends: canceled", "c: created", "d: skipped")
		w.e.CancelOperation(id, func(err error) { w.note("cancel again: %v", errors.Is(err, wire.ErrNoSuchOperation)) })
		w.expect("cancel again: true")
	})
}

func TestNodesThatAreAway(t *testing.T) {
	in(t, three, func(w *world) {
		w.leave("node2")
		w.apply(request("web", "one", "node1,node2"))
		w.expect("refused: NoSuchNode")
		w.apply(request("web", "one", "node1", "node2"))
		w.expect("apply web begins on [node1 node2]", "node1< Apply web gen 1", "node1: created", "node2: pending", "apply web ends: pending")
		w.shows("web node1 present Running", "web node2 present Unreachable")
		w.stop() // the wish outlives the manager
		w.boot()
		w.join("node1", nil)
		w.expect()
		w.join("node2", nil)
		w.expect("node2< Apply web gen 1")
		w.leave("node2")
		w.join("node2", nil) // once is enough
		w.expect()
		w.shows("web node1 present Running", "web node2 present Running")
		// A deleted workload goes from a node that was away.
		w.leave("node1")
		w.e.Delete(Request{Workload: "web"}, w.asked)
		w.expect("delete web begins on [node1 node2]", "node1: pending", "node2< Delete web gen 2", "node2: deleted", "delete web ends: pending")
		w.shows("web node1 absent Unreachable")
		w.stop()
		w.boot()
		w.join("node1", nil)
		w.expect("node1< Delete web gen 2")
		w.shows()
		if len(w.specs)+len(w.packs) > 0 {
			t.Errorf("left on the disk: %v and %d packages", w.specs, len(w.packs))
		}
	})
}

// A link that breaks in the middle leaves the node to its work; what came of it shows when it
// is back.
func TestLinkBreaksDuringApply(t *testing.T) {
	in(t, three, func(w *world) {
		n := w.nodes["node1"]
		n.mute = true
		w.apply(request("web", "one", "node1"))
		w.leave("node1")
		w.expect("apply web begins on [node1]", "node1< Apply web gen 1", "node1: pending", "apply web ends: pending")
		n.has["web"] = bundle.Status{Workload: "web", Generation: 1, Busy: true}
		w.join("node1", nil)
		w.expect() // it says when it is done
		n.has["web"] = bundle.Status{Workload: "web", Generation: 1, Digest: digest("web", "one"), Revision: 1, Last: bundle.Created, State: bundle.StateRunning}
		w.e.Changed("node1", toJSON(n.has["web"]))
		w.expect()
		w.shows("web node1 present Running")
		// Where it had not got that far, it is asked again.
		w.apply(request("web", "two", "node1"))
		w.leave("node1")
		w.take()
		n.mute = false
		w.join("node1", nil)
		w.expect("node1< Apply web gen 2")
		if n.has["web"].Digest != digest("web", "two") {
			t.Error("the node has not got it")
		}
	})
}

func TestManagerEndsDuringApply(t *testing.T) {
	in(t, three, func(w *world) {
		w.nodes["node2"].mute = true
		w.apply(request("web", "one", "node*"))
		w.take()
		w.stop()
		w.expect("node2: pending", "node3: pending", "apply web ends: canceled")
		w.nodes["node2"].mute = false
		w.boot()
		for _, name := range three {
			w.join(name, nil)
		}
		// The node that was begun gets it; the one whose turn had not come does not.
		w.expect("node2< Apply web gen 1")
		w.shows("web node1 present Running", "web node2 present Running", "web node3 present Held")
	})
}

func TestNodesThatAreNoLongerMeant(t *testing.T) {
	in(t, three, func(w *world) {
		w.apply(request("web", "one", "node*"))
		w.take()
		var plan []string
		w.e.Plan(request("web", "two", "node1"), func(all []NodePlan, err error) {
			for _, p := range all {
				plan = append(plan, p.Node+" "+string(p.Plan.Outcome))
			}
		})
		w.expect("node1< Plan web gen 2")
		if got := strings.Join(plan, ", "); got != "node1 created, node2 deleted, node3 deleted" {
			t.Errorf("the plan is %s", got)
		}
		if len(w.packs) != 1 {
			t.Errorf("%d packages are kept after a plan", len(w.packs))
		}
		w.apply(request("web", "two", "node1"))
		w.expect("apply web begins on [node1 node2 node3]", "node1< Apply web gen 2", "node1: configured",
			"node2< Delete web gen 2", "node2: deleted", "node3< Delete web gen 2", "node3: deleted", "apply web ends: done")
		w.shows("web node1 present Running")
	})
}

func TestDisksThatAreNew(t *testing.T) {
	in(t, three, func(w *world) {
		w.apply(request("web", "one", "node1"))
		w.take()
		w.leave("node1")
		w.nodes["node1"].has = map[string]bundle.Status{}
		w.join("node1", nil)
		w.expect("node1< Apply web gen 1")
		// The manager's disk is new: it removes nothing, and what it finds is an orphan.
		w.stop()
		w.specs, w.packs = map[string]string{}, map[string][]byte{}
		w.boot()
		for _, name := range three {
			w.join(name, nil)
		}
		w.expect()
		w.shows("web node1  Orphan")
		w.e.Delete(Request{Workload: "web"}, w.asked)
		w.expect("refused: NoSuchWorkload")
		// Who applies here has asked last, whatever number the node has seen.
		n := w.nodes["node1"].has["web"]
		n.Generation = 41
		w.nodes["node1"].has["web"] = n
		w.leave("node1")
		w.apply(request("web", "two", "node1"))
		w.take()
		w.join("node1", nil)
		w.expect("node1< Apply web gen 42")
		w.shows("web node1 present Running")
	})
}

func TestLabels(t *testing.T) {
	in(t, three, func(w *world) {
		w.leave("node1")
		w.join("node1", map[string]string{"role": "web", "zone": "north"})
		r := request("web", "one")
		w.apply(r)
		w.expect("refused: InvalidArgs")
		r.Placement.Selector = map[string]string{"role": "web"}
		w.apply(r)
		w.expect("apply web begins on [node1]", "node1< Apply web gen 1", "node1: created", "apply web ends: done")
		w.leave("node2")
		w.join("node2", map[string]string{"role": "web"})
		w.expect("node2< Apply web gen 1")
		w.leave("node2")
		w.join("node2", nil) // its label is gone, which is no order to remove anything
		w.expect()
		w.shows("web node1 present Running", "web node2 present Running")
		r.Placement.Selector = map[string]string{"role": "none"}
		w.apply(r)
		w.expect("refused: NoSuchNode")
	})
}

func TestRollback(t *testing.T) {
	in(t, three, func(w *world) {
		w.apply(request("web", "one", "node1", "node2"))
		w.apply(request("web", "two", "node1", "node2"))
		w.take()
		w.e.Rollback(Request{Workload: "web", To: 1, Nodes: []string{"node1"}}, w.asked)
		w.expect("rollback web begins on [node1]", "node1< Rollback web gen 0", "node1: rolled back", "rollback web ends: done")
		// It is not undone when the node comes back.
		w.leave("node1")
		w.join("node1", nil)
		w.expect()
		w.leave("node2")
		w.e.Rollback(Request{Workload: "web"}, w.asked)
		if got := w.take(); got[len(got)-1] != "rollback web ends: failed" {
			t.Errorf("with a node away: %v", got)
		}
	})
}

func TestControl(t *testing.T) {
	in(t, three, func(w *world) {
		w.apply(request("web", "one", "node1", "node2"))
		w.take()
		w.e.Control(Request{Workload: "web", Verb: "stop"}, w.asked)
		w.expect("stop web begins on [node1 node2]", "node1< Control web gen 0", "node1: stopped", "node2< Control web gen 0", "node2: stopped", "stop web ends: done")
		w.e.Control(Request{Workload: "web", Verb: "explode"}, w.asked)
		w.e.Control(Request{Workload: "db", Verb: "stop"}, w.asked)
		w.e.Control(Request{Workload: "web", Verb: "stop", Nodes: []string{"node3"}}, w.asked)
		w.expect("refused: InvalidArgs", "refused: NoSuchWorkload", "refused: NoSuchWorkload")
	})
}

func TestOneOperationAtATime(t *testing.T) {
	in(t, three, func(w *world) {
		w.nodes["node1"].mute = true
		w.e.Apply(request("web", "one", "node1"), w.asked)
		w.e.Apply(request("web", "two", "node1"), w.asked) // while the first is being saved, or begun
		got := w.take()
		slices.Sort(got)
		if strings.Join(got, "; ") != "apply web begins on [node1]; node1< Apply web gen 1; refused: WorkloadBusy" {
			t.Errorf("told was %v", got)
		}
		w.e.Delete(Request{Workload: "web"}, w.asked)
		w.apply(request("db", "one", "node2")) // another workload is another matter
		w.expect("refused: WorkloadBusy", "apply db begins on [node2]", "node2< Apply db gen 1", "node2: created", "apply db ends: done")
		time.Sleep(bundle.DefaultTimeout + grace) // a node that never says how it ended
		w.expect("node1: pending", "apply web ends: pending")
	})
}

func TestDiskIsFull(t *testing.T) {
	in(t, three, func(w *world) {
		w.full = true
		w.apply(request("web", "one", "node1"))
		w.expect("refused: Failed")
		w.shows()
		if len(w.packs) != 0 {
			t.Error("the package of a refused apply is kept")
		}
		w.full = false
		w.apply(request("web", "one", "node1"))
		if got := w.take(); got[len(got)-1] != "apply web ends: done" {
			t.Errorf("afterwards: %v", got)
		}
	})
}

func TestBadRequests(t *testing.T) {
	in(t, three, func(w *world) {
		garbage := request("web", "one", "node1")
		garbage.Package = []byte("nonsense")
		other := request("web", "one", "node1")
		other.Workload = "db"
		for name, r := range map[string]Request{"garbage": garbage, "another's": other} {
			w.apply(r)
			if got := w.take(); len(got) != 1 || got[0] != "refused: InvalidArgs" {
				t.Errorf("%s: %v", name, got)
			}
		}
		w.e.Progress("node1", "nonsense")
		w.e.Progress("node9", "{}")
		w.e.Changed("node1", `{"workload":"../x"}`)
		w.expect()
		w.shows()
	})
}

func TestAskingNodes(t *testing.T) {
	in(t, three, func(w *world) {
		w.apply(request("web", "one", "node1", "node2"))
		w.leave("node2")
		w.take()
		w.e.History("web", nil, func(all []NodeHistory, err error) {
			for _, h := range all {
				w.note("%s at %d %v", h.Node, h.History.Current, h.Error != "")
			}
		})
		w.e.Collect(nil, true, func(all []NodeGarbage, err error) { w.note("garbage of %d", len(all)) })
		w.e.Revision("node1", "web", 1, func(text string, err error) { w.note("%s", text) })
		w.e.Revision("node2", "web", 1, func(_ string, err error) { w.note("%v", errors.Is(err, wire.ErrNodeOffline)) })
		w.e.Describe("web", func(d Detail, err error) { w.note("described: %d nodes, online %v", len(d.Nodes), d.Online) })
		w.e.Describe("db", func(_ Detail, err error) { w.note("%v", errors.Is(err, wire.ErrNoSuchWorkload)) })
		got := strings.Join(w.take(), "; ")
		for _, want := range []string{"node1 at 1 false", "node2 at 0 true", "garbage of 3", "web of node1, 1", "described: 2 nodes, online [node1]"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in %s", want, got)
			}
		}
	})
}

// A node that talks without end fills no memory.
func TestNodeThatSaysTooMuch(t *testing.T) {
	in(t, three, func(w *world) {
		long := strings.Repeat("x", 1<<20)
		for i := range 20 {
			w.e.Changed("node1", toJSON(bundle.Status{Workload: fmt.Sprintf("w%d", i), Revision: 1, LastError: long}))
		}
		synctest.Wait()
		n := 0
		w.e.post(func() { n = len(w.e.nodes["node1"].statuses) }, ignore)
		if synctest.Wait(); n == 0 || n > 8 {
			t.Errorf("%d of 20 MiB are remembered", n)
		}
	})
}

// A node that hangs holds up a list for two seconds, and is shown as it was.
func TestListWithANodeThatHangs(t *testing.T) {
	in(t, three, func(w *world) {
		w.apply(request("web", "one", "node1", "node2"))
		w.take()
		w.state.Lock()
		w.nodes["node1"].hangs = true
		st := w.nodes["node2"].has["web"]
		st.State = bundle.StateFailed
		w.nodes["node2"].has["web"] = st
		w.state.Unlock()
		began := time.Now()
		var rows []string
		w.e.List([]string{"w*"}, nil, func(all []Row, err error) {
			for _, r := range all {
				rows = append(rows, fmt.Sprint(r.Node, " ", r.State, " after ", time.Since(began)))
			}
		})
		time.Sleep(askFor)
		synctest.Wait()
		if got := strings.Join(rows, ", "); got != "node1 Running after 2s, node2 Failed after 2s" {
			t.Errorf("the list is %s", got)
		}
	})
}

func TestDecide(t *testing.T) {
	const want = "digest"
	has := func(gen uint64, digest string) *bundle.Status {
		return &bundle.Status{Revision: 1, Generation: gen, Digest: digest}
	}
	deleted := &bundle.Status{Generation: 9, Deleted: true}
	busy := &bundle.Status{Busy: true}
	tests := []struct {
		name string
		t    Target
		have *bundle.Status
		want step
	}{
		{"nothing there", Target{Phase: Pending}, nil, deliver},
		{"deleted there", Target{Phase: Pending}, deleted, deliver},
		{"older there", Target{Phase: Pending, Bundle: want, Generation: 2}, has(1, "old"), deliver},
		{"same there, older number", Target{Phase: Pending, Bundle: want, Generation: 2}, has(1, want), deliver},
		{"got there unseen", Target{Phase: Pending, Bundle: want, Generation: 2}, has(2, want), met},
		{"under way", Target{Phase: Pending}, busy, nothing},
		{"as it should be", Target{Phase: Done, Bundle: want, Generation: 2}, has(2, want), nothing},
		{"rolled back there", Target{Phase: Done, Bundle: want, Generation: 2}, has(2, "other"), nothing},
		{"disk of yesterday", Target{Phase: Done, Bundle: want, Generation: 2}, has(1, "old"), deliver},
		{"disk is new", Target{Phase: Done}, nil, deliver},
		{"has failed", Target{Phase: Broken}, nil, nothing},
		{"held", Target{Phase: Held, Bundle: want, Generation: 2}, has(1, "old"), nothing},
		{"held, but it was begun", Target{Phase: Held, Bundle: want, Generation: 2}, has(2, want), met},
		{"to go", Target{Phase: Pending, Remove: true}, has(1, want), remove},
		{"gone", Target{Phase: Pending, Remove: true}, deleted, met},
		{"gone with the disk", Target{Phase: Held, Remove: true}, nil, met},
		{"to go, held", Target{Phase: Held, Remove: true}, has(1, want), nothing},
		{"could not go", Target{Phase: Broken, Remove: true}, has(1, want), nothing},
	}
	for _, tt := range tests {
		if got := decide(&tt.t, tt.have); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A thousand workloads on a hundred nodes fit, and are listed at once.
func TestManyWorkloads(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("node%03d", i))
	}
	in(t, names, func(w *world) {
		for i := range 1000 {
			s := &Spec{Format: SpecFormat, Name: fmt.Sprintf("w%d", i), Generation: 1, Bundle: "b", Package: "p", Placement: Placement{Nodes: []string{"*"}}, Targets: map[string]*Target{}}
			for _, name := range names {
				s.Targets[name] = &Target{Generation: 1, Phase: Done, Bundle: "b", Package: "p", Revision: 1}
			}
			w.specs[s.Name] = toJSON(s)
		}
		for _, n := range w.nodes {
			for i := range 1000 {
				name := fmt.Sprintf("w%d", i)
				n.has[name] = bundle.Status{Workload: name, Generation: 1, Revision: 1, Digest: "b", State: bundle.StateRunning}
			}
		}
		w.stop()
		w.boot()
		for _, name := range names {
			w.join(name, nil)
		}
		w.expect()
		if rows := w.rows(); len(rows) != 100_000 || rows[0] != "w0 node000 present Running" {
			t.Errorf("%d rows, the first is %q", len(rows), rows[0])
		}
	})
}
