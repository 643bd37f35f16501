package systemdtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// heard is a core that writes down what it hears, answers included, in order.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

func (h *heard) SystemdUp(map[string]wire.Value)          { h.note("up") }
func (h *heard) SystemdDown(error)                        { h.note("down") }
func (h *heard) SystemdJobState(job uint32, state string) { h.note("%s %d", state, job) }
func (h *heard) SystemdUnitNew(u string)                  { h.note("new %s", u) }
func (h *heard) SystemdUnitRemoved(u string)              { h.note("gone %s", u) }
func (h *heard) SystemdReloaded()                         { h.note("reloaded") }
func (h *heard) SystemdJobRemoved(j uint32, u, r string)  { h.note("removed %d %s", j, r) }
func (h *heard) SystemdUnitChanged(u, _ string, changed map[string]wire.Value) {
	active, _ := changed["ActiveState"].AsString()
	sub, _ := changed["SubState"].AsString()
	h.note("%s %s/%s", u, active, sub)
}

func (h *heard) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.lines, want) {
		t.Errorf("heard\n  %s\nwant\n  %s", strings.Join(h.lines, "\n  "), strings.Join(want, "\n  "))
	}
	h.lines = nil
}

// with runs a scenario in fake time with one core served.
func with(t *testing.T, scenario func(t *testing.T, s *Systemd, h *heard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, h := New(), &heard{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx, h); close(done) }()
		h.expect(t, "up")
		scenario(t, s, h)
		cancel()
		<-done
	})
}

func (h *heard) job(s *Systemd, verb wire.Verb, unit, mode string) {
	s.StartJob(agent.JobRequest{Unit: unit, Verb: verb, Mode: mode}, time.Minute, func(id uint32, err error) {
		if err != nil {
			h.note("%s refused: %s", verb, wire.AsError(err).Name[strings.LastIndexByte(wire.AsError(err).Name, '.')+1:])
			return
		}
		h.note("%s is job %d", verb, id)
	})
	synctest.Wait()
}

func second(ends string) Run { return Run{Takes: time.Second, Ends: ends} }

