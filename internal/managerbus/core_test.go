package managerbus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// fakeLink is a node on which every job is done at once, except those of units that hang,
// and no call is answered.
type fakeLink struct {
	loop    *loop.Loop
	core    *manager.Manager
	session manager.Session
	called  chan string
}

func (l *fakeLink) StartJob(job uint32, req manager.JobRequest, _ time.Duration, done func(error)) {
	l.loop.Defer(func() {
		done(nil)
		if req.Unit != "hangs.service" {
			l.core.JobState(l.session, job, wire.JobRunning)
			l.core.JobDone(l.session, job, wire.ResultDone)
		}
	})
}
func (l *fakeLink) CancelJob(_ uint32, _ time.Duration, done func(error)) { done(nil) }
func (l *fakeLink) Call(method string, _ wire.Raw, _ time.Duration, _ func(wire.Raw, error)) {
	l.called <- method
}
func (l *fakeLink) Subscribe(string, time.Duration, func([]manager.UnitRow, error)) {}
func (l *fakeLink) Targets([]string)                                                {}
func (l *fakeLink) ProxyState(_, _, _ string)                                       {}
func (l *fakeLink) Ordered(_ string, _ []string, _ time.Duration, done func([]string, error)) {
	go done(nil, nil)
}
func (l *fakeLink) ReleaseTarget(string)    {}
func (l *fakeLink) SetMetrics(bool)         {}
func (l *fakeLink) Unsubscribe(string)      {}
func (l *fakeLink) Heartbeat()              {}
func (l *fakeLink) LastReceived() time.Time { return time.Now() }
func (l *fakeLink) Close(string)            {}

// realCore is the API before the real core, with one node that is online.
func realCore(t *testing.T) (*world, *fakeLink) {
	t.Helper()
	w := &world{t: t, bus: bustest.Start(t), daemon: &fakeDaemon{level: "INFO"}}
	w.api = New(Options{
		Address: w.bus.Address, Authorizer: authz.NewByUID(uint32(os.Getuid())), Daemon: w.daemon, Log: quiet(t),
	})
	core := manager.New(manager.Config{Nodes: []manager.NodeConfig{{Name: "node1"}}}, w.api, quiet(t))
	if err := w.api.Connect(t.Context(), core); err != nil {
		t.Fatal(err)
	}
	link := &fakeLink{loop: loop.New(16), core: core, called: make(chan string, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended, end := context.WithCancel(context.Background())
	var ends sync.WaitGroup
	ends.Go(func() { core.Run(ctx); end() })
	ends.Go(func() { w.api.Run(ended) })
	ends.Go(func() { link.loop.Run(ended) })
	t.Cleanup(func() { cancel(); ends.Wait() })
	registered := make(chan error, 1)
	core.Register(manager.Registration{Node: "node1", Link: link}, func(welcome manager.Welcome, err error) {
		link.session = welcome.Session
		registered <- err
	})
	if err := wait(t, registered); err != nil {
		t.Fatal(err)
	}
	return w, link
}

// TestJobOrderOfTheRealCore is TestJobOrder with nothing faked but the node.
func TestJobOrderOfTheRealCore(t *testing.T) {
	w, _ := realCore(t)
	w.watchJobs("client", 1000, 1000)
}

// TestNodeIsLost: what a client sees of it, in the order that api.md promises.
func TestNodeIsLost(t *testing.T) {
	w, link := realCore(t)
	var got []string
	done, ready := make(chan bool, 1), make(chan bool, 1)
	armed := false // like got, of the reader goroutine: that the node came online is not the matter
	note := func(what string) {
		if !armed {
			return
		}
		got = append(got, what)
		if strings.HasPrefix(what, "fleet") {
			done <- true
		}
	}
	conn := w.raw(func(m *peer.Message) {
		switch m.Member {
		case "PropertiesChanged":
			var iface, status string
			var changed map[string]wire.Value
			var invalidated []string
			if peer.Decode(m.Body, &iface, &changed, &invalidated) == nil && peer.DecodeValue(changed["Status"], &status) == nil {
				note(map[string]string{wire.NodeInterface: "node ", wire.ManagerInterface: "fleet "}[iface] + status)
			}
		case "JobRemoved":
			args, _ := peer.BodyAny(m.Body)
			note(fmt.Sprint("JobRemoved ", args[3], " ", args[4]))
		}
	})
	if err := conn.AddMatch(w.ctx(), fmt.Sprintf("type='signal',sender='%s'", wire.BusName)); err != nil {
		t.Fatal(err)
	}
	node := peer.Call{Destination: wire.BusName, Path: wire.NodePath("node1"), Interface: wire.NodeInterface}
	job, call := node, node
	job.Member, job.Body = "StartUnit", peer.MustEncode("hangs.service", "replace")
	call.Member = "Reload"
	conn.Go(job, patience, func(_ *peer.Message, err error) {
		if err != nil {
			t.Error(err)
		}
		armed = true
		ready <- true
	})
	wait(t, ready)
	conn.Go(call, patience, func(_ *peer.Message, err error) {
		note(fmt.Sprint("call offline ", errors.Is(err, wire.ErrNodeOffline)))
	})
	wait(t, link.called)
	link.core.Closed(link.session, "cable pulled")
	wait(t, done)
	want := []string{"node offline", "call offline true", "JobRemoved hangs.service canceled", "fleet down"}
	if !slices.Equal(got, want) {
		t.Errorf("a client saw %q, want %q", got, want)
	}
	_, err := conn.Call(w.ctx(), call)
	if !errors.Is(err, wire.ErrNodeOffline) || !strings.Contains(err.Error(), "cable pulled") {
		t.Errorf("a call to the lost node gave %v", err)
	}
}
