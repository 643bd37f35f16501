package client

import (
	"context"
	"errors"
	"sync"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// Subject is something that is up or not.
type Subject struct {
	kind subjectKind
	Node string // the name of a node
}

type subjectKind uint8

const (
	subjectManager subjectKind = iota
	subjectSystem
	subjectAgent
	subjectNode
)

// The subjects of a Watch.
var (
	ManagerProcess = Subject{kind: subjectManager} // the manager is on the bus
	WholeSystem    = Subject{kind: subjectSystem}  // all nodes that are expected are online
	LocalAgent     = Subject{kind: subjectAgent}   // the agent of this machine is registered
)

// NodeSubject is one node of the fleet.
func NodeSubject(name string) Subject { return Subject{subjectNode, name} }

// Is reports whether it is this subject; it serves Lapses.
func (s Subject) Is(other Subject) bool { return s == other }

// Watch tells that something about the fleet has changed: a node's or the manager's status,
// the nodes, a job that began or ended, a daemon that came to the bus or left it. It says no
// more than that: whoever wants to know reads again, so that nothing depends on a message
// that anybody could send. It lives until Close, or as long as the connection.
type Watch struct {
	f       *follower
	changed chan struct{}

	mu     sync.Mutex
	lapses map[Subject]int
}

// Watch begins to watch. There need not be a manager. What changes after it has returned is
// not missed.
func (c *Client) Watch(ctx context.Context) (*Watch, error) {
	w := &Watch{f: c.jobs, changed: make(chan struct{}, 1), lapses: make(map[Subject]int)}
	c.jobs.addWatch(w)
	if err := c.listenToStatus(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Changed receives after something has changed; many changes may be one.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Lapses counts how often subjects were seen going down, also where they were up again before
// anybody had looked.
func (w *Watch) Lapses(of func(Subject) bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for s, times := range w.lapses {
		if of(s) {
			n += times
		}
	}
	return n
}

// Close ends the watch.
func (w *Watch) Close() { w.f.dropWatch(w) }

func (w *Watch) notify(down ...Subject) {
	w.mu.Lock()
	for _, s := range down {
		w.lapses[s]++
	}
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default: // it was told, and has not looked yet
	}
}

// Lost is closed when the connection to the bus is lost.
func (c *Client) Lost() <-chan struct{} { return c.conn.Context().Done() }

// listenToStatus asks the bus for what a Watch is about, once, and learns who the daemons are.
func (c *Client) listenToStatus(ctx context.Context) error {
	c.jobs.listening.Lock()
	defer c.jobs.listening.Unlock()
	if err := c.subscribe(ctx); err != nil || c.jobs.statusToo {
		return err
	}
	signal := func(from, rest string) string { return "type='signal',sender='" + from + "'," + rest }
	changed := "interface='" + wire.PropertiesInterface + "',member='PropertiesChanged',arg0='"
	for _, rule := range []string{
		signal(wire.DBusName, "interface='"+wire.DBusInterface+"',member='NameOwnerChanged',arg0='"+wire.AgentBusName+"'"),
		signal(wire.BusName, changed+wire.ManagerInterface+"'"),
		signal(wire.BusName, "interface='"+wire.ManagerInterface+"',member='JobNew'"),
		signal(wire.AgentBusName, changed+wire.AgentInterface+"'"),
	} {
		if _, err := c.read(ctx, busDaemon(), "AddMatch", rule); err != nil {
			return err
		}
	}
	for _, name := range []string{wire.BusName, wire.AgentBusName} {
		owner, err := only[string](c.read(ctx, busDaemon(), "GetNameOwner", name))
		if err != nil && !errors.Is(err, ErrNotRunning) {
			return err
		}
		c.jobs.setOwner(name, owner)
	}
	c.jobs.statusToo = true
	return nil
}

func (f *follower) addWatch(w *Watch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches[w] = true
}

func (f *follower) dropWatch(w *Watch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watches, w)
}

// setOwner notes who a daemon is, where no signal has said so since it was asked.
func (f *follower) setOwner(name, owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.owners[name]; !known {
		f.owners[name] = owner
	}
}

// tellWatches tells what a signal is about.
func (f *follower) tellWatches(iface, member string, s *dbus.Signal) {
	if len(f.watches) == 0 {
		return
	}
	down, news := f.newsOf(iface, member, s)
	if !news {
		return
	}
	for w := range f.watches {
		w.notify(down...)
	}
}

func (f *follower) newsOf(iface, member string, s *dbus.Signal) (down []Subject, news bool) {
	if s.Sender == wire.DBusName {
		if iface != wire.DBusInterface || member != "NameOwnerChanged" {
			return nil, false
		}
		return f.newOwner(s.Body)
	}
	fromManager := s.Sender == f.owners[wire.BusName] && s.Sender != ""
	fromAgent := s.Sender == f.owners[wire.AgentBusName] && s.Sender != ""
	switch {
	case iface == wire.ManagerInterface:
		return nil, fromManager
	case iface == wire.PropertiesInterface && (fromManager || fromAgent):
		return statusNews(s, fromManager, fromAgent)
	}
	return nil, false
}

func (f *follower) newOwner(body []any) (down []Subject, news bool) {
	var name, before, after string
	if dbus.Store(body, &name, &before, &after) != nil {
		return nil, false
	}
	subject, known := map[string]Subject{wire.BusName: ManagerProcess, wire.AgentBusName: LocalAgent}[name]
	if !known {
		return nil, false
	}
	f.owners[name] = after
	if before != "" {
		down = []Subject{subject}
	}
	return down, true
}

func statusNews(s *dbus.Signal, fromManager, fromAgent bool) (down []Subject, news bool) {
	var (
		iface   string
		changed map[string]dbus.Variant
		gone    []string
	)
	if dbus.Store(s.Body, &iface, &changed, &gone) != nil {
		return nil, false
	}
	status := text(changed["Status"])
	switch node, isNode := wire.ParseNodePath(wire.ObjectPath(s.Path)); {
	case isNode && fromManager && iface == wire.NodeInterface:
		if status == wire.NodeOffline {
			down = []Subject{NodeSubject(node)}
		}
	case iface == wire.ManagerInterface && fromManager:
		if status != "" && status != wire.StatusUp {
			down = []Subject{WholeSystem}
		}
	case iface == wire.AgentInterface && fromAgent:
		if status == wire.NodeOffline {
			down = []Subject{LocalAgent}
		}
	default:
		return nil, false
	}
	return down, true
}
