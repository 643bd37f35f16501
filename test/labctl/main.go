// Command labctl looks after the labs of this machine: real systemd nodes in namespaces.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"example.org/ctrl/internal/lab"
)

const usage = `usage: labctl COMMAND

  list                      the labs of this machine and their nodes
  create LAB NODE...        boot bare nodes that stay until they are removed
  exec LAB NODE CMD...      run a command on a node
  shell LAB NODE            a shell on a node
  cut LAB NODE              make all frames to and from a node vanish
  heal LAB NODE             undo cut
  kill LAB NODE             switch a node's power off
  remove LAB                end all nodes of a lab and remove it

example: labctl create try a b && labctl shell try a
`

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch {
	case command == "list" && len(args) == 1:
		return list()
	case command == "create" && len(args) > 2:
		l, err := lab.New(ctx, lab.Options{Name: args[1], Keep: true})
		if err != nil {
			return err
		}
		if _, err = l.Boot(ctx, args[2:]...); err != nil {
			l.Close()
		}
		return err
	case command == "remove" && len(args) == 2:
		lab.Remove(args[1])
		return nil
	case len(args) >= 3:
		return onNode(ctx, command, args[1], args[2], args[3:])
	}
	fmt.Fprint(os.Stderr, usage)
	os.Exit(2)
	return nil
}

func list() error {
	for _, name := range lab.Labs() {
		nodes, err := lab.NodesOf(name)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			state := "off"
			if n.PID() != 0 {
				state = fmt.Sprint("pid ", n.PID())
			}
			fmt.Printf("%s  %s  %s  %s\n", name, n.Name, n.Addr, state)
		}
	}
	return nil
}

func onNode(ctx context.Context, command, labName, nodeName string, argv []string) error {
	n, err := lab.Find(labName, nodeName)
	if err != nil {
		return err
	}
	switch command {
	case "cut":
		return n.Cut(ctx)
	case "heal":
		return n.Heal(ctx)
	case "kill":
		return n.Kill(ctx)
	case "shell":
		argv = []string{"bash", "-l"}
	case "exec":
		if len(argv) == 0 {
			return fmt.Errorf("exec needs a command")
		}
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	cmd := n.Command(ctx, argv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if term := os.Getenv("TERM"); term != "" && command == "shell" {
		cmd.Args = append(cmd.Args[:len(cmd.Args)-len(argv)], append([]string{"env", "TERM=" + term}, argv...)...)
	}
	err = cmd.Run()
	if exit, ok := err.(*exec.ExitError); ok {
		os.Exit(exit.ExitCode())
	}
	return err
}
