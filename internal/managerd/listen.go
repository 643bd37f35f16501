package managerd

import (
	"errors"
	"fmt"
	"net"
	"os/user"
	"slices"
	"strconv"
	"syscall"

	"example.org/ctrl/internal/agentlink"
	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/sdnotify"
)

// groupID is the number of SocketGroup=.
func groupID(name string) (int, error) {
	if name == "" {
		return agentlink.NoGroup, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("SocketGroup=%s: there is no such group", name)
	}
	return strconv.Atoi(g.Gid)
}

// sockets are the listeners of a manager.
type sockets struct {
	all []net.Listener
	tcp bool // a socket of systemd has taken the place of the port
	uds bool // and of the unix socket
}

func (s *sockets) close() {
	for _, l := range s.all {
		l.Close()
	}
}

func (s *sockets) overTCP() bool {
	return slices.ContainsFunc(s.all, func(l net.Listener) bool { return l.Addr().Network() == "tcp" })
}

// port is the TCP port of the first listener that has one, 0 where none has.
func (s *sockets) port() int {
	for _, l := range s.all {
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			return a.Port
		}
	}
	return 0
}

// listen opens what the configuration asks for. A socket that systemd has opened at a
// configured address takes that one's place; others come in addition.
func listen(c *config.Manager) (*sockets, error) {
	s := &sockets{}
	err := s.takeOver(c)
	if err == nil && c.UseTCP && !s.tcp {
		err = s.listenTCP(c)
	}
	if err == nil && c.UseUDS && !s.uds {
		var l net.Listener
		if l, err = agentlink.ListenUnix(c.Places.Socket); err == nil {
			s.all = append(s.all, l)
		}
	}
	if err == nil && len(s.all) == 0 {
		err = errors.New("there is nothing to listen on: UseTCP=no, UseUDS=no, and no socket of systemd; switch one of them on")
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sockets) takeOver(c *config.Manager) error {
	given, err := sdnotify.Listeners()
	if err != nil {
		return err
	}
	for _, l := range given {
		s.all = append(s.all, l.Listener)
		switch a := l.Addr().(type) {
		case *net.TCPAddr:
			if c.LoopbackOnly() && !a.IP.IsLoopback() {
				return fmt.Errorf("socket %s at %s is open to the network, and TLS=no: listen on loopback, use TLS, or set AllowInsecureNetwork=yes", l.Name, a)
			}
			s.tcp = s.tcp || a.Port == c.Port
		case *net.UnixAddr:
			s.uds = s.uds || a.Name == c.Places.Socket
		}
	}
	return nil
}

func (s *sockets) listenTCP(c *config.Manager) error {
	if !c.LoopbackOnly() {
		l, err := agentlink.ListenTCP("", uint16(c.Port))
		if err == nil {
			s.all = append(s.all, l)
		}
		return err
	}
	l, err := agentlink.ListenTCP("127.0.0.1", uint16(c.Port))
	if err != nil {
		return err
	}
	s.all = append(s.all, l)
	port := l.Addr().(*net.TCPAddr).Port // the same, where the kernel has chosen it
	l, err = agentlink.ListenTCP("::1", uint16(port))
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		return nil // a machine without IPv6
	}
	if err == nil {
		s.all = append(s.all, l)
	}
	return err
}
