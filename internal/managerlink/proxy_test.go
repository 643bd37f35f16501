package managerlink

import (
	"fmt"

	"example.org/ctrl/internal/agent"
)

func (f *fakeCore) Targets(s agent.Session, units []string) {
	f.events <- fmt.Sprintf("targets %d %v", s, units)
}
func (f *fakeCore) ProxyState(s agent.Session, proxy, state, text string) {
	f.events <- fmt.Sprintf("proxy %d %s %s %s", s, proxy, state, text)
}
func (f *fakeCore) ReleaseTarget(s agent.Session, unit string) {
	f.events <- fmt.Sprintf("release %d %s", s, unit)
}

func (f *fakeCore) Ordered(s agent.Session, proxy string, units []string, reply func([]string, error)) {
	f.events <- fmt.Sprintf("ordered %d %s %v", s, proxy, units)
	reply(units, nil)
}
