package agent

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

func TestSessionFromNothingToOnline(t *testing.T) {
	in(t, plain, func(w *world) {
		w.expect() // systemd first
		w.a.SystemdUp(map[string]wire.Value{})
		w.expect("dial tcp:host=a,port=1")
		l := w.newLink()
		w.dialed(l, nil)
		w.expect("register node1")
		l.register(welcome, nil)
		w.expect("status online")
		w.a.Closed(l.session, errors.New("cut"))
		w.expect("close", "status offline")
		time.Sleep(50 * time.Millisecond) // half of the first ceiling of 100 ms
		w.expect("dial tcp:host=a,port=1")
	})
}

func TestBackoffGrowsAndAddressesTakeTurns(t *testing.T) {
	cfg := plain
	cfg.Addresses = []string{"tcp:host=a,port=1", "tcp:host=b,port=1"}
	in(t, cfg, func(w *world) {
		w.a.SystemdUp(map[string]wire.Value{})
		var waits []time.Duration
		for range 10 {
			w.dialed(nil, errors.New("refused"))
			w.dialed(nil, errors.New("refused"))
			began := time.Now()
			w.take()
			for len(w.take()) == 0 {
				time.Sleep(time.Millisecond)
			}
			waits = append(waits, time.Since(began).Round(10*time.Millisecond))
		}
		want := []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000}
		for i := range want {
			if waits[i] != want[i]*time.Millisecond {
				t.Errorf("waits are %v", waits)
				break
			}
		}
		// Once and one reminder for each address, though their reasons take turns.
		if n := strings.Count(w.logs.String(), "reach the manager"); n != 4 {
			t.Errorf("logged %d lines", n)
		}
	})
}

func TestOneReasonIsLoggedOnceAndRemindedOfOnce(t *testing.T) {
	in(t, plain, func(w *world) {
		w.a.SystemdUp(map[string]wire.Value{})
		for range 20 {
			w.dialed(nil, errors.New("refused"))
			time.Sleep(6 * time.Second)
		}
		if n := strings.Count(w.logs.String(), "reach the manager"); n != 2 {
			t.Errorf("logged %d times", n)
		}
		w.dialed(nil, errors.New("another reason"))
		if !strings.Contains(w.logs.String(), "another reason") {
			t.Error("a new reason is hidden")
		}
	})
}

// redialAfter is how long a lost session is not dialled again.
func (w *world) redialAfter(l *link) time.Duration {
	w.a.Closed(l.session, errors.New("cut"))
	w.take()
	began := time.Now()
	for len(w.take()) == 0 {
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

func TestOnlyASessionThatLivesResetsTheBackoff(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		for _, tt := range []struct{ lives, want time.Duration }{
			{time.Second, 50}, {time.Second, 100}, {settleTime - 1, 200}, {settleTime, 50}, {time.Second, 100},
		} {
			l.keepAlive(tt.lives)
			if got := w.redialAfter(l); got != tt.want*time.Millisecond {
				t.Errorf("after a session of %v the delay is %v, want %v", tt.lives, got, tt.want*time.Millisecond)
			}
			l = w.newLink()
			w.dialed(l, nil)
			l.register(welcome, nil)
			w.take()
		}
	})
}

func TestAPauseOfTheAgentIsNotTheManagersSilence(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.a.loop.Defer(func() { time.Sleep(time.Hour) }) // suspended
		time.Sleep(time.Hour)
		l.keepAlive(time.Minute)
		w.expect()
		time.Sleep(2 * plain.HeartbeatThreshold)
		if got := w.take(); len(got) < 2 || got[1] != "status offline" {
			t.Errorf("silence after a pause: %q", got)
		}
	})
}

func TestRefusalBacksOffToTheMaximumAtOnce(t *testing.T) {
	for _, refusal := range []error{wire.ErrAccessDenied.With("certificate"), wire.ErrNodeNotAllowed.With("no")} {
		in(t, plain, func(w *world) {
			w.a.SystemdUp(map[string]wire.Value{})
			w.dialed(nil, refusal)
			w.take()
			time.Sleep(4900 * time.Millisecond)
			w.expect()
			time.Sleep(200 * time.Millisecond)
			w.expect("dial tcp:host=a,port=1")
		})
	}
}

func TestRegisterWithoutAnswerIsGivenUp(t *testing.T) {
	in(t, plain, func(w *world) {
		w.a.SystemdUp(map[string]wire.Value{})
		w.dialed(w.newLink(), nil)
		w.take()
		time.Sleep(plain.RegisterTimeout)
		w.expect("close")
		time.Sleep(time.Second)
		w.expect("dial tcp:host=a,port=1")
	})
}

func TestSilentManagerIsGivenUpWithinTheThreshold(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		l.keepAlive(30 * time.Second)
		w.expect()
		if n := l.beats.Load(); n < 14 || n > 16 {
			t.Errorf("%d heartbeats in 30 s at 2 s", n)
		}
		began := time.Now()
		for len(w.take()) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(began); d < 5*time.Second || d > 6*time.Second+6*time.Second/checksPerThreshold+time.Second {
			t.Errorf("given up after %v", d)
		}
	})
}

func TestHeartbeatSettingsThatDoNotFit(t *testing.T) {
	cfg := plain
	cfg.HeartbeatInterval = 0
	in(t, cfg, func(w *world) {
		l := w.online()
		l.keepAlive(20 * time.Second)
		if l.beats.Load() < 9 {
			t.Errorf("the manager's threshold of 6 s was fed %d heartbeats in 20 s", l.beats.Load())
		}
	})
	in(t, plain, func(w *world) { // a manager that sends none is not missed
		w.a.SystemdUp(map[string]wire.Value{})
		l := w.newLink()
		w.dialed(l, nil)
		l.register(Welcome{ManagerSession: 1}, nil)
		w.take()
		time.Sleep(time.Hour)
		w.expect()
	})
}

