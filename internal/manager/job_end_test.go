package manager

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"example.org/ctrl/internal/wire"
)

func TestStopInterruptsStart(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.start("start", ask(wire.Start, "web.service"))
		l.answer(1, nil)
		l.state(1, wire.JobRunning)
		w.start("reload", ask(wire.Reload, "web.service"))
		w.take()
		w.start("stop", ask(wire.Stop, "web.service"))
		w.start("stop again", ask(wire.Stop, "web.service"))
		w.expect("node1< StopUnit web.service replace 3")
		// Systemd cancels the start as it takes the stop. The waiting reload goes with it.
		l.answer(3, nil)
		l.done(1, "canceled")
		l.done(3, "done")
		w.expect("JobNew 3 node1 web.service stop waiting", "stop: 3 ok", "stop again: 3 ok",
			"JobRemoved 2 web.service canceled", "JobRemoved 1 web.service canceled", "JobRemoved 3 web.service done")
	})
}

func TestRefusedStopOverrulesNothing(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.start("start", ask(wire.Start, "web.service"))
		l.answer(1, nil)
		w.start("reload", ask(wire.Reload, "web.service"))
		w.take()
		w.start("stop", ask(wire.Stop, "web.service"))
		// What is older than the stop does not pass it while it is being asked for.
		l.done(1, "done")
		w.expect("node1< StopUnit web.service replace 3", "JobRemoved 1 web.service done")
		l.answer(3, &wire.Error{Name: wire.SystemdName + ".OnlyByDependency"})
		w.expect("stop: 0 OnlyByDependency", "node1< ReloadUnit web.service replace 2")
	})
}

func TestUnansweredStopOverrules(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.start("start", ask(wire.Start, "web.service"))
		l.answer(1, nil)
		w.start("reload", ask(wire.Reload, "web.service"))
		w.start("stop", ask(wire.Stop, "web.service"))
		w.take()
		l.keepAlive(30 * time.Second)
		w.expect("JobRemoved 2 web.service canceled", "stop: 0 Timeout")
	})
}

func TestLastWordWins(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.start("start", ask(wire.Start, "web.service"))
		l.answer(1, nil)
		w.start("stop", ask(wire.Stop, "web.service"))
		w.take()
		// The running start is about to be canceled, so it is not shared; nor is the stop
		// once there is a start behind it.
		w.start("start 2", ask(wire.Start, "web.service"))
		w.start("stop 2", ask(wire.Stop, "web.service"))
		w.expect("node1< StartUnit web.service replace 3", "node1< StopUnit web.service replace 4")
		for id, result := range []string{1: "canceled", 2: "canceled", 3: "canceled", 4: "done"} {
			if id > 1 {
				l.answer(uint32(id), nil)
			}
			if id > 0 {
				l.done(uint32(id), result)
			}
		}
		w.expect("JobRemoved 1 web.service canceled",
			"JobNew 2 node1 web.service stop waiting", "stop: 2 ok", "JobRemoved 2 web.service canceled",
			"JobNew 3 node1 web.service start waiting", "start 2: 3 ok", "JobRemoved 3 web.service canceled",
			"JobNew 4 node1 web.service stop waiting", "stop 2: 4 ok", "JobRemoved 4 web.service done")
	})
}

func TestCancel(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.cancel("unknown", 1)
		w.start("start", ask(wire.Start, "web.service"))
		w.cancel("asking", 1)
		w.take()
		l.answer(1, nil)
		w.start("reload", ask(wire.Reload, "web.service"))
		w.take()
		w.cancel("waiting", 2)
		w.expect("JobRemoved 2 web.service canceled", "waiting: ok")
		w.cancel("taken", 1)
		l.reply("CancelJob 1", wire.Raw{}, nil)
		w.expect("node1< CancelJob 1", "taken: ok")
		if len(w.jobs()) != 1 {
			t.Error("the job ended before systemd said so")
		}
		l.done(1, "canceled")
		w.cancel("ended", 1)
		w.expect("JobRemoved 1 web.service canceled", "ended: NoSuchJob")
	})
}

