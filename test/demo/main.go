// Command demo shows the main job to a newcomer: it boots a manager and three nodes in
// namespaces of this machine, starts a unit on one of them and removes everything again.
// With KEEP=1 in the environment it leaves them running and says how to go on.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

const hello = `[Unit]
Description=Says hello, once in a while

[Service]
ExecStart=/bin/sh -c 'while :; do echo "hello from $(hostname)"; sleep 5; done'
`

// greeter needs hello.service of node2, as it would need a unit of its own node.
const greeter = `[Unit]
Description=Greets once hello runs on node2
Requires=ctrl-proxy@node2_hello.service
After=ctrl-proxy@node2_hello.service

[Service]
ExecStart=/bin/sleep infinity
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	keep := os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0"
	if err := demo(ctx, os.Stdout, "demo", keep); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, w io.Writer, labName string, keep bool) error {
	if err := prepare(ctx, w); err != nil {
		return err
	}
	say(w, "Building …")
	if err := fleet.Build(); err != nil {
		return err
	}
	began := time.Now()
	f, err := fleet.New(ctx, fleet.Options{
		Lab: labName, Nodes: []string{"node1", "node2", "node3"}, Joining: true, Keep: keep,
		Units:   map[string]string{"hello.service": hello, "greeter.service": greeter},
		Manager: "[node node1]\nAllowDependenciesOn=node2\n",
	})
	if err != nil {
		return err
	}
	if !keep {
		defer f.Close()
	}
	say(w, "Four machines with a real systemd each came up in %.1f s: a manager on %s, and node1 to node3, which have joined its fleet with tokens.", time.Since(began).Seconds(), fleet.Boss)
	for _, line := range []string{
		"ctl list-nodes",
		"ctl start node1 hello.service",
		"ctl list-units node1 hello.service",
		"ctl status node1 hello.service",
		"ctl stop node1 hello.service",
		"ctl status node1 hello.service",
		// A unit of node1 that needs one of node2.
		"ctl start node1 greeter.service",
		"ctl list-dependencies node1 greeter.service",
		"ctl stop node2 hello.service",
		"ctl list-dependencies node1 greeter.service",
	} {
		if err := show(ctx, w, f, line); err != nil {
			return err
		}
	}
	if keep {
		say(w, "The machines are still running. A shell on %s, where ctl works:\n\n    go run ./test/labctl shell %s %s\n\nand to remove everything:\n\n    go run ./test/labctl destroy %s", fleet.Boss, labName, fleet.Boss, labName)
		return nil
	}
	f.Close()
	say(w, "Everything is removed again. `make demo KEEP=1` leaves the machines running for you.")
	return nil
}

func say(w io.Writer, format string, args ...any) { fmt.Fprintf(w, "\n"+format+"\n", args...) }

// show runs a command on the manager's machine as a user would type it.
func show(ctx context.Context, w io.Writer, f *fleet.Fleet, line string) error {
	fmt.Fprintf(w, "\n%s# %s\n", fleet.Boss, line)
	r, err := f.Boss.Exec(ctx, strings.Fields(line)...)
	if err != nil {
		return err
	}
	fmt.Fprint(w, r.Stdout+r.Stderr)
	if r.Code != 0 && r.Code != 3 { // status of a unit that is not active
		return fmt.Errorf("%s: exit code %d%s", line, r.Code, f.Evidence(ctx))
	}
	return nil
}

// prepare installs what the lab needs, where this is Debian and something is missing.
func prepare(ctx context.Context, w io.Writer) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("the demo needs root, for namespaces and mounts: sudo make demo")
	}
	why := lab.Unavailable()
	if why == "" {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s", why)
	}
	say(w, "Installing what is missing (%s) …", why)
	for _, argv := range [][]string{
		{"apt-get", "update", "-q"},
		{"apt-get", "install", "-q", "-y", "--no-install-recommends", "systemd", "dbus", "dbus-bin", "iproute2", "util-linux"},
	} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	if why := lab.Unavailable(); why != "" {
		return fmt.Errorf("%s", why)
	}
	return nil
}
