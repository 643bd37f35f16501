package client

import (
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// follower knows how jobs end, and passes a monitor's events on. It takes signals on the
// connection's reading goroutine, in the order in which they came.
type follower struct {
	listening  sync.Mutex // held while subscriptions are made
	subscribed bool       // guarded by listening
	statusToo  bool       // guarded by listening: subscribed to what a Watch is about

	mu      sync.Mutex
	manager string // unique name, "" where it is not known
	// reign counts the managers seen: each begins its job ids at 1. dead says how the last
	// one ended.
	reign uint64
	dead  error

	waiting map[uint32]*Job
	// A job may end before the answer that names it has been read. While calls are under way,
	// ends of jobs that nobody waits for yet are kept.
	calls int
	early map[uint32]*Job
	lost  map[string]error // nodes that were seen going offline

	monitors map[dbus.ObjectPath]*Monitor
	metrics  []*Metrics

	operations []*Operations

	watches map[*Watch]bool
	owners  map[string]string // of bus names, for watches: unique names, "" where there is none
}

// maxEarly bounds the ends that are kept. Past it some are forgotten; other clients' jobs
// would have to end by the ten thousand during one call.
const maxEarly = 1 << 16

func newFollower() *follower {
	return &follower{waiting: make(map[uint32]*Job), early: make(map[uint32]*Job), lost: make(map[string]error), monitors: make(map[dbus.ObjectPath]*Monitor),
		watches: make(map[*Watch]bool), owners: make(map[string]string)}
}

func (f *follower) known() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.manager != ""
}

func (f *follower) setManager(owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.manager = owner
}

// endReign: another manager has other jobs, and the same ids for them.
func (f *follower) endReign(next string, why error) {
	for _, j := range f.waiting {
		f.end(j, "", why)
	}
	for _, m := range f.monitors {
		m.end(why)
	}
	for _, m := range f.metrics {
		m.end(why)
	}
	for _, o := range f.operations {
		o.end(why)
	}
	clear(f.monitors)
	f.metrics, f.operations = nil, nil
	clear(f.early)
	clear(f.lost)
	f.manager, f.dead = next, why
	f.reign++
}

// asking is called before a job is asked for, asked after its answer was claimed.
func (f *follower) asking() (reign uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return f.reign
}

func (f *follower) asked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls--; f.calls == 0 {
		clear(f.early)
	}
}

// claim makes the job of an answer. Callers that share a job share what is returned.
func (f *follower) claim(id uint32, node string, reign uint64) *Job {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := &Job{ID: id, Node: node, done: make(chan struct{})}
	if reign != f.reign {
		f.end(j, "", f.dead)
		return j
	}
	if known := f.early[id]; known != nil {
		return known
	}
	if known := f.waiting[id]; known != nil {
		return known
	}
	f.waiting[id] = j
	if why := f.lost[node]; why != nil {
		f.end(j, "", why)
	}
	return j
}

func (f *follower) end(j *Job, result string, err error) {
	j.result, j.err = result, err
	delete(f.waiting, j.ID)
	close(j.done)
}

// DeliverSignal implements dbus.SignalHandler.
func (f *follower) DeliverSignal(iface, member string, s *dbus.Signal) {
	if iface == wire.MonitorInterface {
		if m := f.monitor(s); m != nil {
			m.deliver(member, s.Body) // without the lock: it may block
		}
		return
	}
	if iface == wire.WorkloadsInterface {
		for _, o := range f.followers(s) {
			o.deliver(member, s.Body)
		}
		return
	}
	if iface == wire.MetricsInterface {
		for _, m := range f.listeners(s) {
			m.deliver(member, s.Body)
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.tellWatches(iface, member, s)
	switch {
	case s.Sender == wire.DBusName && iface == wire.DBusInterface && member == "NameOwnerChanged":
		f.ownerChanged(s.Body)
	case f.manager == "" || s.Sender != f.manager:
	case iface == wire.ManagerInterface && member == "JobRemoved":
		f.jobRemoved(s.Body)
	case iface == wire.PropertiesInterface && member == "PropertiesChanged":
		f.nodeChanged(s)
	}
}

func (f *follower) monitor(s *dbus.Signal) *Monitor {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.manager == "" || s.Sender != f.manager {
		return nil
	}
	return f.monitors[s.Path]
}

func (f *follower) addMonitor(m *Monitor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.monitors[m.path] = m
}

func (f *follower) dropMonitor(m *Monitor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.monitors, m.path)
}

func (f *follower) jobRemoved(body []any) {
	var (
		id     uint32
		path   dbus.ObjectPath
		node   string
		unit   string
		result string
	)
	if dbus.Store(body, &id, &path, &node, &unit, &result) != nil {
		return
	}
	j := f.waiting[id]
	if j == nil && f.calls > 0 && len(f.early) < maxEarly {
		j = &Job{ID: id, Node: node, done: make(chan struct{})}
		f.early[id] = j
	}
	if j == nil {
		return
	}
	// A node's Status changes before its jobs end as canceled.
	if err := f.lost[node]; err != nil && result == wire.ResultCanceled {
		f.end(j, "", err)
		return
	}
	f.end(j, result, nil)
}

func (f *follower) nodeChanged(s *dbus.Signal) {
	name, isNode := wire.ParseNodePath(wire.ObjectPath(s.Path))
	var (
		iface   string
		changed map[string]dbus.Variant
		gone    []string
	)
	if !isNode || dbus.Store(s.Body, &iface, &changed, &gone) != nil || iface != wire.NodeInterface {
		return
	}
	switch text(changed["Status"]) {
	case wire.NodeOnline:
		delete(f.lost, name)
	case wire.NodeOffline:
		err := wire.ErrNodeOffline.With("node %s went offline", name)
		if why := text(changed["DisconnectReason"]); why != "" {
			err = wire.ErrNodeOffline.With("node %s went offline: %s", name, strings.TrimSpace(why))
		}
		f.lost[name] = err
		for _, j := range f.waiting {
			if j.Node == name {
				f.end(j, "", err)
			}
		}
	}
}

func (f *follower) ownerChanged(body []any) {
	var name, before, after string
	if dbus.Store(body, &name, &before, &after) != nil || name != wire.BusName || f.manager == "" || before != f.manager {
		return
	}
	f.endReign(after, ErrManagerGone.With("the manager left the bus"))
}

// Terminate implements dbus.Terminator: the connection is closed.
func (f *follower) Terminate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endReign("", ErrManagerGone.With("the connection to the bus was lost"))
	for w := range f.watches {
		w.notify(ManagerProcess, LocalAgent)
	}
}
