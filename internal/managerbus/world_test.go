package managerbus

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// patience bounds every wait of these tests; nothing passes because of it.
const patience = 30 * time.Second

// fakeCore is a core of which the test says what it answers. Like the real one it has one
// goroutine, on which everything happens.
type fakeCore struct {
	loop   *loop.Loop
	events manager.Events

	// All below is the loop's, or set before it runs.
	status  string
	metrics bool
	nodes   []manager.NodeInfo
	jobs    map[uint32]manager.JobInfo
	lastJob uint32
	calls   []string

	start  func(req manager.JobRequest, reply func(uint32, error))
	call   func(node, method string, args wire.Raw, reply func(wire.Raw, error))
	query  func(nodes []string, method string, args wire.Raw, reply func([]manager.NodeReply, error))
	cancel func(id uint32, reply func(error))

	monitors map[uint32]string
	gone     []string

	afterSnapshot func() // what happens next
}

func newFakeCore() *fakeCore {
	c := &fakeCore{
		loop: loop.New(4096), status: wire.StatusDegraded,
		nodes: []manager.NodeInfo{online("node1"), {
			Name: "node-2", Status: wire.NodeOffline, LastSeen: time.UnixMicro(1234567), DisconnectReason: "cut",
		}},
		jobs: make(map[uint32]manager.JobInfo), monitors: make(map[uint32]string),
	}
	c.start = c.addJob
	c.cancel = c.endJob
	return c
}

func online(name string) manager.NodeInfo {
	return manager.NodeInfo{
		Name: name, Status: wire.NodeOnline, Address: "192.0.2.1", LastSeen: time.Now(), StatusSince: time.UnixMicro(5),
		Facts: map[string]wire.Value{
			wire.FactMachineID: peer.MustValue("0123"), wire.FactFeatures: peer.MustValue([]string{"x"}),
		},
	}
}

// addJob announces a job, answers, and leaves the job there.
func (c *fakeCore) addJob(req manager.JobRequest, reply func(uint32, error)) {
	c.lastJob++
	j := manager.JobInfo{ID: c.lastJob, Node: req.Node, Unit: req.Unit, Type: req.Verb.String(), State: wire.JobWaiting, Caller: req.Caller}
	c.jobs[j.ID] = j
	c.events.JobNew(j)
	reply(j.ID, nil)
}

func (c *fakeCore) endJob(id uint32, reply func(error)) {
	j, ok := c.jobs[id]
	if !ok {
		reply(wire.ErrNoSuchJob.With("there is no job %d; it may have ended", id))
		return
	}
	delete(c.jobs, id)
	c.events.JobRemoved(j, wire.ResultCanceled)
	reply(nil)
}

