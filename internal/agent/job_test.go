package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

func TestJobsFromAskingToTheEnd(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.start(l.session, 7, wire.Start, "a.service")
		w.expect("systemd< StartUnit a.service")
		w.answer("StartUnit a.service", 70, nil)
		w.a.SystemdJobState(70, "running")
		w.a.SystemdJobState(70, "running")
		w.a.SystemdJobState(99, "running")
		w.a.SystemdJobRemoved(99, "b.service", "done")
		w.a.SystemdJobRemoved(70, "a.service", "failed")
		w.a.SystemdJobRemoved(70, "a.service", "done")
		w.expect("answer 7 ok", "JobState 7 running", "JobDone 7 failed")
	})
}

func TestOneJobOfSystemdEndsAllThatWereMergedIntoIt(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.start(l.session, 1, wire.Start, "a.service")
		w.answer("StartUnit a.service", 70, nil)
		w.a.SystemdJobState(70, "running")
		w.start(l.session, 2, wire.Start, "a.service")
		w.answer("StartUnit a.service", 70, nil)
		w.a.SystemdJobRemoved(70, "a.service", "done")
		w.expect("systemd< StartUnit a.service", "answer 1 ok", "JobState 1 running",
			"systemd< StartUnit a.service", "JobState 2 running", "answer 2 ok", "JobDone 1 done", "JobDone 2 done")
	})
}

func TestRefusedAndUnansweredJobs(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.start(l.session, 1, wire.Start, "none.service")
		w.answer("StartUnit none.service", nil, wire.ErrSystemdNoSuchUnit.With("Unit none.service not found."))
		w.expect("systemd< StartUnit none.service", "answer 1 NoSuchUnit")
		w.start(l.session, 1, wire.Start, "slow.service") // the id is free again
		l.keepAlive(plain.CallTimeout)
		w.expect("systemd< StartUnit slow.service", "answer 1 Timeout")
		w.start(l.session, 2, wire.Stop, wire.AgentUnit)
		w.start(l.session, 3, wire.Restart, wire.AgentUnit)
		w.start(l.session+1, 4, wire.Start, "a.service")
		w.expect("answer 2 AccessDenied", "systemd< RestartUnit ctrl-agent.service", "answer 4 Disconnected")
		w.start(l.session, 3, wire.Start, "b.service")
		w.expect("answer 3 InvalidArgs")
	})
}

func TestCancelInEachState(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		cancel := func(id uint32) {
			w.a.CancelJob(l.session, id, func(err error) { w.note("cancel %d %s", id, kind(err)) })
			synctest.Wait()
		}
		cancel(1)
		w.expect("cancel 1 NoSuchJob")
		w.start(l.session, 1, wire.Start, "a.service")
		cancel(1)
		w.expect("systemd< StartUnit a.service")
		w.answer("StartUnit a.service", 70, nil)
		w.expect("answer 1 ok", "systemd< CancelJob 70")
		w.answer("CancelJob 70", nil, nil)
		w.a.SystemdJobRemoved(70, "a.service", "canceled")
		w.expect("cancel 1 ok", "JobDone 1 canceled")
		w.start(l.session, 2, wire.Start, "b.service")
		cancel(2)
		w.answer("StartUnit b.service", nil, errors.New("refused"))
		w.expect("systemd< StartUnit b.service", "answer 2 Failed", "cancel 2 NoSuchJob")
	})
}

func TestANewSessionKnowsNothingOfOldJobs(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.start(l.session, 1, wire.Start, "a.service")
		w.start(l.session, 2, wire.Start, "b.service")
		w.answer("StartUnit a.service", 70, nil)
		w.a.Closed(l.session, errors.New("cut"))
		time.Sleep(time.Second)
		synctest.Wait()
		second := w.newLink()
		w.dialed(second, nil)
		second.register(welcome, nil)
		w.take()
		w.answer("StartUnit b.service", 71, nil)
		w.a.SystemdJobRemoved(70, "a.service", "done")
		w.a.SystemdJobRemoved(71, "b.service", "done")
		w.expect("answer 2 ok") // nobody hears it: the link is gone
	})
}

func TestJobsAreLookedUpAgainAfterSystemdWasAway(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		for i, unit := range []string{"a.service", "b.service", "c.service"} {
			w.start(l.session, uint32(i+1), wire.Start, unit)
			w.answer("StartUnit "+unit, 70+i, nil)
		}
		w.take()
		w.a.SystemdDown(errors.New("EOF"))
		w.a.SystemdUp(map[string]wire.Value{})
		w.expect("systemd< ListJobs")
		w.answer("ListJobs", []QueuedJob{{ID: 71, State: "running"}, {ID: 99, State: "running"}}, nil)
		w.expect("systemd< units a.service", "JobState 2 running", "systemd< units c.service")
		w.answer("units a.service", []UnitRow{{"a.service", "a.service", "active", "running"}}, nil)
		w.answer("units c.service", []UnitRow{{"c.service", "c.service", "failed", "failed"}}, nil)
		w.expect("JobDone 1 done", "JobDone 3 failed")
		w.a.SystemdJobRemoved(71, "b.service", "done")
		w.expect("JobDone 2 done")
	})
}

