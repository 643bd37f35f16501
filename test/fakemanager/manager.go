package fakemanager

import (
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// Manager is a running fake.
type Manager struct {
	conn *dbus.Conn
	line net.Conn // below conn
	in   chan *dbus.Message
	done chan struct{}

	mu      sync.Mutex
	changed sync.Cond // calls or jobs have changed
	fleet   *Fleet
	jobs    map[uint32]*job
	lastJob uint32
	pings   map[uint32]*job // by serial, to clients that were told of a job
	calls   []string
	mons    map[uint32]*monitor
	lastMon uint32
	lastSub uint32

	logLevel string
	metrics  bool
}

type job struct {
	id                     uint32
	node, unit, verb, stat string
	how                    *Behaviour
	seen                   bool // the client has read the answer that names it
}

// Start connects to a bus and owns the manager's name there.
func Start(address string, fleet *Fleet) (*Manager, error) {
	conn, line, err := connect(address)
	if err != nil {
		return nil, err
	}
	m := &Manager{conn: conn, line: line, in: make(chan *dbus.Message, 1<<12), done: make(chan struct{}), fleet: fleet,
		jobs: make(map[uint32]*job), pings: make(map[uint32]*job), mons: make(map[uint32]*monitor),
		logLevel: "INFO", metrics: fleet.Metrics}
	m.changed.L = &m.mu
	if fleet.Version == "" {
		fleet.Version = "0.0-fake"
	}
	conn.Eavesdrop(m.in) // messages in order, on one goroutine
	if err := m.ownName(); err != nil {
		m.leave()
		return nil, err
	}
	go m.serve()
	return m, nil
}

// Stop leaves the bus.
func (m *Manager) Stop() {
	m.leave()
	<-m.done
}

func (m *Manager) serve() {
	defer close(m.done)
	for msg := range m.in {
		m.mu.Lock()
		if msg.Type == dbus.TypeMethodCall {
			m.answer(msg)
		} else if serial, ok := msg.Headers[dbus.FieldReplySerial].Value().(uint32); ok && m.pings[serial] != nil {
			m.pings[serial].seen = true
			delete(m.pings, serial)
		}
		m.changed.Broadcast()
		m.mu.Unlock()
	}
}

func header(msg *dbus.Message, field dbus.HeaderField) string {
	switch v := msg.Headers[field].Value().(type) {
	case string:
		return v
	case dbus.ObjectPath:
		return string(v)
	}
	return ""
}

// call is a method call with its answer still to give.
type call struct {
	m      *Manager
	msg    *dbus.Message
	sender string
	path   wire.ObjectPath
	member string
	body   []any
}

func (m *Manager) answer(msg *dbus.Message) {
	c := &call{m: m, msg: msg, sender: header(msg, dbus.FieldSender), path: wire.ObjectPath(header(msg, dbus.FieldPath)),
		member: header(msg, dbus.FieldMember), body: msg.Body}
	if err := m.route(c, header(msg, dbus.FieldInterface)); err != nil {
		c.fail(wire.AsError(err))
	}
}

func (m *Manager) route(c *call, iface string) error {
	switch iface {
	case wire.PropertiesInterface:
		return m.serveProperties(c)
	case wire.ObjectManagerInterface:
		c.reply(m.objects())
		return nil
	case wire.ManagerInterface:
		return m.serveManager(c)
	case wire.EnrolmentInterface:
		return m.serveEnrolment(c)
	case wire.WorkloadsInterface:
		return m.serveWorkloads(c)
	case wire.MonitorInterface:
		return m.serveMonitor(c)
	case wire.IntrospectableInterface:
		m.calls = append(m.calls, "Introspect "+string(c.path))
		if c.path == wire.MetricsPath && !m.metrics {
			return wire.ErrUnknownObject.With("metrics are off")
		}
		c.reply("<node/>")
		return nil
	case wire.NodeInterface:
		name, _ := wire.ParseNodePath(c.path)
		n := m.fleet.node(name)
		if n == nil {
			return wire.ErrUnknownObject.With("no object %s", c.path)
		}
		m.calls = append(m.calls, strings.TrimSpace(fmt.Sprintf("%s %s %s", name, c.member, arguments(c.body))))
		if n.Offline {
			return wire.ErrNodeOffline.With("node %s is offline", name)
		}
		return m.serveNode(c, n)
	}
	return wire.ErrUnknownInterface.With("no interface %s", iface)
}

func (c *call) reply(values ...any) {
	msg := &dbus.Message{Type: dbus.TypeMethodReply, Body: values, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(c.sender),
		dbus.FieldReplySerial: dbus.MakeVariant(c.msg.Serial()),
	}}
	if len(values) > 0 {
		msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(values...))
	}
	c.m.conn.Send(msg, make(chan *dbus.Call, 1))
}

