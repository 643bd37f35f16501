package agentbus

import "example.org/ctrl/internal/busobject"

// proxyCall serves the two methods about one proxy. The answer of CreateProxy may take as long
// as the target's start; whoever waits for it waits alone.
func proxyCall(c *busobject.Call, carryOut func(local, node, target string, reply func(error))) {
	var local, node, target string
	if err := c.Decode(&local, &node, &target); err != nil {
		c.Fail(err)
		return
	}
	carryOut(local, node, target, func(err error) {
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply()
	})
}

func (b *Bus) waitDependents(c *busobject.Call) {
	var target string
	if err := c.Decode(&target); err != nil {
		c.Fail(err)
		return
	}
	b.core.WaitDependents(target, func() { c.Reply() })
}
