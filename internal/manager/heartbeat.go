package manager

import (
	"math/bits"
	"time"
)

// pulse is a session's heartbeat. The settings are those that its agent was told when it
// registered: both sides keep them until the session ends, whatever a reload changes.
type pulse struct {
	interval  time.Duration
	threshold time.Duration
	next      time.Time
}

// ticksPerInterval is how many times the heartbeat timer fires in the shorter of interval
// and threshold. One timer serves all sessions; each fires it only for the part of them
// whose time has come, so a fleet's heartbeats are spread over the interval. A silent link
// is found within the threshold and one tick, an eighth of the threshold at most.
const ticksPerInterval = 8

// minTick keeps a mistaken setting from keeping the core busy.
const minTick = 5 * time.Millisecond

// newPulse places a session's heartbeats within the interval by its id: neighbours far
// apart, without random numbers (the bits of the id in reverse, van der Corput's sequence).
// Without an interval nobody promised a sign of life, so no silence is too long.
func (m *Manager) newPulse(id Session, now time.Time) pulse {
	if m.cfg.HeartbeatInterval <= 0 {
		return pulse{}
	}
	share := time.Duration(bits.Reverse8(uint8(id)))
	return pulse{
		interval:  m.cfg.HeartbeatInterval,
		threshold: max(m.cfg.HeartbeatThreshold, 0),
		next:      now.Add(m.cfg.HeartbeatInterval * share / 256),
	}
}

// armTick sets the timer to serve the present configuration and all sessions.
func (m *Manager) armTick() {
	m.tick.Stop()
	m.tick = nil
	every := shorter(m.cfg.HeartbeatInterval, m.cfg.HeartbeatThreshold)
	if m.cfg.HeartbeatInterval <= 0 {
		every = 0
	}
	for _, s := range m.sessions {
		if own := shorter(s.pulse.interval, s.pulse.threshold); own > 0 && (every == 0 || own < every) {
			every = own
		}
	}
	if every > 0 {
		m.tickEvery = max(every/ticksPerInterval, minTick)
		m.nextTick(time.Now())
	}
}

// shorter is the smaller of two durations of which 0 or less means none.
func shorter(a, b time.Duration) time.Duration {
	if b <= 0 || a > 0 && a < b {
		return max(a, 0)
	}
	return b
}

func (m *Manager) nextTick(now time.Time) {
	m.tickDue = now.Add(m.tickEvery)
	m.tick = m.loop.After(m.tickEvery, m.onTick)
}

func (m *Manager) onTick() {
	now := time.Now()
	if late := now.Sub(m.tickDue); late > m.tickEvery*ticksPerInterval/2 {
		// This process stood still (suspended, stopped, starved) and may not have read what
		// the agents sent meanwhile: their silence counts from now.
		m.awake = now
	}
	for _, n := range m.nodes {
		if n.session != nil {
			m.beat(n.session, now)
		}
	}
	m.nextTick(now)
}

func (m *Manager) beat(s *session, now time.Time) {
	p := &s.pulse
	if p.interval <= 0 {
		return
	}
	if silent := m.silence(s, now); p.threshold > 0 && silent > p.threshold {
		m.endSession(s, "nothing received for "+silent.Round(time.Millisecond).String()+
			", the heartbeat threshold is "+p.threshold.String(), true)
		return
	}
	if now.Before(p.next) {
		return
	}
	s.link.Heartbeat()
	if p.next = p.next.Add(p.interval); p.next.Before(now) {
		p.next = now.Add(p.interval)
	}
}

// silence is how long nothing was received while this process was able to receive.
func (m *Manager) silence(s *session, now time.Time) time.Duration {
	last := s.lastReceived()
	if m.awake.After(last) {
		last = m.awake
	}
	return now.Sub(last)
}
