package systemd

import (
	"testing"
	"testing/synctest"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// A oneshot that is started by an alias is remembered by both names: signals come by the
// primary name, and whoever asked knows the alias.
func TestCollectedUnitsAreRememberedByAliasToo(t *testing.T) {
	private(t, func(w *world) {
		w.p.set("StartUnit", wire.SystemdJobPath(7))
		w.p.signal(wire.SystemdPath, wire.SystemdManagerInterface, "JobNew", uint32(7), wire.SystemdJobPath(7), "real.service")
		synctest.Wait()
		w.start("alias.service")
		synctest.Wait()
		w.p.propertiesChanged(wire.UnitPath("real.service"), wire.SystemdUnitInterface, map[string]wire.Value{
			"ConditionTimestamp": peer.MustValue(uint64(5)), "ActiveState": peer.MustValue("inactive"),
		})
		w.p.jobRemoved(7, "real.service", "done")
		w.expect("alias.service is job 7", "removed 7 real.service done")
		w.p.set("GetAll", map[string]wire.Value{
			"Id": peer.MustValue("real.service"), "ActiveState": peer.MustValue("inactive"),
			"InactiveExitTimestamp": peer.MustValue(uint64(0)), "ConditionTimestamp": peer.MustValue(uint64(0)),
		})
		for _, name := range []string{"alias.service", "real.service"} {
			var got map[string]wire.Value
			w.Call("GetUnitProperties", peer.MustEncode(name, "Unit"), 0, func(body wire.Raw, err error) {
				if err == nil {
					err = peer.Decode(body, &got)
				}
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			if zero(got["ConditionTimestamp"]) {
				t.Errorf("asked for %s, what happened is forgotten: %v", name, got)
			}
		}
		w.memory.mu.Lock()
		defer w.memory.mu.Unlock()
		if len(w.memory.jobs) > 0 {
			t.Errorf("jobs that have ended are kept: %v", w.memory.jobs)
		}
	})
}
