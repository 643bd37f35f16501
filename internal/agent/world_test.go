package agent

import (
	"context"
	"errors"
	"fmt"
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
// core told, in order: events, answers to the manager, and requests to systemd and dialler.
type world struct {
	t       *testing.T
	a       *Agent
	mu      sync.Mutex
	history []string
	dials   []func(ManagerLink, error)
	asked   map[string]func(any, error)
	link    *link
	wanted  atomic.Pointer[func(string) bool]
	logs    strings.Builder
	// names are the units that have more than the name that they are asked for by. They are
	// told at once, or by answer where holdNames is set.
	names     map[string][]string
	holdNames bool
	units     []UnitRow // proxies and dep units that systemd has
}

var plain = Config{
	Node: "node1", Addresses: []string{"tcp:host=a,port=1"}, CallTimeout: 30 * time.Second, RegisterTimeout: 10 * time.Second,
	HeartbeatInterval: 2 * time.Second, HeartbeatThreshold: 6 * time.Second, QuietAfter: 3,
}

func in(t *testing.T, cfg Config, scenario func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, asked: make(map[string]func(any, error))}
		w.a = New(cfg, w, w, w, slog.New(slog.NewTextHandler(&w.logs, nil)))
		w.a.random = func() float64 { return 0.5 }
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { w.a.Run(ctx); close(stopped) }()
		scenario(w)
		cancel()
		<-stopped
		if strings.Contains(w.logs.String(), "level=ERROR") {
			t.Errorf("a mistake was logged:\n%s", w.logs.String())
		}
	})
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
		w.t.Errorf("history is\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Dialer

func (w *world) Dial(address string, done func(ManagerLink, error)) func() {
	w.note("dial %s", address)
	w.mu.Lock()
	w.dials = append(w.dials, done)
	w.mu.Unlock()
	return func() {
		w.note("cancel dial")
		go done(nil, errors.New("canceled"))
	}
}

// dialed answers the last dial.
func (w *world) dialed(l ManagerLink, err error) {
	synctest.Wait()
	w.mu.Lock()
	done := w.dials[len(w.dials)-1]
	w.mu.Unlock()
	done(l, err)
	synctest.Wait()
}

// Systemd

func (w *world) ask(what string, limit time.Duration, done func(any, error)) {
	w.note("systemd< %s", what)
	var once sync.Once
	answer := func(v any, err error) { once.Do(func() { done(v, err) }) }
	time.AfterFunc(limit, func() { answer(nil, wire.ErrTimeout.With("no answer")) })
	w.mu.Lock()
	w.asked[what] = answer
	w.mu.Unlock()
}

func (w *world) answer(what string, v any, err error) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	answer := w.asked[what]
	w.mu.Unlock()
	if answer == nil {
		w.t.Fatalf("systemd was not asked %q", what)
	}
	answer(v, err)
	synctest.Wait()
}

func (w *world) StartJob(req JobRequest, limit time.Duration, done func(uint32, error)) {
	w.ask(req.Verb.Method()+" "+req.Unit, limit, func(v any, err error) { id, _ := v.(int); done(uint32(id), err) })
}

func (w *world) CancelJob(job uint32, limit time.Duration, done func(error)) {
	w.ask(fmt.Sprintf("CancelJob %d", job), limit, func(_ any, err error) { done(err) })
}

func (w *world) Call(method string, args wire.Raw, limit time.Duration, done func(wire.Raw, error)) {
	w.ask(method, limit, func(v any, err error) { body, _ := v.(wire.Raw); done(body, err) })
}

func (w *world) Jobs(limit time.Duration, done func([]QueuedJob, error)) {
	w.ask("ListJobs", limit, func(v any, err error) { jobs, _ := v.([]QueuedJob); done(jobs, err) })
}

func (w *world) Units(pattern string, limit time.Duration, done func([]UnitRow, error)) {
	if w.listed(pattern, done) {
		return
	}
	w.ask("units "+pattern, limit, func(v any, err error) { rows, _ := v.([]UnitRow); done(rows, err) })
}

func (w *world) Names(name string, limit time.Duration, done func([]string, error)) {
	if !w.holdNames {
		names := w.names[name]
		if names == nil {
			names = []string{name}
		}
		done(names, nil)
		return
	}
	w.ask("names "+name, limit, func(v any, err error) { names, _ := v.([]string); done(names, err) })
}

