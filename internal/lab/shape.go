package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Link says how bad a node's cable is, in each direction. Not every kernel has netem, so
// the frames pass through this process, which treats them so. The order of frames stays.
type Link struct {
	Delay  time.Duration // how much later a frame arrives
	Jitter time.Duration // and up to so much more, at random
	Loss   float64       // share of frames that vanish, 0 to 1
	Rate   int           // bytes per second; 0 is as fast as it goes
}

// queueBytes is what waits at most in one direction; further frames vanish, as in a router.
const queueBytes = 1 << 20

// far is the bridge's interface behind a shaped cable.
func (n *Node) far() string { return fmt.Sprintf("far%d", n.number) }

// Shape gives the node's link these qualities instead of those it had, for as long as this
// process lives and the node is on. The zero Link makes it perfect again.
func (n *Node) Shape(ctx context.Context, link Link) error {
	if err := n.shape(ctx, link); err != nil {
		n.unshape()
		return fmt.Errorf("cannot shape the link of %s: %w", n.Name, err)
	}
	return nil
}

func (n *Node) shape(ctx context.Context, link Link) error {
	if link.Loss < 0 || link.Loss > 1 || link.Delay < 0 || link.Jitter < 0 || link.Rate < 0 {
		return fmt.Errorf("%+v is out of range", link)
	}
	if n.PID() == 0 {
		return errors.New("it is switched off")
	}
	n.unshape()
	space, near, far := bridgeSpace(n.lab.name), n.port(), n.far()
	if link == (Link{}) {
		return ip(ctx, space, n.join(near))
	}
	// near is the bridge's end of the cable to the node; it leaves the bridge, and a new pair
	// far–mid takes its place. This process carries frames between near and mid.
	mid := fmt.Sprintf("mid%d", n.number)
	if err := ip(ctx, space,
		"link add "+far+" type veth peer name "+mid,
		silent(far), silent(mid), n.join(far),
		"link set "+near+" nomaster"); err != nil {
		return err
	}
	c := &cable{link: link, remove: func() { run(context.Background(), "ip", "-n", space, "link", "del", far) }}
	n.cable = c
	err := inSpace(space, func() error {
		for i, name := range []string{near, mid} {
			var err error
			if c.ends[i], err = openInterface(name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.carry(c.ends[0], c.ends[1])
	c.carry(c.ends[1], c.ends[0])
	return nil
}

// unshape ends the shaping, and leaves the link cut.
func (n *Node) unshape() {
	if n.cable != nil {
		n.cable.close()
		n.cable = nil
	}
}

// cable carries frames between two interfaces.
type cable struct {
	link   Link
	ends   [2]*os.File
	done   sync.WaitGroup
	remove func()
}

func (c *cable) close() {
	for _, end := range c.ends {
		if end != nil {
			end.Close()
		}
	}
	c.done.Wait()
	c.remove()
}

// frameSize holds the largest frame of segmentation offload, and the header before it.
const frameSize = 1<<16 + 256

// openInterface opens a packet socket for all that an interface receives: packet(7). Each
// frame has a header before it that says what the sender left to its network card to do, so
// frames with unfinished checksums and unsegmented ones pass as they are.
func openInterface(name string) (*os.File, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}),
	); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

type frame struct {
	data []byte
	due  time.Time
}

// carry carries frames from one end to the other until an end is closed.
func (c *cable) carry(from, to *os.File) {
	queue := &queue{wake: make(chan struct{}, 1)}
	c.done.Go(func() {
		defer queue.close()
		road := road{link: c.link}
		buf := make([]byte, frameSize)
		for {
			size, err := from.Read(buf)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil || size == 0 {
				continue // the interface went down, or a frame of a kind that has no header
			}
			if due, arrives := road.take(time.Now(), size); arrives {
				queue.push(frame{append([]byte(nil), buf[:size]...), due})
			}
		}
	})
	c.done.Go(func() {
		for {
			f, open := queue.pop()
			if !open {
				return
			}
			time.Sleep(time.Until(f.due))
			to.Write(f.data) // a frame that cannot be sent has vanished
		}
	})
}

// road decides what becomes of a frame.
type road struct {
	link Link
	free time.Time // when the last byte of the last frame has left
	last time.Time // when the last frame arrives
}

func (r *road) take(now time.Time, size int) (due time.Time, arrives bool) {
	if rand.Float64() < r.link.Loss {
		return due, false
	}
	if r.free.Before(now) {
		r.free = now
	}
	if r.link.Rate > 0 {
		r.free = r.free.Add(time.Duration(float64(size) / float64(r.link.Rate) * float64(time.Second)))
	}
	due = r.free.Add(r.link.Delay)
	if r.link.Jitter > 0 {
		due = due.Add(rand.N(r.link.Jitter))
	}
	if due.Before(r.last) {
		due = r.last
	}
	r.last = due
	return due, true
}

// queue holds the frames that are under way in one direction.
type queue struct {
	mu     sync.Mutex
	frames []frame
	size   int
	closed bool
	wake   chan struct{}
}

func (q *queue) push(f frame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size+len(f.data) > queueBytes {
		return
	}
	q.frames, q.size = append(q.frames, f), q.size+len(f.data)
	q.signal()
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// pop waits for the next frame. Frames that are left when the cable ends have vanished.
func (q *queue) pop() (frame, bool) {
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return frame{}, false
		}
		if len(q.frames) > 0 {
			f := q.frames[0]
			q.frames, q.size = q.frames[1:], q.size-len(f.data)
			q.mu.Unlock()
			return f, true
		}
		q.mu.Unlock()
		<-q.wake
	}
}
