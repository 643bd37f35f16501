package agent

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

func (w *world) subscribe(pattern string) {
	w.a.Subscribe(w.link.session, pattern, func(rows []UnitRow, err error) { w.note("subscribed %s %d %s", pattern, len(rows), kind(err)) })
	synctest.Wait()
}

func (w *world) changed(unit string, props ...string) {
	changed := make(map[string]wire.Value)
	for i := 0; i < len(props); i += 2 {
		changed[props[i]] = str(props[i+1])
	}
	w.a.SystemdUnitChanged(unit, wire.SystemdUnitInterface, changed)
	synctest.Wait()
}

func TestEventsFollowTheAnswer(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		w.subscribe("a.service")
		w.changed("a.service", "ActiveState", "activating") // before the answer: part of it
		w.expect("systemd< units a.service")
		w.answer("units a.service", []UnitRow{{"a.service", "a.service", "activating", "start"}}, nil)
		w.expect("subscribed a.service 1 ok")
		w.changed("a.service", "ActiveState", "activating", "SubState", "start")
		w.expect() // nothing new in it but properties, which wait
		w.changed("a.service", "ActiveState", "active", "SubState", "running")
		w.expect("UnitProperties a.service Unit ActiveState=activating SubState=start", "UnitState a.service active running real")
		time.Sleep(flushDelay)
		w.expect("UnitProperties a.service Unit ActiveState=active SubState=running")
		w.changed("b.service", "ActiveState", "active")
		w.a.SystemdUnitNew("b.service")
		w.expect()
	})
}

func TestPropertiesAreMergedAndNoStateIsLost(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		w.subscribe("*")
		w.answer("units *", nil, nil)
		w.take()
		w.a.SystemdUnitNew("a.service")
		for _, v := range []string{"1", "2", "3"} {
			w.changed("a.service", "NRestarts", v)
			w.changed("b.service", "NRestarts", v)
		}
		w.changed("a.service", "ActiveState", "failed", "SubState", "failed")
		w.changed("a.service", "ActiveState", "inactive", "SubState", "dead")
		w.a.SystemdUnitRemoved("a.service")
		time.Sleep(flushDelay)
		w.expect("UnitNew a.service real",
			"UnitProperties a.service Unit NRestarts=3", "UnitState a.service failed failed real",
			"UnitProperties a.service Unit ActiveState=failed SubState=failed", "UnitState a.service inactive dead real",
			"UnitProperties a.service Unit ActiveState=inactive SubState=dead", "UnitRemoved a.service real",
			"UnitProperties b.service Unit NRestarts=3")
	})
}

// What systemd announces may have a state already of which no signal tells.
func TestNewUnitsAreAskedForTheirState(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		w.subscribe("*")
		w.answer("units *", []UnitRow{{"*", "known.mount", "active", "mounted"}}, nil)
		w.take()
		for _, name := range []string{"known.mount", "a.mount", "b.service", "c.mount", "d.mount"} {
			w.a.SystemdUnitNew(name)
		}
		w.changed("b.service", "ActiveState", "active", "SubState", "running")
		w.a.SystemdUnitRemoved("c.mount")
		w.expect("UnitNew a.mount real", "UnitNew b.service real", "UnitNew c.mount real", "UnitNew d.mount real",
			"UnitState b.service active running real", "UnitRemoved c.mount real")
		time.Sleep(flushDelay)
		both := w.take() // two timers with one time
		slices.Sort(both)
		if !slices.Equal(both, []string{"UnitProperties b.service Unit ActiveState=active SubState=running", "systemd< units a.mount"}) {
			t.Errorf("history is %q", both)
		}
		w.answer("units a.mount", nil, wire.ErrTimeout.With("slow"))
		time.Sleep(resyncPause)
		w.answer("units a.mount", []UnitRow{{"a.mount", "a.mount", "active", "mounted"}}, nil)
		w.expect("systemd< units a.mount", "UnitState a.mount active mounted real", "systemd< units d.mount")
		w.answer("units d.mount", nil, nil) // gone: that is still to come
		w.a.SystemdUnitRemoved("d.mount")
		time.Sleep(flushDelay)
		w.expect("UnitRemoved d.mount real")
	})
}

