package bundle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scenario runs a test with an agent on an empty node.
func scenario(t *testing.T, test func(t *testing.T, l *life)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := live(t, newNode(), nil)
		test(t, l)
		l.end()
		synctest.Wait()
	})
}

func (l *life) want(r Result, outcome Outcome, parts ...string) {
	l.t.Helper()
	all := fmt.Sprintf("%+v", r)
	if r.Outcome != outcome {
		l.t.Errorf("got %s, want %s", all, outcome)
	}
	for _, part := range parts {
		if !strings.Contains(all, part) {
			l.t.Errorf("%q is not in %s", part, all)
		}
	}
}

// jobs are the jobs since it was asked last.
func (l *life) jobs() string {
	got := strings.Join(l.n.jobs, ", ")
	l.n.jobs = nil
	return got
}

func (l *life) did(want string) {
	l.t.Helper()
	if got := l.jobs(); got != want {
		l.t.Errorf("jobs were %q, want %q", got, want)
	}
}

func (l *life) list() Listing {
	var got Listing
	l.e.List(func(x Listing, err error) { got = x })
	synctest.Wait()
	return got
}

func (l *life) state() string { return l.list().Workloads[0].State }

func two(a, b string) Package {
	return pack(map[string]string{"a.service": service(a), "b.service": service(b)}, nil, []string{"a.service", "b.service"})
}

func TestTwice(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		before, _ := oldAndNew()
		l.want(l.apply(before, Options{}), Created)
		writes, reloads, changed := l.n.writes, l.n.reloads, l.n.states["web"].Changed
		l.jobs()
		time.Sleep(time.Hour)
		r := l.apply(before, Options{})
		l.want(r, Unchanged)
		l.did("")
		if reloads != 1 || l.n.writes != writes || l.n.reloads != reloads || !l.n.states["web"].Changed.Equal(changed) || r.Revision != 1 || len(r.Changes) != 0 {
			t.Errorf("the second apply has done something: %d writes, %d reloads, %+v", l.n.writes-writes, l.n.reloads, r)
		}
	})
}

func TestOnlyWhatChangedRestarts(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		l.apply(two("a", "b"), Options{})
		l.jobs()
		r := l.apply(two("a", "b2"), Options{})
		l.want(r, Configured, "restart")
		l.did("restart b.service")
		if l.n.reloads != 2 || r.Revision != 2 {
			t.Errorf("%d reloads, revision %d", l.n.reloads, r.Revision)
		}
	})
}

// Files: bound ones restart those that read them, written ones as they say (cases 90, 91).
func TestFilesChange(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		make := func(bound, written, change string) Package {
			p := pack(map[string]string{"a.service": service("a"), "b.service": service("b")},
				map[string]string{"/etc/ctrl-files/a": bound, "w /etc/ctrl-files/b": written}, []string{"a.service", "b.service"})
			for i := range p.Bundle.Files {
				f := &p.Bundle.Files[i]
				f.Units = []string{strings.TrimPrefix(f.Path, "/etc/ctrl-files/") + ".service"}
				if f.Write {
					f.OnChange = change
				}
			}
			return p
		}
		l.apply(make("1", "1", ChangeRestart), Options{})
		l.jobs()
		l.apply(make("2", "1", ChangeRestart), Options{})
		l.did("restart a.service")
		l.apply(make("2", "2", ChangeRestart), Options{})
		l.did("restart b.service")
		l.apply(make("2", "2", ChangeReload), Options{})
		l.jobs()
		reloads := l.n.reloads
		l.want(l.apply(make("2", "3", ChangeReload), Options{}), Configured)
		l.did("reload-or-restart b.service")
		l.apply(make("2", "3", ChangeNone), Options{})
		l.want(l.apply(make("2", "4", ChangeNone), Options{}), Configured)
		l.did("")
		if l.n.reloads != reloads {
			t.Error("systemd has read its files for a file that is none of its own")
		}
		if err := l.n.is(make("2", "4", ChangeNone).Bundle.Canonical()); err != nil {
			t.Error(err)
		}
	})
}

func TestNoRestart(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		l.apply(two("a", "b"), Options{})
		l.jobs()
		l.want(l.apply(two("a2", "b"), Options{NoRestart: true}), Configured, "NeedRestart:[a.service]")
		l.did("")
		if u := l.list().Workloads[0].Units[0]; !u.NeedRestart {
			t.Errorf("not shown: %+v", u)
		}
		l.want(l.apply(two("a2", "b2"), Options{NoRestart: true}), Configured, "NeedRestart:[a.service b.service]")
		l.n.start("b.service") // somebody restarts one of them
		r := l.apply(two("a2", "b2"), Options{})
		l.want(r, Configured)
		l.did("restart a.service")
		if len(r.NeedRestart) != 0 {
			t.Errorf("still %v", r.NeedRestart)
		}
	})
}

