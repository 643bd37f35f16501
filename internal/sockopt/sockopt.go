// Package sockopt sets the TCP options with which both sides of a link notice that it is dead.
package sockopt

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// TCP says how a dead link is noticed. A zero leaves the kernel's own value (tcp(7), ip(7)).
type TCP struct {
	// KeepAliveTime is how long a link may be idle before it is probed, KeepAliveInterval
	// the time between probes, both in whole seconds; KeepAliveCount probes without answer
	// end it.
	KeepAliveTime     time.Duration
	KeepAliveInterval time.Duration
	KeepAliveCount    int
	// UserTimeout ends a link on which sent data stays without acknowledgement. While there
	// is such data the kernel sends no keepalive probes, and its own limit is many minutes.
	UserTimeout time.Duration
	// ReceiveErrors ends a link at once when the network says that the other end cannot be
	// reached.
	ReceiveErrors bool
}

// Apply sets the options on a connection, and TCP_NODELAY. Messages are written whole, so
// waiting for more data to fill a packet would only delay them.
func (o TCP) Apply(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = o.set(int(fd)) })
	if err != nil {
		return err
	}
	return failed
}

func (o TCP) set(fd int) error {
	type option struct {
		name              string
		level, opt, value int
		skip              bool
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("cannot read SO_DOMAIN: %w", err)
	}
	for _, o := range []option{
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1, false},
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1, false},
		{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(o.KeepAliveTime), o.KeepAliveTime <= 0},
		{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(o.KeepAliveInterval), o.KeepAliveInterval <= 0},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, o.KeepAliveCount, o.KeepAliveCount <= 0},
		{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(o.UserTimeout / time.Millisecond), o.UserTimeout <= 0},
		// A socket of the IPv6 family carries IPv4 as well and then has the options of both.
		{"IP_RECVERR", unix.IPPROTO_IP, unix.IP_RECVERR, 1, !o.ReceiveErrors},
		{"IPV6_RECVERR", unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1, !o.ReceiveErrors || domain != unix.AF_INET6},
	} {
		if o.skip {
			continue
		}
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			return fmt.Errorf("cannot set %s to %d: %w", o.name, o.value, err)
		}
	}
	return nil
}

// seconds rounds up: the kernel takes no part of one, and 0 is not allowed.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
