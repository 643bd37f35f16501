package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Command prepares a program to run inside the node. It runs outside of every unit, as root
// and in a process group of its own, which ends with ctx.
func (n *Node) Command(ctx context.Context, argv ...string) *exec.Cmd {
	args := append([]string{"-t", strconv.Itoa(n.PID()), "-a", "--", "env", "-i",
		nodePath, "HOME=/root", "LANG=C.UTF-8", "TERM=dumb"}, argv...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // nsenter and its child
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Result is what a program in a node did.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Exec runs a program inside the node. err is for what kept it from running; a program that
// fails is a Result with its exit code.
func (n *Node) Exec(ctx context.Context, argv ...string) (Result, error) {
	return n.ExecInput(ctx, "", argv...)
}

// ExecInput is Exec with something on the program's stdin.
func (n *Node) ExecInput(ctx context.Context, stdin string, argv ...string) (Result, error) {
	if n.PID() == 0 {
		return Result{}, fmt.Errorf("node %s is switched off", n.Name)
	}
	cmd := n.Command(ctx, argv...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	r := Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return r, nil
	}
	return r, err
}

// Run is Exec for programs that must succeed; it returns what was printed on stdout.
func (n *Node) Run(ctx context.Context, argv ...string) (string, error) {
	r, err := n.Exec(ctx, argv...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("exit status %d", r.Code)
	}
	if err != nil {
		return r.Stdout, fmt.Errorf("%s: %s: %w: %s", n.Name, strings.Join(argv, " "), err, strings.TrimSpace(r.Stderr+r.Stdout))
	}
	return r.Stdout, nil
}

// Journal is what the node's journal has of a unit, or all of it for "".
func (n *Node) Journal(ctx context.Context, unit string) string {
	argv := []string{"journalctl", "--no-pager", "-q", "-o", "short-precise"}
	if unit != "" {
		argv = append(argv, "-u", unit)
	}
	r, err := n.Exec(ctx, argv...)
	if err != nil {
		return "no journal: " + err.Error()
	}
	return r.Stdout + r.Stderr
}

// MainPID is the main process of a service as the node numbers it.
func (n *Node) MainPID(ctx context.Context, unit string) (int, error) {
	out, err := n.Run(ctx, "systemctl", "show", "-P", "MainPID", unit)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err == nil && pid == 0 {
		err = fmt.Errorf("%s: %s has no main process", n.Name, unit)
	}
	return pid, err
}
