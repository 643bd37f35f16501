package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"example.org/ctrl/internal/backoff"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// simAgent is one agent. What await reads belongs to the simulation's lock.
type simAgent struct {
	sim    *simulation
	name   string
	source *net.TCPAddr
	tls    *tls.Config // nil: TLS=no
	facts  map[string]wire.Value
	drops  chan struct{}

	conn   *peer.Conn // of the present session
	began  int64      // when it began, UnixNano; 0 while there is none
	failed error      // why there is none
}

// Of a real agent: config.Agent, ReconnectMin= and ReconnectMax=; managerlink's and the
// manager's limits.
const (
	simBeat     = 2 * time.Second
	simDialTime = 5 * time.Second
	simOpenTime = 10 * time.Second
)

var simBackoff = backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}

func simName(i int) string { return fmt.Sprint("node", i) }

func newSimAgent(s *simulation, i int) *simAgent {
	a := &simAgent{
		sim: s, name: simName(i), drops: make(chan struct{}, 1),
		// Addresses of their own, as the manager bounds what one address may cost.
		source: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i))},
	}
	a.facts = map[string]wire.Value{
		wire.FactMachineID: peer.MustValue(fmt.Sprintf("%032x", i)), wire.FactBootID: peer.MustValue(fmt.Sprintf("%032x", i)),
		wire.FactSystemdVersion: peer.MustValue("252"), wire.FactAgentVersion: peer.MustValue("1.0"),
		wire.FactArchitecture: peer.MustValue("x86-64"), wire.FactFeatures: peer.MustValue([]string{}),
	}
	return a
}

// run connects, and connects again, until the process ends.
func (a *simAgent) run() {
	for attempt := 0; ; attempt++ {
		conn, err := a.open()
		if err != nil {
			a.end(err)
			time.Sleep(simBackoff.Delay(attempt, rand.Float64()))
			continue
		}
		if !a.live(conn) {
			a.sim.lost.Add(1)
		}
		attempt = 0
		a.end(conn.Err())
		time.Sleep(simBackoff.Delay(0, rand.Float64()))
	}
}

func (a *simAgent) open() (*peer.Conn, error) {
	a.sim.tries.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), simOpenTime)
	defer cancel()
	dialer := net.Dialer{Timeout: simDialTime, KeepAlive: -1, LocalAddr: a.source}
	nc, err := dialer.DialContext(ctx, "tcp", "127.0.0.1:"+a.sim.port)
	if err != nil {
		return nil, err
	}
	if a.tls != nil {
		secure := tls.Client(nc, a.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, err
		}
		nc = secure
	}
	conn, err := peer.Client(ctx, nc, peer.Options{Handler: a.serve})
	if err != nil {
		return nil, err
	}
	_, err = conn.Call(ctx, peer.Call{
		Path: wire.InternalPath, Interface: wire.InternalManagerInterface, Member: wire.MemberRegister, Body: peer.MustEncode(a.name, a.facts),
	})
	if err != nil {
		conn.Close(err)
		return nil, err
	}
	conn.Signal(wire.InternalPath, wire.InternalProxyInterface, wire.MemberProxies, peer.MustEncode([]wire.ProxyRow{}, []string{}))
	a.sim.mu.Lock()
	a.conn, a.began, a.failed = conn, time.Now().UnixNano(), nil
	a.sim.mu.Unlock()
	a.sim.begun.Broadcast()
	return conn, nil
}

var errDropped = errors.New("dropped by the benchmark")

// live holds a session until it ends and reports whether this side has ended it.
func (a *simAgent) live(conn *peer.Conn) (dropped bool) {
	beat := time.NewTicker(simBeat)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			conn.Signal(wire.InternalPath, wire.InternalAgentInterface, wire.MemberHeartbeat, wire.Raw{})
		case <-a.drops:
			conn.Close(errDropped)
			<-conn.Done()
			return true
		case <-conn.Done():
			select {
			case <-a.drops: // both at the same moment
			default:
			}
			return false
		}
	}
}

func (a *simAgent) end(err error) {
	a.sim.mu.Lock()
	a.conn, a.began, a.failed = nil, 0, err
	a.sim.mu.Unlock()
}

// drop ends the session, if there is one.
func (a *simAgent) drop() {
	a.sim.mu.Lock()
	defer a.sim.mu.Unlock()
	if a.began != 0 {
		a.began = 0 // at once, so that await waits for the next one
		a.drops <- struct{}{}
	}
}

// simUnits is the answer to ListUnits: ten units, as a small container has them.
var simUnits = peer.MustEncode(func() (rows []wire.UnitStatus) {
	for i := range 10 {
		name := fmt.Sprintf("unit%d.service", i)
		rows = append(rows, wire.UnitStatus{Name: name, Description: "Unit of a simulated node", LoadState: "loaded", ActiveState: "active",
			SubState: "running", Path: wire.ObjectPath(fmt.Sprintf("%s/unit/unit%d_2eservice", wire.SystemdPath, i)), JobPath: "/"})
	}
	return rows
}())

// serve answers the manager as an agent with ten units.
func (a *simAgent) serve(conn *peer.Conn, m *peer.Message) {
	if m.Type != peer.TypeCall {
		return
	}
	method, known := wire.NodeMethodByName(m.Member)
	switch {
	case m.Member == wire.MemberSubscribe:
		type row struct{ Asked, ID, Active, Sub string }
		conn.Reply(m, peer.MustEncode([]row{{"*", simUnit, "active", "running"}}))
	case m.Member == wire.MemberUnsubscribe:
		conn.Reply(m, wire.Raw{})
	case m.Member == "ListUnits":
		conn.Reply(m, simUnits)
	case known && method.Kind == wire.JobMethod:
		a.job(conn, m)
	default:
		conn.ReplyError(m, peer.UnknownMethod(m))
	}
}

// job takes a job, and it is done.
func (a *simAgent) job(conn *peer.Conn, m *peer.Message) {
	head, _, err := peer.SplitBody(m.Body, 1)
	var id uint32
	if err == nil {
		err = peer.Decode(head, &id)
	}
	if err != nil {
		conn.ReplyError(m, err)
		return
	}
	conn.Reply(m, wire.Raw{})
	conn.Signal(wire.InternalPath, wire.InternalAgentInterface, wire.MemberJobState, peer.MustEncode(id, wire.JobRunning))
	conn.Signal(wire.InternalPath, wire.InternalAgentInterface, wire.MemberJobDone, peer.MustEncode(id, "done"))
}

const simUnit = "unit0.service"

// change lets the unit change. Its sub state tells a client when it was.
func (a *simAgent) change() error {
	a.sim.mu.Lock()
	conn := a.conn
	a.sim.mu.Unlock()
	if conn == nil {
		return fmt.Errorf("%s has no session", a.name)
	}
	return conn.Signal(wire.InternalPath, wire.InternalAgentInterface, wire.MemberUnitStateChanged,
		peer.MustEncode(simUnit, "active", fmt.Sprint(time.Now().UnixNano()), "real"))
}
