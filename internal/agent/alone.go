package agent

import (
	"fmt"
	"time"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/wire"
)

// alone is what an agent does when it has had no manager for long: nothing, unless it is
// configured. The time counts from the end of a session, and from the start of the agent
// where there was none yet, since a node that never finds its manager is as much alone.
type alone struct {
	since time.Time
	exit  *loop.Timer
	unit  *loop.Timer
}

func (a *Agent) beAlone() {
	a.alone.since = time.Now()
	a.armAlone()
}

// armAlone sets the timers by the present configuration, counting from when it began.
func (a *Agent) armAlone() {
	a.alone.exit.Stop()
	a.alone.unit.Stop()
	gone := time.Since(a.alone.since)
	if after := a.cfg.ExitOnDisconnect; after > 0 && a.cfg.Fail != nil {
		a.alone.exit = a.loop.After(max(after-gone, 0), func() {
			a.cfg.Fail(fmt.Errorf("no manager for %v (ExitOnDisconnect=)", after))
		})
	}
	if a.cfg.OnDisconnectUnit != "" {
		a.alone.unit = a.loop.After(max(a.cfg.OnDisconnectUnitAfter-gone, 0), a.startAloneUnit)
	}
}

func (a *Agent) notAlone() {
	a.alone.exit.Stop()
	a.alone.unit.Stop()
}

// startAloneUnit starts the unit once per time of being alone.
func (a *Agent) startAloneUnit() {
	name := a.cfg.OnDisconnectUnit
	a.log.Warn("without a manager for too long, starting a unit", keyUnit, name, "after", a.cfg.OnDisconnectUnitAfter)
	req := JobRequest{Unit: name, Verb: wire.Start, Mode: wire.JobModes[0]}
	e := actionlog.Entry{
		Node: a.cfg.Node, Units: []string{name}, Verb: wire.Start.String(), Result: actionlog.ResultQueued,
		Caller: actionlog.Caller{Name: "OnDisconnectUnit="},
	}
	actions := a.cfg.Actions
	a.systemd.StartJob(req, a.cfg.CallTimeout, func(_ uint32, err error) {
		e.Judge(wire.Start.Method(), err)
		actions.Write(e)
		if err != nil {
			a.log.Warn("cannot start the unit of OnDisconnectUnit=", keyUnit, name, keyErr, err)
		}
	})
}
