package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// watchers are all clients, in their process.
type watchers struct {
	reading, stopped []*watcher
	resume           chan struct{} // closed: those that were stopped read
}

// watcher is one client with one monitor on everything.
type watcher struct {
	conn    *peer.Conn
	wait    <-chan struct{} // nil, or it reads when this is closed
	mu      sync.Mutex
	changed sync.Cond
	count   int
	last    map[string]int
	ended   int // units whose last state it has seen
	seen
}

const clientsLimit = 5 * time.Minute

// runClients is the main function of that process.
func runClients(args string, in io.Reader, out io.Writer) error {
	var address string
	var reading, stopped int
	if _, err := fmt.Sscan(args, &address, &reading, &stopped); err != nil {
		return err
	}
	w := &watchers{resume: make(chan struct{})}
	ready := make(chan struct{})
	for i := range reading + stopped {
		c := &watcher{last: make(map[string]int)}
		c.changed.L = &c.mu
		if i < reading {
			w.reading = append(w.reading, c)
		} else {
			c.wait = w.resume
			w.stopped = append(w.stopped, c)
		}
		if err := c.open(address, ready); err != nil {
			return err
		}
	}
	close(ready)
	lines, answers := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		if err := answers.Encode(w.answer(lines.Text())); err != nil {
			return err
		}
	}
	return nil
}

// open subscribes. From ready on it stops to read, if it is one that does.
func (c *watcher) open(address string, ready <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), clientsLimit)
	defer cancel()
	var err error
	c.conn, err = peer.DialBus(ctx, address, peer.Options{Handler: func(_ *peer.Conn, m *peer.Message) { c.handle(m, ready) }})
	if err != nil {
		return err
	}
	var monitor wire.ObjectPath
	m, err := c.conn.Call(ctx, peer.Call{Destination: wire.BusName, Path: wire.RootPath, Interface: wire.ManagerInterface, Member: "CreateMonitor"})
	if err == nil {
		err = peer.Decode(m.Body, &monitor)
	}
	if err == nil {
		_, err = c.conn.Call(ctx, peer.Call{
			Destination: wire.BusName, Path: monitor, Interface: wire.MonitorInterface, Member: "Subscribe", Body: peer.MustEncode("*", "*"),
		})
	}
	return err
}

func (c *watcher) handle(m *peer.Message, ready <-chan struct{}) {
	if c.wait != nil {
		select {
		case <-ready:
			<-c.wait
		default:
		}
	}
	if m.Member != wire.MemberUnitStateChanged {
		return
	}
	var node, unit, active, sub, reason string
	if peer.Decode(m.Body, &node, &unit, &active, &sub, &reason) != nil || reason != "real" {
		return
	}
	number, when, _ := strings.Cut(sub, ".")
	n, _ := strconv.Atoi(number)
	c.mu.Lock()
	defer c.mu.Unlock()
	key := node + unit
	switch before := c.last[key]; {
	case n > before+1:
		c.LeftOut += n - before - 1
	case n <= before:
		c.Disorder++
	}
	c.last[key] = n
	if c.count++; c.count%64 == 0 {
		ns, _ := strconv.ParseInt(when, 10, 64)
		c.Delays = append(c.Delays, time.Now().UnixNano()-ns)
	}
	if active == lastState {
		c.ended++
	}
	c.changed.Broadcast()
}

// until waits until ok, which is called with the lock held.
func (c *watcher) until(ok func() bool) bool {
	late := time.AfterFunc(clientsLimit, c.changed.Broadcast)
	defer late.Stop()
	deadline := time.Now().Add(clientsLimit)
	c.mu.Lock()
	defer c.mu.Unlock()
	for !ok() && time.Now().Before(deadline) {
		c.changed.Wait()
	}
	return ok()
}

const allUnits = monitorNodes * monitorUnits

// answer waits for a number of changes, or for the end.
func (w *watchers) answer(line string) (s seen) {
	if n, err := strconv.Atoi(line); err == nil {
		for _, c := range w.reading {
			if !c.until(func() bool { return c.count >= n }) {
				s.Error = fmt.Sprintf("a client has seen %d of %d changes within %v", c.count, n, clientsLimit)
			}
		}
		return s
	}
	close(w.resume)
	for i, c := range append(w.reading, w.stopped...) {
		c.until(func() bool { return c.ended >= allUnits })
		s.Wrong += allUnits - c.ended
		s.Disorder += c.Disorder
		if i < len(w.reading) {
			s.LeftOut += c.LeftOut
			s.Delays = append(s.Delays, c.Delays...)
		} else {
			s.LeftOutStopped += c.LeftOut
		}
	}
	return s
}
