package main

import (
	"context"
	"fmt"
)

// lists answers: what does a list of units cost, against systemd's own?
func (b *bed) lists(ctx context.Context, s scale, r *report) error {
	const perRound = 5
	ways := []way{
		{"systemd's bus, 1 node", "node1", viaBus, one},
		{"ctrl, 1 node", "boss", viaCtrl, one},
		{"ctrl, 3 nodes", "boss", viaCtrl, nodes},
	}
	took, size := make(map[string]sample), make(map[string]int)
	for round := range s.Lists + 1 {
		for turn := range ways {
			w := ways[(round+turn)%len(ways)]
			a, err := b.do(w.on, task{Kind: w.kind, What: "list", Nodes: w.nodes, Count: perRound})
			if err != nil {
				return err
			}
			size[w.name] = a.Size
			if round > 0 { // the first is warm-up
				took[w.name] = append(took[w.name], a.Start...)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	t := newTable(fmt.Sprintf("ListUnits, in ms; %d of each, %s", s.Lists*perRound, b.mark), "p50", "p99", "÷ bus p50", "÷ bus p99", "KiB")
	base := took[ways[0].name]
	for _, w := range ways {
		x := took[w.name]
		t.add(w.name, x.at(50), x.at(99), ratio(x.at(50), base.at(50)), ratio(x.at(99), base.at(99)), float64(size[w.name])/1024)
	}
	r.print(t)
	return nil
}

// listsCut answers: what does a list cost when a node has just been cut off, and later?
func (b *bed) listsCut(ctx context.Context, s scale, r *report) error {
	if err := b.fleet.Nodes["node2"].Cut(ctx); err != nil {
		return err
	}
	list := task{Kind: viaCtrl, What: "list", Nodes: nodes, Count: 1}
	first, err := b.do("boss", list)
	if err != nil {
		return err
	}
	if err := b.fleet.WaitOnline(ctx, "node2", false); err != nil {
		return err
	}
	later, err := b.do("boss", list)
	if err != nil {
		return err
	}
	t := newTable("ListUnits of 3 nodes, one of them cut off, in ms, "+b.mark, "ms", "KiB")
	t.add("just cut (QueryTimeout= is 2 s)", sample(first.Start).at(50), float64(first.Size)/1024)
	t.add("known to be offline", sample(later.Start).at(50), float64(later.Size)/1024)
	r.print(t)
	return nil
}

// programs answers: how long does one command take, from its start to its end?
func (b *bed) programs(ctx context.Context, s scale, r *report) error {
	commands := []struct {
		name string
		on   string
		argv []string
	}{
		{"ctl --help", "boss", []string{"/usr/bin/ctl", "--help"}},
		{"ctl version", "boss", []string{"/usr/bin/ctl", "version"}},
		{"ctl list-units, 3 nodes", "boss", []string{"/usr/bin/ctl", "list-units"}},
		{"systemctl --version", "node1", []string{"/usr/bin/systemctl", "--version"}},
		{"systemctl list-units", "node1", []string{"/usr/bin/systemctl", "list-units", "--no-pager"}},
		{"true", "boss", []string{"/bin/true"}},
	}
	took := make(map[string]sample)
	for round := range s.Programs + 1 {
		for turn := range commands {
			c := commands[(round+turn)%len(commands)]
			a, err := b.do(c.on, task{What: "program", Argv: c.argv, Count: 1})
			if err != nil {
				return err
			}
			if round > 0 { // the first is warm-up
				took[c.name] = append(took[c.name], a.Start...)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	t := newTable(fmt.Sprintf("Commands, from start to end, in ms; %d of each, %s", s.Programs, b.mark), "p50", "p99")
	for _, c := range commands {
		t.add(c.name, took[c.name].at(50), took[c.name].at(99))
	}
	r.print(t)
	return nil
}