func TestSwitchManagerIsNeverHeldUp(t *testing.T) {
	cfg := plain
	cfg.CheckAddress = func(s string) error {
		if !strings.HasPrefix(s, "tcp:") {
			return errors.New("no address")
		}
		return nil
	}
	in(t, cfg, func(w *world) {
		w.a.SystemdUp(map[string]wire.Value{})
		w.take() // a dial to the dead address is under way
		answer := func(err error) { w.note("%s", kind(err)) }
		w.a.SwitchManager("nonsense", answer)
		w.a.SwitchManager("tcp:host=a,port=1", answer)
		w.a.SwitchManager("tcp:host=b,port=1", answer)
		w.expect("InvalidArgs", "Failed", "address tcp:host=b,port=1", "cancel dial", "dial tcp:host=b,port=1", "ok")
		l := w.newLink()
		w.dialed(l, nil)
		l.register(welcome, nil)
		w.take()
		w.a.SwitchManager("tcp:host=c,port=1", answer)
		w.expect("address tcp:host=c,port=1", "close", "dial tcp:host=c,port=1", "status offline", "ok")
	})
}

func TestLateDialOfAnAbandonedTryIsClosed(t *testing.T) {
	in(t, plain, func(w *world) {
		w.a.SystemdUp(map[string]wire.Value{})
		synctest.Wait()
		w.mu.Lock()
		late := w.dials[0]
		w.mu.Unlock()
		w.a.SwitchManager("tcp:host=b,port=1", func(error) {})
		w.take()
		late(w.newLink(), nil)
		w.expect("close")
	})
}

func TestShutdownInEveryState(t *testing.T) {
	bring := map[string]func(w *world){
		"idle":        func(w *world) {},
		"dialing":     func(w *world) { w.a.SystemdUp(nil) },
		"registering": func(w *world) { w.a.SystemdUp(nil); w.dialed(w.newLink(), nil) },
		"waiting":     func(w *world) { w.a.SystemdUp(nil); w.dialed(nil, errors.New("refused")) },
		"online":      func(w *world) { w.online() },
	}
	for name, to := range bring {
		t.Run(name, func(t *testing.T) {
			in(t, plain, func(w *world) {
				to(w)
				synctest.Wait()
				if got := string(w.a.conn.state.Is); got != name {
					t.Fatalf("state is %s", got)
				}
			}) // in waits for the end, in fake time: a core that does not end is a deadlock
		})
	}
}

func TestFewerAddressesWhileTheLastIsTried(t *testing.T) {
	cfg := plain
	cfg.Addresses = []string{"tcp:host=a,port=1", "tcp:host=b,port=1"}
	in(t, cfg, func(w *world) {
		w.a.SystemdUp(nil)
		w.dialed(nil, errors.New("refused"))
		w.expect("dial tcp:host=a,port=1", "dial tcp:host=b,port=1")
		cfg.Addresses = []string{"tcp:host=c,port=1"}
		w.a.Reconfigure(cfg)
		w.expect("address tcp:host=c,port=1", "cancel dial", "dial tcp:host=c,port=1")
		w.a.SwitchManager("tcp:host=d,port=1", func(error) {})
		w.take()
		cfg.HeartbeatInterval++
		w.a.Reconfigure(cfg) // the same addresses: SwitchManager holds
		w.expect()
	})
}

func TestSwitchManagerWhileTheLastAddressIsTried(t *testing.T) {
	cfg := plain
	cfg.Addresses = []string{"tcp:host=a,port=1", "tcp:host=b,port=1"}
	in(t, cfg, func(w *world) {
		w.a.SystemdUp(nil)
		w.dialed(nil, errors.New("refused"))
		w.take()
		w.a.SwitchManager("tcp:host=c,port=1", func(error) {})
		w.expect("address tcp:host=c,port=1", "cancel dial", "dial tcp:host=c,port=1")
	})
}

func TestLogLevelOfTheManager(t *testing.T) {
	cfg := plain
	var level string
	cfg.SetLogLevel = func(l string) error { level = l; return errors.New("unknown") }
	in(t, cfg, func(w *world) {
		w.a.SystemdUp(nil)
		l := w.newLink()
		w.dialed(l, nil)
		l.register(Welcome{ManagerSession: 1, LogLevel: "debug"}, nil)
		w.expect("dial tcp:host=a,port=1", "register node1", "status online")
		if level != "debug" {
			t.Errorf("level is %q", level)
		}
	})
}

func TestLinkThatIsMadeAfterTheEndIsClosed(t *testing.T) {
	var late func(ManagerLink, error)
	var l *link
	in(t, plain, func(w *world) {
		w.a.SystemdUp(nil)
		w.take()
		late, l = w.dials[0], w.newLink()
		w.a.loop.Defer(w.a.shutDown)
		<-w.a.loop.Done()
		late(l, nil)
		if got := w.take(); len(got) != 2 || got[1] != "close" {
			t.Errorf("history is %q", got)
		}
	})
}

func TestReconfigure(t *testing.T) {
	in(t, plain, func(w *world) {
		w.online()
		cfg := plain
		cfg.HeartbeatInterval = time.Second
		w.a.Reconfigure(cfg)
		w.expect()
		cfg.Node = "node2"
		w.a.Reconfigure(cfg)
		w.expect("close", "dial tcp:host=a,port=1", "status offline")
		w.dialed(w.newLink(), nil)
		w.expect("register node2")
	})
}
