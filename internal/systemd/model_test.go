package systemd

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
	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/systemdtest"
	"example.org/ctrl/internal/wire"
)

// The fake systemd of package systemdtest is only worth something while it does what the
// real one does. Here both get the same requests.

// script asks for jobs of one unit, one right after the other: a verb with "!" has mode fail.
// "…" lets all of them end first, "runs" waits until one runs.
type script struct {
	asks string
	unit string // whose [Service] section is in modelUnits
}

// slow's commands wait until the test lets them go, so that all of a script's requests are
// in before the first job ends.
const slow = `/bin/sh -c 'until [ -e /run/go ]; do sleep 0.02; done'`

var modelUnits = map[string]struct {
	text string
	spec systemdtest.Spec
}{
	"slow": {
		"Type=oneshot\nRemainAfterExit=yes\nExecStart=" + slow + "\nExecStop=" + slow + "\nExecReload=" + slow,
		systemdtest.Spec{Oneshot: true, Remain: true, Start: second(""), Stop: second(""), Reload: second("")},
	},
	"bad": {
		"Type=oneshot\nExecStart=/bin/false\nExecReload=/bin/true",
		systemdtest.Spec{Oneshot: true, Start: systemdtest.Run{Ends: "failed"}},
	},
	"fast": {
		"Type=oneshot\nExecStart=/bin/true",
		systemdtest.Spec{Oneshot: true, NoReload: true},
	},
	"runs": {
		"ExecStart=/bin/sleep infinity\nExecReload=/bin/false",
		systemdtest.Spec{Reload: systemdtest.Run{Ends: "failed"}},
	},
}

func second(ends string) systemdtest.Run { return systemdtest.Run{Takes: time.Second, Ends: ends} }

var scripts = []script{
	{"start", "slow"}, {"start start", "slow"}, {"start runs stop", "slow"}, {"start … stop runs start", "slow"},
	{"start stop!", "slow"}, {"start … stop start!", "slow"}, {"start … restart", "slow"}, {"start restart", "slow"},
	{"restart restart", "slow"}, {"start … restart runs stop", "slow"}, {"start … stop restart", "slow"},
	{"start … stop stop", "slow"}, {"start … reload", "slow"}, {"start … reload reload", "slow"}, {"start … reload runs stop", "slow"},
	{"start … reload restart", "slow"}, {"start … reload-or-restart", "slow"}, {"start … try-reload-or-restart", "slow"},
	{"start … restart start", "slow"}, {"start runs try-restart", "slow"}, {"try-restart", "slow"}, {"try-reload-or-restart", "slow"},
	{"reload", "slow"}, {"reload-or-restart", "slow"}, {"start reload", "slow"}, {"stop", "slow"}, {"start … start", "slow"},
	{"start", "bad"}, {"start … restart", "bad"}, {"start … stop", "bad"}, {"start … try-restart", "bad"},
	{"start", "fast"}, {"start … start", "fast"}, {"start … reload", "fast"}, {"restart", "fast"}, {"reload-or-restart", "fast"},
	{"start", "runs"}, {"start … reload", "runs"}, {"start … restart", "runs"}, {"start … reload-or-restart", "runs"}, {"start … stop … stop", "runs"},
}

// history is what came of scripts: answers and ends of jobs, in order, with the jobs
// numbered as they appear.
type history struct {
	mu    sync.Mutex
	lines []string
	jobs  []uint32
	open  int           // jobs that were answered and have not ended
	idle  chan struct{} // has something in it when a job has ended
	runs  chan struct{} // has something in it when a job runs
}

func newHistory() *history {
	return &history{idle: make(chan struct{}, 1), runs: make(chan struct{}, 1)}
}

func tell(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (h *history) number(job uint32) int {
	if !slices.Contains(h.jobs, job) {
		h.jobs = append(h.jobs, job)
		h.open++
	}
	return slices.Index(h.jobs, job) + 1
}

func (h *history) answered(verb string, job uint32, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		name := wire.AsError(err).Name
		h.lines = append(h.lines, verb+" refused: "+name[strings.LastIndexByte(name, '.')+1:])
		return
	}
	h.lines = append(h.lines, fmt.Sprintf("%s is job %d", verb, h.number(job)))
}

