package manager

import (
	"fmt"
	"testing"
	"testing/synctest"

	"example.org/ctrl/internal/wire"
)

func (w *world) monitor(owner string) (id uint32) {
	w.m.CreateMonitor(owner, func(got uint32, err error) { id = got; w.note("monitor %d: %s", got, kind(err)) })
	synctest.Wait()
	return id
}

func (w *world) subscribe(owner string, monitor uint32, node string, units ...string) (id uint32) {
	w.m.Subscribe(owner, monitor, node, units, func(got uint32, err error) {
		id = got
		w.note("subscribed %d: %s", got, kind(err))
	})
	synctest.Wait()
	return id
}

func (l *link) event(kind UnitEventKind, unit, active, sub string) {
	l.w.m.UnitEvent(l.session, UnitEvent{Kind: kind, Unit: unit, Active: active, Sub: sub, Reason: ReasonReal})
	synctest.Wait()
}

func online(w *world, node string) *link {
	l, _ := w.register(Registration{Node: node})
	return l
}

func TestMonitorRoundThenEventsThenDisconnect(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		mon := w.monitor(":1.1")
		w.take()
		w.subscribe(":1.1", mon, "node1", "a.service")
		w.expect("subscribed 1: ok", "node1< Subscribe a.service")
		l.event(UnitStateChanged, "a.service", "active", "running") // before the answer: not to be told
		l.rows("a.service", "a.service inactive dead")
		w.expect("new node1 a.service virtual 1[:1.1]", "state node1 a.service inactive dead virtual 1[:1.1]")
		l.event(UnitStateChanged, "a.service", "activating", "start")
		l.event(UnitPropertiesChanged, "a.service", "", "")
		l.event(UnitStateChanged, "other.service", "active", "running") // nobody asked
		w.expect("state node1 a.service activating start real 1[:1.1]", "properties node1 a.service real 1[:1.1]")
		w.m.Closed(l.session, "cut")
		w.expect("node node1 offline",
			"state node1 a.service inactive agent-offline virtual 1[:1.1]", "removed node1 a.service virtual 1[:1.1]",
			"status down")
		l.event(UnitStateChanged, "a.service", "active", "running") // of the old session
		w.expect()
		l = online(w, "node1")
		w.expect("node node1 online", "register node1: ok", "node1< Subscribe a.service", "status degraded")
		l.rows("a.service", "a.service active running")
		w.expect("new node1 a.service virtual 1[:1.1]", "state node1 a.service active running virtual 1[:1.1]")
	})
}

func TestMonitorWildcardTellsThePseudoUnitFirst(t *testing.T) {
	in(t, fleet, func(w *world) {
		mon := w.monitor(":1.1")
		w.subscribe(":1.1", mon, "*", "*")
		w.take()
		l := online(w, "node1")
		w.take()
		l.rows("*", "b.service active running", "a.timer inactive dead")
		w.expect("new node1 * virtual 1[:1.1]", "state node1 * active running virtual 1[:1.1]",
			"new node1 a.timer virtual 1[:1.1]", "state node1 a.timer inactive dead virtual 1[:1.1]",
			"new node1 b.service virtual 1[:1.1]", "state node1 b.service active running virtual 1[:1.1]")
		l.event(UnitNew, "c.service", "", "")
		l.event(UnitRemoved, "b.service", "", "")
		w.expect("new node1 c.service real 1[:1.1]", "removed node1 b.service real 1[:1.1]")
		w.m.Closed(l.session, "gone")
		w.expect("node node1 offline",
			"removed node1 a.timer virtual 1[:1.1]", "removed node1 c.service virtual 1[:1.1]",
			"state node1 * inactive agent-offline virtual 1[:1.1]", "removed node1 * virtual 1[:1.1]", "status down")
	})
}

func TestMonitorsShareOneUpstreamSubscription(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		first, second := w.monitor(":1.1"), w.monitor(":1.2")
		a := w.subscribe(":1.1", first, "node1", "a.service")
		l.rows("a.service", "a.service active running")
		w.take()
		b := w.subscribe(":1.2", second, "node*", "a.service")
		w.expect("subscribed 2: ok",
			"new node1 a.service virtual 2[:1.2]", "state node1 a.service active running virtual 2[:1.2]")
		// A second, wider subscription of the same monitor: each event still comes once.
		w.subscribe(":1.2", second, "node1", "a.*")
		l.rows("a.*", "a.service active running")
		w.take()
		l.event(UnitStateChanged, "a.service", "deactivating", "stop")
		w.expect("state node1 a.service deactivating stop real 1[:1.1] 2[:1.2]")
		w.m.Unsubscribe(":1.1", first, a, func(err error) { w.note("%s", kind(err)) })
		w.m.Unsubscribe(":1.1", first, a, func(err error) { w.note("%s", kind(err)) })
		w.expect("ok", "NoSuchSubscription")
		w.m.Unsubscribe(":1.2", second, b, func(err error) { w.note("%s", kind(err)) })
		w.expect("node1< Unsubscribe a.service", "ok")
		l.event(UnitStateChanged, "a.service", "inactive", "dead")
		w.expect("state node1 a.service inactive dead real 2[:1.2]")
		w.m.CloseMonitor(":1.2", second, func(err error) { w.note("%s", kind(err)) })
		w.expect("node1< Unsubscribe a.*", "monitor removed 2", "ok")
	})
}

