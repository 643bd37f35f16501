package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

const (
	// bare is a machine without an agent: what systemd takes when nobody else listens to it.
	bare = "bare"
	// targets is how many plain targets every node has.
	targets = 200
)

var nodes = []string{"node1", "node2", "node3"}

// bed is a fleet with a client inside each machine.
type bed struct {
	fleet   *fleet.Fleet
	clients map[string]*helper
	mark    string // in titles
}

func bootLab(ctx context.Context, tls bool, env string) (*bed, error) {
	units := make(map[string]string)
	for i := range targets {
		units[target(i)] = "[Unit]\nDescription=Target of a benchmark\n"
	}
	if env != "" {
		for _, unit := range []string{"ctrl-manager.service", "ctrl-agent.service"} {
			units[unit+".d/bench.conf"] = "[Service]\nEnvironment=" + env + "\n"
		}
	}
	b := &bed{clients: make(map[string]*helper), mark: "TLS=yes"}
	if !tls {
		b.mark = "TLS=no"
	}
	var err error
	if b.fleet, err = fleet.New(ctx, fleet.Options{Lab: "bench", Nodes: nodes, Units: units, Insecure: !tls}); err != nil {
		return nil, err
	}
	if err := b.help(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bed) help(ctx context.Context) error {
	alone, err := b.fleet.Lab.Node(bare)
	if err != nil {
		return err
	}
	if err := alone.Boot(ctx); err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	for _, n := range append(slices.Collect(maps.Values(b.fleet.Nodes)), b.fleet.Boss, alone) {
		if err := n.WriteFile("/run/bench", self, 0o755); err != nil {
			return err
		}
		if b.clients[n.Name], err = startHelper(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) close() {
	for _, h := range b.clients {
		h.close()
	}
	b.fleet.Close()
}

func (b *bed) do(node string, t task) (answer, error) { return b.clients[node].do(t) }

// helper is this program inside a node.
type helper struct {
	node    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	tasks   *json.Encoder
	answers *json.Decoder
	notes   bytes.Buffer
}

func startHelper(ctx context.Context, n *lab.Node) (*helper, error) {
	h := &helper{node: n.Name, cmd: n.Command(ctx, "env", insideMark+"=1", "/run/bench")}
	h.cmd.Stderr = &h.notes
	in, err := h.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.in, h.tasks, h.answers = in, json.NewEncoder(in), json.NewDecoder(out)
	return h, h.cmd.Start()
}

func (h *helper) do(t task) (a answer, err error) {
	if err = h.tasks.Encode(t); err == nil {
		err = h.answers.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		err = fmt.Errorf("%s %s on %s: %w", t.Kind, t.What, h.node, err)
	}
	return a, err
}

func (h *helper) close() {
	h.in.Close()
	h.cmd.Wait()
}
