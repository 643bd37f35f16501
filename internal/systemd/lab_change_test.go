package systemd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// TestChangesShowInSystemctl makes every change of wire.NodeMethods on a real systemd and
// asks systemctl what has come of it.
func TestChangesShowInSystemctl(t *testing.T) {
	n, s, r := start(t, Options{}, sampleUnits)
	takeUp(t, r)
	type setting struct {
		Name  string
		Value wire.Value
	}
	do := func(method string, args ...any) wire.Raw {
		t.Helper()
		body, err := s.ask(method, args...)
		if err != nil {
			t.Errorf("%s: %v", method, err)
		}
		if m, _ := wire.NodeMethodByName(method); body.Sig != m.Out {
			t.Errorf("%s answers %q, not %q", method, string(body.Sig), string(m.Out))
		}
		return body
	}
	shows := func(want string, argv ...string) {
		t.Helper()
		if got := run(t, n, "sh", "-c", "systemctl "+strings.Join(argv, " ")+" || true"); got != want {
			t.Errorf("systemctl %s says %q, not %q", strings.Join(argv, " "), got, want)
		}
	}
	run(t, n, "systemctl", "start", "run.service")
	do("SetUnitProperties", "run.service", true, []setting{{"CPUWeight", peer.MustValue(uint64(7))}})
	shows("7", "show", "-P", "CPUWeight", "run.service")
	do("FreezeUnit", "run.service")
	shows("frozen", "show", "-P", "FreezerState", "run.service")
	do("ThawUnit", "run.service")
	shows("running", "show", "-P", "FreezerState", "run.service")

	s.Watch(func(name string) bool { return name == "run.service" })
	do("KillUnit", "run.service", "main", int32(9))
	r.until(t, "state run.service failed")
	shows("failed", "is-active", "run.service")
	do("ResetFailedUnit", "run.service")
	shows("inactive", "is-active", "run.service")
	s.job(wire.Start, "bad.service", "replace")
	r.until(t, "removed "+lastJob(r, "bad.service")+" bad.service failed")
	do("ResetFailed")
	shows("inactive", "is-active", "bad.service")

	var carries bool
	var changes []struct{ Kind, File, Source string }
	if err := peer.Decode(do("EnableUnitFiles", []string{"ok.service"}, false, false), &carries, &changes); err != nil || !carries || len(changes) != 2 {
		t.Errorf("enable: %v, %v, %v", carries, changes, err)
	}
	shows("enabled", "is-enabled", "ok.service")
	do("DisableUnitFiles", []string{"ok.service"}, false)
	shows("disabled", "is-enabled", "ok.service")
	do("MaskUnitFiles", []string{"ghost.service"}, true, false)
	shows("masked-runtime", "is-enabled", "ghost.service")
	do("UnmaskUnitFiles", []string{"ghost.service"}, true)
	shows("Failed to get unit file state for ghost.service: No such file or directory", "is-enabled", "ghost.service", "2>&1")
	do("PresetUnitFiles", []string{"ok.service"}, false, false)
	shows("enabled", "is-enabled", "ok.service") // Debian enables what has no preset
	do("SetDefaultTarget", "basic.target", true)
	shows("basic.target", "get-default")

	if err := n.WriteFile("/etc/systemd/system/new.service", []byte("[Service]\nExecStart=/bin/true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	do("Reload")
	r.until(t, "reloaded")
	shows("loaded", "show", "-P", "LoadState", "new.service")
}

// lastJob is the number of the job of a unit that ends next.
func lastJob(r *recorder, unit string) string {
	for e := range r.events {
		if f := strings.Fields(e); f[0] == "removed" && f[2] == unit {
			r.events <- e
			return f[1]
		}
	}
	return ""
}

func TestErrorsAreSystemdsOwn(t *testing.T) {
	n, s, r := start(t, Options{}, sampleUnits)
	takeUp(t, r)
	run(t, n, "systemctl", "enable", "ok.service")
	tests := []struct {
		method string
		args   []any
		want   string
	}{
		{"KillUnit", []any{"run.service", "all", int32(15)}, "systemd1.NoSuchUnit: Unit run.service not loaded."},
		{"FreezeUnit", []any{"bad.service"}, "systemd1.UnitInactive: Unit is inactive."},
		{"ThawUnit", []any{"none.service"}, "systemd1.NoSuchUnit: Unit none.service not found."},
		{"FreezeUnit", []any{"dbus.socket"}, "NotSupported: Unit 'dbus.socket' does not support freezing."},
		{"EnableUnitFiles", []any{[]string{"none.service"}, false, false}, "systemd1.NoSuchUnit: Unit file none.service does not exist."},
		{"GetUnitFileState", []any{"none.service"}, "FileNotFound: No such file or directory"},
		{"GetUnitProperties", []any{"no suffix", ""}, "InvalidArgs: Unit name no suffix is neither a valid invocation ID nor unit name."},
		{"GetUnitProperty", []any{"ok.service", "", "NoSuch"}, "UnknownProperty: Unknown interface org.freedesktop.systemd1.Service or property NoSuch."},
		{"GetUnitProcesses", []any{"none.service"}, "systemd1.NoSuchUnit: Unit none.service not loaded."},
		{"SetDefaultTarget", []any{"none.target", false}, "systemd1.NoSuchUnit: Unit file none.target does not exist."},
	}
	for _, tt := range tests {
		_, err := s.ask(tt.method, tt.args...)
		if e := wire.AsError(err); e == nil || !strings.HasSuffix(e.Name+": "+e.Text, tt.want) {
			t.Errorf("%s%v: %v %q, want %q", tt.method, tt.args, e.Name, e.Text, tt.want)
		}
	}
}

func TestTransientUnitOnRealSystemd(t *testing.T) {
	n, s, r := start(t, Options{}, nil)
	takeUp(t, r)
	type command struct {
		Path   string
		Args   []string
		Ignore bool
	}
	type setting struct {
		Name  string
		Value wire.Value
	}
	type auxiliary struct {
		Name     string
		Settings []setting
	}
	rest := peer.MustEncode([]setting{
		{"Description", peer.MustValue("a transient one")},
		{"ExecStart", peer.MustValue([]command{{"/bin/sleep", []string{"/bin/sleep", "infinity"}, false}})},
	}, []auxiliary{})
	ask := func() (uint32, error) {
		answer := make(chan jobAnswer, 1)
		s.StartJob(agent.JobRequest{Unit: "run-x.service", Mode: "fail", Transient: &rest}, 20*time.Second,
			func(id uint32, err error) { answer <- jobAnswer{id, err} })
		got := <-answer
		return got.id, got.err
	}
	job, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	r.until(t, fmt.Sprintf("removed %d run-x.service done", job))
	if got := run(t, n, "systemctl", "show", "-P", "Description", "run-x.service"); got != "a transient one" {
		t.Errorf("description is %q", got)
	}
	if _, err := ask(); err == nil || !strings.HasSuffix(wire.AsError(err).Name, "UnitExists") {
		t.Errorf("a second one: %v", err)
	}
}

// TestAnswersComeBeforeEnds asks for jobs that end at once, many at a time: systemd's
// signal of the end must never be heard before the answer that names the job, and each job
// must be heard to end.
func TestAnswersComeBeforeEnds(t *testing.T) {
	t.Run("private", func(t *testing.T) { answersComeBeforeEnds(t, Options{}) })
	t.Run("bus", func(t *testing.T) { answersComeBeforeEnds(t, Options{NoPrivate: true}) })
}

func answersComeBeforeEnds(t *testing.T, opt Options) {
	_, opt = boot(t, opt, map[string]string{"fast@.service": "[Service]\nType=oneshot\nExecStart=/bin/true\n"})
	const jobs = 100
	core := &orderCore{
		modelCore: modelCore{up: make(chan struct{})},
		answered:  make(map[uint32]bool), left: jobs, done: make(chan struct{}),
	}
	s := serve(t, opt, core)
	<-core.up
	for i := range jobs {
		s.StartJob(agent.JobRequest{Unit: fmt.Sprintf("fast@%d.service", i), Mode: "replace"}, 20*time.Second, core.answer)
	}
	select {
	case <-core.done:
	case <-patience(t).Done():
		t.Error("not all jobs were heard to end")
	}
	core.mu.Lock()
	defer core.mu.Unlock()
	if core.early > 0 {
		t.Errorf("%d jobs ended before their answers", core.early)
	}
}

// orderCore holds answers and ends of jobs against each other.
type orderCore struct {
	modelCore
	mu          sync.Mutex
	answered    map[uint32]bool
	early, left int
	done        chan struct{}
}

func (c *orderCore) SystemdJobState(uint32, string) {}

func (c *orderCore) answer(job uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered[job] = err == nil
}

func (c *orderCore) SystemdJobRemoved(job uint32, unit, result string) {
	if !strings.HasPrefix(unit, "fast@") {
		return // of the node's own: the slice that all of them are in
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answered[job] {
		c.early++
	}
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

func TestUnitsOfOddNames(t *testing.T) {
	odd := `odd\x2dname@a:b\x40.service`
	n, s, r := start(t, Options{}, map[string]string{`odd\x2dname@.service`: "[Service]\nExecStart=/bin/sleep infinity\n"})
	takeUp(t, r)
	job := s.job(wire.Start, odd, "replace")
	if job.err != nil {
		t.Fatal(job.err)
	}
	r.until(t, fmt.Sprintf("removed %d %s done", job.id, odd))
	rows, err := s.rows(odd)
	if want := []agent.UnitRow{{Asked: odd, ID: odd, Active: "active", Sub: "running"}}; err != nil || !slices.Equal(rows, want) {
		t.Errorf("rows are %v, %v", rows, err)
	}
	var id wire.Value
	body, err := s.ask("GetUnitProperty", odd, "", "Id")
	if err := errors.Join(err, peer.Decode(body, &id)); err != nil {
		t.Error(err)
	}
	if got, _ := id.AsString(); got != odd {
		t.Errorf("the unit is called %q", got)
	}
	if got := run(t, n, "systemctl", "is-active", odd); got != "active" {
		t.Errorf("systemctl says %q", got)
	}
}
