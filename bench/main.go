// Command bench measures ctrl on real systemd nodes and prints one table per question.
//
// What is compared is measured in one run, in turns of a few jobs, so that the machine's noise
// hits all alike. Clients run inside the nodes: that of ctrl on the manager's, those of systemd
// on the node whose units are started.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// insideMark is set for the copies of this program that run inside nodes.
const insideMark = "CTRL_BENCH_INSIDE"

// scale is how much is measured.
type scale struct {
	Latency   int           // rounds of one job after the other
	Bulk      int           // rounds of many jobs
	Lists     int           // rounds of lists
	Programs  int           // rounds of ctl and systemctl
	Idle      time.Duration // how long the daemons are watched doing nothing
	Transport time.Duration // of each measurement of the transport
	Monitors  time.Duration // of each load on monitors
	Changes   int           // of state a second in that load
	Fleet     []int         // sizes of simulated fleets
	Beats     time.Duration // how long each of them is watched, several times
}

var (
	full = scale{Latency: 60, Bulk: 4, Lists: 20, Programs: 30, Idle: 10 * time.Second, Transport: 3 * time.Second, Monitors: 60 * time.Second, Changes: 2000,
		Fleet: []int{100, 1000, 5000, 10000}, Beats: 6 * time.Second}
	quick = scale{Latency: 20, Bulk: 1, Lists: 5, Programs: 8, Idle: 3 * time.Second, Transport: time.Second, Monitors: 2 * time.Second, Changes: 1000,
		Fleet: []int{100, 1000}, Beats: 3 * time.Second}
)

// limit ends a run that hangs.
const limit = 20 * time.Minute

func main() {
	if os.Getenv(insideMark) != "" {
		exit(inside(os.Stdin, os.Stdout))
	}
	if args := os.Getenv(monitorMark); args != "" {
		exit(runClients(args, os.Stdin, os.Stdout))
	}
	if os.Getenv(simMark) != "" {
		exit(runSimulation(os.Stdin, os.Stdout))
	}
	only := flag.String("only", "", "answer only the questions of `PART`: transport, jobs, monitors, fleet")
	glance := flag.Bool("quick", false, "fewer repetitions, for a glance")
	file := flag.String("json", "", "write all figures to `FILE`")
	env := flag.String("env", "", "run the daemons with `NAME=VALUE` in their environment, to see what it changes")
	fleet := flag.String("fleet", "", "sizes of simulated fleets, with commas: `NUMBERS` instead of the usual ones")
	flag.StringVar(&profiles, "profile", "", "write profiles of the managers of monitors and fleet to `DIR`; read them with go tool pprof")
	flag.Parse()
	s := full
	if *glance {
		s = quick
	}
	if *fleet != "" {
		sizes, err := parseSizes(*fleet)
		if err != nil {
			exit(err)
		}
		s.Fleet = sizes
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	r := &report{out: os.Stdout}
	err := bench(ctx, s, r, *env, *only)
	cancel()
	stop()
	if *file != "" {
		err = errors.Join(err, r.write(*file))
	}
	exit(err)
}

func parseSizes(list string) (sizes []int, err error) {
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-fleet=%s: write numbers of agents with commas between them", list)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func bench(ctx context.Context, s scale, r *report, env, only string) error {
	noise := startNoise()
	parts := []struct {
		name string
		ask  func() error
	}{
		{"transport", func() error { return transport(ctx, s, r) }},
		{"jobs", func() error { return errors.Join(onFleet(ctx, s, r, true, env), onFleet(ctx, s, r, false, env)) }},
		{"monitors", func() error { return monitors(ctx, s, r) }},
		{"fleet", func() error { return fleetOf(ctx, s, r) }},
	}
	known := only == ""
	for _, p := range parts {
		if only != "" && only != p.name {
			continue
		}
		known = true
		if err := p.ask(); err != nil {
			return err
		}
	}
	if !known {
		return fmt.Errorf("there is no part %q; see -help", only)
	}
	noise.report(r)
	return nil
}

func onFleet(ctx context.Context, s scale, r *report, tls bool, env string) error {
	l, err := bootLab(ctx, tls, env)
	if err != nil {
		return err
	}
	defer l.close()
	questions := []func(context.Context, scale, *report) error{l.latency, l.bulk}
	if tls {
		// What depends on TLS hardly, once.
		questions = append(questions, l.lists, l.programs, l.idle, l.listsCut)
	}
	for _, ask := range questions {
		if err := ask(ctx, s, r); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) write(file string) error {
	data, err := json.MarshalIndent(r.Tables, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
