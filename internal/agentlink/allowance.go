package agentlink

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
)

// registerBytes is how much a peer may send until it has registered: twice what Register
// may hold. It bounds what one connection costs that never does.
const registerBytes = 256 << 10

var errTooMuch = fmt.Errorf("sent more than %d KiB without registering", registerBytes>>10)

// allowance is a connection from which only so much is read until it is lifted.
type allowance struct {
	net.Conn
	used   int // of the one who reads
	lifted atomic.Bool
}

func (a *allowance) Read(p []byte) (int, error) {
	if a.lifted.Load() {
		return a.Conn.Read(p)
	}
	if a.used > registerBytes {
		return 0, errTooMuch
	}
	n, err := a.Conn.Read(p)
	a.used += n
	return n, err
}

// NetConn is the connection below, as with tls.Conn.
func (a *allowance) NetConn() net.Conn { return a.Conn }

// CloseWrite tells the peer that nothing more comes.
func (a *allowance) CloseWrite() error {
	if half, ok := a.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// tlsRecord is the first byte that a TLS client sends (RFC 8446, 5.1); a D-Bus client sends
// a NUL.
const tlsRecord = 0x16

// refuseTLS looks at the first byte, without taking it, to tell a peer that wants TLS what
// the matter is.
func (p *pending) refuseTLS() error {
	c, ok := p.nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	first := make([]byte, 1)
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		_, _, failed = syscall.Recvfrom(int(fd), first, syscall.MSG_PEEK)
		return failed != syscall.EAGAIN
	})
	if err = errors.Join(err, failed); err != nil {
		return fmt.Errorf("nothing was received: %w", err)
	}
	if first[0] != tlsRecord {
		return nil // what else is wrong shows in the handshake of D-Bus
	}
	p.nc.Write([]byte("ERROR \"this port has no TLS\"\r\n"))
	return errors.New("the peer speaks TLS, and this manager has TLS=no; both sides must have the same")
}
