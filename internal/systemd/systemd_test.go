package systemd

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

const managerPath = " /org/freedesktop/systemd1 Manager"

// TestEveryMethodIsTranslated holds how each method of a node is asked of systemd, and
// that none is forgotten.
func TestEveryMethodIsTranslated(t *testing.T) {
	type setting struct {
		Name  string
		Value wire.Value
	}
	files := []string{"a.service"}
	unitObject := " /org/freedesktop/systemd1/unit/a_2eservice Properties"
	tests := map[string]struct {
		args []any
		want string
	}{
		"KillUnit":          {[]any{"a.service", "main", int32(9)}, "KillUnit" + managerPath + "[a.service main 9]"},
		"FreezeUnit":        {[]any{"a.service"}, "FreezeUnit" + managerPath + "[a.service]"},
		"ThawUnit":          {[]any{"a.service"}, "ThawUnit" + managerPath + "[a.service]"},
		"ResetFailedUnit":   {[]any{"a.service"}, "ResetFailedUnit" + managerPath + "[a.service]"},
		"ResetFailed":       {nil, "ResetFailed" + managerPath + "[]"},
		"Reload":            {nil, "Reload" + managerPath + "[]"},
		"GetUnitProperties": {[]any{"a.service", ""}, "GetAll" + unitObject + "[]"},
		"GetUnitProperty":   {[]any{"a.service", "Service", "MainPID"}, "Get" + unitObject + "[org.freedesktop.systemd1.Service MainPID]"},
		"SetUnitProperties": {[]any{"a.service", true, []setting{}}, "SetUnitProperties" + managerPath + "[a.service true []]"},
		"EnableUnitFiles":   {[]any{files, true, false}, "EnableUnitFiles" + managerPath + "[[a.service] true false]"},
		"DisableUnitFiles":  {[]any{files, true}, "DisableUnitFiles" + managerPath + "[[a.service] true]"},
		"MaskUnitFiles":     {[]any{files, false, true}, "MaskUnitFiles" + managerPath + "[[a.service] false true]"},
		"UnmaskUnitFiles":   {[]any{files, false}, "UnmaskUnitFiles" + managerPath + "[[a.service] false]"},
		"PresetUnitFiles":   {[]any{files, false, true}, "PresetUnitFiles" + managerPath + "[[a.service] false true]"},
		"GetUnitFileState":  {[]any{"a.service"}, "GetUnitFileState" + managerPath + "[a.service]"},
		"GetUnitProcesses":  {[]any{"a.service"}, "GetUnitProcesses" + managerPath + "[a.service]"},
		"ReadUnitFiles":     {[]any{"a.service"}, "Get" + unitObject + "[org.freedesktop.systemd1.Unit LoadState]"},
		"ListUnits":         {nil, "ListUnits" + managerPath + "[]"},
		"ListUnitsFiltered": {[]any{[]string{"failed"}, files}, "ListUnitsByPatterns" + managerPath + "[[failed] [a.service]]"},
		"ListUnitFiles":     {nil, "ListUnitFiles" + managerPath + "[]"},
		"GetDefaultTarget":  {nil, "GetDefaultTarget" + managerPath + "[]"},
		"SetDefaultTarget":  {[]any{"a.target", true}, "SetDefaultTarget" + managerPath + "[a.target true]"},
	}
	private(t, func(w *world) {
		w.expectAsked("Subscribe" + managerPath + "[]") // and no Hello: there is no bus
		w.p.set("LoadState", errors.New("enough"))
		for _, m := range wire.NodeMethods {
			tt, ok := tests[m.Name]
			if m.Kind != wire.QueryMethod && m.Kind != wire.ChangeMethod {
				continue
			}
			if args := peer.MustEncode(tt.args...); !ok || args.Sig != m.In {
				t.Errorf("%s: arguments are %q, not %q", m.Name, string(args.Sig), string(m.In))
				continue
			}
			w.call(m.Name, tt.args...)
			w.expectAsked(tt.want)
		}
	})
}

