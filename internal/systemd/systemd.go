// Package systemd is agent.Systemd: the local service manager, over D-Bus.
//
// As root it speaks to systemd's private socket, where no bus daemon is in the way;
// otherwise, or where that socket is missing, it goes over the bus. There it takes signals
// only from the unique name that owns systemd's, since any local process can send a signal
// that looks like one of systemd's.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/backoff"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Core is what the adapter tells of systemd; *agent.Agent is one.
type Core interface {
	SystemdUp(facts map[string]wire.Value)
	SystemdDown(err error)
	SystemdJobState(job uint32, state string)
	SystemdJobRemoved(job uint32, unit, result string)
	SystemdUnitNew(unit string)
	SystemdUnitRemoved(unit string)
	SystemdUnitChanged(unit, iface string, changed map[string]wire.Value)
	SystemdReloaded()
}

// Options of the adapter.
type Options struct {
	// User speaks to the user's service manager instead of the system's.
	User bool
	// NoPrivate leaves the private socket alone and goes over the bus.
	NoPrivate bool
	// DialPrivate connects to the private socket. nil: by its path on this machine.
	DialPrivate func(ctx context.Context) (net.Conn, error)
	// Bus is the address of the bus, "" for the standard one.
	Bus string
}

// Systemd is the adapter. Make one with New and run it with Run.
type Systemd struct {
	opt    Options
	log    *slog.Logger
	core   Core
	conn   atomic.Pointer[connection]
	wanted atomic.Pointer[func(string) bool]
	memory memory

	waiting waiting
	// readers has room for those who read unit files.
	readers chan struct{}
}

var _ agent.Systemd = (*Systemd)(nil)

// connection is one connection to systemd.
type connection struct {
	*peer.Conn
	destination string // systemd's name on a bus, "" on the private socket
	// owner is the unique name behind it; nil on the private socket and until it is known.
	owner atomic.Pointer[string]
}

// New makes an adapter. It does nothing until Run.
func New(opt Options, log *slog.Logger) *Systemd {
	return &Systemd{opt: opt, log: log, readers: make(chan struct{}, maxReaders)}
}

// connectTimeout bounds one try to reach systemd, with all that is asked at the beginning.
const connectTimeout = 10 * time.Second

// retry is the delay between tries. daemon-reexec takes some tens of milliseconds.
var retry = backoff.Backoff{Min: 20 * time.Millisecond, Max: 2 * time.Second}

// Run keeps a connection to systemd and tells core what it says, until ctx ends.
func (s *Systemd) Run(ctx context.Context, core Core) {
	s.core = core
	defer s.release(nil)
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := s.session(ctx)
		if time.Since(began) > retry.Max {
			failures = 0
		}
		if ctx.Err() != nil {
			return
		}
		if failures == 0 {
			s.log.Info("not connected to systemd", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.Delay(failures, rand.Float64())):
		}
	}
}

// session connects and serves one connection to its end.
func (s *Systemd) session(ctx context.Context) error {
	setup, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := s.connect(setup)
	if err != nil {
		return err
	}
	s.memory.forgetJobs()
	facts, err := c.begin(setup)
	if err != nil {
		c.Close(err)
		<-c.Done()
		return err
	}
	s.core.SystemdUp(facts)
	s.release(c)
	select {
	case <-ctx.Done():
		c.Close(ctx.Err())
		<-c.Done()
	case <-c.Done():
	}
	s.conn.Store(nil)
	err = c.Err()
	if ctx.Err() == nil {
		s.core.SystemdDown(err)
	}
	return err
}

func (s *Systemd) connect(ctx context.Context) (*connection, error) {
	if dial := s.privateSocket(); dial != nil {
		nc, err := dial(ctx)
		if err == nil {
			c := &connection{}
			c.Conn, err = peer.Client(ctx, nc, s.options(c))
			return c, err
		}
		s.log.Debug("systemd's private socket cannot be used, trying the bus", "err", err)
	}
	return s.connectBus(ctx)
}

// privateSocket is how to reach the socket on which systemd listens for root, or for the
// user it serves; nil where that is not open to this process.
func (s *Systemd) privateSocket() func(ctx context.Context) (net.Conn, error) {
	path := "/run/systemd/private"
	switch {
	case s.opt.NoPrivate:
		return nil
	case s.opt.DialPrivate != nil:
		return s.opt.DialPrivate
	case s.opt.User:
		path = filepath.Join(runtimeDir(), "systemd/private")
	case os.Geteuid() != 0:
		return nil
	}
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", path) }
}

func runtimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return dir
	}
	return "/run/user/" + strconv.Itoa(os.Getuid())
}

func (s *Systemd) busAddress() string {
	switch {
	case s.opt.Bus != "":
		return s.opt.Bus
	case !s.opt.User:
		return peer.SystemBusAddress()
	}
	if address, err := peer.UserBusAddress(); err == nil {
		return address
	}
	return "unix:path=" + peer.EscapeAddress(filepath.Join(runtimeDir(), "bus"))
}

func (s *Systemd) options(c *connection) peer.Options {
	return peer.Options{
		Handler:    func(conn *peer.Conn, m *peer.Message) { s.received(c, conn, m) },
		MaxMessage: peer.DefaultBusMaxMessage,
		Log:        s.log,
	}
}

// matches are the signals asked of a bus; the private socket brings all of them unasked.
var matches = []string{
	"type='signal',sender='" + wire.SystemdName + "',interface='" + wire.SystemdManagerInterface + "'",
	"type='signal',sender='" + wire.SystemdName + "',interface='" + wire.PropertiesInterface + "'",
	"type='signal',sender='" + wire.DBusName + "',member='NameOwnerChanged',arg0='" + wire.SystemdName + "'",
}

func (s *Systemd) connectBus(ctx context.Context) (*connection, error) {
	address := s.busAddress()
	c := &connection{destination: wire.SystemdName}
	conn, err := peer.DialBus(ctx, address, s.options(c))
	if err != nil {
		return nil, fmt.Errorf("cannot reach systemd over the bus %s: %w", address, err)
	}
	c.Conn = conn
	for _, rule := range matches {
		if err := conn.AddMatch(ctx, rule); err != nil {
			conn.Close(err)
			return nil, err
		}
	}
	owner, err := conn.NameOwner(ctx, wire.SystemdName)
	if err != nil || owner == "" {
		err = errors.Join(errors.New("systemd is not on the bus"), err)
		conn.Close(err)
		return nil, err
	}
	c.owner.Store(&owner)
	return c, nil
}

// begin asks for signals and for what the node is. Without Subscribe systemd sends none.
func (c *connection) begin(ctx context.Context) (map[string]wire.Value, error) {
	if _, err := c.Call(ctx, c.manager("Subscribe", wire.Raw{})); err != nil && !errors.Is(err, wire.ErrSystemdAlreadySubscribed) {
		return nil, fmt.Errorf("cannot subscribe to systemd's signals: %w", err)
	}
	facts := make(map[string]wire.Value)
	for property, fact := range map[string]string{"Version": wire.FactSystemdVersion, "Architecture": wire.FactArchitecture} {
		v, err := c.property(ctx, wire.SystemdPath, wire.SystemdManagerInterface, property)
		if err != nil {
			return nil, fmt.Errorf("cannot read systemd's %s: %w", property, err)
		}
		facts[fact] = v
	}
	for file, fact := range map[string]string{"/etc/machine-id": wire.FactMachineID, "/proc/sys/kernel/random/boot_id": wire.FactBootID} {
		text, err := os.ReadFile(file)
		if err == nil {
			facts[fact] = peer.MustValue(string(trimLine(text)))
		}
	}
	return facts, nil
}

func trimLine(text []byte) []byte {
	for len(text) > 0 && text[len(text)-1] == '\n' {
		text = text[:len(text)-1]
	}
	return text
}

// manager is a call of systemd's Manager object.
func (c *connection) manager(member string, body wire.Raw) peer.Call {
	return peer.Call{
		Destination: c.destination, Path: wire.SystemdPath,
		Interface: wire.SystemdManagerInterface, Member: member, Body: body,
	}
}

// properties is a call about the properties of one of systemd's objects.
func (c *connection) properties(path wire.ObjectPath, member string, body wire.Raw) peer.Call {
	return peer.Call{
		Destination: c.destination, Path: path, Interface: wire.PropertiesInterface, Member: member, Body: body,
	}
}

// property reads one property.
func (c *connection) property(ctx context.Context, path wire.ObjectPath, iface, name string) (wire.Value, error) {
	m, err := c.Call(ctx, c.properties(path, "Get", peer.MustEncode(iface, name)))
	var v wire.Value
	if err == nil {
		err = peer.Decode(m.Body, &v)
	}
	return v, err
}
