package managerbus

import (
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

// JobNew implements manager.Events.
func (b *Bus) JobNew(j manager.JobInfo) {
	o := b.jobObject(j)
	b.server.Added(o)
	b.server.Emit(wire.RootPath, b.managerIface, "JobNew", j.ID, o.Path)
}

// JobState implements manager.Events.
func (b *Bus) JobState(j manager.JobInfo) { b.server.Changed(b.jobObject(j), b.jobIface, "State") }

// JobRemoved implements manager.Events.
func (b *Bus) JobRemoved(j manager.JobInfo, result string) {
	b.ended(j, result)
	o := b.jobObject(j)
	b.server.Emit(wire.RootPath, b.managerIface, "JobRemoved", j.ID, o.Path, j.Node, j.Unit, result)
	b.server.Removed(o)
}

// NodeChanged implements manager.Events.
func (b *Bus) NodeChanged(n manager.NodeInfo) {
	b.server.Changed(b.nodeObject(n), b.nodeIface, "Status", "PeerIp", "StatusTimestamp", "DisconnectReason", "Facts")
}

// StatusChanged implements manager.Events.
func (b *Bus) StatusChanged(status string) {
	b.server.Changed(b.rootObject(fleet{Snapshot: manager.Snapshot{Status: status}}), b.managerIface, "Status")
}

// FleetChanged implements manager.Events.
func (b *Bus) FleetChanged(added, removed []manager.NodeInfo) {
	for _, n := range added {
		b.server.Added(b.nodeObject(n))
	}
	for _, n := range removed {
		b.server.Removed(b.nodeObject(n))
	}
	b.server.Changed(b.rootObject(fleet{}), b.managerIface, "Nodes")
}

func (b *Bus) rootObject(f fleet) busobject.Object {
	return busobject.Object{Path: wire.RootPath, Class: b.root, State: f}
}

func (b *Bus) nodeObject(n manager.NodeInfo) busobject.Object {
	return busobject.Object{Path: wire.NodePath(n.Name), Class: b.nodes, State: n}
}

func (b *Bus) jobObject(j manager.JobInfo) busobject.Object {
	return busobject.Object{Path: wire.JobPath(j.ID), Class: b.jobs, State: j}
}
