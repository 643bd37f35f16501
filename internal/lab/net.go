package lab

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Each lab has a bridge in a network namespace of its own, and one namespace per node, so
// that nothing touches the host's network and two labs may use the same addresses.

func bridgeSpace(lab string) string     { return prefix + lab }
func nodeSpace(lab, node string) string { return bridgeSpace(lab) + "+" + node }

// Outside is the address that the lab's own network namespace has on its network: a machine
// that is no node, which is where Dial comes from.
const Outside = "10.88.0.1"

// addresses are those of the node with that number on its lab's network.
func addresses(number int) (v4, v6 string) {
	return fmt.Sprintf("10.88.%d.%d", number/250, number%250+2), fmt.Sprintf("fd88::%x", number+1)
}

// port is the bridge's end of a node's cable. Interface names have at most 15 bytes, so it
// is numbered, not named.
func (n *Node) port() string { return fmt.Sprintf("port%d", n.number) }

// hardware is the same after each boot, as a real machine's: others remember it.
func (n *Node) hardware() string {
	return fmt.Sprintf("02:88:00:00:%02x:%02x", n.number>>8, n.number&0xff)
}

// ip runs commands of ip(8) in a network namespace, all in one process.
func ip(ctx context.Context, space string, lines ...string) error {
	return runInput(ctx, strings.Join(lines, "\n")+"\n", "ip", "-n", space, "-batch", "-")
}

func (l *Lab) makeBridge(ctx context.Context) error {
	space := bridgeSpace(l.name)
	if err := run(ctx, "ip", "netns", "add", space); err != nil {
		return err
	}
	return ip(ctx, space,
		"link set lo up",
		"link add br0 type bridge",
		// Else it takes that of a port, and would receive what a cut port's node sends it.
		"link set br0 address 02:88:00:ff:ff:ff",
		"addr add "+Outside+"/16 dev br0",
		"addr add fd88::1/64 dev br0 nodad",
		"link set br0 up")
}

func (n *Node) plug(ctx context.Context) error {
	space := nodeSpace(n.lab.name, n.Name)
	if err := run(ctx, "ip", "netns", "add", space); err != nil {
		return err
	}
	if err := ip(ctx, bridgeSpace(n.lab.name),
		"link add "+n.port()+" type veth peer name eth0 netns "+space+" address "+n.hardware(),
		silent(n.port()),
		n.join(n.port())); err != nil {
		return err
	}
	if err := ip(ctx, space,
		"link set lo up",
		"addr add "+n.Addr+"/16 dev eth0",
		"addr add "+n.Addr6+"/64 dev eth0 nodad",
		"link set eth0 up"); err != nil {
		return err
	}
	return n.partAgain(ctx)
}

// silent keeps an interface on the bridge's side from saying anything of its own.
func silent(name string) string { return "link set " + name + " arp off addrgenmode none up" }

// join puts an interface on the bridge, unless the node is cut.
func (n *Node) join(name string) string {
	if n.cut.Load() {
		return "link set " + name + " nomaster"
	}
	return "link set " + name + " master br0"
}

// unplug takes the node's cable away; the kernel removes a namespace later than it says.
func (n *Node) unplug(ctx context.Context) {
	n.unshape()
	run(ctx, "ip", "-n", bridgeSpace(n.lab.name), "link", "del", n.port())
	dropSpaces(ctx, n.lab.name, n.Name)
}

// Cut makes frames to and from the node vanish, as a pulled cable at the far end of a switch
// does: no link goes down, no FIN or ICMP leaves. It stays cut when it boots again.
func (n *Node) Cut(ctx context.Context) error {
	n.cut.Store(true)
	return n.detach(ctx)
}

func (n *Node) detach(ctx context.Context) error {
	return run(ctx, "ip", "-n", bridgeSpace(n.lab.name), "link", "set", n.upstream(ctx), "nomaster")
}

