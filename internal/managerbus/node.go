package managerbus

import (
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

const nodesPath = wire.RootPath + "/node"

func (b *Bus) nodeClass() *busobject.Class {
	methods := make(map[string]busobject.Method)
	for i := range wire.NodeMethods {
		m := &wire.NodeMethods[i]
		methods[m.Name] = busobject.Method{Serve: b.nodeMethod(m), About: aboutUnits(m)}
		if namesUnits(m) {
			methods[m.Name] = busobject.Method{Serve: b.nodeMethod(m), About: aboutUnits(m), Find: b.findUnits(m)}
		}
	}
	b.nodeIface = busobject.NewInterface(wire.NodeInterface, methods, map[string]busobject.Getter{
		"Name":                       busobject.Property(func(n manager.NodeInfo) any { return n.Name }),
		"Status":                     busobject.Property(func(n manager.NodeInfo) any { return n.Status }),
		"PeerIp":                     busobject.Property(func(n manager.NodeInfo) any { return n.Address }),
		"LastSeenTimestamp":          busobject.Property(func(n manager.NodeInfo) any { return busobject.Realtime(n.LastSeen) }),
		"LastSeenTimestampMonotonic": busobject.Property(func(n manager.NodeInfo) any { return busobject.Monotonic(n.LastSeen) }),
		"StatusTimestamp":            busobject.Property(func(n manager.NodeInfo) any { return busobject.Realtime(n.StatusSince) }),
		"DisconnectReason":           busobject.Property(func(n manager.NodeInfo) any { return n.DisconnectReason }),
		"Optional":                   busobject.Property(func(n manager.NodeInfo) any { return n.Optional }),
		"Facts":                      busobject.Property(func(n manager.NodeInfo) any { return n.Facts }),
	})
	return &busobject.Class{
		At: func(p wire.ObjectPath) bool {
			name, ok := wire.ParseNodePath(p)
			return ok && wire.ValidNodeName(name)
		},
		Below: nodesPath,
		Load: func(p wire.ObjectPath, reply func(any, error)) {
			name, _ := wire.ParseNodePath(p)
			b.core.Node(name, func(n manager.NodeInfo, err error) { reply(n, err) })
		},
		Interfaces: []*busobject.Interface{b.nodeIface},
	}
}

func (b *Bus) nodeMethod(m *wire.NodeMethod) func(*busobject.Call) {
	if m.Kind == wire.JobMethod {
		return func(c *busobject.Call) { b.startJob(c, m) }
	}
	return func(c *busobject.Call) {
		name, _ := wire.ParseNodePath(c.Path)
		b.core.CallNode(name, m.Name, c.Args, func(body wire.Raw, err error) {
			if err != nil {
				c.Fail(gone(c, err, wire.ErrNoSuchNode))
				return
			}
			b.pass(c, m, body)
		})
	}
}

func (b *Bus) startJob(c *busobject.Call, m *wire.NodeMethod) {
	req, err := jobRequest(c, m)
	if err != nil {
		c.Fail(err)
		return
	}
	uid, known := c.User()
	req.Caller = manager.Caller{Name: c.Sender, UID: uid, Known: known}
	b.core.StartJob(req, func(id uint32, err error) {
		if err != nil {
			c.Fail(gone(c, err, wire.ErrNoSuchNode))
			return
		}
		c.Reply(wire.JobPath(id))
	})
}

// jobRequest reads "ss", and for a transient unit what follows. A method that is no verb of
// its own starts a unit.
func jobRequest(c *busobject.Call, m *wire.NodeMethod) (manager.JobRequest, error) {
	var req manager.JobRequest
	req.Node, _ = wire.ParseNodePath(c.Path)
	verb, named := wire.VerbOfMethod(m.Name)
	req.Verb = verb
	args := c.Args
	if !named {
		head, rest, err := peer.SplitBody(args, 2)
		if err != nil {
			return req, err
		}
		args, req.Verb, req.Transient = head, wire.Start, &rest
	}
	return req, peer.Decode(args, &req.Unit, &req.Mode)
}