func TestLookingUpJobsIsTriedAgain(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.start(l.session, 1, wire.Start, "a.service")
		w.answer("StartUnit a.service", 70, nil)
		w.start(l.session, 2, wire.Stop, "b.service")
		w.answer("StopUnit b.service", 71, nil)
		w.take()
		w.a.SystemdUp(nil)
		w.answer("ListJobs", nil, wire.ErrTimeout.With("slow"))
		w.expect("systemd< ListJobs")
		l.keepAlive(resyncPause)
		w.answer("ListJobs", []QueuedJob{}, nil)
		w.expect("systemd< ListJobs", "systemd< units a.service", "systemd< units b.service")
		w.answer("units a.service", nil, wire.ErrDisconnected.With("lost again"))
		w.answer("units b.service", nil, errors.New("no idea"))
		w.expect("JobDone 2 canceled")
		w.a.SystemdUp(nil)
		w.answer("ListJobs", nil, wire.ErrDisconnected.With("lost again"))
		l.keepAlive(time.Minute)
		w.expect("systemd< ListJobs")
		w.a.SystemdUp(nil)
		w.answer("ListJobs", nil, nil)
		w.answer("units a.service", nil, nil) // not loaded: it has come and gone
		w.expect("systemd< ListJobs", "systemd< units a.service", "JobDone 1 done")
	})
}

func TestARunningJobMayWaitAgain(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.start(l.session, 1, wire.Start, "a.service")
		w.answer("StartUnit a.service", 70, nil)
		for _, state := range []string{"running", "waiting", "waiting", "running"} {
			w.a.SystemdJobState(70, state)
		}
		w.start(l.session, 2, wire.Restart, "a.service")
		w.answer("RestartUnit a.service", 70, nil)
		w.a.SystemdJobState(70, "waiting")
		w.expect("systemd< StartUnit a.service", "answer 1 ok", "JobState 1 running", "JobState 1 waiting", "JobState 1 running",
			"systemd< RestartUnit a.service", "JobState 2 running", "answer 2 ok", "JobState 1 waiting", "JobState 2 waiting")
	})
}

func TestTablesAreBounded(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		for i := range uint32(MaxJobs) {
			w.a.StartJob(l.session, JobRequest{ID: i + 1, Unit: "a.service"}, func(error) {})
		}
		for range MaxCalls {
			w.a.Call(l.session, "ListUnits", wire.Raw{}, func(wire.Raw, error) {})
		}
		w.take()
		w.start(l.session, MaxJobs+1, wire.Start, "a.service")
		w.a.Call(l.session, "ListUnits", wire.Raw{}, func(_ wire.Raw, err error) { w.note("call %s", kind(err)) })
		w.expect("answer 8193 LimitsExceeded", "call LimitsExceeded")
		l.keepAlive(plain.CallTimeout) // all of them get no answer, so there is room again
		w.take()
		w.start(l.session, MaxJobs+1, wire.Start, "a.service")
		w.a.Call(l.session, "ListUnits", wire.Raw{}, func(_ wire.Raw, err error) { w.note("call %s", kind(err)) })
		w.expect("systemd< StartUnit a.service", "systemd< ListUnits")
	})
}

func TestTheAgentProtectsItsOwnUnit(t *testing.T) {
	one := str(wire.AgentUnit).Data
	file := str("/usr/lib/systemd/system/" + wire.AgentUnit).Data
	list := append([]byte{byte(len(file)), 0, 0, 0}, file...)
	list = append(list, make([]byte, 16)...)
	tests := map[string][]byte{
		"KillUnit": one, "FreezeUnit": one, "MaskUnitFiles": list, "DisableUnitFiles": list, "PresetUnitFiles": list,
		"ThawUnit": nil, "ResetFailedUnit": nil, "EnableUnitFiles": nil, "UnmaskUnitFiles": nil, "GetUnitProcesses": nil,
	}
	in(t, plain, func(w *world) {
		l := w.online()
		for name, refused := range tests {
			method, _ := wire.NodeMethodByName(name)
			args := wire.Raw{Sig: method.In, Data: one}
			if method.In[0] == 'a' {
				args.Data = list
			}
			w.a.Call(l.session, name, args, func(_ wire.Raw, err error) { w.note("%s %s", name, kind(err)) })
			if refused != nil {
				w.expect(name + " AccessDenied")
			} else {
				w.expect("systemd< " + name)
			}
		}
	})
}