func (c *fakeCore) StartJob(req manager.JobRequest, reply func(uint32, error)) {
	c.loop.Post(func() { c.start(req, reply) })
}
func (c *fakeCore) CancelJob(id uint32, reply func(error)) {
	c.loop.Post(func() { c.cancel(id, reply) })
}
func (c *fakeCore) listJobs() []manager.JobInfo {
	var all []manager.JobInfo
	for _, id := range slices.Sorted(maps.Keys(c.jobs)) {
		all = append(all, c.jobs[id])
	}
	return all
}
func (c *fakeCore) Jobs(reply func([]manager.JobInfo)) {
	c.loop.Post(func() { reply(c.listJobs()) })
}
func (c *fakeCore) Job(id uint32, reply func(manager.JobInfo, error)) {
	c.loop.Post(func() {
		if j, ok := c.jobs[id]; ok {
			reply(j, nil)
			return
		}
		reply(manager.JobInfo{}, wire.ErrNoSuchJob.With("there is no job %d; it may have ended", id))
	})
}
func (c *fakeCore) Nodes(reply func([]manager.NodeInfo)) {
	c.loop.Post(func() { reply(slices.Clone(c.nodes)) })
}
func (c *fakeCore) Node(name string, reply func(manager.NodeInfo, error)) {
	c.loop.Post(func() {
		for _, n := range c.nodes {
			if n.Name == name {
				reply(n, nil)
				return
			}
		}
		reply(manager.NodeInfo{}, wire.ErrNoSuchNode.With("node %q is not in the fleet", name))
	})
}
func (c *fakeCore) Snapshot(reply func(manager.Snapshot)) {
	c.loop.Post(func() {
		s := manager.Snapshot{Status: c.status, Nodes: slices.Clone(c.nodes), Jobs: c.listJobs()}
		for _, id := range slices.Sorted(maps.Keys(c.monitors)) {
			s.Monitors = append(s.Monitors, manager.MonitorInfo{ID: id, Owner: c.monitors[id]})
		}
		reply(s)
		if c.afterSnapshot != nil {
			c.afterSnapshot()
		}
	})
}
func (c *fakeCore) CallNode(node, method string, args wire.Raw, reply func(wire.Raw, error)) {
	c.loop.Post(func() {
		c.calls = append(c.calls, node+" "+method)
		c.call(node, method, args, reply)
	})
}
func (c *fakeCore) QueryNodes(nodes []string, method string, args wire.Raw, reply func([]manager.NodeReply, error)) {
	c.loop.Post(func() { c.query(nodes, method, args, reply) })
}
func (c *fakeCore) Monitors(reply func([]manager.MonitorInfo)) {
	c.Snapshot(func(s manager.Snapshot) { reply(s.Monitors) })
}
func (c *fakeCore) CreateMonitor(owner string, reply func(uint32, error)) {
	c.loop.Post(func() {
		id := uint32(len(c.monitors) + 1)
		c.monitors[id] = owner
		reply(id, nil)
	})
}
func (c *fakeCore) ofMonitor(id uint32, what string, reply func(uint32, error)) {
	c.loop.Post(func() {
		if _, ok := c.monitors[id]; !ok {
			reply(0, wire.ErrNoSuchMonitor.With("there is no monitor %d", id))
			return
		}
		c.calls = append(c.calls, what)
		reply(7, nil)
	})
}
func (c *fakeCore) CloseMonitor(_ string, id uint32, reply func(error)) {
	c.ofMonitor(id, "Close", func(_ uint32, err error) { delete(c.monitors, id); reply(err) })
}
func (c *fakeCore) Subscribe(_ string, id uint32, node string, units []string, reply func(uint32, error)) {
	c.ofMonitor(id, "Subscribe "+node, func(sub uint32, err error) {
		reply(sub, err)
		if err == nil {
			for _, u := range units {
				c.events.UnitEvent(manager.UnitEvent{Kind: manager.UnitNew, Node: node, Unit: u, Reason: "virtual"},
					[]manager.Audience{{Monitor: id, To: []string{c.monitors[id]}}})
			}
		}
	})
}
func (c *fakeCore) Unsubscribe(_ string, id, _ uint32, reply func(error)) {
	c.ofMonitor(id, "Unsubscribe", func(_ uint32, err error) { reply(err) })
}
func (c *fakeCore) AddPeer(_ string, id uint32, name string, reply func(uint32, error)) {
	c.ofMonitor(id, "AddPeer "+name, reply)
}
func (c *fakeCore) RemovePeer(_ string, id, _ uint32, reason string, reply func(error)) {
	c.ofMonitor(id, "RemovePeer "+reason, func(_ uint32, err error) { reply(err) })
}
func (c *fakeCore) ClientGone(name string) {
	c.loop.Post(func() {
		c.gone = append(c.gone, name)
		for id, owner := range c.monitors {
			if name == "" || owner == name {
				delete(c.monitors, id)
			}
		}
	})
}

func (c *fakeCore) LetGo(name, reason string) {
	c.loop.Post(func() {
		for id, owner := range c.monitors {
			if owner == name {
				delete(c.monitors, id)
				c.events.MonitorRemoved(id)
				c.events.PeerRemoved(id, name, reason)
			}
		}
	})
}

