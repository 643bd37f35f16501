package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Options say which bus to connect to: the system bus of this machine where all are zero.
type Options struct {
	User    bool   // the user's bus instead of the system's
	Address string // the bus at this D-Bus address
	Host    string // the bus of another machine, over ssh: [USER@]HOST[:PORT]
	// Getenv reads the environment: DBUS_SYSTEM_BUS_ADDRESS, DBUS_SESSION_BUS_ADDRESS and
	// XDG_RUNTIME_DIR.
	Getenv func(string) string
	UID    int // whose bus User means
}

// dialLimit bounds the way to a bus that is on this machine.
const dialLimit = 10 * time.Second

// Dial connects to a bus. Errors: ErrNoBus; wire.ErrAccessDenied where the bus turns the
// caller away.
func Dial(ctx context.Context, o Options) (*Client, error) {
	switch {
	case o.Host != "":
		return dialHost(ctx, o)
	case o.Address != "":
		return dialFirst(ctx, []string{o.Address}, "the bus at "+o.Address)
	case o.User:
		return dialFirst(ctx, userAddresses(o), "the user bus")
	}
	address := o.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	if address == "" {
		address = "unix:path=/run/dbus/system_bus_socket"
	}
	return dialFirst(ctx, []string{address}, "the system bus")
}

// userAddresses are the places where a user's bus may be: where the environment says, which
// su and sudo may have left pointing to another user's, then where logind puts it.
func userAddresses(o Options) []string {
	var list []string
	if address := o.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" {
		list = append(list, address)
	}
	if dir := o.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		list = append(list, "unix:path="+peer.EscapeAddress(dir+"/bus"))
	}
	standard := "unix:path=/run/user/" + strconv.Itoa(o.UID) + "/bus"
	for _, address := range list {
		if address == standard {
			return list
		}
	}
	return append(list, standard)
}

// dialFirst connects to the first of the addresses that lets the caller in. Where there are
// several, they are guesses at one bus, and being turned away from another user's is no news.
func dialFirst(ctx context.Context, addresses []string, bus string) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	var failed []string
	denied := false
	for _, address := range addresses {
		nc, err := peer.DialAddress(ctx, address)
		if err == nil {
			var c *Client
			if c, err = handshake(ctx, nc, bus, dbus.AuthExternal(strconv.Itoa(syscall.Geteuid()))); err == nil {
				return c, nil
			}
		}
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
			return nil, context.Cause(ctx)
		}
		failed = append(failed, err.Error())
		denied = denied || errors.Is(err, fs.ErrPermission) || errors.Is(err, errTurnedAway)
	}
	why := fmt.Sprintf("cannot connect to %s: %s", bus, strings.Join(failed, "; "))
	if denied && len(addresses) == 1 {
		return nil, wire.ErrAccessDenied.With("%s", why)
	}
	return nil, ErrNoBus.With("%s", why)
}

var errTurnedAway = errors.New("it does not let this user in")

// stream reads through a buffer, since messages are decoded in small pieces.
type stream struct {
	io.Reader
	io.WriteCloser
}

// handshake makes a client of a connection. It closes the connection where that fails.
func handshake(ctx context.Context, nc io.ReadWriteCloser, bus string, auth ...dbus.Auth) (*Client, error) {
	jobs := newFollower()
	conn, err := dbus.NewConn(stream{bufio.NewReaderSize(nc, 1<<16), nc}, dbus.WithSignalHandler(jobs))
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	if d, ok := nc.(net.Conn); ok {
		deadline, _ := ctx.Deadline()
		_ = d.SetDeadline(deadline) // a socket always takes one
		defer func() { _ = d.SetDeadline(time.Time{}) }()
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err = conn.Auth(auth); err == nil {
		err = conn.Hello()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", errTurnedAway, err)
	}
	return newClient(conn, bus, jobs), nil
}
