package sdnotify

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// Listener is one socket that systemd listens on for the daemon. Name is FileDescriptorName=
// of the socket unit, by default the unit's own name; names need not differ.
type Listener struct {
	Name string
	net.Listener
}

// Listeners takes over what LISTEN_FDS hands to this process, in the order of the socket unit,
// and removes that from the environment. A socket that no agent could connect to is an error,
// after which none is left open.
func Listeners() ([]Listener, error) {
	var list []Listener
	var failed []error
	for _, f := range activation.Files(true) {
		l, err := take(f)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		list = append(list, Listener{f.Name(), l})
	}
	if len(failed) == 0 {
		return list, nil
	}
	for _, l := range list {
		l.Close()
	}
	return nil, errors.Join(failed...)
}

// take makes a listener of a file, which it closes.
func take(f *os.File) (net.Listener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("socket %q that systemd has handed over is no listening stream socket: %w; use ListenStream= in the socket unit", f.Name(), err)
	}
	switch l := l.(type) {
	case *net.TCPListener:
		return l, nil
	case *net.UnixListener:
		// It is systemd's file: it stays when the daemon ends.
		l.SetUnlinkOnClose(false)
		return l, nil
	}
	l.Close()
	return nil, fmt.Errorf("socket %q that systemd has handed over is of type %s, neither TCP nor a unix socket", f.Name(), l.Addr().Network())
}
