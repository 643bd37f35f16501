package manager

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"example.org/ctrl/internal/wire"
)

// model is the queue as docs/states.md words it, without sessions, links or a loop. For
// each step it says what the core must tell, in order.
type model struct {
	jobs   []*modelJob // in order of admission
	lastID uint32
}

type modelJob struct {
	id      uint32
	req     JobRequest
	with    bool // with systemd
	taken   bool // systemd has accepted it
	running bool
	told    bool // JobNew
	callers []string
	cancels []string // of a job whose answer is due
	pending []string // cancellations under way
}

func (m *model) unit(name string) (out []*modelJob) {
	for _, j := range m.jobs {
		if j.req.Unit == name {
			out = append(out, j)
		}
	}
	return out
}

func (m *model) find(id uint32) *modelJob {
	for _, j := range m.jobs {
		if j.id == id {
			return j
		}
	}
	return nil
}

func isStop(j *modelJob) bool { return j.req.Verb == wire.Stop }

func (m *model) start(caller string, req JobRequest) []string {
	others := m.unit(req.Unit)
	stop := req.Verb == wire.Stop
	plain := req.Mode == "replace" || req.Mode == "fail"
	if req.Mode == "fail" && slices.ContainsFunc(others, func(j *modelJob) bool { return isStop(j) != stop }) {
		return []string{caller + ": 0 UnitBusy"}
	}
	for _, j := range slices.Backward(others) {
		if req.Transient != nil || !plain || isStop(j) != stop {
			break
		}
		if j.req.Verb != req.Verb || !j.joinable(req.Mode) {
			continue
		}
		if j.told {
			return []string{fmt.Sprintf("%s: %d ok", caller, j.id)}
		}
		j.callers = append(j.callers, caller)
		return nil
	}
	m.lastID++
	j := &modelJob{id: m.lastID, req: req}
	m.jobs = append(m.jobs, j)
	switch {
	case !slices.ContainsFunc(others, func(j *modelJob) bool { return j.with }),
		stop, strings.Contains(req.Verb.String(), "restart"), !plain, req.Transient != nil,
		slices.ContainsFunc(others, func(j *modelJob) bool {
			return j.with && (isStop(j) || j.req.Transient != nil && !j.taken)
		}):
		j.with, j.callers = true, []string{caller}
		return []string{j.asked()}
	}
	j.told = true
	return []string{j.new(), fmt.Sprintf("%s: %d ok", caller, j.id)}
}

// joinable is the second and third row of the page's table.
func (j *modelJob) joinable(mode string) bool {
	if j.req.Mode != "replace" && j.req.Mode != "fail" {
		return false
	}
	if j.with && j.req.Verb != wire.Start && j.req.Verb != wire.Stop {
		return false
	}
	return j.taken || j.req.Mode == mode && !(j.with && j.req.Transient != nil)
}

func (j *modelJob) asked() string {
	return fmt.Sprintf("node1< %s %s %s %d", j.req.Verb.Method(), j.req.Unit, j.req.Mode, j.id)
}

func (j *modelJob) new() string {
	return fmt.Sprintf("JobNew %d node1 %s %s waiting", j.id, j.req.Unit, j.req.Verb)
}

// answer is systemd's word about a job that it was asked for; "" is yes.
func (m *model) answer(id uint32, problem string) (out []string) {
	j := m.find(id)
	if j == nil || !j.with || j.taken {
		return nil
	}
	if problem == "" {
		j.taken = true
		if !j.told {
			out = append(out, j.new())
			j.told = true
		}
		for _, c := range j.callers {
			out = append(out, fmt.Sprintf("%s: %d ok", c, j.id))
		}
		j.callers = nil
		for _, c := range j.cancels {
			out = append(out, fmt.Sprintf("node1< CancelJob %d", j.id))
			j.pending = append(j.pending, c)
		}
		j.cancels = nil
		return append(out, m.overrule(j)...)
	}
	if problem == "Timeout" {
		out = append(out, m.overrule(j)...)
	}
	if j.told {
		result := "failed"
		if problem == "Timeout" {
			result = "timeout"
		}
		return append(out, m.end(j, result)...)
	}
	m.remove(j)
	for _, c := range j.callers {
		out = append(out, fmt.Sprintf("%s: 0 %s", c, problem))
	}
	return append(out, m.next(j.req.Unit)...)
}