func (w *world) Watch(wanted func(string) bool) {
	if wanted == nil {
		w.wanted.Store(nil)
		return
	}
	w.wanted.Store(&wanted)
}

// Events

func (w *world) StatusChanged(i Info)         { w.note("status %s", i.Status) }
func (w *world) ManagerAddressChanged(i Info) { w.note("address %s", i.ManagerAddress) }

// link is the manager's side of one connection.
type link struct {
	w        *world
	session  Session
	register func(Welcome, error)
	last     atomic.Pointer[time.Time]
	beats    atomic.Int32
	backlog  atomic.Int64
}

func (w *world) newLink() *link {
	l := &link{w: w}
	l.hear()
	return l
}

func (l *link) hear() {
	now := time.Now()
	l.last.Store(&now)
}

func (l *link) Register(s Session, node string, facts map[string]wire.Value, limit time.Duration, done func(Welcome, error)) {
	l.w.note("register %s", node)
	l.session = s
	var once sync.Once
	l.register = func(w Welcome, err error) { once.Do(func() { done(w, err) }) }
	time.AfterFunc(limit, func() { l.register(Welcome{}, wire.ErrTimeout.With("no answer")) })
}

func (l *link) Heartbeat()                        { l.beats.Add(1) }
func (l *link) JobState(job uint32, state string) { l.w.note("JobState %d %s", job, state) }
func (l *link) JobDone(job uint32, result string) { l.w.note("JobDone %d %s", job, result) }
func (l *link) UnitNew(u, reason string)          { l.w.note("UnitNew %s %s", u, reason) }
func (l *link) UnitRemoved(u, reason string)      { l.w.note("UnitRemoved %s %s", u, reason) }
func (l *link) UnitStateChanged(u, active, sub, reason string) {
	l.w.note("UnitState %s %s %s %s", u, active, sub, reason)
}
func (l *link) UnitPropertiesChanged(u, iface string, changed map[string]wire.Value) {
	var keys []string
	for k, v := range changed {
		s, _ := v.AsString()
		keys = append(keys, k+"="+s)
	}
	slices.Sort(keys)
	l.w.note("UnitProperties %s %s %s", u, iface[strings.LastIndexByte(iface, '.')+1:], strings.Join(keys, " "))
}
func (l *link) UnitAlias(r UnitRow) {
	l.w.note("UnitAlias %s %s %s %s", r.Asked, r.ID, r.Active, r.Sub)
}
func (l *link) JobMetrics(u, method string, took time.Duration) {
	l.w.note("JobMetrics %s %s %v", u, method, took)
}
func (l *link) WorkloadEvent(member, text string) { l.w.note("%s %s", member, text) }
func (l *link) Backlog() int                      { return int(l.backlog.Load()) }
func (l *link) Renew(request []byte, _ time.Duration, done func(certificate, authorities []byte, err error)) {
	l.w.note("Renew %s", request)
	go done([]byte("certificate"), []byte("authorities"), nil)
}
func (l *link) LastReceived() time.Time { return *l.last.Load() }
func (l *link) Close(reason string) {
	l.w.note("close")
	go l.w.a.Closed(l.session, errors.New(reason))
}

var welcome = Welcome{ManagerSession: 1, HeartbeatInterval: 2 * time.Second, HeartbeatThreshold: 6 * time.Second}

// online brings the agent to a live session.
func (w *world) online() *link {
	w.t.Helper()
	w.a.SystemdUp(map[string]wire.Value{})
	l := w.newLink()
	w.dialed(l, nil)
	l.register(welcome, nil)
	w.take()
	w.link = l
	return l
}

// keepAlive lets time pass in which the manager gives signs of life.
func (l *link) keepAlive(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(time.Second, time.Until(end)))
		l.hear()
	}
	synctest.Wait()
}

func kind(err error) string {
	if err == nil {
		return "ok"
	}
	name := wire.AsError(err).Name
	return name[strings.LastIndexByte(name, '.')+1:]
}

func (w *world) start(s Session, id uint32, verb wire.Verb, unit string) {
	w.a.StartJob(s, JobRequest{ID: id, Unit: unit, Verb: verb, Mode: "replace"}, func(err error) { w.note("answer %d %s", id, kind(err)) })
	synctest.Wait()
}

func str(s string) wire.Value {
	return wire.Value{Sig: "s", Data: append(append([]byte{byte(len(s)), 0, 0, 0}, s...), 0)}
}
