package agentlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// Why a connection that has not registered is ended.
var (
	errNoRegister = fmt.Errorf("did not register within %v", registerTime)
	errMadeRoom   = errors.New("made room for another: too many connections do not register")
	errTooMany    = fmt.Errorf("%d connections from there have not registered yet", maxPendingPerAddress)
	errStopping   = errors.New("manager is shutting down")
)

// pending is a connection on which nobody has registered yet.
type pending struct {
	server   *Server
	settings *Settings
	nc       net.Conn
	address  netip.Addr
	name     string // the address for people
	ticket   *ticket
	secured  bool  // it speaks TLS
	proof    Proof // what TLS has shown
}

// run takes a connection from accept to Register, or ends it with a line in the log. It
// returns when the one or the other is done; ctx is its time.
func (p *pending) run(ctx context.Context) {
	l, err := p.open(ctx)
	if err != nil {
		p.end(ctx, err)
		return
	}
	select {
	case <-l.registered:
	case j := <-l.joining:
		p.join(ctx, l, j)
	case <-l.conn.Done():
		p.complain(l.why())
	case <-ctx.Done():
		if l.giveUp(p.cause(ctx)) {
			<-l.conn.Done()
			p.complain(l.why())
		}
	}
}

// open proves the peer's identity and begins to speak D-Bus.
func (p *pending) open(ctx context.Context) (*link, error) {
	deadline, _ := ctx.Deadline()
	p.nc.SetDeadline(deadline)
	// Whatever waits for the peer on this connection ends with ctx.
	stop := context.AfterFunc(ctx, func() { p.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	nc, err := p.prove(ctx)
	if err != nil {
		return nil, err
	}
	return newLink(ctx, p, &allowance{Conn: nc})
}

// prove finds out who the peer is, and returns the connection to speak on.
func (p *pending) prove(ctx context.Context) (net.Conn, error) {
	if _, ok := p.nc.(*net.UnixConn); ok {
		return p.nc, nil // was looked at before it got its place
	}
	if tcp, ok := p.nc.(*net.TCPConn); ok {
		if err := p.settings.TCP.Apply(tcp); err != nil {
			return nil, err
		}
	}
	if p.settings.Secure == nil {
		return p.nc, p.refuseTLS()
	}
	p.secured = true
	secure, proof, err := p.settings.Secure(ctx, p.nc)
	p.proof = proof
	return secure, err
}

// end closes a connection that came to nothing.
func (p *pending) end(ctx context.Context, err error) {
	if ctx.Err() != nil {
		err = p.cause(ctx)
	} else {
		p.linger()
	}
	p.nc.Close()
	p.complain(err)
}

func (p *pending) complain(err error) {
	if !errors.Is(err, errStopping) {
		p.server.complaints.about(p.address, p.name, "connection ended before anybody registered", err)
	}
}

func (p *pending) cause(ctx context.Context) error {
	if p.server.ctx.Err() != nil {
		return errStopping
	}
	return context.Cause(ctx)
}

// Limits of linger.
const (
	lingerTime  = time.Second
	lingerBytes = 64 << 10
)

// linger lets the peer read our last words. A socket that is closed while there is something
// to read in it makes the kernel take back what was sent, and with it the reason.
func (p *pending) linger() {
	half, ok := p.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	p.nc.SetDeadline(time.Now().Add(lingerTime))
	io.CopyN(io.Discard, p.nc, lingerBytes)
}
