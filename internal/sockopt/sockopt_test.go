package sockopt_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/ctrl/internal/sockopt"
)

func TestApply(t *testing.T) {
	set := sockopt.TCP{
		KeepAliveTime: 1500 * time.Millisecond, KeepAliveInterval: 3 * time.Second, KeepAliveCount: 4,
		UserTimeout: 6 * time.Second, ReceiveErrors: true,
	}
	tests := []struct {
		name       string
		address    string
		options    sockopt.TCP
		level, opt int
		want       int
	}{
		{"no delay", "127.0.0.1:0", set, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{"keepalive", "127.0.0.1:0", set, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"part of a second", "127.0.0.1:0", set, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 2},
		{"interval", "127.0.0.1:0", set, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 3},
		{"count", "127.0.0.1:0", set, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
		{"user timeout", "127.0.0.1:0", set, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 6000},
		{"errors", "127.0.0.1:0", set, unix.IPPROTO_IP, unix.IP_RECVERR, 1},
		{"errors off", "127.0.0.1:0", sockopt.TCP{}, unix.IPPROTO_IP, unix.IP_RECVERR, 0},
		{"no user timeout", "127.0.0.1:0", sockopt.TCP{}, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0},
		{"errors, IPv6", "[::1]:0", set, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1},
		{"count, IPv6", "[::1]:0", set, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, err := net.Listen("tcp", test.address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := test.options.Apply(c.(*net.TCPConn)); err != nil {
				t.Fatal(err)
			}
			raw, err := c.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			raw.Control(func(fd uintptr) {
				got, err := unix.GetsockoptInt(int(fd), test.level, test.opt)
				if err != nil || got != test.want {
					t.Errorf("got %d, %v; want %d", got, err, test.want)
				}
			})
		})
	}
}
