// Command bundlenode is the agent's half of workloads alone, for tests on real systemd: it
// does one thing, tells the result as JSON, and can be killed at any step.
//
//	bundlenode [-kill N | -hang N] recover|apply|plan|delete|rollback|list
//	bundlenode argv FILE ARGUMENT…
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/delivery"
	"example.org/ctrl/internal/nodefiles"
	"example.org/ctrl/internal/systemd"
	"example.org/ctrl/internal/wire"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "argv" {
		must(argv(os.Args[2], os.Args[3:]))
		return
	}
	kill := flag.Int("kill", 0, "fault point at which to die")
	hang := flag.Int("hang", 0, "fault point at which to stand still")
	flag.Parse()
	n := &node{events: make(chan bundle.Event, 1<<16), up: make(chan struct{}, 1)}
	points := 0
	n.fault = func(bool, bundle.Step) {
		switch points++; points {
		case *kill:
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case *hang:
			os.WriteFile("/run/bundlenode.hangs", nil, 0o600)
			select {}
		}
	}
	must(n.run(flag.Arg(0)))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// argv appends its arguments to a file.
func argv(file string, args []string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	raw := make([][]byte, len(args))
	for i, a := range args {
		raw[i] = []byte(a)
	}
	if err := json.NewEncoder(f).Encode(raw); err != nil {
		return err
	}
	return f.Close()
}

type node struct {
	d      *delivery.Delivery
	fault  func(bool, bundle.Step)
	events chan bundle.Event
	up     chan struct{}
}

func (n *node) run(what string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	local := systemd.New(systemd.Options{}, log)
	n.d = delivery.New(delivery.Options{
		Layout: bundle.SystemLayout, UnitPath: nodefiles.SystemUnitPath, State: "/var/lib/ctrl", FilePaths: []string{"/etc/ctrl-files"},
		Systemd: local, Tell: n.tell, Log: log, Fault: n.fault,
	})
	go local.Run(ctx, n)
	select {
	case <-n.up:
	case <-ctx.Done():
		return ctx.Err()
	}
	go n.d.Run(ctx)
	answer, err := n.ask(ctx, what)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func (n *node) tell(member, text string) {
	var e bundle.Event
	if member == wire.MemberBundleProgress && json.Unmarshal([]byte(text), &e) == nil && e.Done {
		n.events <- e
	}
}

// ask asks for one thing and waits for what it comes to.
func (n *node) ask(ctx context.Context, what string) (any, error) {
	req := bundle.Request{ID: 1, Workload: "web"}
	queue := map[string]func(bundle.Request, func(error)){"apply": n.d.Engine.Apply, "delete": n.d.Engine.Delete, "rollback": n.d.Engine.Rollback}[what]
	if what == "apply" {
		if err := n.upload(&req); err != nil {
			return nil, err
		}
	}
	if queue == nil {
		return n.list(ctx)
	}
	refused := make(chan error, 1)
	queue(req, func(err error) { refused <- err })
	if err := <-refused; err != nil {
		return nil, err
	}
	select {
	case e := <-n.events:
		return e.Result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// input is a package with the options that it is to be applied with.
type input struct {
	Package bundle.Package
	Options bundle.Options
}

func (n *node) upload(req *bundle.Request) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var in input
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	data := in.Package.Encode()
	req.Package, req.Options = bundle.Sum(data), in.Options
	failed := make(chan error, 1)
	n.d.Engine.Upload(req.Package, uint64(len(data)), 0, data, func(_ uint64, err error) { failed <- err })
	return <-failed
}

// list waits until nothing is under way.
func (n *node) list(ctx context.Context) (any, error) {
	for ctx.Err() == nil {
		type answer struct {
			l   bundle.Listing
			err error
		}
		got := make(chan answer, 1)
		n.d.Engine.List(func(l bundle.Listing, err error) { got <- answer{l, err} })
		a := <-got
		busy := false
		for _, w := range a.l.Workloads {
			busy = busy || w.Busy
		}
		if a.err != nil || !busy {
			return a.l, a.err
		}
	}
	return nil, ctx.Err()
}

var up atomic.Bool

// SystemdUp implements systemd.Core.
func (n *node) SystemdUp(map[string]wire.Value) {
	n.d.SystemdUp()
	if up.CompareAndSwap(false, true) {
		n.up <- struct{}{}
	}
}

// SystemdJobRemoved implements systemd.Core.
func (n *node) SystemdJobRemoved(job uint32, _, result string) { n.d.SystemdJobRemoved(job, result) }

// What else systemd says is nothing here.

func (n *node) SystemdDown(error)                                        {}
func (n *node) SystemdJobState(uint32, string)                           {}
func (n *node) SystemdUnitNew(string)                                    {}
func (n *node) SystemdUnitRemoved(string)                                {}
func (n *node) SystemdUnitChanged(string, string, map[string]wire.Value) {}
func (n *node) SystemdReloaded()                                         {}
