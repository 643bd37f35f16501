// Command labctl looks after the labs of this machine: real systemd nodes in namespaces.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"example.org/ctrl/internal/lab"
)

const usage = `usage: labctl COMMAND

  check                      say whether labs can run here; with CI=true it is an error if not
  list                       the labs of this machine and their nodes
  create LAB NODE...         boot bare nodes that stay until they are destroyed
  boot LAB NODE...           switch nodes on again, or add new ones
  exec LAB NODE CMD...       run a command on a node
  shell LAB NODE             a shell on a node
  cut LAB NODE               make all frames to and from a node vanish
  heal LAB NODE              undo cut
  part LAB NODE NODE         make all frames between two nodes vanish
  rejoin LAB NODE NODE       undo part
  shape LAB NODE [delay=200ms] [jitter=50ms] [loss=0.1] [rate=100000]
                             make the link of a node bad, both ways, until Ctrl-C; rate is in bytes/s
  pause LAB NODE             stop everything on a node, as a virtual machine is paused
  resume LAB NODE            undo pause
  kill LAB NODE              switch a node's power off
  destroy LAB                end all nodes of a lab and remove it

example: labctl create try a b && labctl shell try a
`

var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Stdout, os.Args[1:])
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	command, args := args[0], args[1:]
	switch {
	case command == "check" && len(args) == 0:
		return check(w)
	case command == "list" && len(args) == 0:
		return list(w)
	case command == "create" && len(args) > 1:
		return create(ctx, args[0], args[1:])
	case command == "boot" && len(args) > 1:
		return boot(ctx, args[0], args[1:])
	case (command == "destroy" || command == "remove") && len(args) == 1:
		return destroy(args[0])
	case len(args) >= 2:
		n, err := lab.Find(args[0], args[1])
		if err != nil {
			return err
		}
		return onNode(ctx, w, command, n, args[0], args[2:])
	}
	return errUsage
}

func check(w io.Writer) error {
	why := lab.Unavailable()
	if why == "" {
		return nil
	}
	if os.Getenv("CI") == "true" {
		return errors.New(why)
	}
	fmt.Fprintln(w, "left out: all tests on real systemd nodes (internal/lab, internal/systemd, internal/agentd, test/demo, test/e2e, test/labctl):", why)
	return nil
}

func list(w io.Writer) error {
	for _, name := range lab.Labs() {
		nodes, err := lab.NodesOf(name)
		if err != nil {
			fmt.Fprintf(w, "%s  -  -  only remains\n", name)
			continue
		}
		for _, n := range nodes {
			state := "off"
			if n.PID() != 0 {
				state = fmt.Sprint("pid ", n.PID())
			}
			fmt.Fprintf(w, "%s  %s  %s  %s\n", name, n.Name, n.Addr, state)
		}
	}
	return nil
}

func create(ctx context.Context, name string, nodes []string) error {
	began := time.Now()
	l, err := lab.New(ctx, lab.Options{Name: name, Keep: true})
	if err != nil {
		return err
	}
	if _, err = l.Boot(ctx, nodes...); err != nil {
		l.Close()
		return err
	}
	fmt.Fprintf(os.Stderr, "%d nodes are up after %.2f s\n", len(nodes), time.Since(began).Seconds())
	return nil
}

func boot(ctx context.Context, name string, names []string) error {
	l, err := lab.Open(name)
	if err != nil {
		return err
	}
	var nodes []*lab.Node
	for _, nodeName := range names {
		n, err := lab.Find(name, nodeName)
		if err != nil {
			n, err = l.Node(nodeName)
		}
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	return lab.BootAll(ctx, nodes...)
}

func destroy(name string) error {
	for _, have := range lab.Labs() {
		if have == name {
			lab.Remove(name)
			return nil
		}
	}
	return fmt.Errorf("there is no lab %q", name)
}

func onNode(ctx context.Context, w io.Writer, command string, n *lab.Node, labName string, rest []string) error {
	switch {
	case command == "cut" && len(rest) == 0:
		return n.Cut(ctx)
	case command == "heal" && len(rest) == 0:
		return n.Heal(ctx)
	case command == "pause" && len(rest) == 0:
		return n.Pause(ctx)
	case command == "resume" && len(rest) == 0:
		return n.Resume()
	case command == "kill" && len(rest) == 0:
		return n.Kill(ctx)
	case (command == "part" || command == "rejoin") && len(rest) == 1:
		other, err := lab.Find(labName, rest[0])
		if err != nil {
			return err
		}
		if command == "part" {
			return n.Partition(ctx, other)
		}
		return n.Rejoin(ctx, other)
	case command == "shape" && len(rest) > 0:
		return shape(ctx, n, rest)
	case command == "shell" && len(rest) == 0:
		term := os.Getenv("TERM")
		if term == "" {
			term = "dumb"
		}
		return attach(ctx, w, n, "env", "TERM="+term, "bash", "-l")
	case command == "exec" && len(rest) > 0:
		return attach(ctx, w, n, rest...)
	}
	return errUsage
}

// attach runs a program on a node with this one's terminal: in its process group, so that it
// may read from it, and gets the Ctrl-C that is typed there.
func attach(ctx context.Context, w io.Writer, n *lab.Node, argv ...string) error {
	if n.PID() == 0 {
		return fmt.Errorf("node %s is switched off", n.Name)
	}
	cmd := n.Command(context.WithoutCancel(ctx), argv...)
	cmd.SysProcAttr, cmd.Cancel = nil, nil
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, w, os.Stderr
	return cmd.Run()
}

func shape(ctx context.Context, n *lab.Node, words []string) error {
	var link lab.Link
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "delay":
			link.Delay, err = time.ParseDuration(value)
		case "jitter":
			link.Jitter, err = time.ParseDuration(value)
		case "loss":
			link.Loss, err = strconv.ParseFloat(value, 64)
		case "rate":
			link.Rate, err = strconv.Atoi(value)
		default:
			return errUsage
		}
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	if err := n.Shape(ctx, link); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "the link is as you wish until Ctrl-C")
	<-ctx.Done()
	return n.Shape(context.WithoutCancel(ctx), lab.Link{})
}
