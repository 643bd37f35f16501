// Command bench measures ctrl on real systemd nodes and prints one table per question.
//
// What is compared is measured in one run, in turns, so that the machine's noise hits all
// alike. Clients run inside the nodes: that of ctrl on the manager's, that of systemd on the
// node whose units are started.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

const insideTask = "CTRL_BENCH_TASK"

func main() {
	if text := os.Getenv(insideTask); text != "" {
		exit(inside(text, os.Stdout))
	}
	quick := flag.Bool("quick", false, "fewer repetitions, for a glance")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(bench(ctx, *quick))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func bench(ctx context.Context, quick bool) error {
	rounds, perRound := 8, 25
	if quick {
		rounds = 2
	}
	units := make(map[string]string)
	for i := range rounds*perRound + perRound {
		units[target(i)] = "[Unit]\nDescription=Target of a benchmark\n"
	}
	for _, insecure := range []bool{false, true} {
		if err := onFleet(ctx, insecure, units, rounds, perRound); err != nil {
			return err
		}
	}
	return nil
}

func onFleet(ctx context.Context, insecure bool, units map[string]string, rounds, perRound int) error {
	f, err := fleet.New(ctx, fleet.Options{Lab: "bench", Nodes: []string{"node1", "node2", "node3"}, Units: units, Insecure: insecure})
	if err != nil {
		return err
	}
	defer f.Close()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, n := range []*lab.Node{f.Boss, f.Nodes["node1"]} {
		if err := n.WriteFile("/run/bench", self, 0o755); err != nil {
			return err
		}
	}
	fmt.Printf("\nTLS between manager and agents: %v\n", !insecure)
	if err := jobs(ctx, f, rounds, perRound); err != nil {
		return err
	}
	if err := lists(ctx, f); err != nil {
		return err
	}
	return memory(ctx, f)
}

// sample is what one kind of measurement gave.
type sample []int64

func (s sample) at(percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return time.Duration(sorted[min(len(sorted)*percent/100, len(sorted)-1)])
}

func measure(ctx context.Context, n *lab.Node, t task) (sample, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	cmd := n.Command(ctx, "env", insideTask+"="+string(text), "/run/bench")
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s of %s on %s: %w: %s", t.What, t.Service, n.Name, err, notes.String())
	}
	var s sample
	return s, json.Unmarshal(out.Bytes(), &s)
}

// jobs answers: what does one job through ctrl cost, compared with the same job asked of
// systemd's own bus on that node?
func jobs(ctx context.Context, f *fleet.Fleet, rounds, perRound int) error {
	took := make(map[string]sample)
	for round := range rounds + 1 { // the first is warm-up
		from := round * perRound
		for _, way := range []string{"ctrl", "systemd"} {
			on := map[string]*lab.Node{"ctrl": f.Boss, "systemd": f.Nodes["node1"]}[way]
			for _, what := range []string{"start", "stop"} {
				s, err := measure(ctx, on, task{way, what, from, perRound})
				if err != nil {
					return err
				}
				if round > 0 {
					took[way+" "+what] = append(took[way+" "+what], s...)
				}
			}
		}
	}
	fmt.Printf("\nOne job, from the call to JobRemoved (%d targets each)\n%-8s%12s%12s%12s%12s%12s%12s\n", rounds*perRound,
		"", "ctrl p50", "ctrl p99", "bus p50", "bus p99", "ratio p50", "ratio p99")
	for _, what := range []string{"start", "stop"} {
		ours, theirs := took["ctrl "+what], took["systemd "+what]
		fmt.Printf("%-8s%12v%12v%12v%12v%12.2f%12.2f\n", what, round(ours.at(50)), round(ours.at(99)), round(theirs.at(50)), round(theirs.at(99)),
			ratio(ours.at(50), theirs.at(50)), ratio(ours.at(99), theirs.at(99)))
	}
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
func ratio(a, b time.Duration) float64    { return float64(a) / float64(b) }

// lists answers: what does a list of the fleet cost, and what does it cost when a node is
// cut off?
func lists(ctx context.Context, f *fleet.Fleet) error {
	const count = 30
	if _, err := measure(ctx, f.Boss, task{"ctrl", "list", 0, 5}); err != nil {
		return err
	}
	ours, err := measure(ctx, f.Boss, task{"ctrl", "list", 0, count})
	if err != nil {
		return err
	}
	theirs, err := measure(ctx, f.Nodes["node1"], task{"systemd", "list", 0, count})
	if err != nil {
		return err
	}
	if err := f.Nodes["node2"].Cut(ctx); err != nil {
		return err
	}
	cut, err := measure(ctx, f.Boss, task{"ctrl", "list", 0, 1})
	if err != nil {
		return err
	}
	if err := f.Nodes["node2"].Heal(ctx); err != nil {
		return err
	}
	fmt.Printf("\nListUnits (p50 of %d)\n", count)
	fmt.Printf("  of three nodes through ctrl   %v\n", round(ours.at(50)))
	fmt.Printf("  of one node by systemd        %v\n", round(theirs.at(50)))
	fmt.Printf("  ratio                         %.2f\n", ratio(ours.at(50), theirs.at(50)))
	fmt.Printf("  of three nodes, one just cut  %v\n", round(cut.at(50)))
	return nil
}

// memory answers: what do the daemons hold?
func memory(ctx context.Context, f *fleet.Fleet) error {
	fmt.Printf("\nResident memory after that\n")
	for _, p := range []struct {
		node *lab.Node
		unit string
	}{{f.Boss, "ctrl-manager"}, {f.Nodes["node1"], "ctrl-agent"}} {
		out, err := p.node.Run(ctx, "sh", "-c", "awk '/VmRSS/ {print $2/1024 \" MiB\"}' /proc/$(systemctl show -P MainPID "+p.unit+")/status")
		if err != nil {
			return err
		}
		fmt.Printf("  %-13s %s", p.unit, out)
	}
	return nil
}
