package manager

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

func TestJobLife(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.start("a", ask(wire.Start, "web.service"))
		w.expect("node1< StartUnit web.service replace 1")
		if len(w.jobs()) != 0 {
			t.Error("a job is listed before systemd has taken it")
		}
		l.answer(1, nil)
		w.expect("JobNew 1 node1 web.service start waiting", "a: 1 ok")
		l.state(1, wire.JobRunning)
		if all := w.jobs(); len(all) != 1 || all[0].State != wire.JobRunning {
			t.Errorf("jobs are %v", all)
		}
		l.state(1, wire.JobRunning)
		l.state(1, wire.JobWaiting)
		l.state(1, "sleeping")
		l.done(1, "done")
		w.expect("JobState 1 running", "JobState 1 waiting", "JobRemoved 1 web.service done")
		l.done(1, "done")
		w.expect()
		if len(w.jobs()) != 0 {
			t.Error("the job is still listed")
		}
	})
}

func TestReportsThatOvertakeTheAnswer(t *testing.T) {
	for _, late := range []error{nil, wire.ErrTimeout.With("late"), wire.ErrSystemdNoSuchUnit.With("contradiction")} {
		in(t, fleet, func(w *world) {
			l := w.connect("node1")
			w.start("a", ask(wire.Start, "web.service"))
			w.start("b", ask(wire.Start, "web.service"))
			w.take()
			l.state(1, wire.JobRunning)
			l.done(1, "done")
			l.answer(1, late)
			w.expect("JobNew 1 node1 web.service start waiting", "a: 1 ok", "b: 1 ok",
				"JobState 1 running", "JobRemoved 1 web.service done")
		})
	}
}

func TestRefusedJobIsNeverTold(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		var got error
		w.m.StartJob(ask(wire.Start, "gone.service"), func(_ uint32, err error) { got = err })
		synctest.Wait()
		w.start("b", ask(wire.Start, "gone.service"))
		w.take()
		refusal := &wire.Error{Name: wire.ErrSystemdNoSuchUnit.Name, Text: "Unit gone.service not found."}
		l.answer(1, refusal)
		w.expect("b: 0 NoSuchUnit")
		if got != error(refusal) {
			t.Errorf("the node's error was changed into %v", got)
		}
		l.done(1, "failed")
		w.expect()
		// The unit's queue is free again, and the id is used up.
		w.start("c", ask(wire.Start, "gone.service"))
		w.expect("node1< StartUnit gone.service replace 2")
	})
}

func TestAskWithoutAnswer(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		var got error
		w.m.StartJob(ask(wire.Start, "web.service"), func(_ uint32, err error) { got = err })
		synctest.Wait()
		l.keepAlive(29 * time.Second)
		w.start("b", ask(wire.Start, "web.service"))
		w.take()
		l.keepAlive(2 * time.Second)
		w.expect("b: 0 Timeout")
		if kind(got) != "Timeout" || !strings.Contains(got.Error(), "may still be carried out") {
			t.Errorf("the first caller got %v", got)
		}
		// The node takes it after all and reports: nobody was told of this job.
		l.answer(1, nil)
		l.state(1, wire.JobRunning)
		l.done(1, "done")
		w.expect()
	})
}