// A manager that does not keep up gets every state, and the latest properties later.
func TestPropertiesWaitForASlowManager(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.subscribe("*")
		w.answer("units *", []UnitRow{{"*", "a.service", "active", "running"}, {"*", "b.service", "active", "running"}, {"*", "c.service", "active", "running"}}, nil)
		w.take()
		l.backlog.Store(holdAbove + 1)
		for i := range 100 {
			w.changed("a.service", "NRestarts", fmt.Sprint(i))
			w.changed("b.service", "NRestarts", fmt.Sprint(i))
		}
		l.keepAlive(10 * time.Second)
		w.changed("b.service", "ActiveState", "failed", "SubState", "failed")
		w.changed("c.service", "NRestarts", "1")
		w.a.SystemdUnitRemoved("c.service")
		l.keepAlive(10 * time.Second)
		w.expect("UnitState b.service failed failed real", "UnitRemoved c.service real")
		l.backlog.Store(0)
		l.keepAlive(time.Second)
		w.expect("UnitProperties a.service Unit NRestarts=99", "UnitProperties b.service Unit ActiveState=failed NRestarts=99 SubState=failed")
		w.changed("a.service", "NRestarts", "100")
		time.Sleep(flushDelay)
		w.expect("UnitProperties a.service Unit NRestarts=100")
	})
}

func TestSystemdIsToldWhatIsWanted(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		if (*w.wanted.Load())("web-1.service") {
			t.Error("signals are wanted without a subscription")
		}
		w.subscribe("web-*")
		w.subscribe("alias.service")
		w.answer("units alias.service", []UnitRow{{"alias.service", "real.service", "activating", "start"}}, nil)
		// Signals of real.service were not wanted before, so the answer may be old already.
		w.expect("systemd< units web-*", "systemd< units alias.service", "systemd< units alias.service")
		w.answer("units alias.service", []UnitRow{{"alias.service", "real.service", "active", "running"}}, nil)
		w.expect("subscribed alias.service 1 ok")
		wants := *w.wanted.Load()
		for name, want := range map[string]bool{"web-1.service": true, "alias.service": true, "real.service": true, "db.service": false} {
			if wants(name) != want {
				t.Errorf("%s: %v", name, !want)
			}
		}
		w.changed("real.service", "ActiveState", "inactive", "SubState", "dead")
		w.expect("UnitState real.service inactive dead real")
		w.a.Unsubscribe(w.link.session, "alias.service")
		w.a.Unsubscribe(w.link.session, "web-*")
		synctest.Wait()
		if wants := *w.wanted.Load(); wants("web-1.service") || wants("real.service") {
			t.Error("signals are wanted after the last subscription")
		}
	})
}

func TestNamesAreResolvedAgainAfterReload(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		w.subscribe("a.service")
		w.answer("units a.service", []UnitRow{{"a.service", "a.service", "active", "running"}}, nil)
		w.a.SystemdUnitRemoved("a.service")
		w.take()
		w.a.SystemdReloaded()
		w.answer("units a.service", []UnitRow{{"a.service", "b.service", "activating", "start"}}, nil)
		w.answer("units a.service", []UnitRow{{"a.service", "b.service", "active", "exited"}}, nil)
		w.expect("systemd< units a.service", "systemd< units a.service", "UnitAlias a.service b.service active exited")
		w.changed("b.service", "ActiveState", "failed", "SubState", "failed")
		w.expect("UnitState b.service failed failed real")
		w.a.SystemdReloaded()
		w.answer("units a.service", nil, nil)
		w.expect("systemd< units a.service", "UnitProperties b.service Unit ActiveState=failed SubState=failed",
			"UnitAlias a.service   ")
	})
}