// TestJobs goes through systemd's rules: each row asks for jobs of one unit at once, one
// after the other, and then lets a minute pass.
func TestJobs(t *testing.T) {
	tests := []struct {
		name string
		spec Spec
		// asks are verbs; one with a "!" has mode fail, "…" lets all end first.
		asks string
		want []string
		end  string
	}{
		{"at once", Spec{}, "start", []string{"start is job 1", "removed 1 done"}, "active/running"},
		{"slow", Spec{Start: second("")}, "start", []string{"start is job 1", "running 1", "removed 1 done"}, "active/running"},
		{"fails", Spec{Start: second("failed")}, "start", []string{"start is job 1", "running 1", "removed 1 failed"}, "failed/failed"},
		{"time-out", Spec{Start: second("timeout")}, "start", []string{"start is job 1", "running 1", "removed 1 timeout"}, "failed/failed"},
		{"dependency", Spec{Start: second("dependency")}, "start", []string{"start is job 1", "running 1", "removed 1 dependency"}, "inactive/dead"},
		{"condition", Spec{ConditionFails: true}, "start", []string{"start is job 1", "removed 1 done"}, "inactive/dead"},
		{"oneshot", Spec{Oneshot: true}, "start", []string{"start is job 1", "removed 1 done"}, "inactive/dead"},
		{"oneshot that remains", Spec{Oneshot: true, Remain: true}, "start", []string{"start is job 1", "removed 1 done"}, "active/exited"},
		{"hangs", Spec{Start: second(Hangs)}, "start", []string{"start is job 1", "running 1"}, "activating/start"},
		{"equal starts are one", Spec{Start: second("")}, "start start", []string{"start is job 1", "running 1", "start is job 1", "removed 1 done"}, "active/running"},
		{"stop interrupts start", Spec{Start: second(Hangs), Stop: second("")}, "start stop",
			[]string{"start is job 1", "running 1", "removed 1 canceled", "stop is job 2", "running 2", "removed 2 done"}, "inactive/dead"},
		{"start after stop waits for it", Spec{Stop: second("")}, "start … stop start",
			[]string{"start is job 1", "removed 1 done", "stop is job 2", "running 2", "removed 2 canceled", "start is job 3", "removed 3 done"}, "active/running"},
		{"mode fail", Spec{Start: second("")}, "start stop!", []string{"start is job 1", "running 1", "stop refused: TransactionIsDestructive", "removed 1 done"}, "active/running"},
		{"restart", Spec{Start: second(""), Stop: second("")}, "start … restart",
			[]string{"start is job 1", "running 1", "removed 1 done", "restart is job 2", "running 2", "removed 2 done"}, "active/running"},
		{"restart of what is down", Spec{}, "restart", []string{"restart is job 1", "removed 1 done"}, "active/running"},
		{"restart of a start", Spec{Start: second("")}, "start restart", []string{"start is job 1", "running 1", "waiting 1", "restart is job 1", "running 1", "removed 1 done"}, "active/running"},
		{"reload", Spec{Reload: second("")}, "start … reload reload", []string{"start is job 1", "removed 1 done", "reload is job 2", "running 2", "waiting 2", "reload is job 2", "running 2", "removed 2 done"}, "active/running"},
		{"reload fails", Spec{Reload: second("failed")}, "start … reload", []string{"start is job 1", "removed 1 done", "reload is job 2", "running 2", "removed 2 failed"}, "active/running"},
		{"reload of what is down", Spec{}, "reload", []string{"reload is job 1", "removed 1 invalid"}, "inactive/dead"},
		{"no reload", Spec{NoReload: true}, "start … reload", []string{"start is job 1", "removed 1 done", "reload refused: JobTypeNotApplicable"}, "active/running"},
		{"try-restart of what is down", Spec{}, "try-restart", []string{"try-restart is job 1", "removed 1 done"}, "inactive/dead"},
		{"reload-or-restart", Spec{}, "reload-or-restart … reload-or-restart", []string{"reload-or-restart is job 1", "removed 1 done", "reload-or-restart is job 2", "removed 2 done"}, "active/running"},
		{"try-reload-or-restart", Spec{NoReload: true}, "start … try-reload-or-restart", []string{"start is job 1", "removed 1 done", "try-reload-or-restart is job 2", "removed 2 done"}, "active/running"},
		{"stop that fails", Spec{Stop: second("failed")}, "start … stop", []string{"start is job 1", "removed 1 done", "stop is job 2", "running 2", "removed 2 done"}, "failed/failed"},
		{"stop of what is down", Spec{}, "stop", []string{"stop is job 1", "removed 1 done"}, "inactive/dead"},
		{"masked", Spec{Load: "masked"}, "start", []string{"start refused: UnitMasked"}, "inactive/dead"},
		{"bad file", Spec{Load: "bad-setting"}, "start", []string{"start refused: BadUnitSetting"}, "inactive/dead"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			with(t, func(t *testing.T, s *Systemd, h *heard) {
				s.AddUnit("a.service", tt.spec)
				for word := range strings.FieldsSeq(tt.asks) {
					if word == "…" {
						time.Sleep(time.Minute)
						continue
					}
					verb, mode := word, "replace"
					if v, ok := strings.CutSuffix(word, "!"); ok {
						verb, mode = v, "fail"
					}
					for _, v := range wire.Verbs() {
						if v.String() == verb {
							h.job(s, v, "a.service", mode)
						}
					}
				}
				time.Sleep(time.Minute)
				h.expect(t, tt.want...)
				if got := s.State("a.service"); got.Active+"/"+got.Sub != tt.end {
					t.Errorf("the unit is %v, want %s", got, tt.end)
				}
			})
		})
	}
}

func TestUnknownUnitsAreRefused(t *testing.T) {
	with(t, func(t *testing.T, s *Systemd, h *heard) {
		h.job(s, wire.Start, "none.service", "replace")
		h.job(s, wire.Stop, "none.service", "replace")
		h.expect(t, "start refused: NoSuchUnit", "stop refused: NoSuchUnit")
		s.AddUnit("gone.service", Spec{})
		h.job(s, wire.Start, "gone.service", "replace")
		s.RemoveUnit("gone.service")
		h.job(s, wire.Restart, "gone.service", "replace")
		h.job(s, wire.Stop, "gone.service", "replace") // what runs can still be stopped
		h.job(s, wire.Stop, "gone.service", "replace")
		h.expect(t, "start is job 1", "removed 1 done", "restart refused: NoSuchUnit",
			"stop is job 2", "removed 2 done", "stop refused: NoSuchUnit")
	})
}

