package agentlink

import (
	"fmt"

	"example.org/ctrl/internal/manager"
)

func (f *fakeCore) Proxies(s manager.Session, all []manager.ProxyReport, deps []string) {
	f.events <- fmt.Sprintf("proxies %d %v %v", s, all, deps)
}
func (f *fakeCore) ProxyNew(s manager.Session, r manager.ProxyReport) {
	f.events <- fmt.Sprintf("proxy %d %v", s, r)
}
func (f *fakeCore) ProxyRemoved(s manager.Session, name string) {
	f.events <- fmt.Sprintf("proxy removed %d %s", s, name)
}
func (f *fakeCore) TargetState(s manager.Session, unit, state string) {
	f.events <- fmt.Sprintf("target %d %s %s", s, unit, state)
}
func (f *fakeCore) TargetLeaving(s manager.Session, unit string, restart bool) {
	f.events <- fmt.Sprintf("leaving %d %s %v", s, unit, restart)
}
func (f *fakeCore) DepState(s manager.Session, unit string, active bool) {
	f.events <- fmt.Sprintf("dep %d %s %v", s, unit, active)
}