func (c *call) fail(e *wire.Error) {
	c.m.conn.Send(&dbus.Message{Type: dbus.TypeError, Body: []any{e.Text}, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(c.sender),
		dbus.FieldReplySerial: dbus.MakeVariant(c.msg.Serial()),
		dbus.FieldErrorName:   dbus.MakeVariant(e.Name),
		dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf("")),
	}}, make(chan *dbus.Call, 1))
}

// emit sends a signal, to everyone where to is "".
func (m *Manager) emit(to string, path wire.ObjectPath, iface, member string, values ...any) {
	headers := map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath(path)),
		dbus.FieldInterface: dbus.MakeVariant(iface),
		dbus.FieldMember:    dbus.MakeVariant(member),
	}
	if to != "" {
		headers[dbus.FieldDestination] = dbus.MakeVariant(to)
	}
	if len(values) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(values...))
	}
	m.conn.Send(&dbus.Message{Type: dbus.TypeSignal, Headers: headers, Body: values}, make(chan *dbus.Call, 1))
}

func (m *Manager) emitChanged(path wire.ObjectPath, iface string, props map[string]dbus.Variant) {
	m.emit("", path, wire.PropertiesInterface, "PropertiesChanged", iface, props, []string{})
}

// Start starts a unit, as another client would.
func (m *Manager) Start(node, unit string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.fleet.node(node)
	if n == nil || n.unit(unit) == nil {
		return fmt.Errorf("no unit %s on %s", unit, node)
	}
	m.lastJob++
	j := &job{id: m.lastJob, node: node, unit: unit, verb: "start", stat: wire.JobRunning, how: &Behaviour{}}
	m.jobs[j.id] = j
	m.emit("", wire.RootPath, wire.ManagerInterface, "JobNew", j.id, dbus.ObjectPath(wire.JobPath(j.id)))
	m.endJob(j, wire.ResultDone)
	return nil
}

// AwaitJob waits until a job for a unit is under way and whoever asked for it has read the
// answer.
func (m *Manager) AwaitJob(node, unit string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for j := m.findJob(node, unit); j == nil || !j.seen; j = m.findJob(node, unit) {
		m.changed.Wait()
	}
}

// ping asks a client for a sign of life. A client handles messages in their order, so it has
// read the answer before the ping when it answers the ping.
func (m *Manager) ping(client string, j *job) {
	msg := &dbus.Message{Type: dbus.TypeMethodCall, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(client),
		dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath(wire.RootPath)),
		dbus.FieldInterface:   dbus.MakeVariant(wire.PeerInterface),
		dbus.FieldMember:      dbus.MakeVariant("Ping"),
	}}
	m.conn.Send(msg, make(chan *dbus.Call, 1))
	m.pings[msg.Serial()] = j
}

func (m *Manager) findJob(node, unit string) *job {
	for _, j := range m.jobs {
		if j.node == node && j.unit == unit {
			return j
		}
	}
	return nil
}

// SetOffline takes a node off, or back on, with all that follows from it.
func (m *Manager) SetOffline(node string, offline bool, reason string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.fleet.node(node)
	if n == nil {
		return fmt.Errorf("no node %s", node)
	}
	m.setOffline(n, offline, reason)
	return nil
}

func (m *Manager) setOffline(n *Node, offline bool, reason string) {
	before := m.fleet.status()
	n.Offline, n.Reason = offline, reason
	defer m.fleetChanged(n, before)
	m.emitChanged(wire.NodePath(n.Name), wire.NodeInterface, map[string]dbus.Variant{
		"Status": dbus.MakeVariant(n.status()), "DisconnectReason": dbus.MakeVariant(reason),
	})
	if !offline {
		return
	}
	for _, j := range m.jobs {
		if j.node == n.Name {
			m.endJob(j, wire.ResultCanceled)
		}
	}
}

// FinishJob ends a job that hangs.
func (m *Manager) FinishJob(node, unit, result string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.findJob(node, unit)
	if j == nil {
		return fmt.Errorf("no job for %s on %s", unit, node)
	}
	m.endJob(j, result)
	return nil
}
