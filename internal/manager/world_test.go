package manager

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

// world is a core in fake time with everything around it faked. Its history holds what the
// core told, in order: events, answers to callers and messages to agents.
type world struct {
	t       *testing.T
	m       *Manager
	mu      sync.Mutex // the core and the test take turns, which only Wait would show
	history []string
	stop    context.CancelFunc
	stopped chan struct{}
}

var fleet = Config{
	Nodes:             []NodeConfig{{Name: "node1"}, {Name: "node2"}, {Name: "flaky", Optional: true}},
	HeartbeatInterval: 2 * time.Second, HeartbeatThreshold: 6 * time.Second,
	CallTimeout: 30 * time.Second, QueryTimeout: 2 * time.Second,
}

// quiet drops what is logged but mistakes, which fail the test: illegal moves are such.
type quiet struct{ t *testing.T }

func (q quiet) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelDebug }
func (q quiet) WithAttrs([]slog.Attr) slog.Handler           { return q }
func (q quiet) WithGroup(string) slog.Handler                { return q }
func (q quiet) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		q.t.Error(text)
	}
	return nil
}

func in(t *testing.T, cfg Config, scenario func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, stopped: make(chan struct{})}
		w.m = New(cfg, w, slog.New(quiet{t}))
		ctx, cancel := context.WithCancel(t.Context())
		w.stop = cancel
		go func() {
			w.m.Run(ctx)
			close(w.stopped)
		}()
		scenario(w)
		cancel()
		<-w.stopped
	})
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

// take returns the history since the last time and begins a new one.
func (w *world) take() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.history
	w.history = nil
	return got
}

