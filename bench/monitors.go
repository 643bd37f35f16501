package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// monitorNodes and monitorUnits are the fleet whose units change, which is not real: 500
// changes a second of real units would measure systemd.
const (
	monitorNodes = 10
	monitorUnits = 20
)

// monitors shows what 1, 10 and 100 monitors of everything cost, and what a client costs
// them that does not read.
func monitors(ctx context.Context, s scale, r *report) error {
	dir, err := os.MkdirTemp("", "ctrl-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := buildManager(ctx, dir)
	if err != nil {
		return err
	}
	through := newTable(fmt.Sprintf("Changes of state a second that reach every monitor on */*, %d nodes, as fast as they are read", monitorNodes),
		"changes/s", "signals/s", "manager µs a signal", "bus daemon µs a signal", "clients µs a signal")
	for _, n := range []int{1, 10, 100} {
		if err := throughput(ctx, program, s.Monitors/4, n, through); err != nil {
			return err
		}
	}
	through.Note = "Processor time. Each signal is one message to one client: the bus daemon is what limits it."
	r.print(through)

	steady := newTable(fmt.Sprintf("So many changes of state a second to every monitor on */*, %d nodes", monitorNodes),
		"left out", "stopped: left out", "out of order", "p50 ms", "p99 ms", "max ms", "manager %", "bus daemon %", "clients %", "manager MiB at most", "wrong at the end")
	short, long := s.Monitors/4, s.Monitors
	for _, l := range []load{
		{s.Changes, 1, 0, short}, {s.Changes, 10, 0, short}, {s.Changes, 10, 1, short},
		{s.Changes / 10, 100, 0, short}, {s.Changes / 10, 100, 1, short},
		{s.Changes, 100, 0, long}, {s.Changes, 100, 1, long},
	} {
		if err := steadily(ctx, program, l, steady); err != nil {
			return fmt.Errorf("%s: %w", l.name(), err)
		}
	}
	steady.Note = "ms: from the change on the node to a client that reads. %: of one processor. Left out: changes merged away, of signals in all."
	r.print(steady)
	return nil
}

// throughput has at most some thousands of changes under way to the slowest client.
func throughput(ctx context.Context, program string, d time.Duration, clients int, t *table) error {
	f, err := startMonitored(ctx, program, clients, 0)
	if err != nil {
		return err
	}
	defer f.close()
	const chunk, ahead = 500, 4
	before, err := f.usage()
	if err != nil {
		return err
	}
	began, sent, read := time.Now(), 0, 0
	for time.Since(began) < d {
		if err := f.change(chunk); err != nil {
			return err
		}
		for sent++; read < sent-ahead; read++ {
			if err := f.clients.reached((read + 1) * chunk); err != nil {
				return err
			}
		}
	}
	if err := f.clients.reached(sent * chunk); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	after, err := f.usage()
	if err != nil {
		return err
	}
	seen, err := f.end()
	if err != nil {
		return err
	}
	if seen.LeftOut+seen.Disorder > 0 {
		return fmt.Errorf("%d changes left out, %d out of order", seen.LeftOut, seen.Disorder)
	}
	changes := float64(sent * chunk)
	signals := changes * float64(clients)
	each := func(i int) float64 { return float64(after[i]-before[i]) / 1000 / signals }
	t.add(fmt.Sprint("monitors: ", clients), changes/took, signals/took, each(0), each(1), each(2))
	return nil
}

// load is changes of state at a steady rate.
type load struct {
	rate             int // a second
	reading, stopped int // clients, each with one monitor
	time             time.Duration
}

func (l load) name() string {
	name := fmt.Sprintf("%d/s for %v, monitors: %d", l.rate, l.time, l.reading)
	if l.stopped > 0 {
		name += fmt.Sprintf(", %d stopped", l.stopped)
	}
	return name
}

func steadily(ctx context.Context, program string, l load, t *table) error {
	f, err := startMonitored(ctx, program, l.reading, l.stopped)
	if err != nil {
		return err
	}
	defer f.close()
	before, err := f.usage()
	if err != nil {
		return err
	}
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	began, sent := time.Now(), 0
	for time.Since(began) < l.time {
		<-ticker.C
		due := int(time.Since(began).Seconds() * float64(l.rate))
		if err := f.change(due - sent); err != nil {
			return err
		}
		sent = due
	}
	took := time.Since(began)
	after, err := f.usage()
	if err != nil {
		return err
	}
	seen, err := f.end()
	if err != nil {
		return err
	}
	share := func(i int) float64 { return float64(after[i]-before[i]) / float64(took) * 100 }
	leftOut := float64(unknown)
	if l.stopped > 0 {
		leftOut = float64(seen.LeftOutStopped)
	}
	peak, err := f.peak()
	if err != nil {
		return err
	}
	t.add(l.name(), float64(seen.LeftOut), leftOut, float64(seen.Disorder), seen.Delays.at(50), seen.Delays.at(99), seen.Delays.at(100),
		share(0), share(1), share(2), float64(peak)/(1<<20), float64(seen.Wrong))
	return nil
}
