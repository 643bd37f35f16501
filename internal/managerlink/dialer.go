// Package managerlink connects an agent to its manager: it dials, proves both identities,
// and carries the agent core's registration, reports and answers.
package managerlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/sockopt"
	"example.org/ctrl/internal/wire"
)

// Time limits of one try (transport.md, "Deadlines"). Register has the core's own.
const (
	dialTime = 5 * time.Second
	openTime = 10 * time.Second // TLS and authentication
)

// Core is what links need of the agent's core.
type Core interface {
	StartJob(s agent.Session, req agent.JobRequest, reply func(error))
	CancelJob(s agent.Session, job uint32, reply func(error))
	Call(s agent.Session, method string, args wire.Raw, reply func(wire.Raw, error))
	Subscribe(s agent.Session, pattern string, reply func([]agent.UnitRow, error))
	Unsubscribe(s agent.Session, pattern string)
	SetMetrics(s agent.Session, on bool)
	RenewNow(s agent.Session)
	Targets(s agent.Session, units []string)
	ProxyState(s agent.Session, proxy, state, text string)
	ReleaseTarget(s agent.Session, unit string)
	Ordered(s agent.Session, proxy string, units []string, reply func([]string, error))
	Closed(s agent.Session, err error)
}

// Settings may change while the agent runs; the next try uses them.
type Settings struct {
	// Secure makes TLS of a TCP connection, within ctx, and makes sure that a manager is at
	// the other end. It leaves the connection open when it fails. nil: TLS=no.
	Secure func(ctx context.Context, nc net.Conn) (net.Conn, error)
	TCP    sockopt.TCP
	// Connect opens a connection, within ctx. nil: by this machine's network; a whole fleet in
	// one process has another.
	Connect func(ctx context.Context, network, endpoint string) (net.Conn, error)
}

// Dialer is agent.Dialer over TCP and unix sockets.
type Dialer struct {
	log      *slog.Logger
	settings atomic.Pointer[Settings]
	core     Core
	resolver *net.Resolver // nil: the system's
	tries    sync.WaitGroup
	links    sync.WaitGroup
}

var _ agent.Dialer = (*Dialer)(nil)

// New makes a dialler. Bind must follow before the first Dial.
func New(set Settings, log *slog.Logger) *Dialer {
	d := &Dialer{log: log}
	d.settings.Store(&set)
	return d
}

// Bind says to which core the links deliver.
func (d *Dialer) Bind(core Core) { d.core = core }

// Apply changes the settings for tries to come.
func (d *Dialer) Apply(set Settings) { d.settings.Store(&set) }

// Drain waits until all tries and links have ended, the last words of links that the core has
// closed included, or until ctx ends.
func (d *Dialer) Drain(ctx context.Context) {
	gone := make(chan struct{})
	go func() {
		d.tries.Wait()
		d.links.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	}
}

// Dial tries the addresses of a list, which mostly is one, until one leads to a manager.
// Names are resolved each time; IPv6 and IPv4 addresses are tried side by side (RFC 8305).
func (d *Dialer) Dial(address string, done func(agent.ManagerLink, error)) (cancel func()) {
	ctx, cancel := context.WithCancel(context.Background())
	d.tries.Go(func() {
		defer cancel()
		l, err := d.try(ctx, address)
		if err != nil {
			done(nil, err)
			return
		}
		done(l, nil)
	})
	return cancel
}

func (d *Dialer) try(ctx context.Context, address string) (*link, error) {
	list, err := peer.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, a := range list {
		l, err := d.open(ctx, a)
		if err == nil {
			return l, nil
		}
		failed = append(failed, &dialError{fmt.Sprintf("cannot reach the manager at %s: %s", a, lasting(err)), err})
	}
	if len(failed) == 1 {
		return nil, failed[0]
	}
	return nil, errors.Join(failed...)
}

// dialError has a text that is the same for each failure of the same kind.
type dialError struct {
	text  string
	cause error
}

func (e *dialError) Error() string { return e.text }
func (e *dialError) Unwrap() error { return e.cause }

// ports finds what differs from one try to the next: package net names the local port.
var ports = regexp.MustCompile(`(read|write) (tcp|udp|unix)[46]? \S+?->(\S+): `)

func lasting(err error) string { return ports.ReplaceAllString(err.Error(), "$1 $3: ") }

func (d *Dialer) open(ctx context.Context, a peer.Address) (*link, error) {
	network, endpoint, err := a.Endpoint()
	if err != nil {
		return nil, err
	}
	nc, err := d.connect(ctx, network, endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	secure, err := d.prove(ctx, nc)
	if err != nil {
		nc.Close()
		return nil, inTime(ctx, err)
	}
	l, err := d.newLink(ctx, secure)
	if err != nil && strings.Contains(err.Error(), "needs TLS") {
		err = wire.ErrAccessDenied.With("the manager wants TLS, and this agent has TLS=no; both sides must have the same")
	}
	if err != nil {
		return nil, inTime(ctx, err)
	}
	if ctx.Err() != nil {
		l.conn.Close(ctx.Err())
		return nil, ctx.Err()
	}
	return l, nil
}

func (d *Dialer) connect(ctx context.Context, network, endpoint string) (net.Conn, error) {
	if connect := d.settings.Load().Connect; connect != nil {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		return connect(ctx, network, endpoint)
	}
	// Keepalive is set with the rest of the options.
	dialer := net.Dialer{Timeout: dialTime, KeepAlive: -1, Resolver: d.resolver}
	return dialer.DialContext(ctx, network, endpoint)
}

// inTime words what a deadline does to a connection.
func inTime(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no manager has answered there within %v", openTime)
	}
	return err
}

// prove sets a TCP connection up. Over a unix socket the file system says who may listen
// there, and the manager asks the kernel who we are.
func (d *Dialer) prove(ctx context.Context, nc net.Conn) (net.Conn, error) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nc, nil
	}
	set := d.settings.Load()
	if err := set.TCP.Apply(tcp); err != nil {
		return nil, err
	}
	if set.Secure == nil {
		return nc, nil
	}
	return set.Secure(ctx, nc)
}
