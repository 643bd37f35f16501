package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// monitored is a real manager on a bus daemon of its own, with nodes whose agents are played
// here, and clients in a process of their own.
type monitored struct {
	rig
	nodes   []*player
	clients *clients
	sent    int
}

func startMonitored(ctx context.Context, program string, reading, stopped int) (*monitored, error) {
	f := &monitored{}
	if err := f.start(ctx, program, reading, stopped); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *monitored) start(ctx context.Context, program string, reading, stopped int) (err error) {
	if err := f.startBus(ctx); err != nil {
		return err
	}
	var names []string
	for i := range monitorNodes {
		names = append(names, fmt.Sprint("node", i))
	}
	if err := f.startManager(ctx, program, "TLS=no\nAllowedNodeNames="+strings.Join(names, ",")+"\n"); err != nil {
		return err
	}
	for i := range monitorNodes {
		p, err := play(ctx, f.port, fmt.Sprint("node", i))
		if err != nil {
			return err
		}
		f.nodes = append(f.nodes, p)
	}
	f.clients, err = startClients(ctx, f.address, reading, stopped)
	return err
}

func (f *monitored) close() {
	for _, n := range f.nodes {
		n.conn.Close(nil)
	}
	if f.clients != nil {
		f.clients.close()
	}
	f.rig.close()
}

// usage is the processor time of manager, bus daemon and clients, in nanoseconds.
func (f *monitored) usage() (all [3]int64, err error) {
	for i, pid := range []int{f.manager.Process.Pid, f.bus.Process.Pid, f.clients.cmd.Process.Pid} {
		u, err := usageOf(pid)
		if err != nil {
			return all, err
		}
		all[i] = u.Ticks * int64(10*time.Millisecond) // USER_HZ is 100 wherever Linux shows it (time(7))
	}
	return all, nil
}

// change changes the state of n units, in turn over nodes and units. The sub state tells
// clients which change of its unit it is, and when it was.
func (f *monitored) change(n int) error {
	for range n {
		p := f.nodes[f.sent%len(f.nodes)]
		unit := f.sent / len(f.nodes) % monitorUnits
		f.sent++
		if err := p.change(unit, ""); err != nil {
			return err
		}
	}
	return nil
}

// end changes all units for the last time and says what the clients have seen.
func (f *monitored) end() (seen, error) {
	for _, p := range f.nodes {
		for unit := range monitorUnits {
			if err := p.change(unit, lastState); err != nil {
				return seen{}, err
			}
		}
	}
	return f.clients.end()
}
