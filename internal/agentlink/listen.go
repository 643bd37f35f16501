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

// NoGroup stands for a socket that only its owner and root may use.
const NoGroup = -1

// ListenUnix listens on a unix socket, which it removes when it is closed. What is left of a
// dead manager's socket is replaced. A gid other than NoGroup may connect as well.
func ListenUnix(path string, gid int) (*net.UnixListener, error) {
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
	if err := guard(path, gid); err != nil {
		l.Close()
		return nil, err
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

// guard sets who may connect. That the kernel says who has connected counts more: see
// peerAllowed.
func guard(path string, gid int) error {
	mode := fs.FileMode(0o600)
	if gid != NoGroup {
		mode = 0o660
		if err := os.Chown(path, -1, gid); err != nil {
			return fmt.Errorf("cannot give socket %s to group %d of SocketGroup=: %w; the manager's user must be in that group", path, gid, err)
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("cannot set the mode of socket %s: %w", path, err)
	}
	return nil
}
