package agentlink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ListenTCP listens on a port of all addresses, IPv6 and IPv4, or of IPv4 alone where the
// kernel has no IPv6. host limits it to one address; "" is all. Port 0 takes any free port.
func ListenTCP(host string, port uint16) (*net.TCPListener, error) {
	address := net.JoinHostPort(host, strconv.Itoa(int(port)))
	// Keepalive is set on each connection, with the rest of the options.
	l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(context.Background(), "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("cannot listen on TCP port %d: another program has it; "+
			"`ss -ltnp 'sport = :%d'` shows which; stop that, or choose another port with Port=", port, port)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("cannot listen on TCP port %d: ports below 1024 need CAP_NET_BIND_SERVICE, which ctrl-manager.service has; "+
			"otherwise choose a higher one with Port=", port)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on TCP %s: %w", address, err)
	}
	return l.(*net.TCPListener), nil
}

// maxSocketPath is what the kernel has room for (unix(7)).
const maxSocketPath = 107

// ListenUnix listens on a unix socket, which it removes when it is closed. What is left of a
// dead manager's socket is replaced. Anybody can connect: what the kernel says about who has
// connected decides (see checkPeer), and an agent that runs as root with few capabilities
// could not pass a stricter mode.
func ListenUnix(path string) (*net.UnixListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("cannot listen on %s: the path has %d bytes, and a socket's has at most %d", path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the directory of socket %s: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot set the mode of socket %s: %w", path, err)
	}
	return l, nil
}

// removeStale makes room for a socket where nobody listens any more, and only then.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at socket %s: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("cannot listen on socket %s: there is a file that is no socket; move it away", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return fmt.Errorf("cannot listen on socket %s: another manager is running; `ss -lxp` shows which program has it", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether socket %s is in use: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("cannot remove the socket that a dead manager has left: %w", err)
	}
	return nil
}
