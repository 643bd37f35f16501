package manager

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

func TestHeartbeats(t *testing.T) {
	in(t, fleet, func(w *world) {
		one, two := w.connect("node1"), w.connect("node2")
		for range 60 {
			time.Sleep(time.Second)
			one.hear()
			two.hear()
		}
		synctest.Wait()
		for _, l := range []*link{one, two} {
			if n := l.beats.Load(); n < 29 || n > 31 {
				t.Errorf("%s got %d heartbeats in a minute, want 30", l.name, n)
			}
		}
		w.expect()
	})
}

func TestSilenceEndsASession(t *testing.T) {
	for _, c := range []struct{ interval, threshold time.Duration }{
		{2 * time.Second, 6 * time.Second}, {10 * time.Second, 3 * time.Second},
		{100 * time.Millisecond, 300 * time.Millisecond}, {time.Minute, 5 * time.Minute},
	} {
		cfg := fleet
		cfg.HeartbeatInterval, cfg.HeartbeatThreshold = c.interval, c.threshold
		in(t, cfg, func(w *world) {
			l := w.connect("node1")
			for range 50 {
				time.Sleep(c.threshold * 9 / 10)
				l.hear()
			}
			w.expect()
			time.Sleep(c.threshold)
			w.expect()
			time.Sleep(c.threshold / 8)
			w.expect("node1< close", "node node1 offline", "status down")
			if reason := w.node("node1").DisconnectReason; !strings.Contains(reason, "heartbeat threshold") {
				t.Errorf("the reason is %q", reason)
			}
		})
	}
}

func TestHeartbeatsOff(t *testing.T) {
	for _, c := range []struct {
		interval, threshold time.Duration
		beats               bool
	}{
		{0, 0, false}, {0, 6 * time.Second, false}, {2 * time.Second, 0, true}, {-time.Second, -time.Second, false},
	} {
		cfg := fleet
		cfg.HeartbeatInterval, cfg.HeartbeatThreshold = c.interval, c.threshold
		in(t, cfg, func(w *world) {
			l, welcome := w.register(Registration{Node: "node1"})
			w.take()
			time.Sleep(time.Hour)
			w.expect()
			if got := l.beats.Load() > 0; got != c.beats {
				t.Errorf("interval %v: %d heartbeats in an hour", c.interval, l.beats.Load())
			}
			if max(welcome.HeartbeatThreshold, 0) > 0 && welcome.HeartbeatInterval <= 0 || welcome.HeartbeatInterval < 0 || welcome.HeartbeatThreshold < 0 {
				t.Errorf("the agent is told %+v: a threshold needs an interval", welcome)
			}
		})
	}
}

func TestCallsUnderWayDoNotHideSilence(t *testing.T) {
	in(t, fleet, func(w *world) {
		w.connect("node1")
		w.start("job", ask(wire.Start, "web.service"))
		w.take()
		time.Sleep(7 * time.Second)
		w.expect("node1< close", "node node1 offline", "job: 0 NodeOffline", "status down")
	})
}

// TestPauseOfThisProcess stops the core for longer than the threshold: what the agents sent
// meanwhile is not read yet, and that is not their fault.
func TestPauseOfThisProcess(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.m.Status(func(string) { time.Sleep(time.Minute) })
		time.Sleep(time.Minute + time.Second)
		w.expect()
		l.hear()
		time.Sleep(5 * time.Second)
		w.expect()
		time.Sleep(2 * time.Second)
		w.expect("node1< close", "node node1 offline", "status down")
	})
}

func TestSessionsKeepTheirHeartbeatSettings(t *testing.T) {
	in(t, fleet, func(w *world) {
		old := w.connect("node1")
		slow := fleet
		slow.HeartbeatInterval, slow.HeartbeatThreshold = time.Minute, 3*time.Minute
		w.m.Reconfigure(slow)
		_, welcome := w.register(Registration{Node: "node2"})
		if welcome.HeartbeatInterval != time.Minute || welcome.HeartbeatThreshold != 3*time.Minute {
			t.Errorf("a new session is told %+v", welcome)
		}
		w.take()
		old.keepAlive(20 * time.Second)
		if n := old.beats.Load(); n < 9 {
			t.Errorf("%d heartbeats in 20 s to a session that was promised 10", n)
		}
		time.Sleep(7 * time.Second)
		w.expect("node1< close", "node node1 offline", "status degraded")
	})
}

func TestHeartbeatsAreSpread(t *testing.T) {
	m := New(fleet, nil, silent())
	now := time.Now()
	var slot [ticksPerInterval]int
	for id := range Session(800) {
		slot[m.newPulse(id, now).next.Sub(now)*ticksPerInterval/fleet.HeartbeatInterval]++
	}
	for i, n := range slot {
		if n < 90 || n > 110 {
			t.Errorf("tick %d has %d of 800 heartbeats, want about 100", i, n)
		}
	}
}

type deafLink struct {
	AgentLink
	last  time.Time
	beats int
}

func (l *deafLink) LastReceived() time.Time { return l.last }
func (l *deafLink) Heartbeat()              { l.beats++ }

// BenchmarkTick is one of the eight ticks of each heartbeat interval, with 5,000 agents.
func BenchmarkTick(b *testing.B) {
	m := New(fleet, nil, silent())
	defer m.loop.Stop()
	for range 5000 {
		n := &node{name: "n", session: &session{link: &deafLink{last: time.Now().Add(time.Hour)}}}
		n.session.node = n
		m.lastSession++
		n.session.pulse = m.newPulse(m.lastSession, time.Now())
		m.nodes = append(m.nodes, n)
	}
	for b.Loop() {
		now := time.Now()
		for _, n := range m.nodes {
			if n.session != nil {
				m.beat(n.session, now)
			}
		}
	}
}
