package agentbus

import "example.org/ctrl/internal/wire"

func (c *fakeCore) CreateProxy(local, node, target string, reply func(error)) {
	if node != "node2" {
		reply(wire.ErrFailed.With("%s on %s for %s is refused", target, node, local))
		return
	}
	reply(nil)
}
func (c *fakeCore) RemoveProxy(_, _, _ string, reply func(error)) { reply(nil) }
func (c *fakeCore) WaitDependents(_ string, reply func())         { reply() }
