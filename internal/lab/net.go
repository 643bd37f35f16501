package lab

import (
	"context"
	"fmt"
	"os"
)

// Each lab has a bridge in a network namespace of its own, and one namespace per node, so
// that nothing touches the host's network and two labs may use the same addresses.

func bridgeSpace(lab string) string     { return "ctrl-lab-" + lab }
func nodeSpace(lab, node string) string { return bridgeSpace(lab) + "+" + node }

// port is the bridge's end of a node's cable. Interface names have at most 15 bytes, so it
// is numbered, not named.
func (n *Node) port() string { return fmt.Sprintf("port%d", n.number) }

func (l *Lab) makeBridge(ctx context.Context) error {
	space := bridgeSpace(l.name)
	for _, argv := range [][]string{
		{"ip", "netns", "add", space},
		{"ip", "-n", space, "link", "add", "br0", "type", "bridge"},
		{"ip", "-n", space, "link", "set", "br0", "up"},
	} {
		if err := run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) plug(ctx context.Context) error {
	bridge, space := bridgeSpace(n.lab.name), nodeSpace(n.lab.name, n.Name)
	for _, argv := range [][]string{
		{"ip", "netns", "add", space},
		{"ip", "-n", bridge, "link", "add", n.port(), "type", "veth", "peer", "name", "eth0", "netns", space},
		{"ip", "-n", bridge, "link", "set", n.port(), "master", "br0", "up"},
		{"ip", "-n", space, "link", "set", "lo", "up"},
		{"ip", "-n", space, "addr", "add", n.Addr + "/16", "dev", "eth0"},
		{"ip", "-n", space, "addr", "add", n.Addr6 + "/64", "dev", "eth0", "nodad"},
		{"ip", "-n", space, "link", "set", "eth0", "up"},
	} {
		if err := run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

// unplug takes the node's cable away; the kernel removes a namespace later than it says.
func (n *Node) unplug(ctx context.Context) {
	run(ctx, "ip", "-n", bridgeSpace(n.lab.name), "link", "del", n.port())
	dropSpaces(ctx, n.lab.name, n.Name)
}

// Cut makes frames to and from the node vanish, as a pulled cable at the far end of a switch
// does: no link goes down, no FIN or ICMP leaves.
func (n *Node) Cut(ctx context.Context) error {
	return run(ctx, "ip", "-n", bridgeSpace(n.lab.name), "link", "set", n.port(), "nomaster")
}

// Heal undoes Cut.
func (n *Node) Heal(ctx context.Context) error {
	return run(ctx, "ip", "-n", bridgeSpace(n.lab.name), "link", "set", n.port(), "master", "br0")
}

// Partition makes packets between two nodes vanish; both still reach the others.
func (n *Node) Partition(ctx context.Context, other *Node) error {
	return n.routes(ctx, other, "add")
}

// Rejoin undoes Partition.
func (n *Node) Rejoin(ctx context.Context, other *Node) error { return n.routes(ctx, other, "del") }

func (n *Node) routes(ctx context.Context, other *Node, verb string) error {
	for _, way := range [][2]*Node{{n, other}, {other, n}} {
		space := nodeSpace(n.lab.name, way[0].Name)
		for _, to := range []string{way[1].Addr + "/32", way[1].Addr6 + "/128"} {
			if err := run(ctx, "ip", "-n", space, "route", verb, "blackhole", to); err != nil {
				return err
			}
		}
	}
	return nil
}

// Netem sets queueing of the kernel's network emulator on the node's link, both ways, with
// the words of tc-netem(8): "delay", "200ms", or "loss", "30%". Without words it removes it.
// Not every kernel has it: the error then says so.
func (n *Node) Netem(ctx context.Context, words ...string) error {
	bridge, space := bridgeSpace(n.lab.name), nodeSpace(n.lab.name, n.Name)
	for _, end := range [][2]string{{bridge, n.port()}, {space, "eth0"}} {
		argv := append([]string{"tc", "-n", end[0], "qdisc", "replace", "dev", end[1], "root", "netem"}, words...)
		if len(words) == 0 {
			argv = []string{"tc", "-n", end[0], "qdisc", "del", "dev", end[1], "root"}
		}
		if err := run(ctx, argv...); err != nil {
			return fmt.Errorf("cannot shape the link of %s: %w", n.Name, err)
		}
	}
	return nil
}

// writeHosts makes all nodes' names known to all nodes. The file is bound into each node, so
// it is written in place.
func (l *Lab) writeHosts() error {
	text := "127.0.0.1 localhost\n::1 localhost\n"
	for _, n := range l.nodes {
		text += n.Addr + " " + n.Name + "\n" + n.Addr6 + " " + n.Name + "-v6\n"
	}
	return os.WriteFile(l.path("hosts"), []byte(text), 0o644)
}