func TestCancelAnswers(t *testing.T) {
	in(t, fleet, func(w *world) {
		w.cancel("unknown", 1)
		w.cancel("zero", 0)
		w.expect("unknown: NoSuchJob", "zero: NoSuchJob")
		l := w.connect("node1")
		w.start("start", ask(wire.Start, "web.service"))
		w.cancel("not announced", 1)
		l.answer(1, nil)
		w.take()
		// An error of systemd passes; a node that is silent is named.
		w.cancel("denied", 1)
		l.reply("CancelJob 1", wire.Raw{}, wire.ErrAccessDenied.With("no"))
		w.cancel("silent", 1)
		l.keepAlive(31 * time.Second)
		w.expect("node1< CancelJob 1", "denied: AccessDenied", "node1< CancelJob 1", "silent: Timeout")
		// A node that does not know the job will never report its end.
		w.cancel("lost", 1)
		l.reply("CancelJob 1", wire.Raw{}, wire.ErrNoSuchJob.With("no job"))
		w.expect("node1< CancelJob 1", "JobRemoved 1 web.service canceled", "lost: ok")
	})
}

func TestCancelWhileSent(t *testing.T) {
	prepare := func(w *world) *link {
		l := w.connect("node1")
		w.start("start", ask(wire.Start, "web.service"))
		l.answer(1, nil)
		w.start("reload", ask(wire.Reload, "web.service"))
		l.done(1, "done")
		w.take()
		w.cancel("cancel", 2)
		w.expect() // systemd does not have it yet
		return l
	}
	in(t, fleet, func(w *world) {
		l := prepare(w)
		l.answer(2, nil)
		l.done(2, "canceled")
		l.reply("CancelJob 2", wire.Raw{}, nil)
		w.expect("node1< CancelJob 2", "JobRemoved 2 web.service canceled", "cancel: ok")
	})
	in(t, fleet, func(w *world) {
		l := prepare(w)
		l.answer(2, wire.ErrSystemdNoSuchUnit.With("gone"))
		w.expect("JobRemoved 2 web.service failed", "cancel: NoSuchJob")
	})
	in(t, fleet, func(w *world) {
		l := prepare(w)
		w.close(l, "cut")
		w.expect("node node1 offline", "cancel: NodeOffline", "JobRemoved 2 web.service canceled", "status down")
	})
}

// everyState brings node1 a job in each state that a job can be in, and calls under way.
func everyState(w *world) *link {
	l := w.connect("node1")
	w.start("1", ask(wire.Start, "running.service"))
	l.answer(1, nil)
	l.state(1, wire.JobRunning)
	w.start("2", ask(wire.Reload, "running.service")) // waiting
	w.start("3", ask(wire.Start, "taken.service"))
	l.answer(3, nil)
	w.start("4", ask(wire.Start, "sent.service"))
	l.answer(4, nil)
	w.start("5", ask(wire.Reload, "sent.service"))
	l.done(4, "done")
	w.m.CallNode("node1", "Reload", wire.Raw{}, func(_ wire.Raw, err error) { w.note("call: %s", kind(err)) })
	w.start("6", ask(wire.Start, "asking.service"))
	w.start("6 too", ask(wire.Start, "asking.service"))
	w.cancel("cancel 1", 1)
	w.cancel("cancel 5", 5)
	w.take()
	return l
}

