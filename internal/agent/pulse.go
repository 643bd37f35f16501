package agent

import (
	"fmt"
	"time"

	"example.org/ctrl/internal/loop"
)

// pulse is the heartbeat of one session, both ways.
type pulse struct {
	interval  time.Duration // of our own; 0 is off
	threshold time.Duration // of silence from the manager; 0 is off
	next      time.Time
	every     time.Duration
	due       time.Time
	awake     time.Time // since when this process is known to run without a pause
	timer     *loop.Timer
}

// checksPerThreshold is how often silence is looked at: a dead link is found within the
// threshold and an eighth of it.
const checksPerThreshold = 8

const minTick = 5 * time.Millisecond

// startPulse begins with what both sides are configured for. A manager that sends no
// heartbeats is not missed; one that would miss ours is sent them whatever our own setting
// is, a third of its threshold apart, so that two configurations that do not fit together
// do not end in a session that breaks again and again.
func (a *Agent) startPulse(w Welcome) {
	p := &a.conn.pulse
	*p = pulse{interval: a.cfg.HeartbeatInterval, threshold: a.cfg.HeartbeatThreshold}
	if third := w.HeartbeatThreshold / 3; third > 0 && (p.interval <= 0 || p.interval > third) {
		p.interval = third
	}
	if w.HeartbeatInterval <= 0 {
		p.threshold = 0
	} else if p.threshold > 0 {
		p.threshold = max(p.threshold, w.HeartbeatInterval+w.HeartbeatInterval/2)
	}
	if p.interval <= 0 && p.threshold <= 0 {
		return
	}
	p.every = p.interval
	if check := p.threshold / checksPerThreshold; check > 0 && (p.every <= 0 || check < p.every) {
		p.every = check
	}
	p.every = max(p.every, minTick)
	p.next = time.Now().Add(p.interval)
	a.armPulse()
}

func (p *pulse) stop() { p.timer.Stop() }

func (a *Agent) armPulse() {
	p := &a.conn.pulse
	p.due = time.Now().Add(p.every)
	p.timer = a.loop.After(p.every, a.beat)
}

func (a *Agent) beat() {
	p, now := &a.conn.pulse, time.Now()
	if now.Sub(p.due) > p.threshold/2 {
		// This process stood still and may not have read what the manager sent meanwhile.
		p.awake = now
	}
	last := a.conn.link.LastReceived()
	if p.awake.After(last) {
		last = p.awake
	}
	if a.lastSeen.After(last) {
		last = a.lastSeen
	}
	if silent := now.Sub(last); p.threshold > 0 && silent > p.threshold {
		a.lost(fmt.Errorf("nothing received for %v, the heartbeat threshold is %v", silent.Round(time.Millisecond), p.threshold))
		return
	}
	if p.interval > 0 && !now.Before(p.next) {
		a.conn.link.Heartbeat()
		if p.next = p.next.Add(p.interval); p.next.Before(now) {
			p.next = now.Add(p.interval)
		}
	}
	a.armPulse()
}
