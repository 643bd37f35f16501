package lab

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Open finds a lab that another process made, with its nodes.
func Open(name string) (*Lab, error) {
	if !validLabName(name) {
		return nil, fmt.Errorf("there is no lab %q", name)
	}
	l, err := locate(name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(l.path("nodes"))
	if err != nil {
		return nil, fmt.Errorf("there is no lab %q: %w", name, err)
	}
	for _, e := range entries {
		nodeName, err := os.ReadFile(l.path("nodes", e.Name(), "name"))
		number, convErr := strconv.Atoi(e.Name())
		if err != nil || convErr != nil {
			continue // it is being made just now
		}
		n := l.newNode(string(nodeName), number)
		n.pid.Store(int64(n.livePID()))
		l.nodes = append(l.nodes, n)
	}
	slices.SortFunc(l.nodes, func(a, b *Node) int { return cmp.Compare(a.number, b.number) })
	return l, nil
}

// NodesOf finds the nodes of a lab that some other process made.
func NodesOf(name string) ([]*Node, error) {
	l, err := Open(name)
	if err != nil {
		return nil, err
	}
	return l.Nodes(), nil
}

// Find finds one node of a lab that some other process made.
func Find(labName, nodeName string) (*Node, error) {
	l, err := Open(labName)
	if err != nil {
		return nil, err
	}
	for _, n := range l.nodes {
		if n.Name == nodeName {
			return n, nil
		}
	}
	return nil, fmt.Errorf("lab %s has no node %q", labName, nodeName)
}

// livePID is the node's PID 1 where it still runs. A number may have gone to another process
// since; the network namespace has not.
func (n *Node) livePID() int {
	text, err := os.ReadFile(filepath.Join(n.dir, "pid"))
	pid, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || convErr != nil {
		return 0
	}
	mine, err := os.Stat("/run/netns/" + nodeSpace(n.lab.name, n.Name))
	if err != nil {
		return 0
	}
	its, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/ns/net")
	if err != nil || !os.SameFile(mine, its) {
		return 0
	}
	return pid
}