func TestJobVerbsAndTransientUnits(t *testing.T) {
	type setting struct {
		Name  string
		Value wire.Value
	}
	type auxiliary struct {
		Name     string
		Settings []setting
	}
	private(t, func(w *world) {
		w.p.take()
		for _, verb := range wire.Verbs() {
			w.p.set(verb.Method(), wire.SystemdJobPath(7))
			w.StartJob(agent.JobRequest{Unit: "a.service", Verb: verb, Mode: "fail"}, time.Second, func(job uint32, err error) {
				w.h.note("job %d %v", job, err)
			})
			w.expectAsked(verb.Method() + managerPath + "[a.service fail]")
			w.expect("job 7 <nil>")
		}
		w.p.set("StartTransientUnit", wire.SystemdJobPath(8))
		rest := peer.MustEncode([]setting{{"Description", peer.MustValue("x")}}, []auxiliary{})
		w.StartJob(agent.JobRequest{Unit: "run-1.service", Mode: "fail", Transient: &rest}, time.Second, func(job uint32, err error) {
			w.h.note("job %d %v", job, err)
		})
		synctest.Wait()
		if got := w.p.take(); len(got) != 1 || !strings.HasPrefix(got[0], "StartTransientUnit"+managerPath+"[run-1.service fail [[Description") {
			t.Errorf("asked %q", got)
		}
		w.expect("job 8 <nil>")
		for _, odd := range []any{wire.ObjectPath("/org/freedesktop/systemd1/job/x"), "no path"} {
			w.p.set("StartUnit", odd)
			w.start("a.service")
			synctest.Wait()
			if got := w.h.take(); len(got) != 1 || !strings.HasPrefix(got[0], "a.service refused:") {
				t.Errorf("the job path %v gives %q", odd, got)
			}
		}
	})
}

func TestErrorsOfSystemdPassThrough(t *testing.T) {
	private(t, func(w *world) {
		masked := wire.ErrSystemdUnitMasked.With("Unit a.service is masked.")
		w.p.set("StartUnit", masked)
		w.StartJob(agent.JobRequest{Unit: "a.service"}, time.Second, func(_ uint32, err error) {
			if e := wire.AsError(err); e.Name != masked.Name || e.Text != masked.Text {
				t.Errorf("error is %v", err)
			}
			w.h.note("refused")
		})
		w.expect("refused")
		w.p.set("CancelJob", wire.ErrSystemdNoSuchJob.With("Job 7 does not exist."))
		w.CancelJob(7, time.Second, func(err error) { w.h.note("%v", errors.Is(err, wire.ErrSystemdNoSuchJob)) })
		w.expect("true")
	})
}

func TestPropertiesWithoutInterface(t *testing.T) {
	private(t, func(w *world) {
		w.p.take()
		object := "Get /org/freedesktop/systemd1/unit/a_2eservice Properties[org.freedesktop.systemd1."
		w.p.set("Id", "b.service")
		w.call("GetUnitProperty", "a.service", "", "Id")
		w.expectAsked(object + "Unit Id]")
		w.p.set("MainPID", wire.ErrUnknownProperty.With("Unknown property or interface."))
		w.call("GetUnitProperty", "a.service", "", "MainPID")
		w.expectAsked(object+"Unit MainPID]", object+"Service MainPID]")
		w.call("GetUnitProperty", "a.service", "com.example.Own", "X")
		w.expectAsked("Get /org/freedesktop/systemd1/unit/a_2eservice Properties[com.example.Own X]")
		w.p.set("GetAll", map[string]wire.Value{"Id": peer.MustValue("b.service")})
		w.call("GetUnitProperties", "a.service", "Unit")
		w.expectAsked("GetAll /org/freedesktop/systemd1/unit/a_2eservice Properties[org.freedesktop.systemd1.Unit]")
	})
}

func TestJobSignals(t *testing.T) {
	private(t, func(w *world) {
		state := func(id uint32, iface, state string) {
			w.p.propertiesChanged(wire.SystemdJobPath(id), iface, map[string]wire.Value{"State": peer.MustValue(state)})
		}
		w.p.set("StartUnit", wire.SystemdJobPath(7))
		w.start("a.service")
		synctest.Wait() // the answer is on its way before the signals
		state(7, wire.SystemdJobInterface, "running")
		state(7, wire.SystemdUnitInterface, "running")
		state(7, wire.SystemdJobInterface, "waiting")
		w.p.propertiesChanged(wire.SystemdJobPath(7), wire.SystemdJobInterface, nil)
		w.p.propertiesChanged(wire.SystemdJobPrefix+"x", wire.SystemdJobInterface, map[string]wire.Value{"State": peer.MustValue("running")})
		w.p.signal(wire.SystemdPath, wire.SystemdManagerInterface, "JobRemoved", "not", "right")
		w.p.signal("/elsewhere", wire.SystemdManagerInterface, "JobRemoved", uint32(7), wire.SystemdJobPath(7), "a.service", "done")
		w.p.signal(wire.SystemdPath, wire.SystemdUnitInterface, "JobRemoved", uint32(7), wire.SystemdJobPath(7), "a.service", "done")
		w.p.signal(wire.SystemdPath, wire.SystemdManagerInterface, "JobNew", uint32(9), wire.SystemdJobPath(9), "b.service")
		w.p.jobRemoved(7, "a.service", "done")
		w.expect("a.service is job 7", "running 7", "waiting 7", "removed 7 a.service done")
	})
}

