package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// simulated is a real manager, in its process, with simulated agents, in theirs.
type simulated struct {
	rig
	program string
	secure  *simTLS
	count   int
	empty   int64 // RSS of the manager without agents, bytes
	agents  *agents
}

func startSimulated(ctx context.Context, program string, secure *simTLS, count int) (*simulated, error) {
	f := &simulated{program: program, secure: secure, count: count}
	f.quiet = true // of agents that are dropped while they connect
	err := f.startBus(ctx)
	if err == nil {
		err = f.boot(ctx)
	}
	if err == nil {
		f.agents, err = startAgents(ctx)
	}
	if err == nil {
		var l looks
		l, err = f.look()
		f.empty = l.all[0].RSS
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// boot starts the manager, for the first time or again.
func (f *simulated) boot(ctx context.Context) error {
	var names []string
	for i := range f.count {
		names = append(names, simName(i))
	}
	return f.startManager(ctx, f.program, f.secure.lines()+"AllowedNodeNames="+strings.Join(names, ",")+"\n")
}

func (f *simulated) close() {
	if f.agents != nil {
		f.agents.close()
	}
	f.rig.close()
}

// looks is what the processes have used: manager, bus daemon, agents.
type looks struct {
	at  time.Time
	all [3]usage
}

func (f *simulated) look() (l looks, err error) {
	for i, pid := range []int{f.manager.Process.Pid, f.bus.Process.Pid, f.agents.cmd.Process.Pid} {
		if l.all[i], err = usageOf(pid); err != nil {
			return l, err
		}
	}
	l.at = time.Now()
	return l, nil
}

// cpu is the processor time of one process since an earlier look.
func (l looks) cpu(before looks, i int) time.Duration {
	return time.Duration(l.all[i].CPU - before.all[i].CPU)
}

// share is the same as a percentage of one processor.
func (l looks) share(before looks, i int) float64 {
	return 100 * float64(l.cpu(before, i)) / float64(l.at.Sub(before.at))
}

// during looks before and after.
func (f *simulated) during(what func() error) (before, after looks, err error) {
	if before, err = f.look(); err != nil {
		return before, after, err
	}
	if err = what(); err == nil {
		after, err = f.look()
	}
	return before, after, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// since makes durations of moments.
func since(start int64, moments []int64) (s sample) {
	for _, at := range moments {
		s = append(s, at-start)
	}
	return s
}

// listener is a client with a monitor of everything.
type listener struct {
	conn   *peer.Conn
	first  chan struct{} // one for each state that was there before
	delays chan int64
}

func (f *simulated) listen(ctx context.Context) (l *listener, took time.Duration, err error) {
	l = &listener{first: make(chan struct{}, f.count), delays: make(chan int64, 1<<20)}
	l.conn, err = peer.DialBus(ctx, f.address, peer.Options{Handler: func(_ *peer.Conn, m *peer.Message) { l.hear(m) }})
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	var monitor wire.ObjectPath
	m, err := l.conn.Call(ctx, peer.Call{Destination: wire.BusName, Path: wire.RootPath, Interface: wire.ManagerInterface, Member: "CreateMonitor"})
	if err == nil {
		err = peer.Decode(m.Body, &monitor)
	}
	if err == nil {
		_, err = l.conn.Call(ctx, peer.Call{
			Destination: wire.BusName, Path: monitor, Interface: wire.MonitorInterface, Member: "Subscribe", Body: peer.MustEncode("*", "*"),
		})
	}
	for heard := 0; err == nil && heard < f.count; heard++ {
		select {
		case <-l.first:
		case <-time.After(taskLimit):
			err = fmt.Errorf("the state of %d of %d nodes was told", heard, f.count)
		}
	}
	if err != nil {
		l.conn.Close(err)
	}
	return l, time.Since(began), err
}

func (l *listener) hear(m *peer.Message) {
	if m.Member != wire.MemberUnitStateChanged {
		return
	}
	var node, unit, active, sub, reason string
	var when int64
	if peer.Decode(m.Body, &node, &unit, &active, &sub, &reason) != nil {
		return
	}
	if reason != "real" {
		select {
		case l.first <- struct{}{}:
		default: // a node that came back
		}
		return
	}
	if _, err := fmt.Sscan(sub, &when); err == nil {
		l.delays <- time.Now().UnixNano() - when
	}
}

// heard takes n delays.
func (l *listener) heard(ctx context.Context, n int) (all sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, taskLimit)
	defer cancel()
	for len(all) < n {
		select {
		case d := <-l.delays:
			all = append(all, d)
		case <-l.conn.Done():
			return nil, l.conn.Err()
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d changes were heard of: %w", len(all), n, ctx.Err())
		}
	}
	return all, nil
}

func (l *listener) close() {
	l.conn.Close(errors.New("done"))
	<-l.conn.Done()
}

// fleetTables are the answers for all sizes of one way.
type fleetTables struct{ connect, hold, work *table }

// fleet answers: what does one manager hold, and does the cost of a node grow with the fleet?
func fleetOf(ctx context.Context, s scale, r *report) error {
	dir, err := os.MkdirTemp("", "ctrl-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := buildManager(ctx, dir)
	if err != nil {
		return err
	}
	certificates, err := issueFleet(dir, slices.Max(s.Fleet))
	if err != nil {
		return err
	}
	for _, secure := range []*simTLS{nil, certificates} {
		mark := "TLS=yes"
		if secure == nil {
			mark = "TLS=no"
		}
		t := newFleetTables(mark)
		for _, count := range s.Fleet {
			if err := fleetAt(ctx, s, program, secure, count, t); err != nil {
				return fmt.Errorf("%d agents, %s: %w", count, mark, err)
			}
		}
		for _, t := range []*table{t.connect, t.hold, t.work} {
			r.print(t)
		}
	}
	return nil
}
