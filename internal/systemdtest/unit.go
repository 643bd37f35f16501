package systemdtest

import (
	"slices"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// unitState is one unit with what is going on in it. A job only waits for that: canceling
// the job of a start leaves the unit activating, as in systemd.
type unitState struct {
	systemd     *Systemd
	name        string
	spec        Spec
	transient   bool
	loaded      bool
	frozen      bool
	active, sub string
	job         *job
	properties  map[string]wire.Value // set with SetUnitProperties
	timer       *time.Timer           // of what is going on
	going       int                   // counts it, so that an abandoned timer is told apart
}

func (u *unitState) load() string {
	if u.spec.Load != "" {
		return u.spec.Load
	}
	return "loaded"
}

// hear is whether the core wants to know of the unit.
func (u *unitState) hear() bool { return u.systemd.wanted != nil && u.systemd.wanted(u.name) }

// touch loads the unit, as every request that names it does.
func (u *unitState) touch() {
	if u.loaded {
		return
	}
	u.loaded = true
	if name := u.name; u.hear() {
		u.systemd.push(func(c Core) { c.SystemdUnitNew(name) })
	}
}

// collect unloads the unit if nothing needs it.
func (u *unitState) collect() {
	if u.active != "inactive" || u.job != nil {
		return
	}
	s := u.systemd
	if u.loaded {
		u.loaded, u.frozen = false, false
		if name := u.name; u.hear() {
			s.push(func(c Core) { c.SystemdUnitRemoved(name) })
		}
	}
	if u.transient || u.spec.Load == "not-found" {
		delete(s.units, u.name)
		for _, n := range append([]string{u.name}, u.spec.Aliases...) {
			if s.names[n] == u {
				delete(s.names, n)
			}
		}
	}
}

// set changes the state and tells.
func (u *unitState) set(active, sub string) {
	u.touch()
	if u.active == active && u.sub == sub {
		return
	}
	u.active, u.sub = active, sub
	u.tell(wire.SystemdUnitInterface, map[string]wire.Value{
		"ActiveState": peer.MustValue(active), "SubState": peer.MustValue(sub),
	})
}

func (u *unitState) tell(iface string, changed map[string]wire.Value) {
	if name := u.name; u.hear() {
		u.systemd.push(func(c Core) { c.SystemdUnitChanged(name, iface, changed) })
	}
}

// activeSub is the sub state of the unit while it is active.
func (u *unitState) activeSub() string {
	switch kind := unit.TypeOf(u.name); {
	case kind == "service" && u.spec.Oneshot:
		return "exited"
	case kind == "service", kind == "scope":
		return "running"
	case kind == "socket":
		return "listening"
	case kind == "timer", kind == "path":
		return "waiting"
	case kind == "mount":
		return "mounted"
	case kind == "device":
		return "plugged"
	}
	return "active"
}

// begin lets something go on in the unit: after r's time, end is called with r's result.
func (u *unitState) begin(active, sub string, r Run, end func(result string)) {
	u.abort()
	u.set(active, sub)
	if r.Ends == Hangs {
		return
	}
	result := r.Ends
	if result == "" {
		result = wire.ResultDone
	}
	if r.Takes <= 0 {
		end(result)
		return
	}
	going := u.going
	u.timer = time.AfterFunc(r.Takes, func() {
		u.systemd.mu.Lock()
		defer u.systemd.mu.Unlock()
		if u.going == going {
			end(result)
		}
	})
}

// abort ends what is going on without an outcome.
func (u *unitState) abort() {
	u.going++
	if u.timer != nil {
		u.timer.Stop()
		u.timer = nil
	}
}

// never are results of starts that systemd did not begin.
var never = []string{"dependency", "skipped", "invalid", "assert", "unsupported", "collected", "once"}

func (u *unitState) start() {
	run := u.spec.Start
	if u.spec.ConditionFails {
		u.settled(wire.ResultDone)
		return
	}
	if slices.Contains(never, run.Ends) {
		u.settled(run.Ends)
		return
	}
	u.begin("activating", "start", run, func(result string) {
		switch {
		case result != wire.ResultDone:
			u.set("failed", "failed")
		case u.spec.Oneshot && !u.spec.Remain:
			u.set("inactive", "dead")
		default:
			u.set("active", u.activeSub())
		}
		u.settled(result)
	})
}

// stop also interrupts. Systemd takes it for a failure when SIGTERM ends a command: that of
// a reload, or of a oneshot unit.
func (u *unitState) stop() {
	failed := u.active == "reloading" || u.active == "activating" && u.spec.Oneshot
	u.begin("deactivating", "stop-sigterm", u.spec.Stop, func(result string) { u.end(failed || result != wire.ResultDone) })
}

// end makes the unit inactive or failed, whoever wanted it.
func (u *unitState) end(failed bool) {
	if failed {
		u.set("failed", "failed")
	} else {
		u.set("inactive", "dead")
	}
	u.settled(wire.ResultDone)
}

func (u *unitState) reload() {
	u.begin("reloading", "reload", u.spec.Reload, func(result string) {
		u.set("active", u.activeSub())
		u.settled(result)
	})
}
