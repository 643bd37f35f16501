package managerlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Join asks a manager for a node's first certificate, over a connection that has proved that
// it is the manager, and ends the connection. request and answer are PEM. Errors: the
// manager's, and of the connection.
func Join(ctx context.Context, nc net.Conn, node, token string, request []byte) (certificate, authorities []byte, err error) {
	conn, err := peer.Client(ctx, nc, peer.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		conn.Close(errors.New("joined"))
		<-conn.Done()
	}()
	body, err := peer.Encode(node, token, request)
	if err != nil {
		return nil, nil, err
	}
	answer, err := conn.Call(ctx, peer.Call{Path: wire.InternalPath, Interface: wire.InternalJoinInterface, Member: wire.MemberJoin, Body: body})
	if err != nil {
		return nil, nil, err
	}
	return decodeIssued("Join", answer.Body)
}

// Renew implements agent.ManagerLink.
func (l *link) Renew(request []byte, timeout time.Duration, done func(certificate, authorities []byte, err error)) {
	body, err := peer.Encode(request)
	if err != nil {
		go done(nil, nil, err)
		return
	}
	l.conn.Go(peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalManagerInterface, Member: wire.MemberRenew, Body: body,
	}, timeout, func(m *peer.Message, err error) {
		if err != nil {
			done(nil, nil, err)
			return
		}
		done(decodeIssued("Renew", m.Body))
	})
}

func decodeIssued(call string, body wire.Raw) (certificate, authorities []byte, err error) {
	if err := peer.Decode(body, &certificate, &authorities); err != nil {
		return nil, nil, fmt.Errorf("answer to %s: %w", call, err)
	}
	return certificate, authorities, nil
}