func TestConflicts(t *testing.T) {
	at := "/etc/systemd/system/a.service"
	file := pack(map[string]string{"a.service": service("a")}, map[string]string{"w /etc/ctrl-files/x": "1"})
	outside := pack(map[string]string{"a.service": service("a")}, map[string]string{"/etc/passwd": "1"})
	tests := map[string]struct {
		set  func(*node)
		p    Package
		code string
		want string
	}{
		"foreign file":    {func(n *node) { n.disk[at] = PathFact{Kind: KindFile, Text: "[Service]\n"} }, two("a", "b"), CodeConflict, "does not have ctrl's mark"},
		"same, unmarked":  {func(n *node) { n.disk[at] = PathFact{Kind: KindFile, Text: service("a")} }, two("a", "b"), CodeConflict, "does not have ctrl's mark"},
		"another's mark":  {func(n *node) { n.disk[at] = PathFact{Kind: KindFile, Text: "[X-Ctrl]\nWorkload=db\n"} }, two("a", "b"), CodeConflict, "belongs to the workload db"},
		"masked":          {func(n *node) { n.disk[at] = PathFact{Kind: KindLink, Target: "/dev/null"} }, two("a", "b"), CodeConflict, "systemctl unmask a.service"},
		"a link":          {func(n *node) { n.disk[at] = PathFact{Kind: KindLink, Target: "/x"} }, two("a", "b"), CodeConflict, "is a link"},
		"a directory":     {func(n *node) { n.disk[at] = PathFact{Kind: KindOther} }, two("a", "b"), CodeConflict, "is a other"},
		"from a package":  {func(n *node) { n.elsewhere["a.service"] = "/lib/systemd/system/a.service" }, two("a", "b"), CodeConflict, "/lib/systemd/system/a.service"},
		"foreign written": {func(n *node) { n.disk["/etc/ctrl-files/x"] = PathFact{Kind: KindFile, ID: "1"} }, file, CodeConflict, "was not written by this workload"},
		"outside":         {func(*node) {}, outside, CodeDenied, "AllowFilePaths=/etc/ctrl-files"},
		"ignored line":    {func(n *node) { n.faults = []string{"a.service:3: Unknown key"} }, two("a", "b"), CodeIgnored, "a.service:3"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(t *testing.T, l *life) {
				test.set(l.n)
				disk := len(l.n.disk)
				r := l.apply(test.p, Options{})
				if r.Outcome != Failed || r.Code != test.code || !strings.Contains(r.Error, test.want) {
					t.Errorf("got %+v", r)
				}
				if len(l.n.disk) != disk || l.n.reloads != 0 || len(l.n.jobs) != 0 || len(l.n.states) != 0 || len(l.n.staged) != 0 {
					t.Error("something was done")
				}
			})
		})
	}
	t.Run("two workloads", func(t *testing.T) {
		scenario(t, func(t *testing.T, l *life) {
			l.apply(two("a", "b"), Options{})
			other := two("a", "b")
			other.Bundle.Workload = "db"
			l.want(l.apply(other, Options{}), Failed, CodeConflict, "belongs to the workload web", "ctl workload delete web")
			l.want(l.apply(two("a", "b"), Options{}), Unchanged)
		})
	})
	t.Run("accepted", func(t *testing.T) {
		scenario(t, func(t *testing.T, l *life) {
			l.n.faults = []string{"a.service:3: Unknown key"}
			l.want(l.apply(two("a", "b"), Options{AllowUnknown: true}), Created)
		})
	})
}

func TestUnitsThatFail(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		l.apply(two("a", "b"), Options{})
		l.want(l.apply(two("a FAILS", "b2"), Options{RollbackOnFailure: true}), RolledBack, CodeUnits, "restart of a.service: failed", "Revision:1")
		if err := l.n.is(two("a", "b").Bundle); err != nil || l.state() != StateRunning {
			t.Errorf("%v, %s", err, l.state())
		}
		l.want(l.apply(two("a FALLS", "b"), Options{}), Failed, CodeUnits, "a.service has failed right after", "Revision:3")
		if l.state() != StateDegraded {
			t.Errorf("state %s", l.state())
		}
		l.jobs()
		// Unchanged, but it should run: case 88.
		l.want(l.apply(two("a FALLS", "b"), Options{}), Failed, "has failed right after")
		l.did("start a.service")
		l.want(l.apply(two("a", "b"), Options{}), Configured)
		delete(l.n.units, "a.service")
		writes := l.n.writes
		l.want(l.apply(two("a", "b"), Options{}), Started)
		l.want(l.apply(two("a", "b"), Options{}), Unchanged)
		if l.n.writes != writes {
			t.Error("something was written")
		}
	})
}