func (h *history) removed(job uint32, result string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("job %d ends: %s", h.number(job), result))
	h.open--
	tell(h.idle)
}

func (h *history) busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open > 0
}

func (h *history) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines, h.jobs = nil, nil
	return lines
}

// modelCore passes the ends of jobs on to the script that runs.
type modelCore struct {
	up chan struct{}
	h  *history
}

func (c *modelCore) SystemdUp(map[string]wire.Value)                          { close(c.up) }
func (c *modelCore) SystemdDown(error)                                        {}
func (c *modelCore) SystemdUnitNew(string)                                    {}
func (c *modelCore) SystemdUnitRemoved(string)                                {}
func (c *modelCore) SystemdReloaded()                                         {}
func (c *modelCore) SystemdUnitChanged(string, string, map[string]wire.Value) {}
func (c *modelCore) SystemdJobRemoved(job uint32, unit, result string)        { c.h.removed(job, result) }

func (c *modelCore) SystemdJobState(_ uint32, state string) {
	if state == wire.JobRunning {
		tell(c.h.runs)
	}
}

// perform asks one script's jobs of a systemd. settle lets all jobs end.
func (h *history) perform(s agent.Systemd, sc script, name string, settle func()) []string {
	for word := range strings.FieldsSeq(sc.asks) {
		switch word {
		case "…":
			settle()
			continue
		case "runs":
			select {
			case <-h.runs:
			case <-time.After(20 * time.Second):
				h.answered("no job runs after "+sc.asks, 0, nil)
			}
			continue
		}
		select {
		case <-h.runs: // of the job before
		default:
		}
		req := agent.JobRequest{Unit: name, Mode: "replace"}
		word, fail := strings.CutSuffix(word, "!")
		if fail {
			req.Mode = "fail"
		}
		for _, v := range wire.Verbs() {
			if v.String() == word {
				req.Verb = v
			}
		}
		answered := make(chan struct{})
		s.StartJob(req, 20*time.Second, func(job uint32, err error) {
			h.answered(word, job, err)
			close(answered)
		})
		<-answered
	}
	settle()
	return h.take()
}

// onFake plays a script in memory and in fake time.
func onFake(t *testing.T, sc script) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		s, h := systemdtest.New(), newHistory()
		s.AddUnit("m.service", modelUnits[sc.unit].spec)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		core := &modelCore{make(chan struct{}), h}
		go func() { s.Run(ctx, core); close(done) }()
		<-core.up
		lines = h.perform(s, sc, "m.service", func() { time.Sleep(time.Minute) })
		st := s.State("m.service")
		lines = append(lines, st.Active+" "+st.Sub)
		cancel()
		<-done
	})
	return lines
}

func TestTheFakeDoesWhatSystemdDoes(t *testing.T) {
	units := make(map[string]string)
	name := func(i int) string { return fmt.Sprintf("m%d.service", i) }
	for i, sc := range scripts {
		units[name(i)] = "[Service]\n" + modelUnits[sc.unit].text + "\n"
	}
	n, opt := boot(t, Options{}, units)
	h := newHistory()
	core := &modelCore{make(chan struct{}), h}
	s := serve(t, opt, core)
	<-core.up
	for i, sc := range scripts {
		real := h.perform(s, sc, name(i), func() { settle(t, n, h) })
		real = append(real, strings.ReplaceAll(run(t, n, "systemctl", "show", "-P", "ActiveState", "-P", "SubState", name(i)), "\n", " "))
		if fake := onFake(t, sc); !slices.Equal(fake, real) {
			t.Errorf("%q of a unit like %s: the fake says\n  %s\nsystemd says\n  %s", sc.asks, sc.unit, strings.Join(fake, "\n  "), strings.Join(real, "\n  "))
		}
	}
}

// settle lets the commands of slow units go until all jobs have ended.
func settle(t *testing.T, n *lab.Node, h *history) {
	t.Helper()
	run(t, n, "touch", "/run/go")
	for timeout := time.After(20 * time.Second); h.busy(); {
		select {
		case <-h.idle:
		case <-timeout:
			t.Fatalf("jobs do not end: %q", h.take())
		}
	}
	run(t, n, "rm", "/run/go")
}