func TestSwitchManagerByTheManager(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		to := func(address string) {
			w.a.Call(l.session, "SwitchManager", wire.Raw{Sig: "s", Data: str(address).Data}, func(_ wire.Raw, err error) { w.note("answer %s", kind(err)) })
		}
		to("tcp:host=a,port=1")
		w.expect("answer Failed")
		to("tcp:host=b,port=1") // the answer leaves before the link is closed
		w.expect("answer ok", "address tcp:host=b,port=1", "close", "dial tcp:host=b,port=1", "status offline")
	})
}

func TestResultFromState(t *testing.T) {
	tests := []struct {
		verb         wire.Verb
		active, want string
	}{
		{wire.Start, "active", "done"}, {wire.Start, "inactive", "done"}, {wire.Start, "failed", "failed"},
		{wire.Start, "deactivating", "canceled"}, {wire.Restart, "activating", "done"},
		{wire.Stop, "inactive", "done"}, {wire.Stop, "failed", "done"}, {wire.Stop, "active", "canceled"},
	}
	for _, tt := range tests {
		if got := resultFromState(tt.verb, tt.active); got != tt.want {
			t.Errorf("%s, %q: %s, want %s", tt.verb, tt.active, got, tt.want)
		}
	}
}

func TestCalls(t *testing.T) {
	cfg := plain
	var levels []string
	cfg.SetLogLevel = func(l string) error { levels = append(levels, l); return nil }
	in(t, cfg, func(w *world) {
		l := w.online()
		call := func(method string, args wire.Raw) {
			w.a.Call(l.session, method, args, func(body wire.Raw, err error) { w.note("%s %s %d", method, kind(err), len(body.Data)) })
			synctest.Wait()
		}
		one := func(s string) []byte { return str(s).Data }
		list := append([]byte{byte(len(one("x.service"))), 0, 0, 0}, one("x.service")...)
		call("ListUnits", wire.Raw{})
		w.answer("ListUnits", wire.Raw{Sig: "s", Data: one("x")}, nil)
		w.expect("systemd< ListUnits", "ListUnits ok 6")
		call("FreezeUnit", wire.Raw{Sig: "s", Data: one(wire.AgentUnit)})
		call("FreezeUnit", wire.Raw{Sig: "s", Data: one("foo@.service")})
		call("FreezeUnit", wire.Raw{})
		call("StartUnit", wire.Raw{})
		call("Nonsense", wire.Raw{})
		call("DisableUnitFiles", wire.Raw{Sig: "asb", Data: append(list, 0, 0, 0, 0)})
		w.expect("FreezeUnit AccessDenied 0", "FreezeUnit InvalidArgs 0", "FreezeUnit InvalidArgs 0",
			"StartUnit UnknownMethod 0", "Nonsense UnknownMethod 0", "systemd< DisableUnitFiles")
		call("SetLogLevel", wire.Raw{Sig: "s", Data: one("debug")})
		call("Shutdown", wire.Raw{})
		w.expect("SetLogLevel ok 0", "Shutdown UnknownMethod 0")
		if len(levels) != 1 || levels[0] != "debug" {
			t.Errorf("levels %q", levels)
		}
	})
}

func TestMetricsOfJobs(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		run := func(id uint32) {
			w.start(l.session, id, wire.Start, "a.service")
			w.answer("StartUnit a.service", int(id)+70, nil)
			time.Sleep(time.Second)
			l.hear()
			w.a.SystemdJobRemoved(id+70, "a.service", "done")
		}
		run(1)
		w.expect("systemd< StartUnit a.service", "answer 1 ok", "JobDone 1 done")
		w.a.SetMetrics(l.session, true)
		run(2)
		w.expect("systemd< StartUnit a.service", "answer 2 ok", "JobDone 2 done", "JobMetrics a.service StartUnit 1s")
		w.a.SetMetrics(l.session+1, false) // of no session
		run(3)
		w.expect("systemd< StartUnit a.service", "answer 3 ok", "JobDone 3 done", "JobMetrics a.service StartUnit 1s")
	})
}

func TestTemplatesHaveFilesAndNothingElse(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		for _, c := range []struct{ method, unit string }{
			{"ReadUnitFiles", "a@.service"}, {"ReadUnitFiles", "../a@.service"}, {"ReadUnitFiles", "a"}, {"ResetFailedUnit", "a@.service"},
		} {
			w.a.Call(l.session, c.method, wire.Raw{Sig: "s", Data: str(c.unit).Data}, func(_ wire.Raw, err error) { w.note("%s %s", c.unit, kind(err)) })
		}
		w.expect("systemd< ReadUnitFiles", "../a@.service InvalidArgs", "a InvalidArgs", "a@.service InvalidArgs")
	})
}
