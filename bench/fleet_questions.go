package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

const (
	changeRate = 1000 // changes of state a second in the whole fleet
	fanWindow  = 100  // jobs under way in a fan-out; the system bus lets a client wait for 128 answers
	flapShare  = 1    // % of the agents that lose their connection each second
	settling   = 2 * time.Second
)

func newFleetTables(mark string) *fleetTables {
	t := &fleetTables{
		connect: newTable("A fleet that connects at once, and again after its manager was killed and started anew, in s until agents are registered, "+mark,
			"first: half", "all", "tries", "manager ms CPU a node", "again: half", "all again", "tries again", "lost elsewhere"),
		hold: newTable("A fleet that is there, heartbeats both ways every 2 s, "+mark,
			"RSS MiB", "KiB a node", "at most MiB", "CPU %", "µs a node and s", "1 % reconnect each s: CPU %", "µs a reconnect", "agents' CPU %"),
		work: newTable("A fleet at work, "+mark,
			"a job on each node: jobs/s", "manager µs a job", "bus daemon µs a job", "ListUnits s", "MiB", "manager µs a node",
			"monitor of all: s", fmt.Sprintf("%d changes/s: manager µs each", changeRate), "p50 ms", "p99 ms"),
	}
	t.connect.Note = "Agents, manager and bus daemon share this machine's processors. A killed manager is awaited with a back-off of 100 ms to 10 s; counted from when it listens again. " +
		"Lost elsewhere: sessions that ended in all other tests."
	t.hold.Note = "RSS of the manager; KiB a node: what it is above that of the manager without agents. CPU: % of one processor."
	return t
}

// fleetAt measures one size, one thing after the other on the same fleet.
func fleetAt(ctx context.Context, s scale, program string, secure *simTLS, count int, t *fleetTables) error {
	f, err := startSimulated(ctx, program, secure, count)
	if err != nil {
		return err
	}
	defer f.close()
	name := fmt.Sprint(count)
	storm, err := f.storm()
	if err != nil {
		return err
	}
	held, flapLost, err := f.hold(ctx, s)
	if err != nil {
		return err
	}
	t.hold.add(name, held...)
	done, workLost, err := f.work(ctx, s)
	if err != nil {
		return err
	}
	t.work.add(name, done...)
	again, err := f.comeBack(ctx)
	if err != nil {
		return err
	}
	t.connect.add(name, append(append(storm, again...), float64(flapLost+workLost))...)
	return nil
}

func (f *simulated) storm() ([]float64, error) {
	var got simAnswer
	before, after, err := f.during(func() (err error) {
		got, err = f.agents.do(simTask{What: "connect", Agents: f.count, Port: f.port, TLS: f.secure})
		return err
	})
	if err != nil {
		return nil, err
	}
	took := since(got.Started, got.Began)
	return []float64{took.at(50) / 1000, took.at(100) / 1000, float64(got.Tries), ms(int64(after.cpu(before, 0))) / float64(f.count)}, nil
}

// comeBack is the storm after the manager was killed.
func (f *simulated) comeBack(ctx context.Context) ([]float64, error) {
	f.kill()
	if err := f.boot(ctx); err != nil {
		return nil, err
	}
	start := time.Now().UnixNano()
	got, err := f.agents.do(simTask{What: "await"})
	if err != nil {
		return nil, err
	}
	took := since(start, got.Began)
	return []float64{max(took.at(50), 0) / 1000, max(took.at(100), 0) / 1000, float64(got.Tries)}, nil
}

func (f *simulated) hold(ctx context.Context, s scale) (figures []float64, lost int, err error) {
	if err := pause(ctx, settling); err != nil {
		return nil, 0, err
	}
	before, after, err := f.during(func() error { return pause(ctx, s.Beats) })
	if err != nil {
		return nil, 0, err
	}
	nodes := float64(f.count)
	rss := float64(after.all[0].RSS)
	quiet := after.share(before, 0)
	if profiles != "" {
		f.manager.Process.Signal(syscall.SIGUSR1)
	}
	var got simAnswer
	began, ended, err := f.during(func() (err error) {
		got, err = f.agents.do(simTask{What: "flap", Percent: flapShare, For: s.Beats})
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	peak, err := f.peak()
	if err != nil {
		return nil, 0, err
	}
	flapping := ended.share(began, 0)
	more := float64(ended.cpu(began, 0)) - quiet/100*float64(ended.at.Sub(began.at))
	return []float64{
		rss / (1 << 20), (rss - float64(f.empty)) / 1024 / nodes, float64(peak) / (1 << 20), quiet, quiet * 1e4 / nodes,
		flapping, max(more, 0) / 1000 / float64(got.Done), after.share(before, 2),
	}, got.Lost, nil
}

func (f *simulated) work(ctx context.Context, s scale) (figures []float64, lost int, err error) {
	c, err := connect(ctx, viaCtrl, f.address)
	if err != nil {
		return nil, 0, err
	}
	defer func() { c.Close(errors.New("done")); <-c.Done() }()
	fan := task{Kind: viaCtrl, Count: 1, Window: fanWindow}
	for i := range f.count {
		fan.Nodes = append(fan.Nodes, simName(i))
	}
	nodes := float64(f.count)
	began, ended, err := f.during(func() error { _, err := c.jobs(ctx, "StartUnit", fan); return err })
	if err != nil {
		return nil, 0, fmt.Errorf("a job on each node: %w", err)
	}
	figures = append(figures, nodes/ended.at.Sub(began.at).Seconds(), us(ended.cpu(began, 0))/nodes, us(ended.cpu(began, 1))/nodes)

	var listed []int64
	var size int
	began, ended, err = f.during(func() (err error) { listed, size, err = c.lists(ctx, task{Count: 1}); return err })
	if err != nil {
		return nil, 0, fmt.Errorf("ListUnits: %w", err)
	}
	figures = append(figures, sample(listed).at(50)/1000, float64(size)/(1<<20), us(ended.cpu(began, 0))/nodes)

	l, took, err := f.listen(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("a monitor of everything: %w", err)
	}
	defer l.close()
	var got simAnswer
	var delays sample
	began, ended, err = f.during(func() error {
		if got, err = f.agents.do(simTask{What: "change", Rate: changeRate, For: s.Beats}); err == nil {
			delays, err = l.heard(ctx, got.Done)
		}
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("changes of state: %w", err)
	}
	figures = append(figures, took.Seconds(), us(ended.cpu(began, 0))/float64(got.Done), delays.at(50), delays.at(99))
	return figures, got.Lost, nil
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