func TestUnitsAreComparedAfterSystemdWasAway(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		w.subscribe("*.service")
		w.answer("units *.service", []UnitRow{{"a.service", "a.service", "active", "running"}, {"b.service", "b.service", "active", "running"}}, nil)
		w.take()
		w.a.SystemdDown(errors.New("EOF"))
		w.a.SystemdUp(map[string]wire.Value{})
		w.answer("units *.service", []UnitRow{{"b.service", "b.service", "failed", "failed"}, {"c.service", "c.service", "active", "exited"}}, nil)
		w.expect("systemd< units *.service", "UnitRemoved a.service real", "UnitState b.service failed failed real",
			"UnitNew c.service real", "UnitState c.service active exited real")
	})
}

func TestSubscribingAgainLosesNothing(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		w.subscribe("a.service")
		w.answer("units a.service", []UnitRow{{"a.service", "a.service", "active", "running"}}, nil)
		w.subscribe("a.service")
		w.take()
		w.changed("a.service", "ActiveState", "failed", "SubState", "failed")
		w.expect("UnitState a.service failed failed real")
		w.answer("units a.service", nil, wire.ErrTimeout.With("slow"))
		w.changed("a.service", "ActiveState", "active", "SubState", "running")
		w.expect("subscribed a.service 0 Timeout", "UnitProperties a.service Unit ActiveState=failed SubState=failed",
			"UnitState a.service active running real")
	})
}

// The answer to a second subscription may know of a change before systemd's signal of it
// comes. Those who subscribed first must hear of it too.
func TestStateThatAnAnswerTellsIsNewsForOthers(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		w.subscribe("*.service")
		w.answer("units *.service", []UnitRow{{"a.service", "a.service", "active", "running"}}, nil)
		w.subscribe("a.service")
		w.take()
		w.answer("units a.service", []UnitRow{{"a.service", "a.service", "failed", "failed"}}, nil)
		w.changed("a.service", "ActiveState", "failed", "SubState", "failed")
		w.expect("UnitState a.service failed failed real", "subscribed a.service 1 ok")
	})
}

func TestNamesAfterSystemdWasAway(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		for _, name := range []string{"a.service", "b.service", "c.service"} {
			w.subscribe(name)
			w.answer("units "+name, []UnitRow{{name, name, "active", "running"}}, nil)
		}
		w.take()
		w.a.SystemdUp(nil)
		w.expect("systemd< units a.service") // one request at a time
		w.answer("units a.service", []UnitRow{{"a.service", "real.service", "active", "running"}}, nil)
		w.expect("systemd< units a.service") // once more: its signals were not wanted
		w.answer("units a.service", []UnitRow{{"a.service", "real.service", "active", "running"}}, nil)
		w.expect("UnitRemoved a.service real", "UnitAlias a.service real.service active running", "systemd< units b.service")
		w.answer("units b.service", nil, wire.ErrTimeout.With("slow"))
		time.Sleep(resyncPause)
		w.a.Unsubscribe(w.link.session, "c.service")
		w.answer("units b.service", nil, nil)
		w.expect("systemd< units b.service", "UnitRemoved b.service real")
		w.changed("real.service", "ActiveState", "failed", "SubState", "failed")
		w.expect("UnitState real.service failed failed real")
	})
}

func TestSubscriptionsAreBounded(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		for i := range MaxPatterns {
			w.a.Subscribe(w.link.session, fmt.Sprintf("u%d.service", i), func([]UnitRow, error) {})
		}
		w.take()
		w.subscribe("one-more.service")
		w.subscribe("u7.service")
		w.expect("subscribed one-more.service 0 LimitsExceeded", "systemd< units u7.service")
	})
}

func TestSubscriptionsThatAreRefused(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		w.subscribe("foo@.service")
		w.subscribe("[a")
		w.subscribe("")
		w.expect("subscribed foo@.service 0 InvalidArgs", "subscribed [a 0 InvalidArgs", "subscribed  0 InvalidArgs")
		w.subscribe("a.service")
		w.a.Unsubscribe(w.link.session, "a.service")
		w.answer("units a.service", nil, nil)
		w.expect("systemd< units a.service", "subscribed a.service 0 Disconnected")
		w.subscribe("b.service")
		w.answer("units b.service", nil, wire.ErrTimeout.With("slow"))
		w.expect("systemd< units b.service", "subscribed b.service 0 Timeout")
		w.changed("b.service", "ActiveState", "active")
		w.expect()
	})
}
