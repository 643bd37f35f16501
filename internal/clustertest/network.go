package clustertest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
)

// network carries connections between nodes and the manager in memory, and can lose them as
// a real one does: what is sent over a cut link waits in the sender's queue and arrives when
// the link is healed; a connection that is closed meanwhile is not seen to close.
type network struct {
	mu       sync.Mutex
	listener *listener // of the manager; nil while it is down
	cut      map[string]bool
	cables   []*cable
	closed   bool
}

func newNetwork() *network {
	return &network{cut: make(map[string]bool)}
}

// listen gives the manager its port.
func (n *network) listen() *listener {
	l := &listener{incoming: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	n.listener = l
	n.mu.Unlock()
	return l
}

// dial connects node to whoever listens. The first packet over a cut link is lost too, so
// it waits there until ctx ends. Nobody listening is an error at once.
func (n *network) dial(ctx context.Context, node string, from netip.Addr) (net.Conn, error) {
	n.mu.Lock()
	l, lost := n.listener, n.cut[node] || n.closed
	n.mu.Unlock()
	if lost {
		<-ctx.Done()
		return nil, fmt.Errorf("dial tcp: %w", ctx.Err())
	}
	if l == nil {
		return nil, fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)
	}
	c, agentEnd, managerEnd := newCable(node, from)
	n.mu.Lock()
	n.cables = append(slices.DeleteFunc(n.cables, (*cable).ended), c)
	n.mu.Unlock()
	select {
	case l.incoming <- managerEnd:
		return agentEnd, nil
	case <-l.done:
		c.end()
		return nil, fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED)
	case <-ctx.Done():
		c.end()
		return nil, fmt.Errorf("dial tcp: %w", ctx.Err())
	}
}

// setCut cuts or heals the link of a node.
func (n *network) setCut(node string, cut bool) {
	n.mu.Lock()
	n.cut[node] = cut
	cables := slices.Clone(n.cables)
	n.mu.Unlock()
	for _, c := range cables {
		if c.node == node {
			c.setCut(cut)
		}
	}
}

// sever takes a node's connections away for good, without a word to either side: what a
// power failure of the node leaves.
func (n *network) sever(node string) {
	n.mu.Lock()
	cables := slices.Clone(n.cables)
	n.mu.Unlock()
	for _, c := range cables {
		if c.node == node {
			c.sever()
		}
	}
}

// drop closes the manager's port and ends all its connections, as the kernel does for a
// process that is killed. Over a cut link that is not seen.
func (n *network) drop() {
	n.mu.Lock()
	if n.listener != nil {
		n.listener.Close()
	}
	cables := slices.Clone(n.cables)
	n.mu.Unlock()
	for _, c := range cables {
		c.near[1].Close()
	}
}

// close ends all connections.
func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	cables := n.cables
	n.mu.Unlock()
	for _, c := range cables {
		c.end()
	}
}

// listener is the manager's end of the network.
type listener struct {
	incoming chan net.Conn
	done     chan struct{}
	once     sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.incoming:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return managerAddr }

var managerAddr = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 842}

// end is one end of a cable as its program sees it.
type end struct {
	net.Conn
	node          string // the node of the cable: what TLS would prove
	local, remote net.Addr
}

func (e *end) LocalAddr() net.Addr  { return e.local }
func (e *end) RemoteAddr() net.Addr { return e.remote }

// maxQueued is what waits on a cable in one direction before the sender is held up, as the
// buffers of a kernel hold so much.
const maxQueued = 256 << 10

// cable is one connection: a pipe at each end and two goroutines per direction between them.
type cable struct {
	node string
	near [2]net.Conn // the cable's own ends of the two pipes

	mu      sync.Mutex
	changed sync.Cond
	cut     bool
	severed bool
	over    bool
	queue   [2][]byte // from near[i] to the other
	eof     [2]bool
}

func newCable(node string, from netip.Addr) (c *cable, agentEnd, managerEnd net.Conn) {
	c = &cable{node: node}
	c.changed.L = &c.mu
	nodeAddr := net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 40000))
	agentPipe, near0 := net.Pipe()
	managerPipe, near1 := net.Pipe()
	c.near = [2]net.Conn{near0, near1}
	for i := range c.near {
		go c.take(i)
		go c.give(i)
	}
	return c, &end{agentPipe, node, nodeAddr, managerAddr}, &end{managerPipe, node, managerAddr, nodeAddr}
}

// take reads what one end sends.
func (c *cable) take(i int) {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.near[i].Read(buf)
		c.mu.Lock()
		for len(c.queue[i]) >= maxQueued && !c.over {
			c.changed.Wait()
		}
		c.queue[i] = append(c.queue[i], buf[:n]...)
		c.eof[i] = c.eof[i] || err != nil
		c.changed.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// give passes on what end i has sent, and at last that it has closed.
func (c *cable) give(i int) {
	for {
		c.mu.Lock()
		for !c.over && (c.cut || c.severed || len(c.queue[i]) == 0 && !c.eof[i]) {
			c.changed.Wait()
		}
		chunk, over := c.queue[i], c.over
		c.queue[i] = nil
		c.changed.Broadcast()
		c.mu.Unlock()
		if over || len(chunk) == 0 {
			c.end()
			return
		}
		if _, err := c.near[1-i].Write(chunk); err != nil {
			return // closed there: the other direction ends with what is still on the way
		}
	}
}

func (c *cable) setCut(cut bool) {
	c.mu.Lock()
	c.cut = cut
	c.changed.Broadcast()
	c.mu.Unlock()
}

func (c *cable) sever() {
	c.mu.Lock()
	c.severed = true
	c.mu.Unlock()
}

func (c *cable) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// end closes the connection at both ends.
func (c *cable) end() {
	c.mu.Lock()
	c.over = true
	c.changed.Broadcast()
	c.mu.Unlock()
	for _, nc := range c.near {
		nc.Close()
	}
}