func TestUnitSignalsOnlyWhenWanted(t *testing.T) {
	private(t, func(w *world) {
		send := func() {
			for _, name := range []string{"a.service", "b.service"} {
				w.p.signal(wire.SystemdPath, wire.SystemdManagerInterface, "UnitNew", name, wire.UnitPath(name))
				w.p.propertiesChanged(wire.UnitPath(name), wire.SystemdUnitInterface, unitChanged("active"))
				w.p.signal(wire.SystemdPath, wire.SystemdManagerInterface, "UnitRemoved", name, wire.UnitPath(name))
			}
			w.p.signal(wire.SystemdPath, wire.SystemdManagerInterface, "Reloading", true)
			w.p.signal(wire.SystemdPath, wire.SystemdManagerInterface, "Reloading", false)
		}
		send()
		w.expect()
		w.Watch(func(name string) bool { return name == "a.service" })
		send()
		w.expect("new a.service", "changed a.service Unit 1", "gone a.service", "reloaded")
		w.p.propertiesChanged(wire.SystemdUnitPrefix+"a_2Eservice", wire.SystemdUnitInterface, unitChanged("active"))
		w.p.signal(wire.SystemdPath, wire.SystemdManagerInterface, "UnitNew", uint32(1))
		w.expect()
		w.Watch(nil)
		send()
		w.expect()
	})
}

func TestLongCallsHoldUpNobody(t *testing.T) {
	private(t, func(w *world) {
		w.p.set("Reload", later{})
		w.p.set("GetDefaultTarget", "a.target")
		w.call("Reload")
		w.call("GetDefaultTarget")
		w.expect("GetDefaultTarget: [a.target]")
		time.Sleep(30 * time.Second)
		w.expect("Reload: no answer to Reload within 30s")
		w.p.conn.Reply(w.p.kept["Reload"], wire.Raw{}) // too late, and nobody minds
		w.call("GetDefaultTarget")
		w.expect("GetDefaultTarget: [a.target]")
	})
}

func TestConnectionIsMadeAgain(t *testing.T) {
	private(t, func(w *world) {
		w.p.set("StartUnit", later{})
		w.p.set("Reload", later{})
		w.start("a.service")
		w.call("Reload")
		synctest.Wait()
		w.refused.Store(true)
		w.p.conn.Close(errors.New("re-executed"))
		synctest.Wait()
		got := w.h.take()
		if len(got) != 3 || !strings.Contains(got[0], "may still be carried out") || !strings.HasPrefix(got[1], "Reload: connection") || got[2] != "down" {
			t.Errorf("heard %q", got)
		}
		// What is asked now waits for the next connection, in order.
		w.p.set("StartUnit", wire.SystemdJobPath(1))
		w.p.set("StopUnit", wire.SystemdJobPath(2))
		w.p.take()
		w.start("b.service")
		w.StartJob(agent.JobRequest{Unit: "b.service", Verb: wire.Stop}, time.Second, func(job uint32, _ error) { w.h.note("stop is job %d", job) })
		w.expect()
		w.refused.Store(false)
		time.Sleep(3 * time.Second)
		w.expectAsked("Subscribe"+managerPath+"[]", "StartUnit"+managerPath+"[b.service replace]", "StopUnit"+managerPath+"[b.service ]")
		w.expect("up 252.1-test", "b.service is job 1", "stop is job 2")
	})
}

func TestWhatWaitsIsNotOvertaken(t *testing.T) {
	s := New(Options{}, nil)
	var order []int
	note := func(n int) func(*connection) { return func(*connection) { order = append(order, n) } }
	s.connected(time.Minute, func(*connection) {
		order = append(order, 1)
		s.connected(time.Minute, note(3)) // comes while the first ones go on
	})
	s.connected(time.Minute, note(2))
	s.release(&connection{})
	s.connected(time.Minute, note(4))
	if !slices.Equal(order, []int{1, 2, 3, 4}) {
		t.Errorf("the order is %v", order)
	}
}