func TestMonitorUnsubscribedWhileAskedAndAskedAgain(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		mon := w.monitor(":1.1")
		id := w.subscribe(":1.1", mon, "node1", "a.service")
		l.mu.Lock()
		stale := l.asked["Subscribe a.service"]
		l.mu.Unlock()
		w.m.Unsubscribe(":1.1", mon, id, func(error) {})
		w.subscribe(":1.1", mon, "node1", "a.service")
		w.take()
		stale(wire.Raw{Data: []byte("a.service failed failed")}, nil)
		w.expect()
		l.rows("a.service", "a.service active running")
		w.expect("new node1 a.service virtual 1[:1.1]", "state node1 a.service active running virtual 1[:1.1]")
	})
}

func TestMonitorByAlias(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		mon := w.monitor(":1.1")
		w.subscribe(":1.1", mon, "node1", "alias.service")
		l.rows("alias.service", "alias.service>real.service active running")
		w.take()
		l.event(UnitStateChanged, "real.service", "inactive", "dead")
		w.expect("state node1 real.service inactive dead real 1[:1.1]")
		w.m.UnitAlias(l.session, UnitRow{Asked: "alias.service", ID: "new.service", Active: "active", Sub: "exited"})
		w.expect("new node1 new.service virtual 1[:1.1]", "state node1 new.service active exited virtual 1[:1.1]")
		l.event(UnitStateChanged, "real.service", "active", "running")
		w.expect()
		w.m.UnitAlias(l.session, UnitRow{Asked: "alias.service"})
		l.event(UnitStateChanged, "new.service", "inactive", "dead")
		w.expect()
	})
}

// A unit of which a later subscription is told first is news for those who watch already.
func TestMonitorHearsOfAUnitThatWasNotAnnounced(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		first, second := w.monitor(":1.1"), w.monitor(":1.2")
		w.subscribe(":1.1", first, "node1", "*")
		l.rows("*", "a.service active running")
		w.subscribe(":1.2", second, "node1", "b.mount")
		w.take()
		l.rows("b.mount", "b.mount active mounted")
		w.expect("new node1 b.mount real 1[:1.1]", "state node1 b.mount active mounted real 1[:1.1]",
			"new node1 b.mount virtual 2[:1.2]", "state node1 b.mount active mounted virtual 2[:1.2]")
	})
}

func TestMonitorBelongsToItsOwner(t *testing.T) {
	in(t, fleet, func(w *world) {
		mon := w.monitor(":1.1")
		w.take()
		note := func(err error) { w.note("%s", kind(err)) }
		w.subscribe(":1.2", mon, "*", "*")
		w.m.Unsubscribe(":1.2", mon, 1, note)
		w.m.AddPeer(":1.2", mon, ":1.3", func(_ uint32, err error) { note(err) })
		w.m.RemovePeer(":1.2", mon, 1, "x", note)
		w.m.CloseMonitor(":1.2", mon, note)
		w.m.CloseMonitor(":1.1", 77, note)
		w.expect("subscribed 0: AccessDenied", "AccessDenied", "AccessDenied", "AccessDenied", "AccessDenied", "NoSuchMonitor")
	})
}

func TestMonitorPeersAndClientsThatLeave(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		mon := w.monitor(":1.1")
		peer := func(name string) (id uint32) {
			w.m.AddPeer(":1.1", mon, name, func(got uint32, err error) { id = got; w.note("peer %d: %s", got, kind(err)) })
			synctest.Wait()
			return id
		}
		w.take()
		second := peer(":1.2")
		for _, bad := range []string{":1.1", ":1.2", "org.example.name", ":", ":1", ":1..2", "1.2", ":1.ü", ""} {
			if peer(bad) != 0 {
				t.Errorf("peer %q was accepted", bad)
			}
		}
		peer(":1.3")
		w.subscribe(":1.1", mon, "node1", "a.service")
		w.take()
		l.rows("a.service", "a.service active running")
		w.expect("new node1 a.service virtual 1[:1.1 :1.2 :1.3]", "state node1 a.service active running virtual 1[:1.1 :1.2 :1.3]")
		w.m.RemovePeer(":1.1", mon, second, "enough", func(err error) { w.note("%s", kind(err)) })
		w.expect("peer removed 1 :1.2 enough", "ok")
		w.m.ClientGone(":1.3")
		l.event(UnitStateChanged, "a.service", "inactive", "dead")
		w.expect("state node1 a.service inactive dead real 1[:1.1]")
		peer(":1.4")
		w.take()
		w.m.ClientGone(":1.1")
		w.expect("node1< Unsubscribe a.service", "peer removed 1 :1.4 monitor closed", "monitor removed 1")
	})
}

