package agent

import (
	"testing"
	"testing/synctest"

	"example.org/ctrl/internal/policy"
	"example.org/ctrl/internal/wire"
)

func with(t *testing.T, set policy.Settings) Config {
	t.Helper()
	set.Node = "node1"
	rules, err := policy.New(set)
	if err != nil {
		t.Fatal(err)
	}
	cfg := plain
	cfg.Policy = rules
	return cfg
}

func (w *world) call(l *link, method string, args wire.Raw) {
	w.a.Call(l.session, method, args, func(_ wire.Raw, err error) { w.note("%s %s", method, kind(err)) })
	synctest.Wait()
}

// list is a body that begins with a list of one string.
func list(sig wire.Signature, name string, flags int) wire.Raw {
	one := str(name).Data
	data := append([]byte{byte(len(one)), 0, 0, 0}, one...)
	for len(data)%4 != 0 {
		data = append(data, 0)
	}
	return wire.Raw{Sig: sig, Data: append(data, make([]byte, 4*flags)...)}
}

func TestAliasesAreJudgedByTheirUnit(t *testing.T) {
	in(t, with(t, policy.Settings{DenyUnits: []string{"sshd.service", "sshd@*"}}), func(w *world) {
		l := w.online()
		ssh := []string{"ssh.service", "sshd.service"}
		w.names = map[string][]string{
			"ssh.service": ssh, "sshd.service": ssh, "me.service": {wire.AgentUnit, "me.service"},
			"web@policy.service": {"web@policy.service"}, "shell@policy.service": {"sshd@policy.service", "shell@policy.service"},
		}
		w.start(l.session, 1, wire.Stop, "ssh.service")
		w.start(l.session, 2, wire.Stop, "sshd.service")
		w.start(l.session, 3, wire.Stop, "me.service")
		w.start(l.session, 4, wire.Start, "me.service")
		w.start(l.session, 5, wire.Stop, "web.service")
		w.expect("answer 1 AccessDenied", "answer 2 AccessDenied", "answer 3 AccessDenied",
			"systemd< StartUnit me.service", "systemd< StopUnit web.service")
		w.call(l, "KillUnit", wire.Raw{Sig: "ssi", Data: wire.Strings("ssh.service", "all").Data})
		w.call(l, "MaskUnitFiles", list("asbb", "/etc/systemd/system/ssh.service", 2))
		w.call(l, "MaskUnitFiles", list("asbb", "web@.service", 2))
		w.call(l, "SetDefaultTarget", wire.Raw{Sig: "sb", Data: append(str("ssh.service").Data, 0, 0, 0, 0)})
		w.call(l, "DisableUnitFiles", list("asb", "shell@.service", 1))
		w.call(l, "ResetFailed", wire.Raw{})
		w.call(l, "GetUnitFileState", wire.Strings("ssh.service"))
		w.expect("KillUnit AccessDenied", "MaskUnitFiles AccessDenied", "systemd< MaskUnitFiles", "SetDefaultTarget AccessDenied", "DisableUnitFiles AccessDenied",
			"ResetFailed AccessDenied", "systemd< GetUnitFileState")
	})
}

func TestAllowedIsWhatThePrimaryNameAllows(t *testing.T) {
	in(t, with(t, policy.Settings{AllowUnits: []string{"web-*"}}), func(w *world) {
		l := w.online()
		w.names = map[string][]string{"web-x.service": {"db.service", "web-x.service"}, "frontend.service": {"web-1.service", "frontend.service"}}
		w.start(l.session, 1, wire.Start, "web-x.service")
		w.start(l.session, 2, wire.Start, "frontend.service")
		w.expect("answer 1 AccessDenied", "systemd< StartUnit frontend.service")
	})
}

// TestLookupsReverseNothing: a job whose unit is looked up is not overtaken by the next one,
// nor by a query, and each is judged.
func TestLookupsReverseNothing(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.holdNames = true
		w.start(l.session, 1, wire.Stop, "a.service") // might be the agent's own unit
		w.start(l.session, 2, wire.Start, "a.service")
		w.call(l, "ListUnits", wire.Raw{})
		w.start(l.session, 3, wire.Stop, "b.service")
		w.expect("systemd< names a.service", "systemd< names b.service")
		w.answer("names b.service", []string{wire.AgentUnit, "b.service"}, nil)
		w.expect()
		w.answer("names a.service", []string{"a.service"}, nil)
		w.expect("systemd< StopUnit a.service", "systemd< StartUnit a.service", "systemd< ListUnits", "answer 3 AccessDenied")
	})
}