func TestNodeLossInEveryState(t *testing.T) {
	want := []string{"node node1 offline",
		"call: NodeOffline", "6: 0 NodeOffline", "6 too: 0 NodeOffline", "cancel 1: NodeOffline", "cancel 5: NodeOffline",
		"JobRemoved 1 running.service canceled", "JobRemoved 2 running.service canceled",
		"JobRemoved 3 taken.service canceled", "JobRemoved 5 sent.service canceled", "status down"}
	check := func(w *world, l *link) {
		if len(w.m.jobs) != 0 || len(w.m.sessions) != 0 || len(w.jobs()) != 0 {
			t.Errorf("left behind: %d jobs, %d sessions", len(w.m.jobs), len(w.m.sessions))
		}
		// Whatever comes over the old session now is dropped.
		l.answer(6, nil)
		l.reply("replace 5", wire.Raw{}, nil)
		l.reply("CancelJob 1", wire.Raw{}, nil)
		l.reply("Reload", wire.Raw{}, nil)
		for id := range uint32(8) {
			l.state(id, wire.JobRunning)
			l.done(id, "done")
		}
		w.close(l, "again")
		w.expect()
	}
	in(t, fleet, func(w *world) {
		l := everyState(w)
		w.close(l, "connection reset")
		w.expect(want...)
		check(w, l)
	})
	in(t, fleet, func(w *world) {
		l := everyState(w)
		// The link fails its calls before it says Closed: the order is kept all the same.
		l.reply("Reload", wire.Raw{}, wire.ErrNodeOffline.With("connection reset"))
		w.expect(slices.Insert(slices.Clone(want), 0, "node1< close")...)
		if reason := w.node("node1").DisconnectReason; reason != "connection reset" {
			t.Errorf("the reason is %q", reason)
		}
		check(w, l)
	})
}

func TestShutdownInEveryState(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := everyState(w)
		w.stop()
		<-w.stopped
		w.expect("JobRemoved 1 running.service canceled", "JobRemoved 2 running.service canceled",
			"JobRemoved 3 taken.service canceled", "JobRemoved 5 sent.service canceled",
			"call: ShuttingDown", "6: 0 ShuttingDown", "6 too: 0 ShuttingDown", "cancel 1: ShuttingDown", "cancel 5: ShuttingDown",
			"node1< close", "node node1 offline", "status down")
		l.answer(6, nil)
		w.close(l, "late")
		w.start("late", ask(wire.Start, "web.service"))
		w.cancel("late cancel", 1)
		w.register(Registration{Node: "node2"})
		w.m.Reconfigure(Config{})
		w.m.QueryNodes(nil, "ListUnits", wire.Raw{}, func(_ []NodeReply, err error) { w.note("query: %s", kind(err)) })
		w.m.Nodes(func(all []NodeInfo) { w.note("nodes: %d", len(all)) })
		w.m.Status(func(s string) { w.note("status is %s", s) })
		w.m.Job(1, func(_ JobInfo, err error) { w.note("job: %s", kind(err)) })
		w.expect("late: 0 ShuttingDown", "late cancel: ShuttingDown", "register node2: ShuttingDown",
			"query: ShuttingDown", "nodes: 0", "status is down", "job: ShuttingDown")
	})
}

// TestCallsBeforeTheEndAreAnswered posts while the core ends: no caller is left without an answer.
func TestCallsBeforeTheEndAreAnswered(t *testing.T) {
	in(t, fleet, func(w *world) {
		w.connect("node1")
		answers := make(chan error, 300)
		for i := range 300 {
			go w.m.StartJob(ask(wire.Start, fmt.Sprintf("u%d.service", i)), func(_ uint32, err error) { answers <- err })
			if i == 100 {
				w.stop()
			}
		}
		synctest.Wait()
		if len(answers) != 300 {
			t.Errorf("%d of 300 callers were answered", len(answers))
		}
		for range len(answers) {
			if err := <-answers; kind(err) != "ShuttingDown" {
				t.Errorf("a caller got %v", err)
			}
		}
	})
}

// TestCallBehindTheEnd is a call that waits in the inbox behind the end.
func TestCallBehindTheEnd(t *testing.T) {
	in(t, fleet, func(w *world) {
		w.connect("node1")
		w.m.Status(func(string) { time.Sleep(time.Second) })
		synctest.Wait()
		w.stop()
		synctest.Wait()
		w.m.StartJob(ask(wire.Start, "web.service"), func(id uint32, err error) { w.note("start: %d %s", id, kind(err)) })
		w.m.Reconfigure(Config{})
		<-w.stopped
		w.expect("node1< close", "node node1 offline", "status down", "start: 0 ShuttingDown")
	})
}

