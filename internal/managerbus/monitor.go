package managerbus

import (
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

const monitorsPath = wire.RootPath + "/monitor"

func (b *Bus) monitorClass() *busobject.Class {
	b.monitorIface = busobject.NewInterface(wire.MonitorInterface, map[string]busobject.Method{
		"Subscribe":     {Serve: b.subscribe, About: aboutNamed},
		"SubscribeList": {Serve: b.subscribeList, About: aboutNamed},
		"Unsubscribe":   {Serve: b.unsubscribe},
		"AddPeer":       {Serve: b.addPeer},
		"RemovePeer":    {Serve: b.removePeer},
		"Close":         {Serve: b.closeMonitor},
	}, nil)
	return &busobject.Class{
		At: func(p wire.ObjectPath) bool {
			_, ok := wire.ParseMonitorPath(p)
			return ok
		},
		Below:      monitorsPath,
		Private:    true,
		Load:       b.loadMonitor,
		Interfaces: []*busobject.Interface{b.monitorIface},
	}
}

func (b *Bus) loadMonitor(p wire.ObjectPath, reply func(any, error)) {
	id, _ := wire.ParseMonitorPath(p)
	b.core.Monitors(func(all []manager.MonitorInfo) {
		for _, m := range all {
			if m.ID == id {
				reply(m, nil)
				return
			}
		}
		reply(nil, wire.ErrNoSuchMonitor.With("there is no monitor %d; it may have been closed", id))
	})
}

func (b *Bus) createMonitor(c *busobject.Call) {
	b.core.CreateMonitor(c.Sender, func(id uint32, err error) {
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply(wire.MonitorPath(id))
	})
}

// monitorID is the monitor that a call is for; decode reads its arguments.
func monitorID(c *busobject.Call, args ...any) (id uint32, ok bool) {
	id, _ = wire.ParseMonitorPath(c.Path)
	if err := c.Decode(args...); err != nil {
		c.Fail(err)
		return 0, false
	}
	return id, true
}

// ended answers a monitor's method that gives nothing, and number one that gives an id.
func ended(c *busobject.Call) func(error) {
	return func(err error) { answer(c)(gone(c, err, wire.ErrNoSuchMonitor)) }
}

func number(c *busobject.Call) func(uint32, error) {
	return func(id uint32, err error) {
		if err != nil {
			c.Fail(gone(c, err, wire.ErrNoSuchMonitor))
			return
		}
		c.Reply(id)
	}
}

func (b *Bus) subscribe(c *busobject.Call) {
	var node, unit string
	if id, ok := monitorID(c, &node, &unit); ok {
		b.core.Subscribe(c.Sender, id, node, []string{unit}, number(c))
	}
}

func (b *Bus) subscribeList(c *busobject.Call) {
	var node string
	var units []string
	if id, ok := monitorID(c, &node, &units); ok {
		b.core.Subscribe(c.Sender, id, node, units, number(c))
	}
}

func (b *Bus) unsubscribe(c *busobject.Call) {
	var subscription uint32
	if id, ok := monitorID(c, &subscription); ok {
		b.core.Unsubscribe(c.Sender, id, subscription, ended(c))
	}
}

func (b *Bus) addPeer(c *busobject.Call) {
	var name string
	if id, ok := monitorID(c, &name); ok {
		b.core.AddPeer(c.Sender, id, name, number(c))
	}
}

func (b *Bus) removePeer(c *busobject.Call) {
	var peerID uint32
	var reason string
	if id, ok := monitorID(c, &peerID, &reason); ok {
		b.core.RemovePeer(c.Sender, id, peerID, reason, ended(c))
	}
}

func (b *Bus) closeMonitor(c *busobject.Call) {
	if id, ok := monitorID(c); ok {
		b.core.CloseMonitor(c.Sender, id, ended(c))
	}
}

// UnitEvent implements manager.Events.
func (b *Bus) UnitEvent(e manager.UnitEvent, audience []manager.Audience) {
	b.events.in()
	if !b.toRecipients(func() { b.events.out(); b.outlets.event(&signal{event: e}, audience) }) {
		b.events.out()
	}
}

// WaitForEvents blocks while so many events of units wait to be sent that more of them should
// not be read from agents. It is for their connections' own goroutines: TCP then slows the
// agents down, which tell the latest only of what changes often.
func (b *Bus) WaitForEvents() { b.events.wait() }

// PeerRemoved implements manager.Events. What waits for the peer is of no use any more.
func (b *Bus) PeerRemoved(monitor uint32, name, reason string) {
	b.toRecipients(func() {
		b.outlets.drop(monitor, name)
		args, err := peer.Encode(reason)
		if err != nil {
			b.outlets.sender.Dropped(b.monitorIface, "PeerRemoved", err)
			return
		}
		b.outlets.sender.Signal(busobject.Target{Path: wire.MonitorPath(monitor), To: name}, b.monitorIface, "PeerRemoved", args)
	})
}

// MonitorRemoved implements manager.Events. A monitor's end is told to nobody but its
// peers.
func (b *Bus) MonitorRemoved(monitor uint32) {
	b.toRecipients(func() { b.outlets.closed(monitor) })
}

// toRecipients does something with the outlets, of the bus that is connected now, and reports
// whether it will. What waits is bounded by WaitForEvents and by the number of units.
func (b *Bus) toRecipients(do func()) bool {
	sender, ok := b.server.Sender()
	return ok && b.server.Queue(func() {
		b.outlets.use(sender)
		do()
	})
}

// clientGone takes a client that has left the bus off all monitors. Its outlet goes when the
// core has no more events for it.
func (b *Bus) clientGone(name string) {
	b.core.ClientGone(name)
	b.inOrder(func() { b.toRecipients(func() { b.outlets.forget(name) }) })
}

// letGo takes a client off all monitors that does not read what it is sent.
func (b *Bus) letGo(name, reason string, done func()) {
	b.core.LetGo(name, reason)
	b.inOrder(func() { b.toRecipients(done) })
}