func (m *model) overrule(j *modelJob) (out []string) {
	for _, w := range m.unit(j.req.Unit) {
		if w == j {
			break
		}
		if !w.with && isStop(w) != isStop(j) {
			out = append(out, m.end(w, "canceled")...)
		}
	}
	return out
}

func (m *model) remove(j *modelJob) {
	m.jobs = slices.DeleteFunc(m.jobs, func(o *modelJob) bool { return o == j })
}

func (m *model) end(j *modelJob, result string) []string {
	m.remove(j)
	out := []string{fmt.Sprintf("JobRemoved %d %s %s", j.id, j.req.Unit, result)}
	for _, c := range j.cancels {
		out = append(out, c+": NoSuchJob")
	}
	return append(out, m.next(j.req.Unit)...)
}

func (m *model) next(unitName string) []string {
	queue := m.unit(unitName)
	if len(queue) == 0 || slices.ContainsFunc(queue, func(j *modelJob) bool { return j.with }) {
		return nil
	}
	queue[0].with = true
	return []string{queue[0].asked()}
}

func (m *model) report(id uint32, running bool) (out []string) {
	j := m.find(id)
	if j == nil || !j.with {
		return nil
	}
	out = m.answer(id, "")
	if j.running != running {
		j.running = running
		word := "waiting"
		if running {
			word = "running"
		}
		out = append(out, fmt.Sprintf("JobState %d %s", id, word))
	}
	return out
}

func (m *model) done(id uint32, result string) []string {
	j := m.find(id)
	if j == nil || !j.with {
		return nil
	}
	return append(m.answer(id, ""), m.end(j, result)...)
}

func (m *model) cancel(caller string, id uint32) []string {
	j := m.find(id)
	switch {
	case j == nil || !j.told:
		return []string{caller + ": NoSuchJob"}
	case !j.with:
		return append(m.end(j, "canceled"), caller+": ok")
	case !j.taken:
		j.cancels = append(j.cancels, caller)
		return nil
	}
	j.pending = append(j.pending, caller)
	return []string{fmt.Sprintf("node1< CancelJob %d", id)}
}

// trial is one random run of core and model side by side.
type trial struct {
	w     *world
	m     *model
	l     *link
	r     *rand.Rand
	calls int
	all   []string
}

var trialUnits = []string{"a.service", "b.service"}

func (x *trial) request() JobRequest {
	verbs := []wire.Verb{wire.Start, wire.Start, wire.Stop, wire.Reload, wire.Reload, wire.Restart, wire.TryReloadOrRestart}
	modes := []string{"replace", "replace", "replace", "replace", "fail", "ignore-dependencies"}
	req := JobRequest{Node: "node1", Unit: trialUnits[x.r.IntN(len(trialUnits))],
		Verb: verbs[x.r.IntN(len(verbs))], Mode: modes[x.r.IntN(len(modes))]}
	if req.Verb == wire.Start && x.r.IntN(8) == 0 {
		req.Transient = &wire.Raw{Sig: transientSignature}
	}
	return req
}

// pick chooses one of the jobs for which ok holds; an id of no job now and then.
func (x *trial) pick(ok func(*modelJob) bool) uint32 {
	var ids []uint32
	for _, j := range x.m.jobs {
		if ok(j) {
			ids = append(ids, j.id)
		}
	}
	if len(ids) == 0 || x.r.IntN(20) == 0 {
		return x.r.Uint32N(x.m.lastID + 3)
	}
	return ids[x.r.IntN(len(ids))]
}

func (x *trial) step() {
	switch n := x.r.IntN(100); {
	case n < 35:
		x.calls++
		caller, req := fmt.Sprintf("caller%d", x.calls), x.request()
		want := x.m.start(caller, req)
		x.w.start(caller, req)
		x.compare(fmt.Sprint("start ", req), want)
	case n < 60:
		problem := []string{"", "", "", "NoSuchUnit", "Timeout"}[x.r.IntN(5)]
		x.answer(x.pick(func(j *modelJob) bool { return j.with && !j.taken }), problem)
	case n < 70:
		id, running := x.pick(func(j *modelJob) bool { return j.with }), x.r.IntN(4) > 0
		want := x.m.report(id, running)
		x.l.state(id, map[bool]string{true: "running", false: "waiting"}[running])
		x.compare(fmt.Sprint("state ", id), want)
	case n < 92:
		x.done(x.pick(func(j *modelJob) bool { return j.with }), []string{"done", "failed", "canceled"}[x.r.IntN(3)])
	default:
		x.calls++
		caller, id := fmt.Sprintf("canceller%d", x.calls), x.pick(func(j *modelJob) bool { return j.told })
		want := x.m.cancel(caller, id)
		x.w.cancel(caller, id)
		x.compare(fmt.Sprint("cancel ", id), want)
	}
}