func TestUnknownNamesAreRefused(t *testing.T) {
	in(t, plain, func(w *world) {
		l := w.online()
		w.holdNames = true
		w.start(l.session, 1, wire.Stop, "a.service")
		w.answer("names a.service", nil, wire.ErrDisconnected.With("gone"))
		w.start(l.session, 2, wire.Stop, "b.service")
		l.keepAlive(plain.CallTimeout)
		w.expect("systemd< names a.service", "answer 1 Disconnected", "systemd< names b.service", "answer 2 Timeout")
		w.start(l.session, 3, wire.Stop, "c.service")
		w.a.CancelJob(l.session, 3, func(err error) { w.note("cancel %s", kind(err)) })
		w.expect("systemd< names c.service") // the cancellation waits behind it
		w.a.Closed(l.session, wire.ErrDisconnected.With("cut"))
		w.take()
		w.answer("names c.service", []string{"c.service"}, nil)
		w.expect("answer 3 Disconnected", "cancel Disconnected")
	})
}

func TestReloadedPolicyCountsFromThen(t *testing.T) {
	denied, readOnly := with(t, policy.Settings{DenyUnits: []string{"a.*"}}), with(t, policy.Settings{ReadOnly: true})
	in(t, plain, func(w *world) {
		l := w.online()
		w.start(l.session, 1, wire.Start, "a.service")
		w.answer("StartUnit a.service", 70, nil)
		w.holdNames = true
		w.start(l.session, 2, wire.Stop, "a.service")  // judged only after the reload
		w.start(l.session, 9, wire.Start, "a.service") // of which nothing had to be known before
		w.a.Reconfigure(denied)
		w.answer("names a.service", []string{"a.service"}, nil)
		w.holdNames = false
		w.expect("systemd< StartUnit a.service", "answer 1 ok", "systemd< names a.service", "answer 2 AccessDenied", "systemd< names a.service")
		w.answer("names a.service", []string{"a.service"}, nil)
		w.expect("answer 9 AccessDenied")
		// The job goes on and its end is told; what would change it is refused.
		w.a.CancelJob(l.session, 1, func(err error) { w.note("cancel %s", kind(err)) })
		synctest.Wait()
		w.a.SystemdJobRemoved(70, "a.service", "done")
		w.expect("cancel AccessDenied", "JobDone 1 done")
		w.a.Reconfigure(readOnly)
		w.start(l.session, 3, wire.Start, "b.service")
		w.call(l, "Reload", wire.Raw{})
		w.call(l, "SetLogLevel", wire.Strings("debug"))
		w.call(l, "ListUnits", wire.Raw{})
		w.expect("answer 3 AccessDenied", "Reload AccessDenied", "SetLogLevel AccessDenied", "systemd< ListUnits")
		w.a.Reconfigure(plain)
		w.start(l.session, 3, wire.Start, "b.service")
		w.expect("systemd< StartUnit b.service")
	})
}

func TestTransientUnitsMustBeAllowed(t *testing.T) {
	// No properties of the unit itself, and one auxiliary unit without properties.
	rest := func(aux string) wire.Raw {
		data := make([]byte, 16) // length and padding, twice
		unit := append([]byte(nil), str(aux).Data...)
		for len(unit)%4 != 0 {
			unit = append(unit, 0)
		}
		unit = append(unit, 0, 0, 0, 0)
		for len(unit)%8 != 0 {
			unit = append(unit, 0)
		}
		data[8] = byte(len(unit))
		return wire.Raw{Sig: "a(sv)a(sa(sv))", Data: append(data, unit...)}
	}
	run := func(w *world, l *link, id uint32, aux string) {
		tail := rest(aux)
		req := JobRequest{ID: id, Unit: "run-1.service", Mode: "fail", Transient: &tail}
		w.a.StartJob(l.session, req, func(err error) { w.note("answer %d %s", id, kind(err)) })
		synctest.Wait()
	}
	in(t, plain, func(w *world) {
		l := w.online()
		run(w, l, 1, "x.service")
		w.expect("answer 1 AccessDenied")
	})
	in(t, with(t, policy.Settings{AllowTransientUnits: true, DenyUnits: []string{"db.*"}}), func(w *world) {
		l := w.online()
		run(w, l, 1, "db.service")
		run(w, l, 2, "x.service")
		w.expect("answer 1 AccessDenied", "systemd< StartUnit run-1.service")
	})
}

// TestNoWayAroundByDependencies: units that pull in others for other nodes open nothing.
func TestNoWayAroundByDependencies(t *testing.T) {
	in(t, with(t, policy.Settings{DenyUnits: []string{"sshd.service", "x.socket"}}), func(w *world) {
		l := w.online()
		for i, name := range []string{
			"ctrl-dep@sshd.service", "ctrl-dep-unit@sshd.service.service", "ctrl-dep-unit@x.socket.service", "ctrl-dep@web.service",
		} {
			w.start(l.session, uint32(i+1), wire.Start, name)
		}
		w.expect("answer 1 AccessDenied", "answer 2 AccessDenied", "answer 3 AccessDenied", "systemd< StartUnit ctrl-dep@web.service")
	})
}
