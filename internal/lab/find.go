package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// NodesOf finds the nodes of a lab that some other process made.
func NodesOf(name string) ([]*Node, error) {
	l := &Lab{name: name, dir: filepath.Join(root, name)}
	entries, err := os.ReadDir(l.path("nodes"))
	if err != nil {
		return nil, fmt.Errorf("there is no lab %q: %w", name, err)
	}
	var nodes []*Node
	for _, e := range entries {
		n := &Node{lab: l, dir: l.path("nodes", e.Name())}
		name, err := os.ReadFile(filepath.Join(n.dir, "name"))
		if err != nil {
			return nil, err
		}
		n.Name = string(name)
		if n.number, err = strconv.Atoi(e.Name()); err != nil {
			return nil, err
		}
		n.Addr, n.Addr6 = addresses(n.number)
		n.pid = n.livePID()
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// livePID is the node's PID 1 where it still runs.
func (n *Node) livePID() int {
	text, err := os.ReadFile(filepath.Join(n.dir, "pid"))
	pid, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || convErr != nil || syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

// Find finds one node of a lab that some other process made.
func Find(labName, nodeName string) (*Node, error) {
	nodes, err := NodesOf(labName)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Name == nodeName {
			return n, nil
		}
	}
	return nil, fmt.Errorf("lab %s has no node %q", labName, nodeName)
}

// gone waits until the node's PID 1 is no more; another process started it.
func (n *Node) gone(ctx context.Context, pid int) error {
	for syscall.Kill(pid, 0) == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
