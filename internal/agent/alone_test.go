package agent

import (
	"errors"
	"testing"
	"time"

	"example.org/ctrl/internal/wire"
)

func TestAloneForTooLong(t *testing.T) {
	cfg := plain
	cfg.ReconnectMin, cfg.ReconnectMax = time.Hour, time.Hour
	cfg.ExitOnDisconnect = time.Minute
	cfg.OnDisconnectUnit, cfg.OnDisconnectUnitAfter = "safe.target", 30*time.Second
	var w *world
	cfg.Fail = func(err error) { w.note("failed: %v", err) }
	in(t, cfg, func(made *world) {
		w = made
		l := w.online()
		l.keepAlive(2 * time.Minute)
		w.expect() // with a manager nothing happens
		w.a.Closed(l.session, errors.New("cut"))
		w.take()
		time.Sleep(29 * time.Second)
		w.expect()
		time.Sleep(2 * time.Second)
		w.expect("systemd< StartUnit safe.target")
		w.answer("StartUnit safe.target", nil, wire.ErrSystemdNoSuchUnit.With("not found"))
		time.Sleep(30 * time.Second)
		w.expect("failed: no manager for 1m0s (ExitOnDisconnect=)") // and the unit once only
	})
}

func TestAloneFromTheStartAndReconfigured(t *testing.T) {
	cfg := plain
	cfg.OnDisconnectUnit, cfg.OnDisconnectUnitAfter = "safe.target", time.Minute
	in(t, cfg, func(w *world) {
		w.expect()
		time.Sleep(30 * time.Second)
		shorter := cfg
		shorter.OnDisconnectUnitAfter = 40 * time.Second
		w.a.Reconfigure(shorter)
		w.expect()
		time.Sleep(11 * time.Second)
		w.expect("systemd< StartUnit safe.target")
	})
}

func TestBackBeforeItsTime(t *testing.T) {
	cfg := plain
	cfg.OnDisconnectUnit, cfg.OnDisconnectUnitAfter = "safe.target", 30*time.Second
	in(t, cfg, func(w *world) {
		l := w.online()
		w.a.Closed(l.session, errors.New("cut"))
		time.Sleep(time.Second)
		again := w.newLink()
		w.dialed(again, nil)
		again.register(welcome, nil)
		w.take()
		again.keepAlive(time.Minute)
		w.expect()
	})
}