func TestNobodyWaitsForeverForSystemd(t *testing.T) {
	private(t, func(w *world) {
		w.refused.Store(true)
		w.p.conn.Close(errors.New("gone"))
		w.expect("down")
		w.start("a.service")
		time.Sleep(connectPatience)
		w.expect("a.service refused: the agent is not connected to systemd at the moment; try again")
		for range maxWaiting {
			w.Jobs(time.Minute, func([]agent.QueuedJob, error) {})
		}
		w.start("one-too-many.service")
		w.expect("one-too-many.service refused: the agent is not connected to systemd at the moment; try again")
	})
}

func TestASystemdThatAnswersNothingIsTriedAgain(t *testing.T) {
	private(t, func(w *world) {
		w.p.set("Subscribe", later{})
		w.p.conn.Close(errors.New("re-executed"))
		time.Sleep(connectTimeout + time.Second)
		w.expect("down")
		w.p.set("Subscribe", wire.ErrSystemdAlreadySubscribed.With("Client is already subscribed."))
		time.Sleep(connectTimeout + retry.Max)
		w.expect("up 252.1-test")
	})
}

func TestUnitsByNameAndGlob(t *testing.T) {
	row := wire.UnitStatus{Name: "b.service", ActiveState: "active", SubState: "running", Path: "/x", JobPath: "/"}
	private(t, func(w *world) {
		w.p.take()
		units := func(pattern string) {
			w.Units(pattern, time.Second, func(rows []agent.UnitRow, err error) { w.h.note("%v %v", rows, err) })
		}
		w.p.set("GetUnit", wire.UnitPath("b.service"))
		w.p.set("ListUnitsByNames", []wire.UnitStatus{row})
		w.p.set("ListUnitsByPatterns", []wire.UnitStatus{row})
		units("a.service")
		w.expectAsked("GetUnit"+managerPath+"[a.service]", "ListUnitsByNames"+managerPath+"[[b.service]]")
		units("*.service")
		w.expectAsked("ListUnitsByPatterns" + managerPath + "[[] [*.service]]")
		w.p.set("GetUnit", wire.ErrSystemdNoSuchUnit.With("Unit c.service not loaded."))
		units("c.service")
		w.expect("[{a.service b.service active running}] <nil>", "[{b.service b.service active running}] <nil>", "[] <nil>")
		w.p.set("GetUnit", wire.ObjectPath("/elsewhere"))
		units("c.service")
		w.expect(`[] systemd answered with the unit path "/elsewhere"`)
		units("\x00.service")
		w.expect(`[] argument 1 cannot be sent: string "\x00.service" is not UTF-8 without NUL`)
	})
}

func TestReadUnitFilesOfAUnit(t *testing.T) {
	dir := openDir(t)
	fragment := write(t, dir+"/a.service", "[Service]\n", 0o644)
	dropIn := write(t, dir+"/a.service.d/x.conf", "[Unit]\n", 0o644)
	large := write(t, dir+"/large.conf", strings.Repeat("#", maxUnitFiles), 0o644)
	private(t, func(w *world) {
		w.p.set("LoadState", "loaded")
		w.p.set("FragmentPath", fragment)
		w.p.set("DropInPaths", []string{dropIn})
		w.call("ReadUnitFiles", "a.service")
		w.expect("ReadUnitFiles: [[[" + fragment + " [Service]\n] [" + dropIn + " [Unit]\n]]]")
		w.p.set("DropInPaths", []string{dropIn, large})
		w.call("ReadUnitFiles", "a.service")
		w.expect("ReadUnitFiles: cannot read unit file " + large + ": the unit's files are larger than 1 MiB together")
		if err := os.Chmod(dropIn, 0o600); err != nil {
			t.Fatal(err)
		}
		w.call("ReadUnitFiles", "a.service")
		w.expect("ReadUnitFiles: unit file " + dropIn + " is not shown: not everyone on the node may read it (mode 0600); read it there")
		w.p.set("FragmentPath", "")
		w.p.set("DropInPaths", []string{})
		w.call("ReadUnitFiles", "dev-x.device")
		w.expect("ReadUnitFiles: [[]]")
		w.p.set("LoadState", "not-found")
		w.call("ReadUnitFiles", "b.service")
		w.expect("ReadUnitFiles: Unit b.service not found.")
	})
}

func TestADiskThatHangs(t *testing.T) {
	private(t, func(w *world) {
		for range maxReaders {
			w.readers <- struct{}{}
		}
		w.p.set("LoadState", "loaded")
		w.p.set("FragmentPath", "")
		w.p.set("DropInPaths", []string{})
		w.call("ReadUnitFiles", "a.service")
		time.Sleep(30 * time.Second)
		w.expect("ReadUnitFiles: the unit files of a.service could not be read in time")
	})
}