func TestHistoryAndRollback(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		for i := range 15 {
			l.apply(two("a", fmt.Sprint("b", i)), Options{})
		}
		var h History
		l.e.History("web", func(got History, err error) { h = got })
		synctest.Wait()
		if len(h.Revisions) != KeepRevisions || h.Current != 15 || h.Revisions[0].Number != 6 || len(l.n.revisions["web"]) != KeepRevisions {
			t.Errorf("%+v", h)
		}
		l.want(mustAsk(l, l.request("web"), l.e.Rollback), RolledBack, "Revision:16")
		if err := l.n.is(two("a", "b13").Bundle); err != nil {
			t.Error(err)
		}
		req := l.request("web")
		req.To = 8
		l.want(mustAsk(l, req, l.e.Rollback), RolledBack, "Revision:17")
		if err := l.n.is(two("a", "b7").Bundle); err != nil || l.n.states["web"].Revisions[9].Of != 8 {
			t.Errorf("%v %+v", err, l.n.states["web"])
		}
		req = l.request("web")
		req.To = 1
		l.want(mustAsk(l, req, l.e.Rollback), Failed, CodeUnknown, "no revision 1")
		if _, err := l.ask(l.request("db"), l.e.Rollback); err == nil {
			t.Error("a workload that is not there was rolled back")
		}
	})
}

func mustAsk(l *life, req Request, call func(Request, func(error))) Result {
	l.t.Helper()
	r, err := l.ask(req, call)
	if err != nil {
		l.t.Error(err)
	}
	return r
}

func TestDelete(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		before, _ := oldAndNew()
		req := l.upload(before, Options{})
		req.Generation = 7
		mustAsk(l, req, l.e.Apply)
		l.n.start("t@9.service") // an instance that nobody has listed
		req = l.request("web")
		req.Generation = 8
		l.want(mustAsk(l, req, l.e.Delete), Deleted)
		if err := settled(l.n, Bundle{}); err != nil || len(l.n.store) != 0 || len(l.n.revisions["web"]) != 0 {
			t.Errorf("%v, %d contents", err, len(l.n.store))
		}
		req = l.upload(before, Options{})
		req.Generation = 7
		if _, err := l.ask(req, l.e.Apply); err == nil || err.(*Refusal).Code != CodeStale {
			t.Errorf("an apply from before the delete: %v", err)
		}
		if s := l.list().Workloads; len(s) != 1 || !s[0].Deleted || s[0].Generation != 8 {
			t.Errorf("%+v", s)
		}
		// What is not there is deleted, and an older apply is refused from then on.
		req = l.request("db")
		req.Generation = 3
		l.want(mustAsk(l, req, l.e.Delete), Deleted)
		time.Sleep(31 * 24 * time.Hour)
		var g Garbage
		l.e.Collect(false, func(got Garbage, err error) { g = got })
		synctest.Wait()
		if !slices.Equal(g.Forgotten, []string{"db", "web"}) || len(l.list().Workloads) != 0 || len(l.n.states) != 0 {
			t.Errorf("%+v", g)
		}
	})
	scenario(t, func(t *testing.T, l *life) {
		l.apply(two("a CLINGS", "b"), Options{})
		l.want(mustAsk(l, l.request("web"), l.e.Delete), Failed, "still under way")
		if err := l.n.is(two("a CLINGS", "b").Bundle); err != nil || l.n.states["web"].Pending != nil {
			t.Errorf("what does not stop has lost its file: %v", err)
		}
	})
	// 50 times: nothing of the old one is left (case 73).
	scenario(t, func(t *testing.T, l *life) {
		for range 50 {
			l.want(l.apply(two("a FAILS", "b"), Options{}), Failed)
			l.want(mustAsk(l, l.request("web"), l.e.Delete), Deleted)
			l.want(l.apply(two("a", "b"), Options{}), Created)
			if l.state() != StateRunning {
				t.Fatal(l.state())
			}
			l.want(mustAsk(l, l.request("web"), l.e.Delete), Deleted)
		}
	})
}