func TestSignalsOfWatchedUnits(t *testing.T) {
	with(t, func(t *testing.T, s *Systemd, h *heard) {
		s.AddUnit("a.service", Spec{Aliases: []string{"alias.service"}, Start: second("")})
		s.AddUnit("b.service", Spec{})
		s.Watch(func(name string) bool { return name == "a.service" })
		h.job(s, wire.Start, "alias.service", "replace")
		h.job(s, wire.Start, "b.service", "replace")
		time.Sleep(time.Second)
		h.expect(t, "new a.service", "start is job 1", "running 1", "a.service activating/start",
			"start is job 2", "removed 2 done", "a.service active/running", "removed 1 done")
		h.job(s, wire.Stop, "a.service", "replace")
		h.expect(t, "stop is job 3", "a.service deactivating/stop-sigterm", "a.service inactive/dead", "removed 3 done", "gone a.service")
		s.Call("GetUnitProperties", peer.MustEncode("a.service", ""), time.Second, func(wire.Raw, error) { h.note("answer") })
		h.expect(t, "new a.service", "gone a.service", "answer") // a look loads and unloads it
		h.job(s, wire.Start, "a.service", "replace")
		time.Sleep(time.Second)
		synctest.Wait()
		s.Watch(nil)
		s.Exit("a.service", true)
		h.expect(t, "new a.service", "start is job 4", "running 4", "a.service activating/start", "a.service active/running", "removed 4 done")
	})
}

func TestConnectionThatIsLost(t *testing.T) {
	with(t, func(t *testing.T, s *Systemd, h *heard) {
		s.AddUnit("slow.service", Spec{Start: second("")})
		s.AddUnit("slower.service", Spec{Start: Run{Takes: time.Minute}})
		h.job(s, wire.Start, "slow.service", "replace")
		h.job(s, wire.Start, "slower.service", "replace")
		s.Hold()
		s.Jobs(time.Minute, func(q []agent.QueuedJob, err error) { h.note("jobs %v %v", q, err != nil) })
		s.Restart(2 * time.Second)
		s.Release()
		h.expect(t, "start is job 1", "running 1", "start is job 2", "running 2", "jobs [] true", "down")
		s.Jobs(time.Minute, func(q []agent.QueuedJob, err error) { h.note("jobs %v %v", q, err != nil) })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.Jobs(time.Minute, func(q []agent.QueuedJob, err error) { h.note("jobs %v %v", q, err != nil) })
		time.Sleep(time.Minute)
		h.expect(t, "jobs [] true", "up", "jobs [{2 slower.service start running}] false", "removed 2 done")
	})
}

func TestHold(t *testing.T) {
	with(t, func(t *testing.T, s *Systemd, h *heard) {
		s.AddUnit("a.service", Spec{})
		s.Hold()
		s.StartJob(agent.JobRequest{Unit: "a.service", Mode: "replace"}, time.Second, func(_ uint32, err error) { h.note("%v", err != nil) })
		time.Sleep(time.Second)
		h.expect(t, "true")
		s.Release() // what was asked happens, as a stopped process finds it in its socket
		h.expect(t, "removed 1 done")
		if got := s.State("a.service"); got != (State{"loaded", "active", "running"}) {
			t.Errorf("the unit is %v", got)
		}
	})
}

func TestRebootAndSecondCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		s.AddUnit("on.service", Spec{Enabled: true})
		s.AddUnit("off.service", Spec{})
		s.AddUnit("slow.service", Spec{Start: second("")})
		for range 2 {
			h := &heard{}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { s.Run(ctx, h); close(done) }()
			synctest.Wait()
			h.job(s, wire.Start, "off.service", "replace")
			h.job(s, wire.Start, "slow.service", "replace")
			cancel()
			<-done
		}
		s.Reboot()
		time.Sleep(time.Minute)
		for name, want := range map[string]string{"on.service": "active", "off.service": "inactive", "slow.service": "inactive"} {
			if got := s.State(name).Active; got != want {
				t.Errorf("%s is %s after the reboot", name, got)
			}
		}
		if n := s.QueuedJobs(); n != 0 {
			t.Errorf("%d jobs after the reboot", n)
		}
	})
}

