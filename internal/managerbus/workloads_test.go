package managerbus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/internal/workload"
)

// fakeWorkloads notes what it is asked.
type fakeWorkloads struct {
	mu    sync.Mutex
	calls []string
}

func (f *fakeWorkloads) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fakeWorkloads) noted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fakeWorkloads) begin(what string, r workload.Request, reply func(uint32, error)) {
	f.note("%s %s of %s on %v %v, %d at a time, to %d %s", what, r.Workload, r.Actor, r.Nodes, r.Placement, r.MaxUnavailable, r.To, r.Verb)
	reply(7, nil)
}

func (f *fakeWorkloads) Apply(r workload.Request, reply func(uint32, error)) {
	f.note("%s %+v", r.Package, r.Options)
	f.begin("apply", r, reply)
}
func (f *fakeWorkloads) Delete(r workload.Request, reply func(uint32, error)) {
	f.begin("delete", r, reply)
}
func (f *fakeWorkloads) Rollback(r workload.Request, reply func(uint32, error)) {
	f.begin("rollback", r, reply)
}
func (f *fakeWorkloads) Control(r workload.Request, reply func(uint32, error)) {
	f.begin("control", r, reply)
}
func (f *fakeWorkloads) Plan(r workload.Request, reply func([]workload.NodePlan, error)) {
	f.note("plan %s", r.Workload)
	reply([]workload.NodePlan{{Node: "node1", Plan: bundle.PlanResult{Outcome: bundle.Created}}}, nil)
}
func (f *fakeWorkloads) CancelOperation(id uint32, reply func(error)) {
	f.note("cancel %d", id)
	reply(nil)
}
func (f *fakeWorkloads) Operations(reply func([]workload.OperationInfo)) {
	reply([]workload.OperationInfo{{ID: 7, Workload: "web", Verb: "apply", Nodes: []string{"node1"}}})
}
func (f *fakeWorkloads) List(workloads, nodes []string, reply func([]workload.Row, error)) {
	reply([]workload.Row{{Workload: "web", Node: "node1", State: "Running", Since: time.UnixMicro(5)}}, nil)
}
func (f *fakeWorkloads) Describe(name string, reply func(workload.Detail, error)) {
	if name == "none" {
		reply(workload.Detail{}, wire.ErrNoSuchWorkload.With("there is no workload"))
		return
	}
	reply(workload.Detail{Online: []string{"node1"}}, nil)
}
func (f *fakeWorkloads) History(name string, nodes []string, reply func([]workload.NodeHistory, error)) {
	reply([]workload.NodeHistory{{Node: "node1"}}, nil)
}
func (f *fakeWorkloads) Revision(node, name string, number uint64, reply func(string, error)) {
	reply("{}", nil)
}
func (f *fakeWorkloads) Collect(nodes []string, dryRun bool, reply func([]workload.NodeGarbage, error)) {
	f.note("collect %v %v", nodes, dryRun)
	reply(nil, nil)
}

func workloadCall(member string, args ...any) peer.Call {
	return peer.Call{Destination: wire.BusName, Path: wire.RootPath, Interface: wire.WorkloadsInterface, Member: member, Body: peer.MustEncode(args...)}
}

func TestWorkloads(t *testing.T) {
	w := newWorld(t)
	conn := w.raw(func(*peer.Message) {})
	options := map[string]wire.Value{
		wire.OptionNoRestart: peer.MustValue(true), wire.OptionTimeout: peer.MustValue(uint64(1500)), wire.OptionMaxUnavailable: peer.MustValue(uint32(3)),
	}
	answer, err := conn.Call(w.ctx(), workloadCall("Apply", "web", []byte("package"), []string{"node*"}, map[string]string{"a": "b"}, options))
	var id uint32
	if err != nil || peer.Decode(answer.Body, &id) != nil || id != 7 {
		t.Fatalf("operation %d, %v", id, err)
	}
	got := w.workloads.noted()
	want := []string{
		"package {NoRestart:true RollbackOnFailure:false AllowUnknown:false NoWait:false TimeoutMs:2}",
		"apply web of uid 0 on [] node* a=b, 3 at a time, to 0 ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
	for name, c := range map[string]peer.Call{
		"unknown option": workloadCall("Delete", "web", []string{}, map[string]wire.Value{"Purge": peer.MustValue(true)}),
		"wrong type":     workloadCall("Delete", "web", []string{}, map[string]wire.Value{wire.OptionNoWait: peer.MustValue("yes")}),
	} {
		if _, err := conn.Call(w.ctx(), c); !errors.Is(err, wire.ErrInvalidArgs) {
			t.Errorf("%s: %v", name, err)
		}
	}
	answer, err = conn.Call(w.ctx(), workloadCall("Describe", "web"))
	var text string
	if err != nil || peer.Decode(answer.Body, &text) != nil || !strings.Contains(text, `"online":["node1"]`) {
		t.Errorf("described as %s, %v", text, err)
	}
	if _, err := conn.Call(w.ctx(), workloadCall("Describe", "none")); !errors.Is(err, wire.ErrNoSuchWorkload) {
		t.Errorf("what is not there: %v", err)
	}
}
