package main

import (
	"context"
	"fmt"
	"time"
)

// way is one of the things that are compared.
type way struct {
	name  string
	on    string // the machine on which the client runs
	kind  string
	nodes []string
}

var one = nodes[:1]

// latency answers: what does one job through ctrl cost, against the same job asked of systemd?
func (b *bed) latency(ctx context.Context, s scale, r *report) error {
	const perRound, warmUp = 10, 3
	ways := []way{
		{"ctrl", "boss", viaCtrl, one},
		{"systemd's bus", "node1", viaBus, one},
		{"systemd's private socket", "node1", viaPrivate, one},
		{"systemd's bus, no agent there", bare, viaBus, one},
	}
	start, stop := make(map[string]sample), make(map[string]sample)
	spent := make(map[string]int64)
	var even, odd sample // of systemd's bus, against itself
	for round := range s.Latency + warmUp {
		for turn := range ways {
			w := ways[(round+turn)%len(ways)]
			from := round * perRound % targets
			before, err := b.spent(w.kind)
			if err != nil {
				return err
			}
			a, err := b.do(w.on, task{Kind: w.kind, What: "jobs", Nodes: w.nodes, From: from, Count: perRound, Window: 1})
			if err != nil {
				return err
			}
			if round < warmUp {
				continue
			}
			start[w.name], stop[w.name] = append(start[w.name], a.Start...), append(stop[w.name], a.Stop...)
			after, err := b.spent(w.kind)
			if err != nil {
				return err
			}
			for name, ns := range after {
				spent[name] += ns - before[name]
			}
			if w.name == ways[1].name {
				if round%2 == 0 {
					even = append(even, a.Start...)
				} else {
					odd = append(odd, a.Start...)
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	t := newTable(fmt.Sprintf("One job of a target, from the call to JobRemoved, in ms; %d of each, %s", s.Latency*perRound, b.mark),
		"start p50", "p99", "÷ bus p50", "÷ bus p99", "stop p50", "stop p99", "stop ÷ bus p50")
	base := ways[1].name
	for _, w := range ways {
		x, y := start[w.name], stop[w.name]
		t.add(w.name, x.at(50), x.at(99), ratio(x.at(50), start[base].at(50)), ratio(x.at(99), start[base].at(99)),
			y.at(50), y.at(99), ratio(y.at(50), stop[base].at(50)))
	}
	t.Note = fmt.Sprintf("Noise: systemd's bus in even rounds ÷ in odd rounds, start: p50 %.2f, p99 %.2f.",
		ratio(even.at(50), odd.at(50)), ratio(even.at(99), odd.at(99)))
	r.print(t)
	b.printSpent(r, spent, float64(2*s.Latency*perRound))
	return nil
}

// watched are the processes whose time is counted while jobs through ctrl run.
var watched = []struct {
	node  string
	units []string
}{{"boss", []string{"dbus.service", "ctrl-manager.service"}}, {"node1", []string{"ctrl-agent.service", "systemd"}}}

func (b *bed) spent(kind string) (map[string]int64, error) {
	if kind != viaCtrl {
		return nil, nil
	}
	all := make(map[string]int64)
	for _, w := range watched {
		a, err := b.do(w.node, task{What: "usage", Argv: w.units})
		if err != nil {
			return nil, err
		}
		for _, u := range a.Usage {
			all[w.node+" "+u.Unit] = u.CPU
		}
	}
	return all, nil
}

func (b *bed) printSpent(r *report, spent map[string]int64, jobs float64) {
	t := newTable("Processor time of one such job through ctrl, "+b.mark, "µs")
	for _, w := range watched {
		for _, unit := range w.units {
			t.add(w.node+" "+unit, float64(spent[w.node+" "+unit])/1000/jobs)
		}
	}
	r.print(t)
}

// bulk answers: how many jobs a second go through?
func (b *bed) bulk(ctx context.Context, s scale, r *report) error {
	const count = 100
	ways := []way{
		{"ctrl, 1 node", "boss", viaCtrl, one},
		{"ctrl, 3 nodes", "boss", viaCtrl, nodes},
		{"systemd's bus, 1 node", "node1", viaBus, one},
	}
	t := newTable(fmt.Sprintf("Jobs a second: start and stop of %d targets on each node, median of %d rounds, %s", count, s.Bulk, b.mark),
		"1 under way", "÷ bus, 1", "10 under way", "÷ bus, 10", "100 under way", "÷ bus, 100")
	rates := make(map[string][]float64)
	for _, window := range []int{1, 10, 100} {
		took := make(map[string]sample)
		for round := range s.Bulk + 1 {
			for turn := range ways {
				w := ways[(round+turn)%len(ways)]
				a, err := b.do(w.on, task{Kind: w.kind, What: "jobs", Nodes: w.nodes, Count: count, Window: window})
				if err != nil {
					return err
				}
				if round > 0 { // the first is warm-up
					took[w.name] = append(took[w.name], a.StartAll+a.StopAll)
				}
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		for _, w := range ways {
			rates[w.name] = append(rates[w.name], float64(2*count*len(w.nodes))*1000/took[w.name].at(50))
		}
	}
	base := rates[ways[2].name]
	for _, w := range ways {
		var values []float64
		for i, rate := range rates[w.name] {
			values = append(values, rate, ratio(rate, base[i]))
		}
		t.add(w.name, values...)
	}
	t.Note = "With 3 nodes what is under way is shared among them."
	r.print(t)
	return nil
}

// idle answers: what do the daemons hold and burn when nothing happens?
func (b *bed) idle(ctx context.Context, s scale, r *report) error {
	var first [][]usage
	look := func() (all [][]usage, err error) {
		for _, w := range watched {
			a, err := b.do(w.node, task{What: "usage", Argv: w.units})
			if err != nil {
				return nil, err
			}
			all = append(all, a.Usage)
		}
		return all, nil
	}
	var err error
	if first, err = look(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.Idle):
	}
	second, err := look()
	if err != nil {
		return err
	}
	t := newTable(fmt.Sprintf("Idle for %v, after all that, 3 nodes, %s", s.Idle, b.mark), "RSS MiB", "ms of CPU in 10 s", "ticks in 10 s")
	for i, w := range watched {
		for k, unit := range w.units {
			before, after := first[i][k], second[i][k]
			per10 := 10 / s.Idle.Seconds()
			t.add(w.node+" "+unit, float64(after.RSS)/(1<<20), ms(after.CPU-before.CPU)*per10, float64(after.Ticks-before.Ticks)*per10)
		}
	}
	r.print(t)
	return nil
}
