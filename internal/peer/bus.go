package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"example.org/ctrl/internal/wire"
)

// NameFlags of RequestName (D-Bus specification, "org.freedesktop.DBus.RequestName").
type NameFlags uint32

// Flags of RequestName.
const (
	NameAllowReplacement NameFlags = 1 << iota
	NameReplaceExisting
	NameDoNotQueue
)

// NameReply is the answer to RequestName.
type NameReply uint32

// Answers to RequestName.
const (
	NamePrimaryOwner NameReply = 1 + iota
	NameInQueue
	NameExists
	NameAlreadyOwner
)

// DialBus connects to a bus as its client and says Hello. ctx bounds that, not the
// connection. Messages may have 64 MiB, and larger ones that others send are left out.
func DialBus(ctx context.Context, address string, opt Options) (*Conn, error) {
	nc, err := DialAddress(ctx, address)
	if err != nil {
		return nil, err
	}
	return ClientBus(ctx, nc, opt)
}

// ClientBus is DialBus on a connection that exists. On an error nc is closed.
func ClientBus(ctx context.Context, nc net.Conn, opt Options) (*Conn, error) {
	c, err := start(ctx, nc, opt, false, true, offerSASL)
	if err != nil {
		return nil, err
	}
	var name string
	if err := c.callBus(ctx, "Hello", wire.Raw{}, &name); err != nil {
		err = fmt.Errorf("bus at %s does not answer Hello: %w", remoteName(nc), err)
		c.Close(err)
		<-c.Done()
		return nil, err
	}
	c.name.Store(&name)
	return c, nil
}

// callBus calls a method of the bus itself.
func (c *Conn) callBus(ctx context.Context, member string, body wire.Raw, out ...any) error {
	m, err := c.Call(ctx, Call{
		Destination: wire.DBusName, Path: wire.DBusPath, Interface: wire.DBusInterface, Member: member, Body: body,
	})
	if err != nil {
		return err
	}
	return Decode(m.Body, out...)
}

// RequestName asks the bus for a well-known name.
func (c *Conn) RequestName(ctx context.Context, name string, flags NameFlags) (NameReply, error) {
	var reply uint32
	err := c.busArgs(ctx, "RequestName", []any{name, uint32(flags)}, &reply)
	return NameReply(reply), err
}

// ReleaseName gives a well-known name back.
func (c *Conn) ReleaseName(ctx context.Context, name string) error {
	var reply uint32
	return c.busArgs(ctx, "ReleaseName", []any{name}, &reply)
}

// AddMatch asks the bus for the signals that match rule (D-Bus specification, "Match Rules").
func (c *Conn) AddMatch(ctx context.Context, rule string) error {
	return c.busArgs(ctx, "AddMatch", []any{rule})
}

// RemoveMatch is the inverse of AddMatch.
func (c *Conn) RemoveMatch(ctx context.Context, rule string) error {
	return c.busArgs(ctx, "RemoveMatch", []any{rule})
}

// NameOwner asks for the unique name that owns a name; the error is of kind
// wire.ErrNameHasNoOwner where there is none.
func (c *Conn) NameOwner(ctx context.Context, name string) (string, error) {
	var owner string
	err := c.busArgs(ctx, "GetNameOwner", []any{name}, &owner)
	return owner, err
}

func (c *Conn) busArgs(ctx context.Context, member string, args []any, out ...any) error {
	body, err := Encode(args...)
	if err != nil {
		return err
	}
	return c.callBus(ctx, member, body, out...)
}

// SystemBusAddress is the address of the system bus: $DBUS_SYSTEM_BUS_ADDRESS or the
// standard one.
func SystemBusAddress() string {
	if a := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"); a != "" {
		return a
	}
	return "unix:path=/run/dbus/system_bus_socket"
}

// UserBusAddress is the address of the user's bus: $DBUS_SESSION_BUS_ADDRESS or
// $XDG_RUNTIME_DIR/bus.
func UserBusAddress() (string, error) {
	if a := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); a != "" {
		return a, nil
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return "unix:path=" + EscapeAddress(dir+"/bus"), nil
	}
	return "", errors.New("cannot find the user bus: neither DBUS_SESSION_BUS_ADDRESS nor XDG_RUNTIME_DIR is set; run it within a login session")
}