// expect compares the history since the last expect.
func (w *world) expect(want ...string) {
	w.t.Helper()
	if got := w.take(); !slices.Equal(got, want) {
		w.t.Errorf("history is\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (w *world) JobNew(j JobInfo) {
	w.note("JobNew %d %s %s %s %s", j.ID, j.Node, j.Unit, j.Type, j.State)
}
func (w *world) JobState(j JobInfo) { w.note("JobState %d %s", j.ID, j.State) }
func (w *world) JobRemoved(j JobInfo, result string) {
	w.note("JobRemoved %d %s %s", j.ID, j.Unit, result)
}
func (w *world) NodeChanged(n NodeInfo) { w.note("node %s %s", n.Name, n.Status) }
func (w *world) StatusChanged(s string) { w.note("status %s", s) }
func (w *world) FleetChanged(added, removed []NodeInfo) {
	for _, n := range added {
		w.note("added %s %s", n.Name, n.Status)
	}
	for _, n := range removed {
		w.note("removed %s %s", n.Name, n.Status)
	}
}

// start asks for a job; the answer is noted under the name.
func (w *world) start(as string, req JobRequest) {
	w.m.StartJob(req, func(id uint32, err error) { w.note("%s: %d %s", as, id, kind(err)) })
	synctest.Wait()
}

func (w *world) cancel(as string, id uint32) {
	w.m.CancelJob(id, func(err error) { w.note("%s: %s", as, kind(err)) })
	synctest.Wait()
}

// kind is the last word of an error's name, "ok" for none.
func kind(err error) string {
	if err == nil {
		return "ok"
	}
	name := wire.AsError(err).Name
	return name[strings.LastIndexByte(name, '.')+1:]
}

func ask(verb wire.Verb, unitName string) JobRequest {
	return JobRequest{Node: "node1", Unit: unitName, Verb: verb, Mode: "replace"}
}

// link is an agent that does only what the test says. It keeps the promise of AgentLink:
// each done is called once, when the time is up at the latest.
type link struct {
	w       *world
	name    string
	session Session
	last    atomic.Pointer[time.Time]
	beats   atomic.Int32

	mu    sync.Mutex
	asked map[string]func(wire.Raw, error)
}

func (l *link) hear() {
	now := time.Now()
	l.last.Store(&now)
}

func (l *link) request(what string, limit time.Duration, done func(wire.Raw, error)) {
	l.w.note("%s< %s", l.name, what)
	var once sync.Once
	answer := func(body wire.Raw, err error) { once.Do(func() { done(body, err) }) }
	time.AfterFunc(limit, func() { answer(wire.Raw{}, wire.ErrTimeout.With("no answer")) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[what] = answer
}

func (l *link) StartJob(id uint32, req JobRequest, limit time.Duration, done func(error)) {
	l.request(fmt.Sprintf("%s %s %s %d", req.Verb.Method(), req.Unit, req.Mode, id), limit,
		func(_ wire.Raw, err error) { done(err) })
}

func (l *link) CancelJob(id uint32, limit time.Duration, done func(error)) {
	l.request(fmt.Sprintf("CancelJob %d", id), limit, func(_ wire.Raw, err error) { done(err) })
}

func (l *link) Call(method string, args wire.Raw, limit time.Duration, done func(wire.Raw, error)) {
	for _, property := range []string{"InactiveExitTimestampMonotonic", "ActiveEnterTimestampMonotonic"} {
		if strings.Contains(string(args.Data), property) {
			method += " " + property
		}
	}
	l.request(method, limit, done)
}

func (l *link) Heartbeat()              { l.beats.Add(1) }
func (l *link) LastReceived() time.Time { return *l.last.Load() }
func (l *link) Close(reason string)     { l.w.note("%s< close", l.name) }

// reply answers the request that ends in what.
func (l *link) reply(what string, body wire.Raw, err error) {
	l.w.t.Helper()
	synctest.Wait()
	l.mu.Lock()
	var answer func(wire.Raw, error)
	for asked, f := range l.asked {
		if asked == what || strings.HasSuffix(asked, " "+what) {
			answer = f
		}
	}
	l.mu.Unlock()
	if answer == nil {
		l.w.t.Fatalf("%s was not asked for %q", l.name, what)
	}
	answer(body, err)
	synctest.Wait()
}

// answer answers the request for a job.
func (l *link) answer(id uint32, err error) {
	l.w.t.Helper()
	l.reply(fmt.Sprintf("replace %d", id), wire.Raw{}, err)
}

func (l *link) done(id uint32, result string) {
	l.w.m.JobDone(l.session, id, result)
	synctest.Wait()
}

func (l *link) state(id uint32, state string) {
	l.w.m.JobState(l.session, id, state)
	synctest.Wait()
}

// keepAlive lets time pass in which the agent gives signs of life.
func (l *link) keepAlive(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(time.Second, time.Until(end)))
		l.hear()
	}
	synctest.Wait()
}

func (w *world) newLink(name string) *link {
	l := &link{w: w, name: name, asked: make(map[string]func(wire.Raw, error))}
	l.last.Store(&time.Time{}) // Register itself is a sign of life
	return l
}

// register registers a node over a new link; the answer is noted.
func (w *world) register(r Registration) (*link, Welcome) {
	l := w.newLink(r.Node)
	r.Link = l
	var welcome Welcome
	w.m.Register(r, func(got Welcome, err error) {
		w.note("register %s: %s", r.Node, kind(err))
		welcome = got
	})
	synctest.Wait()
	l.session = welcome.Session
	return l, welcome
}

// connect brings a node online and forgets how.
func (w *world) connect(name string) *link {
	w.t.Helper()
	l, welcome := w.register(Registration{Node: name, Identity: Identity{Address: "192.0.2.1"}})
	if welcome.Session == 0 {
		w.t.Fatalf("%s was not registered: %v", name, w.take())
	}
	w.take()
	return l
}

func (w *world) close(l *link, reason string) {
	w.m.Closed(l.session, reason)
	synctest.Wait()
}

func (w *world) node(name string) NodeInfo {
	var info NodeInfo
	w.m.Node(name, func(got NodeInfo, err error) {
		if err != nil {
			w.t.Errorf("node %s: %v", name, err)
		}
		info = got
	})
	synctest.Wait()
	return info
}

func (w *world) jobs() []JobInfo {
	var all []JobInfo
	w.m.Jobs(func(got []JobInfo) { all = got })
	synctest.Wait()
	return all
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func textLog(to io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *link) Subscribe(pattern string, limit time.Duration, done func([]UnitRow, error)) {
	l.request("Subscribe "+pattern, limit, func(body wire.Raw, err error) { done(parseRows(string(body.Data)), err) })
}

func (l *link) Unsubscribe(pattern string) { l.w.note("%s< Unsubscribe %s", l.name, pattern) }

// rows answers a subscription with lines of "id active sub" or "asked>id active sub".
func (l *link) rows(pattern string, rows ...string) {
	l.w.t.Helper()
	l.reply("Subscribe "+pattern, wire.Raw{Data: []byte(strings.Join(rows, "\n"))}, nil)
}

func parseRows(text string) []UnitRow {
	var rows []UnitRow
	for _, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		asked, id, alias := strings.Cut(f[0], ">")
		if !alias {
			id = asked
		}
		rows = append(rows, UnitRow{Asked: asked, ID: id, Active: f[1], Sub: f[2]})
	}
	return rows
}

func (w *world) UnitEvent(e UnitEvent, audience []Audience) {
	text := []string{"new", "removed", "state", "properties"}[e.Kind]
	for _, part := range []string{e.Node, e.Unit, e.Active, e.Sub, e.Interface, e.Reason} {
		if part != "" {
			text += " " + part
		}
	}
	for _, a := range audience {
		text += fmt.Sprintf(" %d%v", a.Monitor, a.To)
	}
	w.note("%s", text)
}

func (w *world) PeerRemoved(monitor uint32, peer, reason string) {
	w.note("peer removed %d %s %s", monitor, peer, reason)
}
func (l *link) SetMetrics(on bool)      { l.w.note("%s< metrics %v", l.name, on) }
func (w *world) MetricsChanged(on bool) { w.note("metrics changed %v", on) }
func (w *world) StartJobMetrics(j JobInfo, took, unit time.Duration) {
	w.note("start metrics %d %s %v %v", j.ID, j.Unit, took, unit)
}
func (w *world) AgentJobMetrics(node, unit, method string, took time.Duration) {
	w.note("agent metrics %s %s %s %v", node, unit, method, took)
}
func (w *world) MonitorRemoved(monitor uint32) { w.note("monitor removed %d", monitor) }