// Who hears of a unit may change while events of it come.
func TestPeersComeAndGoBetweenEvents(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		mon := w.monitor(":1.1")
		w.subscribe(":1.1", mon, "*", "*")
		l.rows("*", "a.service active running")
		w.take()
		l.event(UnitStateChanged, "a.service", "failed", "one")
		w.m.AddPeer(":1.1", mon, ":1.2", func(uint32, error) {})
		w.m.AddPeer(":1.1", mon, ":1.3", func(uint32, error) {})
		l.event(UnitStateChanged, "a.service", "failed", "two")
		w.m.ClientGone(":1.2")
		l.event(UnitStateChanged, "a.service", "failed", "three")
		w.m.RemovePeer(":1.1", mon, 2, "x", func(error) {})
		l.event(UnitStateChanged, "a.service", "failed", "four")
		w.expect("state node1 a.service failed one real 1[:1.1]", "state node1 a.service failed two real 1[:1.1 :1.2 :1.3]",
			"state node1 a.service failed three real 1[:1.1 :1.3]", "peer removed 1 :1.3 x", "state node1 a.service failed four real 1[:1.1]")
	})
}

func TestClientThatIsLetGo(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		own, others := w.monitor(":1.1"), w.monitor(":1.2")
		w.m.AddPeer(":1.1", own, ":1.3", func(uint32, error) {})
		w.m.AddPeer(":1.2", others, ":1.1", func(uint32, error) {})
		w.subscribe(":1.2", others, "node1", "a.service")
		l.rows("a.service", "a.service active running")
		w.take()
		w.m.LetGo(":1.1", "too slow")
		w.m.LetGo(":1.9", "nobody")
		w.expect("peer removed 1 :1.3 monitor closed", "monitor removed 1", "peer removed 1 :1.1 too slow", "peer removed 2 :1.1 too slow")
		l.event(UnitStateChanged, "a.service", "inactive", "dead")
		w.expect("state node1 a.service inactive dead real 2[:1.2]")
		w.monitor(":1.1") // it may begin anew
		w.expect("monitor 3: ok")
	})
}

func TestMonitorsEndWithTheirBus(t *testing.T) {
	in(t, fleet, func(w *world) {
		first, second := w.monitor(":1.1"), w.monitor(":1.2")
		w.m.AddPeer(":1.1", first, ":1.3", func(uint32, error) {})
		w.take()
		w.m.ClientGone("")
		w.expect(fmt.Sprint("monitor removed ", first), fmt.Sprint("monitor removed ", second))
	})
}

func TestMonitorRefusesBadPatterns(t *testing.T) {
	in(t, fleet, func(w *world) {
		mon := w.monitor(":1.1")
		w.take()
		for _, bad := range [][2]string{
			{"node/1", "a.service"}, {"", "a.service"}, {"node1", "a"}, {"node1", "a@.service"},
			{"node1", "[a"}, {"[n", "a.service"}, {"node1", ""}, {"node1", "a\n.service"},
		} {
			w.m.Subscribe(":1.1", mon, bad[0], []string{bad[1]}, func(_ uint32, err error) {
				if kind(err) != "InvalidArgs" {
					t.Errorf("%q: %v", bad, err)
				}
			})
		}
		w.m.Subscribe(":1.1", mon, "node1", nil, func(_ uint32, err error) { w.note("%s", kind(err)) })
		w.subscribe(":1.1", mon, "not-there-yet", "a.service")
		w.expect("InvalidArgs", "subscribed 1: ok")
	})
}

func TestMonitorLimits(t *testing.T) {
	in(t, fleet, func(w *world) {
		for range MaxMonitorsPerOwner {
			w.m.CreateMonitor(":1.1", func(uint32, error) {})
		}
		w.take()
		w.monitor(":1.1")
		mon := w.monitor(":1.2")
		w.expect("monitor 0: LimitsExceeded", fmt.Sprintf("monitor %d: ok", mon))
		for range MaxSubscriptionsPerMonitor {
			w.m.Subscribe(":1.2", mon, "node1", []string{"a.service"}, func(uint32, error) {})
		}
		w.subscribe(":1.2", mon, "node1", "a.service")
		w.expect("subscribed 0: LimitsExceeded")
	})
}

// A node that does not answer a subscription would leave monitors with half the truth.
func TestMonitorSubscriptionWithoutAnswerEndsTheSession(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		mon := w.monitor(":1.1")
		w.subscribe(":1.1", mon, "node1", "a.service")
		w.take()
		l.keepAlive(fleet.CallTimeout)
		l.keepAlive(fleet.HeartbeatInterval)
		w.expect("node1< close", "node node1 offline", "status down")
	})
}