func TestQueueBounds(t *testing.T) {
	in(t, fleet, func(w *world) {
		w.connect("node1")
		for range MaxJobsPerUnit {
			w.m.StartJob(ask(wire.Restart, "web.service"), func(uint32, error) {})
		}
		w.take()
		w.start("one more", ask(wire.Restart, "web.service"))
		w.expect("one more: 0 LimitsExceeded")
		for i := range MaxJobsPerNode - MaxJobsPerUnit {
			w.m.StartJob(ask(wire.Start, fmt.Sprintf("u%d.service", i)), func(uint32, error) {})
		}
		w.take()
		w.start("one more", ask(wire.Start, "other.service"))
		w.expect("one more: 0 LimitsExceeded")
		for range MaxCallersPerJob - 1 {
			w.m.StartJob(ask(wire.Start, "u0.service"), func(uint32, error) {})
		}
		w.expect()
		w.start("one more", ask(wire.Start, "u0.service"))
		w.expect("one more: 0 LimitsExceeded")
	})
}

func TestResultWords(t *testing.T) {
	for word, want := range map[string]string{
		"done": "done", "dependency": "dependency", "start-limit-hit": "start-limit-hit",
		"": "failed", "Done": "failed", "a b": "failed", "bad\n": "failed",
		"abcdefghijabcdefghijabcdefghijabc": "failed",
	} {
		if got := resultWord(word); got != want {
			t.Errorf("result %q is passed on as %q, want %q", word, got, want)
		}
	}
}

func TestLookUps(t *testing.T) {
	in(t, Config{Nodes: fleet.Nodes}, func(w *world) {
		if w.m.cfg.CallTimeout != DefaultCallTimeout || w.m.cfg.QueryTimeout != DefaultQueryTimeout {
			t.Errorf("time limits are %v and %v where none are configured", w.m.cfg.CallTimeout, w.m.cfg.QueryTimeout)
		}
		l := w.connect("node1")
		for id, name := range []string{1: "a.service", 2: "b.service", 3: "c.service"} {
			if id > 0 {
				w.start("job", ask(wire.Start, name))
				l.answer(uint32(id), nil)
			}
		}
		w.start("asking", ask(wire.Start, "d.service"))
		w.take()
		var ids []uint32
		for _, j := range w.jobs() {
			ids = append(ids, j.ID)
		}
		if !slices.Equal(ids, []uint32{1, 2, 3}) {
			t.Errorf("jobs are listed as %v", ids)
		}
		for id := range uint32(6) {
			w.m.Job(id, func(j JobInfo, err error) { w.note("%d: %s %s", id, j.Unit, kind(err)) })
		}
		w.expect("0:  NoSuchJob", "1: a.service ok", "2: b.service ok", "3: c.service ok", "4:  NoSuchJob", "5:  NoSuchJob")
		w.m.Node("stranger", func(_ NodeInfo, err error) { w.note("%s", kind(err)) })
		w.m.Node(strings.Repeat("x", 1000), func(_ NodeInfo, err error) { w.note("%t", len(err.Error()) < 200) })
		w.expect("NoSuchNode", "true")
		w.close(l, strings.Repeat("é", 1000))
		if reason := w.node("node1").DisconnectReason; len(reason) > maxReason+3 || !utf8.ValidString(reason) {
			t.Errorf("the reason is %q", reason)
		}
	})
}

func TestJobIDs(t *testing.T) {
	m := New(fleet, nil, slog.New(quiet{t}))
	m.lastJob = ^uint32(0) - 1
	m.jobs[1] = &job{}
	if a, b := m.newJobID(), m.newJobID(); a != ^uint32(0) || b != 2 {
		t.Errorf("after the last id come %d and %d, want the last and 2: 0 is no id and 1 is in use", a, b)
	}
}
