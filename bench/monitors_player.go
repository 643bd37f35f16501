package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// player plays an agent.
type player struct {
	conn  *peer.Conn
	count [monitorUnits]int
}

func play(ctx context.Context, port, name string) (*player, error) {
	nc, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return nil, err
	}
	p := &player{}
	p.conn, err = peer.Client(ctx, nc, peer.Options{Handler: p.serve})
	if err != nil {
		return nil, err
	}
	facts := map[string]wire.Value{wire.FactMachineID: peer.MustValue(name), wire.FactSystemdVersion: peer.MustValue("252")}
	_, err = p.conn.Call(ctx, peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalManagerInterface, Member: wire.MemberRegister, Body: peer.MustEncode(name, facts),
	})
	if err == nil {
		go p.beat()
	}
	return p, err
}

func (p *player) beat() {
	for {
		select {
		case <-time.After(time.Second):
			p.conn.Signal(wire.InternalPath, wire.InternalAgentInterface, wire.MemberHeartbeat, wire.Raw{})
		case <-p.conn.Closing():
			return
		}
	}
}

// serve answers Subscribe with the state of all units.
func (p *player) serve(conn *peer.Conn, m *peer.Message) {
	switch {
	case m.Type != peer.TypeCall:
	case m.Member != wire.MemberSubscribe:
		conn.ReplyError(m, peer.UnknownMethod(m))
	default:
		type row struct{ Asked, ID, Active, Sub string }
		var rows []row
		for i := range monitorUnits {
			rows = append(rows, row{"*", unitName(i), "active", "0"})
		}
		conn.Reply(m, peer.MustEncode(rows))
	}
}

func unitName(i int) string { return fmt.Sprintf("unit%d.service", i) }

// lastState is the active state with which each unit ends.
const lastState = "inactive"

func (p *player) change(unit int, state string) error {
	if state == "" {
		state = "active"
	}
	p.count[unit]++
	sub := fmt.Sprint(p.count[unit], ".", time.Now().UnixNano())
	err := p.conn.Signal(wire.InternalPath, wire.InternalAgentInterface, wire.MemberUnitStateChanged,
		peer.MustEncode(unitName(unit), state, sub, "real"))
	if err != nil {
		return fmt.Errorf("a node lost its connection: %w", err)
	}
	return nil
}