// TestCallsAnswerWithTheirTypes holds the table against wire.NodeMethods: every method that
// is systemd's is known, and answers with the type that callers expect.
func TestCallsAnswerWithTheirTypes(t *testing.T) {
	type property struct {
		Name  string
		Value wire.Value
	}
	args := map[string]wire.Raw{
		"KillUnit":          peer.MustEncode("on.service", "all", int32(9)),
		"GetUnitProperties": peer.MustEncode("on.service", ""),
		"GetUnitProperty":   peer.MustEncode("on.service", "", "Id"),
		"SetUnitProperties": peer.MustEncode("on.service", true, []property{{"CPUWeight", peer.MustValue(uint64(7))}}),
		"ListUnitsFiltered": peer.MustEncode([]string{"active"}, []string{"o*"}),
		"SetDefaultTarget":  peer.MustEncode("on.target", true),
		"DisableUnitFiles":  peer.MustEncode([]string{"on.service"}, false),
		"UnmaskUnitFiles":   peer.MustEncode([]string{"on.service"}, false),
	}
	with(t, func(t *testing.T, s *Systemd, h *heard) {
		s.AddUnit("on.target", Spec{})
		for _, m := range wire.NodeMethods {
			if m.Kind == wire.JobMethod || m.Kind == wire.AgentMethod {
				continue
			}
			s.AddUnit("on.service", Spec{})
			h.job(s, wire.Start, "on.service", "replace")
			in, ok := args[m.Name]
			switch {
			case ok:
			case m.In == "s":
				in = peer.MustEncode("on.service")
			case m.In == "asbb":
				in = peer.MustEncode([]string{"on.service"}, false, false)
			}
			if in.Sig != m.In {
				t.Fatalf("%s takes %q", m.Name, string(m.In))
			}
			answered := false
			s.Call(m.Name, in, time.Second, func(body wire.Raw, err error) {
				answered = true
				if err != nil || body.Sig != m.Out {
					t.Errorf("%s answers %q, %v; want %q", m.Name, string(body.Sig), err, string(m.Out))
				}
			})
			synctest.Wait()
			if !answered {
				t.Errorf("%s gives no answer", m.Name)
			}
		}
	})
}

func TestListsAndFileStates(t *testing.T) {
	with(t, func(t *testing.T, s *Systemd, h *heard) {
		for _, name := range []string{"a.service", "b.service", "c.timer"} {
			s.AddUnit(name, Spec{})
		}
		h.job(s, wire.Start, "b.service", "replace")
		h.job(s, wire.Start, "c.timer", "replace")
		call := func(method string, into any, args ...any) {
			t.Helper()
			s.Call(method, peer.MustEncode(args...), time.Second, func(body wire.Raw, err error) {
				if err == nil && into != nil {
					err = peer.Decode(body, into)
				}
				if err != nil {
					t.Errorf("%s: %v", method, err)
				}
			})
			synctest.Wait()
		}
		var rows []wire.UnitStatus
		call("ListUnits", &rows)
		if len(rows) != 2 || rows[0].Name != "b.service" || rows[1].SubState != "waiting" {
			t.Errorf("loaded units are %v", rows)
		}
		call("ListUnitsFiltered", &rows, []string{"running"}, []string{"*.service"})
		if len(rows) != 1 || rows[0].Name != "b.service" {
			t.Errorf("running services are %v", rows)
		}
		var state string
		call("EnableUnitFiles", nil, []string{"a.service"}, false, false)
		call("GetUnitFileState", &state, "a.service")
		if state != "enabled" {
			t.Errorf("the file is %s", state)
		}
		call("MaskUnitFiles", nil, []string{"a.service"}, false, false)
		h.job(s, wire.Start, "a.service", "replace")
		h.expect(t, "start is job 1", "removed 1 done", "start is job 2", "removed 2 done", "start refused: UnitMasked")
		if got := s.Requests(); !slices.Contains(got, "StartUnit a.service replace") || !slices.Contains(got, "ListUnitsFiltered") {
			t.Errorf("requests are %q", got)
		}
	})
}