func (x *trial) answer(id uint32, problem string) {
	if !slices.ContainsFunc(x.m.jobs, func(j *modelJob) bool { return j.id == id && j.with }) {
		return // it was never asked for, or is forgotten
	}
	var err error
	if problem != "" {
		err = &wire.Error{Name: "x." + problem}
	}
	if problem == "Timeout" {
		err = wire.ErrTimeout
	}
	want := x.m.answer(id, problem)
	x.l.mu.Lock()
	var asked string
	for what := range x.l.asked {
		if strings.HasSuffix(what, fmt.Sprint(" ", id)) && !strings.HasPrefix(what, "CancelJob") {
			asked = what
		}
	}
	x.l.mu.Unlock()
	x.l.reply(asked, wire.Raw{}, err)
	x.compare(fmt.Sprint("answer ", id, " ", problem), want)
}

func (x *trial) done(id uint32, result string) {
	want := x.m.done(id, result)
	x.l.done(id, result)
	x.compare(fmt.Sprint("done ", id), want)
}

func (x *trial) compare(step string, want []string) {
	got := x.w.take()
	x.all = append(x.all, got...)
	if !slices.Equal(got, want) {
		x.w.t.Fatalf("%s: the core told\n  %s\nand the model\n  %s\nhistory:\n  %s", step,
			strings.Join(got, "\n  "), strings.Join(want, "\n  "), strings.Join(x.all, "\n  "))
	}
}

// drain lets every job come to its end.
func (x *trial) drain() {
	for len(x.m.jobs) > 0 {
		i := slices.IndexFunc(x.m.jobs, func(j *modelJob) bool { return j.with })
		x.done(x.m.jobs[i].id, "done")
	}
}

func TestQueueAgainstModel(t *testing.T) {
	runs := 80
	if testing.Short() {
		runs = 20
	}
	for seed := range uint64(runs) {
		in(t, fleet, func(w *world) {
			w.t = t
			x := &trial{w: w, m: &model{}, l: w.connect("node1"), r: rand.New(rand.NewPCG(seed, 1))}
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			for range 120 {
				x.step()
			}
			if seed%2 == 0 {
				x.drain()
			}
			w.close(x.l, "cut")
			x.all = append(x.all, w.take()...)
			synctest.Wait()
			if len(w.m.jobs) != 0 {
				t.Errorf("%d jobs are left", len(w.m.jobs))
			}
			checkHistory(t, x.all, x.calls)
		})
	}
}

// checkHistory holds a whole history against what every client may rely on.
func checkHistory(t *testing.T, history []string, calls int) {
	t.Helper()
	announced, removed := map[string]int{}, map[string]int{}
	answered := map[string]int{}
	for i, line := range history {
		f := strings.Fields(line)
		switch {
		case f[0] == "JobNew":
			if announced[f[1]] != 0 {
				t.Errorf("JobNew %s twice", f[1])
			}
			announced[f[1]] = i + 1
		case f[0] == "JobRemoved":
			if announced[f[1]] == 0 || removed[f[1]] != 0 {
				t.Errorf("JobRemoved %s without JobNew, or twice", f[1])
			}
			removed[f[1]] = i + 1
		case f[0] == "JobState":
			if announced[f[1]] == 0 || removed[f[1]] != 0 {
				t.Errorf("JobState %s outside the job's life", f[1])
			}
		case strings.HasPrefix(f[0], "call") || strings.HasPrefix(f[0], "canceller"):
			answered[f[0]]++
			if len(f) == 3 && f[2] == "ok" && (announced[f[1]] == 0 || removed[f[1]] != 0) {
				t.Errorf("%s was given job %s outside its life", f[0], f[1])
			}
		}
	}
	for id := range announced {
		if removed[id] == 0 {
			t.Errorf("job %s has no JobRemoved", id)
		}
	}
	for who, n := range answered {
		if n != 1 {
			t.Errorf("%s was answered %d times", who, n)
		}
	}
	if len(answered) != calls {
		t.Errorf("%d answers to %d callers", len(answered), calls)
	}
}