func TestRequestsThatCannotBeRight(t *testing.T) {
	in(t, fleet, func(w *world) {
		w.connect("node1")
		with := func(change func(*JobRequest)) JobRequest {
			r := ask(wire.Start, "web.service")
			change(&r)
			return r
		}
		for _, c := range []struct {
			why  string
			req  JobRequest
			want *wire.Error
			text string
		}{
			{"unknown node", with(func(r *JobRequest) { r.Node = "other" }), wire.ErrNoSuchNode, "other"},
			{"offline node", with(func(r *JobRequest) { r.Node = "node2" }), wire.ErrNodeOffline, "not been seen"},
			{"no name", with(func(r *JobRequest) { r.Unit = "" }), wire.ErrInvalidArgs, "empty"},
			{"slash", with(func(r *JobRequest) { r.Unit = "a/b.service" }), wire.ErrInvalidArgs, "'/'"},
			{"newline", with(func(r *JobRequest) { r.Unit = "a\nb.service" }), wire.ErrInvalidArgs, "contains"},
			{"too long", with(func(r *JobRequest) { r.Unit = strings.Repeat("a", 250) + ".service" }), wire.ErrInvalidArgs, "255"},
			{"not UTF-8", with(func(r *JobRequest) { r.Unit = "\xff.service" }), wire.ErrInvalidArgs, "contains"},
			{"no type", with(func(r *JobRequest) { r.Unit = "web" }), wire.ErrInvalidArgs, ".service"},
			{"template", with(func(r *JobRequest) { r.Unit = "web@.service" }), wire.ErrInvalidArgs, "web@NAME.service"},
			{"mode", with(func(r *JobRequest) { r.Mode = "gently" }), wire.ErrInvalidArgs, "replace"},
			{"no mode", with(func(r *JobRequest) { r.Mode = "" }), wire.ErrInvalidArgs, "replace"},
			{"verb", with(func(r *JobRequest) { r.Verb = 99 }), wire.ErrInvalidArgs, "99"},
			{"transient stop", with(func(r *JobRequest) { r.Verb, r.Transient = wire.Stop, &wire.Raw{Sig: transientSignature} }), wire.ErrInvalidArgs, "stop"},
			{"transient signature", with(func(r *JobRequest) { r.Transient = &wire.Raw{Sig: "s"} }), wire.ErrInvalidArgs, "a(sv)"},
		} {
			var got error
			w.m.StartJob(c.req, func(_ uint32, err error) { got = err })
			synctest.Wait()
			if kind(got) != kind(c.want) || got == nil || !strings.Contains(got.Error(), c.text) {
				t.Errorf("%s: got %v, want %s with %q in it", c.why, got, kind(c.want), c.text)
			}
		}
		w.expect()
	})
}

func TestEqualJobsAreShared(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.start("a", ask(wire.Start, "web.service"))
		w.start("b", ask(wire.Start, "web.service"))
		l.answer(1, nil)
		w.start("c", ask(wire.Start, "web.service"))
		l.state(1, wire.JobRunning)
		w.start("d", ask(wire.Start, "web.service"))
		l.done(1, "done")
		w.expect("node1< StartUnit web.service replace 1", "JobNew 1 node1 web.service start waiting", "a: 1 ok", "b: 1 ok",
			"c: 1 ok", "JobState 1 running", "d: 1 ok", "JobRemoved 1 web.service done")
	})
}

func TestOthersWait(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := w.connect("node1")
		w.start("a", ask(wire.Start, "web.service"))
		w.start("b", ask(wire.Reload, "web.service"))
		w.expect("node1< StartUnit web.service replace 1", "JobNew 2 node1 web.service reload waiting", "b: 2 ok")
		w.start("other unit", ask(wire.Reload, "db.service"))
		w.expect("node1< ReloadUnit db.service replace 3")
		l.answer(3, wire.ErrFailed.With("not this one"))
		w.expect("other unit: 0 Failed")
		l.answer(1, nil)
		l.done(1, "done")
		w.expect("JobNew 1 node1 web.service start waiting", "a: 1 ok", "JobRemoved 1 web.service done",
			"node1< ReloadUnit web.service replace 2")
		w.start("c", ask(wire.Reload, "web.service"))
		w.start("d", ask(wire.Reload, "web.service"))
		w.expect("JobNew 4 node1 web.service reload waiting", "c: 4 ok", "d: 4 ok")
		l.answer(2, nil)
		l.state(2, wire.JobRunning)
		l.done(2, "done")
		w.expect("JobState 2 running", "JobRemoved 2 web.service done", "node1< ReloadUnit web.service replace 4")
		// A refusal ends a job that was told already, and the queue goes on.
		w.start("e", ask(wire.Start, "web.service"))
		w.take()
		l.answer(4, wire.ErrSystemdUnitMasked.With("masked"))
		w.expect("JobRemoved 4 web.service failed", "node1< StartUnit web.service replace 5")
		l.keepAlive(31 * time.Second)
		w.expect("JobRemoved 5 web.service timeout")
		l.answer(5, nil)
		l.done(5, "done")
		w.expect()
	})
}