// Heal undoes Cut.
func (n *Node) Heal(ctx context.Context) error {
	n.cut.Store(false)
	return run(ctx, "ip", "-n", bridgeSpace(n.lab.name), "link", "set", n.upstream(ctx), "master", "br0")
}

// upstream is the interface by which the node is on the bridge.
func (n *Node) upstream(ctx context.Context) string {
	if run(ctx, "ip", "-n", bridgeSpace(n.lab.name), "link", "show", n.far()) == nil {
		return n.far()
	}
	return n.port()
}

// Partition makes packets between two nodes vanish; both still reach the others. It stays so
// when one of them boots again.
func (n *Node) Partition(ctx context.Context, other *Node) error {
	n.lab.mu.Lock()
	n.lab.apart[[2]string{n.Name, other.Name}] = true
	n.lab.mu.Unlock()
	return n.part(ctx, other)
}

// Rejoin undoes Partition.
func (n *Node) Rejoin(ctx context.Context, other *Node) error {
	n.lab.mu.Lock()
	delete(n.lab.apart, [2]string{n.Name, other.Name})
	delete(n.lab.apart, [2]string{other.Name, n.Name})
	n.lab.mu.Unlock()
	return n.neighbours(ctx, other, func(addr string) string { return "neigh del " + addr + " dev eth0" })
}

// part gives each of the two a hardware address of the other that nobody has: frames leave
// and reach nobody, and no program gets an error that a real partition does not give.
func (n *Node) part(ctx context.Context, other *Node) error {
	return n.neighbours(ctx, other, func(addr string) string {
		return "neigh replace " + addr + " lladdr 02:00:00:00:00:00 dev eth0 nud permanent"
	})
}

func (n *Node) neighbours(ctx context.Context, other *Node, line func(addr string) string) error {
	for _, way := range [][2]*Node{{n, other}, {other, n}} {
		space := nodeSpace(n.lab.name, way[0].Name)
		if _, err := os.Stat("/run/netns/" + space); err != nil {
			continue // it is off
		}
		if err := ip(ctx, space, line(way[1].Addr), line(way[1].Addr6)); err != nil {
			return err
		}
	}
	return nil
}

// partAgain parts a node that boots from those that it was parted from.
func (n *Node) partAgain(ctx context.Context) error {
	n.lab.mu.Lock()
	apart, nodes := maps.Clone(n.lab.apart), n.lab.nodes
	n.lab.mu.Unlock()
	for _, other := range nodes {
		if apart[[2]string{n.Name, other.Name}] || apart[[2]string{other.Name, n.Name}] {
			if err := n.part(ctx, other); err != nil {
				return err
			}
		}
	}
	return nil
}

// Dial connects to an address of the lab's network from outside of all nodes.
func (l *Lab) Dial(ctx context.Context, network, address string) (nc net.Conn, err error) {
	inErr := inSpace(bridgeSpace(l.name), func() error {
		nc, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return nc, inErr
}

// Command prepares a program of this machine to run on the lab's network, outside of all
// nodes.
func (l *Lab) Command(ctx context.Context, argv ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + bridgeSpace(l.name), "--"}, argv...)...)
}

// inSpace runs f on a thread that is in the named network namespace: what f opens stays there.
func inSpace(space string, f func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		failed <- func() error {
			there, err := os.Open("/run/netns/" + space)
			if err != nil {
				return err
			}
			defer there.Close()
			if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("cannot enter network namespace %s: %w", space, err)
			}
			return f()
		}()
	}()
	return <-failed
}

// writeHosts makes all nodes' names known to all nodes. They see the folder, so that a reader
// finds the old file or the new one, never a part of one.
func (l *Lab) writeHosts() error {
	text := "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
	for _, n := range l.nodes {
		names := n.Name
		if host := n.hostName(); host != n.Name {
			names += " " + host
		}
		text += n.Addr + " " + names + "\n" + n.Addr6 + " " + n.Name + "-v6\n"
	}
	next := l.path("names", "hosts.next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, l.path("names", "hosts"))
}
