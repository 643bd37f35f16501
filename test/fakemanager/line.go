package fakemanager

import (
	"context"
	"fmt"
	"net"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// leave cuts the line: the library's own Close may close the channel of messages while it
// sends on it.
func (m *Manager) leave() { _ = m.line.Close() }

func connect(address string) (*dbus.Conn, net.Conn, error) {
	line, err := peer.DialAddress(context.Background(), address)
	if err != nil {
		return nil, nil, err
	}
	conn, err := dbus.NewConn(line)
	if err == nil {
		err = conn.Auth(nil)
	}
	if err == nil {
		err = conn.Hello()
	}
	if err != nil {
		_ = line.Close()
		return nil, nil, err
	}
	return conn, line, nil
}

// ownName takes the manager's name. By then all messages come to m.in: calls may follow the
// name at once.
func (m *Manager) ownName() error {
	ask := &dbus.Message{Type: dbus.TypeMethodCall, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(wire.DBusName),
		dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath(wire.DBusPath)),
		dbus.FieldInterface:   dbus.MakeVariant(wire.DBusInterface),
		dbus.FieldMember:      dbus.MakeVariant("RequestName"),
		dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf("", uint32(0))),
	}, Body: []any{wire.BusName, uint32(dbus.NameFlagDoNotQueue)}}
	m.conn.Send(ask, make(chan *dbus.Call, 1))
	for msg := range m.in {
		if serial, ok := msg.Headers[dbus.FieldReplySerial].Value().(uint32); !ok || serial != ask.Serial() {
			continue
		}
		if len(msg.Body) != 1 || msg.Body[0] != uint32(dbus.RequestNameReplyPrimaryOwner) {
			return fmt.Errorf("the name %s is taken", wire.BusName)
		}
		return nil
	}
	return fmt.Errorf("the connection to the bus was lost")
}
