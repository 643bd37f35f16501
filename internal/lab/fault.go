package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Freeze stops all processes of a unit with SIGSTOP, past systemd's knowledge, as a hang does:
// its sockets stay open and the kernel goes on to acknowledge what they receive.
func (n *Node) Freeze(ctx context.Context, unit string) error { return n.signalAll(ctx, unit, "STOP") }

// Thaw lets a frozen unit go on.
func (n *Node) Thaw(ctx context.Context, unit string) error { return n.signalAll(ctx, unit, "CONT") }

func (n *Node) signalAll(ctx context.Context, unit, signal string) error {
	_, err := n.Run(ctx, "systemctl", "kill", "--signal="+signal, unit)
	return err
}

// Signal sends a signal to the main process of a service, past systemd: SIGSTOP freezes a
// daemon as a hang would, SIGKILL is a crash.
func (n *Node) Signal(ctx context.Context, unit, signal string) error {
	pid, err := n.MainPID(ctx, unit)
	if err != nil {
		return err
	}
	_, err = n.Run(ctx, "sh", "-c", `kill -s "$1" "$2"`, "sh", strings.TrimPrefix(signal, "SIG"), strconv.Itoa(pid))
	return err
}

// Pause stops the whole node, PID 1 with it, as a virtual machine is paused. Its share of the
// kernel lives on: connections to it are accepted and acknowledged until buffers are full.
func (n *Node) Pause(ctx context.Context) error {
	if err := n.setFreezer("1"); err != nil {
		return err
	}
	events := filepath.Join(n.lab.cgroup, n.Name, "cgroup.events")
	for {
		text, err := os.ReadFile(events)
		if err != nil || strings.Contains(string(text), "frozen 1") {
			return err
		}
		select { // processes stop when they next enter or leave the kernel: within moments
		case <-ctx.Done():
			return fmt.Errorf("node %s does not stop: %w", n.Name, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// Resume lets a paused node go on.
func (n *Node) Resume() error { return n.setFreezer("0") }

func (n *Node) setFreezer(state string) error {
	return os.WriteFile(filepath.Join(n.lab.cgroup, n.Name, "cgroup.freeze"), []byte(state), 0)
}