func TestDriftIsShownAndRepairedByApply(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		l.apply(two("a", "b"), Options{})
		at := "/etc/systemd/system/a.service"
		l.n.disk[at] = PathFact{Kind: KindFile, Text: l.n.disk[at].Text + "# edited\n"}
		delete(l.n.disk, "/etc/systemd/system/b.service")
		if d := l.list().Workloads[0].Drift; !slices.Equal(d, []Drift{{at, "edited"}, {"/etc/systemd/system/b.service", "missing"}}) {
			t.Errorf("drift %+v", d)
		}
		l.jobs()
		r := l.apply(two("a", "b"), Options{})
		l.want(r, Configured, "Revision:1")
		l.did("restart a.service, restart b.service")
		if d := l.list().Workloads[0].Drift; len(d) != 0 {
			t.Errorf("drift %+v", d)
		}
		l.n.disk[at] = PathFact{Kind: KindFile, Text: "[Service]\n"}
		l.want(l.apply(two("a2", "b"), Options{}), Failed, CodeConflict)
		l.want(mustAsk(l, l.request("web"), l.e.Delete), Deleted, "does not have the mark of this workload and is left there")
		if l.n.disk[at].Text != "[Service]\n" {
			t.Error("somebody else's file was removed")
		}
	})
}

func TestSocketAndItsService(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		make := func(port string) Package {
			return pack(map[string]string{"a.service": service("a"), "a.socket": "[Socket]\nListenStream=" + port + "\n[Install]\nWantedBy=sockets.target\n"}, nil, []string{"a.socket"})
		}
		l.apply(make("1"), Options{})
		l.n.start("a.service")
		l.jobs()
		l.apply(make("2"), Options{})
		l.did("stop a.service, stop a.socket, start a.service, start a.socket")
	})
}

func TestControl(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		do := func(verb string) Result {
			req := l.request("web")
			req.Verb = verb
			return mustAsk(l, req, l.e.Control)
		}
		l.apply(two("a", "b"), Options{})
		l.jobs()
		l.want(do("stop"), Stopped)
		l.did("stop a.service, stop b.service")
		if l.state() != StateStopped {
			t.Error(l.state())
		}
		// It stays stopped through an apply, and starts when that is asked for.
		l.want(l.apply(two("a2", "b"), Options{}), Configured)
		l.did("")
		l.want(do("start"), Started)
		l.did("start a.service, start b.service")
		l.want(do("start"), Unchanged)
		l.want(do("restart"), Started)
		l.did("restart a.service, restart b.service")
		clear(l.n.units)
		if l.state() != StateStoppedOutside {
			t.Error(l.state())
		}
		l.want(do("start"), Started) // case 32
		if l.state() != StateRunning {
			t.Error(l.state())
		}
		req := l.request("web")
		req.Verb = "kill"
		if _, err := l.ask(req, l.e.Control); err == nil {
			t.Error("an unknown verb was accepted")
		}
	})
}

// A oneshot that has run and succeeded is not run again by an apply that changes nothing.
func TestCompletedIsNotRunAgain(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		p := pack(map[string]string{"a.service": service("a ONCE")}, nil, []string{}, []string{"a.service"})
		l.apply(p, Options{})
		l.jobs()
		l.want(l.apply(p, Options{}), Unchanged)
		l.did("")
		if l.state() != StateCompleted {
			t.Error(l.state())
		}
		l.apply(pack(map[string]string{"a.service": service("a2 ONCE")}, nil, []string{}, []string{"a.service"}), Options{})
		l.did("start a.service")
	})
}

func TestCollect(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		at := "/etc/systemd/system/old.service"
		l.n.disk[at] = PathFact{Kind: KindFile, Text: service("x") + "[X-Ctrl]\nWorkload=lost\n"}
		l.n.store["0123"] = true
		l.n.read()
		l.n.start("old.service")
		l.n.enabled["old.service"] = true
		l.end()
		l = live(t, l.n, nil)
		l.apply(two("a", "b"), Options{})
		l.n.store["4567"] = true
		if o := l.list().Orphans; !slices.Equal(o, []string{at}) || l.n.units["old.service"] == nil {
			t.Errorf("orphans %v", o)
		}
		var g Garbage
		for _, dry := range []bool{true, false} {
			l.e.Collect(dry, func(got Garbage, err error) { g = got })
			synctest.Wait()
			if !slices.Equal(g.Orphans, []string{at}) {
				t.Errorf("dry %v: %+v", dry, g)
			}
		}
		if _, there := l.n.disk[at]; there || l.n.units["old.service"] != nil || l.n.enabled["old.service"] || len(l.list().Orphans) != 0 {
			t.Error("the orphan is still there")
		}
		l.end()
	})
}

