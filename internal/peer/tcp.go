package peer

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// TuneTCP sets what a connection between manager and agent needs on TCP, also below TLS:
// no delay, keepalive, and userTimeout, after which data that the other side has not
// acknowledged ends the connection. Without that, unacknowledged data suspends keepalive
// and a cut link is noticed only after minutes (tcp(7), TCP_USER_TIMEOUT). A userTimeout
// below a millisecond leaves the system's. Other sockets are left as they are.
func TuneTCP(nc net.Conn, keepAlive net.KeepAliveConfig, userTimeout time.Duration) error {
	tcp, ok := innermost(nc).(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.SetNoDelay(true); err != nil {
		return fmt.Errorf("cannot set TCP_NODELAY: %w", err)
	}
	if err := tcp.SetKeepAliveConfig(keepAlive); err != nil {
		return fmt.Errorf("cannot set TCP keepalive: %w", err)
	}
	if userTimeout < time.Millisecond {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot set TCP_USER_TIMEOUT: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("cannot set TCP_USER_TIMEOUT to %v: %w", userTimeout, err)
	}
	return nil
}

// innermost is the connection below all layers such as TLS.
func innermost(nc net.Conn) net.Conn {
	for {
		u, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = u.NetConn()
	}
}