// fakeDaemon is the process around the core.
type fakeDaemon struct {
	mu       sync.Mutex
	level    string
	shutdown chan struct{}
}

func (d *fakeDaemon) LogLevel() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.level
}
func (d *fakeDaemon) SetLogLevel(level string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.level = level
}
func (d *fakeDaemon) LogTarget() string { return "stderr" }
func (d *fakeDaemon) Shutdown()         { close(d.shutdown) }

// world is the API on a bus of its own, before a fake core.
type world struct {
	t         *testing.T
	bus       *bustest.Bus
	core      *fakeCore
	daemon    *fakeDaemon
	api       *Bus
	enrolment *fakeEnrolment
	workloads *fakeWorkloads
	// actions takes the action log.
	actions lockedBuffer
	stop    func() // ends the API as a daemon does, and waits
}

// lockedBuffer is written to by several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// take is what was written since the last time.
func (b *lockedBuffer) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return bytes.Clone(b.text.Bytes())
}

// quiet logs mistakes of ours to the test.
func quiet(t *testing.T) *slog.Logger { return slog.New(failing{t}) }

type failing struct{ t *testing.T }

func (f failing) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (f failing) WithAttrs([]slog.Attr) slog.Handler           { return f }
func (f failing) WithGroup(string) slog.Handler                { return f }
func (f failing) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	f.t.Error(text)
	return nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, bus: bustest.Start(t), core: newFakeCore()}
	w.serve(authz.NewByUID(uint32(os.Getuid())))
	return w
}

func (w *world) serve(a busobject.Authorizer) {
	w.t.Helper()
	w.daemon = &fakeDaemon{level: "INFO", shutdown: make(chan struct{})}
	w.enrolment, w.workloads = &fakeEnrolment{}, &fakeWorkloads{}
	w.api = New(Options{Address: w.bus.Address, Authorizer: a, Daemon: w.daemon, Enrolment: w.enrolment, Workloads: w.workloads, Version: "1.2.3", Log: quiet(w.t),
		Actions: actionlog.New(slog.New(slog.NewJSONHandler(&w.actions, nil)))})
	w.core.events = w.api
	if err := w.api.Connect(w.t.Context(), w.core); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ends sync.WaitGroup
	ends.Go(func() { w.core.loop.Run(context.Background()) })
	ends.Go(func() { w.api.Run(ctx) })
	w.stop = sync.OnceFunc(func() {
		cancel()
		w.core.loop.Stop()
		ends.Wait()
	})
	w.t.Cleanup(w.stop)
}

// do runs fn on the core's goroutine and waits for it.
func (w *world) do(fn func()) {
	w.t.Helper()
	if _, err := loop.Call(w.t.Context(), w.core.loop, func() bool { fn(); return true }); err != nil {
		w.t.Fatal(err)
	}
}

// client is another process on the bus.
func (w *world) client() *dbus.Conn {
	w.t.Helper()
	conn, err := dbus.Connect(w.bus.Address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// raw is a client that gets everything in the order in which it came.
func (w *world) raw(handler func(*peer.Message)) *peer.Conn {
	w.t.Helper()
	conn, err := peer.DialBus(w.t.Context(), w.bus.Address, peer.Options{
		Handler: func(_ *peer.Conn, m *peer.Message) { handler(m) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		conn.Close(nil)
		<-conn.Done()
	})
	return conn
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

// wait receives, or fails the test when nothing comes.
func wait[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatal("nothing has come")
	}
	return v
}

// SetMetrics and Metrics: a switch.
func (f *fakeCore) SetMetrics(on bool, reply func(error)) {
	f.loop.Post(func() {
		if f.metrics != on {
			f.metrics = on
			f.events.MetricsChanged(on)
		}
		reply(nil)
	})
}

func (f *fakeCore) Metrics(reply func(bool)) { f.loop.Post(func() { reply(f.metrics) }) }
