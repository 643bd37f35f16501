package clustertest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var nodeAddr = netip.MustParseAddr("192.0.2.11")

// connected runs a scenario with one connection between a node and the manager.
func connected(t *testing.T, scenario func(t *testing.T, n *network, a, m net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		defer n.close()
		l := n.listen()
		accepted := make(chan net.Conn, 1)
		go func() {
			nc, _ := l.Accept()
			accepted <- nc
		}()
		a, err := n.dial(context.Background(), "node1", nodeAddr)
		if err != nil {
			t.Fatal(err)
		}
		scenario(t, n, a, <-accepted)
	})
}

func say(t *testing.T, nc net.Conn, text string) {
	t.Helper()
	nc.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := nc.Write([]byte(text)); err != nil {
		t.Fatalf("cannot say %q: %v", text, err)
	}
}

// hears is what arrives within a second.
func hears(nc net.Conn) string {
	nc.SetReadDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 64)
	n, err := nc.Read(buf)
	if err != nil && !errors.Is(err, io.EOF) {
		return "nothing"
	}
	if err != nil {
		return "closed"
	}
	return string(buf[:n])
}

func TestCutHoldsBackAndHealDelivers(t *testing.T) {
	connected(t, func(t *testing.T, n *network, a, m net.Conn) {
		say(t, a, "one")
		say(t, m, "two")
		if x, y := hears(m), hears(a); x != "one" || y != "two" {
			t.Fatalf("heard %q and %q", x, y)
		}
		n.setCut("node2", true)
		n.setCut("node1", true)
		say(t, a, "three")
		say(t, m, "four")
		if x, y := hears(m), hears(a); x != "nothing" || y != "nothing" {
			t.Fatalf("heard %q and %q over a cut link", x, y)
		}
		a.Close()
		if x := hears(m); x != "nothing" {
			t.Fatalf("heard %q of a close over a cut link", x)
		}
		n.setCut("node1", false)
		if x, y := hears(m), hears(m); x != "three" || y != "closed" {
			t.Fatalf("heard %q and %q after the link was healed", x, y)
		}
	})
}

func TestSeveredConnectionsStaySilent(t *testing.T) {
	connected(t, func(t *testing.T, n *network, a, m net.Conn) {
		n.sever("node1")
		a.Close()
		say(t, m, "anybody?")
		n.setCut("node1", true)
		n.setCut("node1", false)
		if x := hears(m); x != "nothing" {
			t.Fatalf("heard %q", x)
		}
	})
}

func TestDial(t *testing.T) {
	connected(t, func(t *testing.T, n *network, a, m net.Conn) {
		if got := m.RemoteAddr().String(); got != "192.0.2.11:40000" {
			t.Errorf("the manager sees %s", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		n.setCut("node1", true)
		if _, err := n.dial(ctx, "node1", nodeAddr); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a dial over a cut link gave %v", err)
		}
		n.listener.Close()
		if _, err := n.dial(context.Background(), "node2", nodeAddr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a dial to nobody gave %v", err)
		}
	})
}

func TestASenderIsHeldUpAtLast(t *testing.T) {
	connected(t, func(t *testing.T, n *network, a, m net.Conn) {
		n.setCut("node1", true)
		a.SetWriteDeadline(time.Now().Add(time.Second))
		sent := 0
		for range 100 {
			k, err := a.Write(make([]byte, 16<<10))
			sent += k
			if err != nil {
				break
			}
		}
		if sent < maxQueued || sent > maxQueued+64<<10 {
			t.Errorf("%d bytes went onto a cut link, want about %d", sent, maxQueued)
		}
	})
}