func TestUploads(t *testing.T) {
	var u uploads
	p := web().Encode()
	digest := Sum(p)
	n, err := u.add(digest, uint64(len(p)), 0, p[:10])
	if err != nil || n != 10 {
		t.Fatal(n, err)
	}
	for name, f := range map[string]func() error{
		"not whole": func() error { _, err := u.get(Request{Package: digest, Workload: "web"}); return err },
		"a gap":     func() error { _, err := u.add(digest, uint64(len(p)), 11, p[11:]); return err },
		"too much":  func() error { _, err := u.add(digest, uint64(len(p)), 10, append(slices.Clone(p[10:]), 0)); return err },
		"too large": func() error { _, err := u.add(digest, MaxPackage+1, 0, nil); return err },
		"no digest": func() error { _, err := u.add("x", 1, 0, nil); return err },
		"no start":  func() error { _, err := u.add(Sum(nil), 5, 3, nil); return err },
		"not there": func() error { _, err := u.take(Request{Package: Sum(nil)}); return err },
	} {
		if f() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if n, err := u.add(digest, uint64(len(p)), 10, p[10:]); err != nil || n != uint64(len(p)) {
		t.Fatal(n, err)
	}
	if _, err := u.get(Request{Package: digest, Workload: "db"}); err == nil || !strings.Contains(err.Error(), "of workload web") {
		t.Error(err)
	}
	if got, err := u.take(Request{Package: digest, Workload: "web"}); err != nil || got.Bundle.Workload != "web" || len(u) != 0 {
		t.Error(got, err)
	}
	for i := range 20 {
		u.add(Sum([]byte{byte(i)}), 5, 0, []byte("abc"))
	}
	if len(u) != 4 {
		t.Errorf("%d uploads are kept", len(u))
	}
	bad := Sum([]byte("other"))
	u.add(bad, uint64(len(p)), 0, p)
	if _, err := u.take(Request{Package: bad, Workload: "web"}); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Error(err)
	}
}

// TestBound: what waits is bounded, and an engine that has ended answers.
func TestBound(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		l.apply(two("a", "b"), Options{})
		l.n.dead = true // the first one hangs
		busy := 0
		for range MaxQueued + 5 {
			req := l.request("web")
			req.Verb = "restart"
			if _, err := l.ask(req, l.e.Control); err != nil {
				busy++
			}
		}
		if busy != 4 {
			t.Errorf("%d were refused", busy)
		}
		l.end()
		synctest.Wait()
		if len(l.results) != MaxQueued+2 {
			t.Errorf("%d results", len(l.results))
		}
		answered := false
		l.e.List(func(_ Listing, err error) { answered = err != nil })
		if !answered {
			t.Error("no answer")
		}
	})
}

func TestGenerationIsKept(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		for _, g := range []uint64{3, 5, 5} {
			req := l.upload(two("a", "b"), Options{})
			req.Generation = g
			mustAsk(l, req, l.e.Apply)
		}
		req := l.upload(two("a", "c"), Options{})
		req.Generation = 4
		if _, err := l.ask(req, l.e.Apply); err == nil || l.n.states["web"].Generation != 5 {
			t.Errorf("%v, generation %d", err, l.n.states["web"].Generation)
		}
	})
}

func TestPlanTells(t *testing.T) {
	scenario(t, func(t *testing.T, l *life) {
		l.apply(two("a", "b"), Options{})
		writes := l.n.writes
		l.jobs()
		var got PlanResult
		l.e.Plan(l.upload(two("a2", "b"), Options{}), func(p PlanResult, err error) { got = p })
		synctest.Wait()
		want := []Change{{What: "write", Name: "/etc/systemd/system/a.service"}, {What: "reload-daemon"}, {What: "restart", Name: "a.service"}}
		if got.Outcome != Configured || !slices.Equal(got.Changes, want) || len(got.Diffs) != 1 || !strings.Contains(*got.Diffs[0].New, "a2") || l.n.writes != writes {
			t.Errorf("%+v", got)
		}
		l.did("")
		l.n.elsewhere["a.service"] = "/lib/x"
		l.e.Plan(l.upload(two("a3", "b"), Options{}), func(p PlanResult, err error) { got = p })
		synctest.Wait()
		if got.Code != CodeConflict {
			t.Errorf("%+v", got)
		}
	})
}
