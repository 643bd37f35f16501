package managerbus

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

func units(n int, description string) wire.Raw {
	rows := make([]wire.UnitStatus, n)
	for i := range rows {
		rows[i] = wire.UnitStatus{
			Name: fmt.Sprintf("unit%d.service", i), Description: description, LoadState: "loaded", ActiveState: "active",
			SubState: "running", Path: wire.UnitPath(fmt.Sprint("unit", i)), JobPath: "/",
		}
	}
	return peer.MustEncode(rows)
}

// TestFleetLists: the nodes' arrays come out of the dictionary as they went in, and nodes
// that gave none are left out.
func TestFleetLists(t *testing.T) {
	w := newWorld(t)
	type asked struct {
		nodes  []string
		method string
		args   wire.Raw
	}
	var question asked
	replies := []manager.NodeReply{
		{Node: "b", Body: units(3, "three")}, {Node: "slow", Err: wire.ErrTimeout.With("slow did not answer")},
		{Node: "a", Body: units(0, "")}, {Node: "busy", Err: wire.ErrLimitsExceeded.With("too many calls")},
		{Node: "liar", Body: peer.MustEncode("not a list")}, {Node: "c-longer-name", Body: units(2, "ünïcode")},
	}
	w.do(func() {
		w.core.query = func(nodes []string, method string, args wire.Raw, reply func([]manager.NodeReply, error)) {
			question = asked{nodes, method, args}
			reply(replies, nil)
		}
	})
	conn := w.raw(func(*peer.Message) {})
	answer, err := conn.Call(w.ctx(), peer.Call{
		Destination: wire.BusName, Path: wire.RootPath, Member: "ListUnitsFiltered", Body: samples["asasas"],
	})
	var got map[string][]wire.UnitStatus
	if err == nil {
		err = peer.Decode(answer.Body, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Errorf("%d nodes are in the answer, want 3: %v", len(got), got)
	}
	for _, r := range replies {
		var want []wire.UnitStatus
		if r.Err == nil && peer.Decode(r.Body, &want) == nil && fmt.Sprint(got[r.Node]) != fmt.Sprint(want) {
			t.Errorf("of %s the answer has %v, want %v", r.Node, got[r.Node], want)
		}
	}
	w.do(func() {
		if question.method != "ListUnitsFiltered" || fmt.Sprint(question.nodes) != "[node1]" ||
			string(question.args.Data) != string(samples["asas"].Data) || question.args.Sig != "asas" {
			t.Errorf("the core was asked %+v", question)
		}
	})
}

func TestFleetListErrors(t *testing.T) {
	bad := wire.ErrInvalidArgs.With("glob [ is wrong")
	big := units(1, strings.Repeat("x", 4<<20-1000))
	for name, test := range map[string]struct {
		replies []manager.NodeReply
		err     error
		want    *wire.Error
		text    string
	}{
		"pattern without node":          {nil, wire.ErrNoSuchNode.With("no node matches x*"), wire.ErrNoSuchNode, "x*"},
		"all refuse the same arguments": {[]manager.NodeReply{{Node: "a", Err: bad}, {Node: "b", Err: bad}}, nil, wire.ErrInvalidArgs, "glob ["},
		"too large together":            {[]manager.NodeReply{{Node: "a", Body: big}, {Node: "b", Body: big}, {Node: "c", Body: big}, {Node: "d", Body: big}, {Node: "e", Body: big}, {Node: "f", Body: big}, {Node: "g", Body: big}, {Node: "h", Body: big}, {Node: "i", Body: big}}, nil, wire.ErrLimitsExceeded, "ListUnitsFiltered"},
	} {
		body, err := wire.Raw{}, test.err
		if err == nil {
			body, err = joinReplies("ListUnits", test.replies)
		}
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: got %d bytes and error %v, want %s with %q", name, len(body.Data), err, test.want.Name, test.text)
		}
	}
	// One node that refuses does not hide the others, and none at all is an empty list.
	for _, replies := range [][]manager.NodeReply{{{Node: "a", Err: bad}, {Node: "b", Body: units(1, "")}}, {}} {
		if _, err := joinReplies("ListUnits", replies); err != nil {
			t.Errorf("%d replies gave %v", len(replies), err)
		}
	}
}

// TestLargestAnswer: on a bus with the system bus's limits, an answer just below the limit
// arrives, and one above it becomes an error that leaves the connection alone.
func TestLargestAnswer(t *testing.T) {
	w := &world{t: t, bus: bustest.StartSystem(t), core: newFakeCore()}
	w.serve(allowAll{})
	conn := w.raw(func(*peer.Message) {})
	list := func(size int) (int, error) {
		w.do(func() {
			w.core.query = func(_ []string, _ string, _ wire.Raw, reply func([]manager.NodeReply, error)) {
				const part = 2 << 20
				var replies []manager.NodeReply
				for i := 0; size > 0; i++ {
					replies = append(replies, manager.NodeReply{Node: fmt.Sprint("node", i), Body: units(1, strings.Repeat("x", min(size, part)))})
					size -= part
				}
				reply(replies, nil)
			}
		})
		answer, err := conn.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: wire.RootPath, Member: "ListUnits"})
		if err != nil {
			return 0, err
		}
		return len(answer.Body.Data), nil
	}
	if n, err := list(busobject.MaxAnswer - 8<<10); err != nil || n < busobject.MaxAnswer-8<<10 {
		t.Errorf("an answer that fits gave %d bytes, %v", n, err)
	}
	if _, err := list(busobject.MaxAnswer + 1); !errors.Is(err, wire.ErrLimitsExceeded) || !strings.Contains(err.Error(), "ListUnitsFiltered") {
		t.Errorf("an answer that is too large gave %v", err)
	}
	if n, err := list(100); err != nil {
		t.Errorf("the next answer gave %d bytes, %v", n, err)
	}
}

// TestFleetListsWait: some lists are made at a time, others wait, and too many are refused.
func TestFleetListsWait(t *testing.T) {
	w := newWorld(t)
	asked := make(chan func([]manager.NodeReply, error), maxLists+maxWaiting)
	w.do(func() {
		w.core.query = func(_ []string, _ string, _ wire.Raw, reply func([]manager.NodeReply, error)) { asked <- reply }
	})
	conn := w.raw(func(*peer.Message) {})
	results := make(chan error, maxLists+maxWaiting+1)
	for range maxLists + maxWaiting + 1 {
		conn.Go(peer.Call{Destination: wire.BusName, Path: wire.RootPath, Member: "ListUnits"}, patience,
			func(_ *peer.Message, err error) { results <- err })
	}
	if err := wait(t, results); !errors.Is(err, wire.ErrLimitsExceeded) {
		t.Errorf("one list too many gave %v", err)
	}
	for range maxLists + maxWaiting {
		if n := len(asked); n > maxLists {
			t.Fatalf("%d lists are made at a time", n)
		}
		reply := wait(t, asked)
		w.do(func() { reply(nil, nil) })
		if err := wait(t, results); err != nil {
			t.Error(err)
		}
	}
}

// allowAll lets everyone do everything.
type allowAll struct{}

func (allowAll) Check(busobject.Request, func(error)) (bool, error) { return true, nil }
func (allowAll) Left(*peer.Conn, string)                            {}
func (allowAll) Trusted(*peer.Conn, string) bool                    { return true }

var _ busobject.Authorizer = (*authz.ByUID)(nil)
