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
		"Subscribe":     {Serve: b.subscribe},
		"SubscribeList": {Serve: b.subscribeList},
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
	var targets []busobject.Target
	for _, a := range audience {
		for _, to := range a.To {
			targets = append(targets, busobject.Target{Path: wire.MonitorPath(a.Monitor), To: to})
		}
	}
	signal, body := unitSignal(e)
	b.server.EmitTo(targets, b.monitorIface, signal, body)
}

// unitSignal is an event as a signal of the Monitor interface.
func unitSignal(e manager.UnitEvent) (signal string, body func() (wire.Raw, error)) {
	args := func(values ...any) func() (wire.Raw, error) {
		return func() (wire.Raw, error) { return peer.Encode(values...) }
	}
	switch e.Kind {
	case manager.UnitNew:
		return "UnitNew", args(e.Node, e.Unit, e.Reason)
	case manager.UnitRemoved:
		return "UnitRemoved", args(e.Node, e.Unit, e.Reason)
	case manager.UnitStateChanged:
		return "UnitStateChanged", args(e.Node, e.Unit, e.Active, e.Sub, e.Reason)
	}
	return "UnitPropertiesChanged", func() (wire.Raw, error) {
		head, err := peer.Encode(e.Node, e.Unit, e.Interface)
		if err != nil {
			return head, err
		}
		return peer.JoinBody(head, e.Properties)
	}
}

// PeerRemoved implements manager.Events.
func (b *Bus) PeerRemoved(monitor uint32, name, reason string) {
	b.server.EmitTo([]busobject.Target{{Path: wire.MonitorPath(monitor), To: name}}, b.monitorIface, "PeerRemoved",
		func() (wire.Raw, error) { return peer.Encode(reason) })
}

// MonitorRemoved implements manager.Events. A monitor's end is told to nobody but its
// peers.
func (b *Bus) MonitorRemoved(uint32) {}
