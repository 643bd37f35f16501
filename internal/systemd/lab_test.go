package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// The adapter against a real systemd. It runs in the test's process and reaches the node's
// bus through /proc. The private socket accepts only processes that the node's PID 1 can
// see, so a copy of this program, inside the node, relays what goes to it.

const relayTo = "LAB_RELAY"

func TestMain(m *testing.M) {
	if path := os.Getenv(relayTo); path != "" {
		relay(path)
		return
	}
	if why := lab.Unavailable(); why != "" {
		fmt.Println("left out: tests of the adapter on real systemd:", why)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func relay(path string) {
	nc, err := net.Dial("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		io.Copy(nc, os.Stdin)
		nc.Close()
	}()
	io.Copy(os.Stdout, nc)
}

// dialInside connects to a unix socket of the node from inside it.
func dialInside(n *lab.Node, path string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
		defer ours.Close()
		defer theirs.Close()
		cmd := n.Command(context.Background(), "env", relayTo+"="+path, "/run/relay")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		go cmd.Wait()
		return net.FileConn(ours)
	}
}

// recorder is the core's side.
type recorder struct {
	up     chan map[string]wire.Value
	down   chan error
	events chan string
}

func newRecorder() *recorder {
	return &recorder{make(chan map[string]wire.Value, 16), make(chan error, 16), make(chan string, 65536)}
}

func (r *recorder) SystemdUp(facts map[string]wire.Value) { r.up <- facts }
func (r *recorder) SystemdDown(err error)                 { r.down <- err }
func (r *recorder) SystemdJobState(job uint32, state string) {
	r.events <- fmt.Sprintf("%s %d", state, job)
}
func (r *recorder) SystemdJobRemoved(job uint32, unit, result string) {
	r.events <- fmt.Sprintf("removed %d %s %s", job, unit, result)
}
func (r *recorder) SystemdUnitNew(u string)     { r.events <- "new " + u }
func (r *recorder) SystemdUnitRemoved(u string) { r.events <- "gone " + u }
func (r *recorder) SystemdUnitChanged(u, iface string, changed map[string]wire.Value) {
	if s, ok := changed["ActiveState"].AsString(); ok {
		r.events <- "state " + u + " " + s
	}
}
func (r *recorder) SystemdReloaded() { r.events <- "reloaded" }

func (r *recorder) until(t *testing.T, want string) (seen []string) {
	t.Helper()
	for timeout := time.After(20 * time.Second); ; {
		select {
		case e := <-r.events:
			seen = append(seen, e)
			if e == want {
				return seen
			}
		case <-timeout:
			t.Fatalf("%q did not come; seen: %q", want, seen)
		}
	}
}

func takeUp(t *testing.T, r *recorder) map[string]wire.Value {
	t.Helper()
	select {
	case facts := <-r.up:
		return facts
	case <-time.After(20 * time.Second):
		t.Fatal("systemd was not reached")
		return nil
	}
}

// boot boots a node with units and says how an adapter here reaches its systemd.
func boot(t *testing.T, opt Options, units map[string]string) (*lab.Node, Options) {
	t.Helper()
	if lab.Unavailable() != "" {
		t.Skip("see the first line of output")
	}
	l, err := lab.New(t.Context(), lab.Options{Name: "t-systemd-" + strings.ToLower(t.Name()[4:min(len(t.Name()), 13)])})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	nodes, err := l.Boot(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	n := nodes[0]
	for name, text := range units {
		if err := n.WriteFile("/etc/systemd/system/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, n, "systemctl", "daemon-reload")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = n.WriteFile("/run/relay", self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	opt.DialPrivate = dialInside(n, "/run/systemd/private")
	opt.Bus = fmt.Sprintf("unix:path=/proc/%d/root/run/dbus/system_bus_socket", n.PID())
	return n, opt
}

// start boots a node with units and connects an adapter to it.
func start(t *testing.T, opt Options, units map[string]string) (*lab.Node, *Systemd, *recorder) {
	t.Helper()
	n, opt := boot(t, opt, units)
	s, r := adapter(t, opt)
	return n, s, r
}

func run(t *testing.T, n *lab.Node, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := n.Run(ctx, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

type jobAnswer struct {
	id  uint32
	err error
}

func (s *Systemd) job(verb wire.Verb, name, mode string) jobAnswer {
	answer := make(chan jobAnswer, 1)
	s.StartJob(agent.JobRequest{Unit: name, Verb: verb, Mode: mode}, 20*time.Second, func(id uint32, err error) { answer <- jobAnswer{id, err} })
	return <-answer
}

func (s *Systemd) expectJobs(t *testing.T, want ...agent.QueuedJob) {
	t.Helper()
	answer := make(chan []agent.QueuedJob, 1)
	s.Jobs(20*time.Second, func(got []agent.QueuedJob, err error) { answer <- got })
	if got := <-answer; !slices.Equal(got, want) {
		t.Errorf("queued jobs are %v, want %v", got, want)
	}
}

func (s *Systemd) ask(method string, args ...any) (wire.Raw, error) {
	type result struct {
		body wire.Raw
		err  error
	}
	answer := make(chan result, 1)
	s.Call(method, peer.MustEncode(args...), 20*time.Second, func(b wire.Raw, err error) { answer <- result{b, err} })
	got := <-answer
	return got.body, got.err
}

func (s *Systemd) rows(pattern string) ([]agent.UnitRow, error) {
	type result struct {
		rows []agent.UnitRow
		err  error
	}
	answer := make(chan result, 1)
	s.Units(pattern, 20*time.Second, func(rows []agent.UnitRow, err error) { answer <- result{rows, err} })
	got := <-answer
	return got.rows, got.err
}

var sampleUnits = map[string]string{
	"ok.service":     "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nAlias=also.service\nWantedBy=multi-user.target\n",
	"bad.service":    "[Service]\nType=oneshot\nExecStart=/bin/false\n",
	"slow.service":   "[Service]\nType=oneshot\nExecStart=/bin/sleep 600\n",
	"run.service":    "[Service]\nExecStart=/bin/sleep infinity\n",
	"secret.service": "[Service]\nExecStart=/bin/true\n",
}

func TestJobsOverBothRoads(t *testing.T) {
	for _, opt := range []Options{{}, {NoPrivate: true}} {
		name := map[bool]string{false: "private", true: "bus"}[opt.NoPrivate]
		t.Run(name, func(t *testing.T) {
			n, s, r := start(t, opt, sampleUnits)
			facts := takeUp(t, r)
			if id, _ := facts[wire.FactMachineID].AsString(); id == "" {
				t.Error("no machine id among the facts")
			}
			version, _ := facts[wire.FactSystemdVersion].AsString()
			if !strings.Contains(run(t, n, "systemctl", "--version"), version) {
				t.Errorf("systemd version %q is not what systemctl says", version)
			}
			ok := s.job(wire.Start, "ok.service", "replace")
			if ok.err != nil {
				t.Fatal(ok.err)
			}
			r.until(t, fmt.Sprintf("removed %d ok.service done", ok.id))
			bad := s.job(wire.Start, "bad.service", "replace")
			r.until(t, fmt.Sprintf("removed %d bad.service failed", bad.id))
			for unit, want := range map[string]*wire.Error{"none.service": wire.ErrSystemdNoSuchUnit, "mask.service": wire.ErrSystemdUnitMasked} {
				if unit == "mask.service" {
					run(t, n, "systemctl", "mask", "--runtime", unit)
				}
				if got := s.job(wire.Start, unit, "replace"); !errors.Is(got.err, want) {
					t.Errorf("%s: %v", unit, got.err)
				}
			}
			slow := s.job(wire.Start, "slow.service", "replace")
			r.until(t, fmt.Sprintf("running %d", slow.id))
			if merged := s.job(wire.Start, "slow.service", "replace"); merged.id != slow.id {
				t.Errorf("a second start is job %d, not %d", merged.id, slow.id)
			}
			s.expectJobs(t, agent.QueuedJob{ID: slow.id, Unit: "slow.service", Type: "start", State: "running"})
			failed := make(chan error, 1)
			s.CancelJob(slow.id, time.Second, func(err error) { failed <- err })
			if err := <-failed; err != nil {
				t.Error(err)
			}
			r.until(t, fmt.Sprintf("removed %d slow.service canceled", slow.id))
		})
	}
}

func TestReexecIsSurvivedWithJobsUnderWay(t *testing.T) {
	n, s, r := start(t, Options{}, sampleUnits)
	takeUp(t, r)
	slow := s.job(wire.Start, "slow.service", "replace")
	r.until(t, fmt.Sprintf("running %d", slow.id))
	run(t, n, "systemctl", "daemon-reexec")
	takeUp(t, r)
	if len(r.down) != 1 {
		t.Errorf("told %d times that systemd is away", len(r.down))
	}
	s.expectJobs(t, agent.QueuedJob{ID: slow.id, Unit: "slow.service", Type: "start", State: "running"})
	run(t, n, "systemctl", "stop", "slow.service")
	r.until(t, fmt.Sprintf("removed %d slow.service canceled", slow.id))
}

func TestQueriesAgreeWithSystemctl(t *testing.T) {
	n, s, r := start(t, Options{}, sampleUnits)
	takeUp(t, r)
	run(t, n, "systemctl", "enable", "--now", "ok.service")
	run(t, n, "systemctl", "start", "run.service")
	var listed []wire.UnitStatus
	body, err := s.ask("ListUnits")
	if err == nil {
		err = peer.Decode(body, &listed)
	}
	if err != nil {
		t.Fatal(err)
	}
	var theirs []struct{ Unit, Active string }
	if err := json.Unmarshal([]byte(run(t, n, "systemctl", "list-units", "--all", "-o", "json")), &theirs); err != nil {
		t.Fatal(err)
	}
	active := make(map[string]string)
	for _, u := range listed {
		active[u.Name] = u.ActiveState
	}
	for _, u := range theirs {
		if active[u.Unit] != u.Active {
			t.Errorf("%s: %q, systemctl says %q", u.Unit, active[u.Unit], u.Active)
		}
	}
	body, err = s.ask("ListUnitsFiltered", []string{"active"}, []string{"ru*.service"})
	if err := errors.Join(err, peer.Decode(body, &listed)); err != nil || len(listed) != 1 || listed[0].Name != "run.service" {
		t.Errorf("filtered list: %v, %v", listed, err)
	}
	for _, name := range []string{"ok.service", "also.service", "run.service", "bad.service", "none.service", "-.mount"} {
		var all map[string]wire.Value
		body, err := s.ask("GetUnitProperties", name, "")
		if err := errors.Join(err, peer.Decode(body, &all)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, p := range []string{"Id", "LoadState", "ActiveState", "SubState", "FragmentPath"} {
			got, _ := all[p].AsString()
			if want := run(t, n, "systemctl", "show", "-P", p, "--", name); got != want {
				t.Errorf("%s: %s is %q, systemctl says %q", name, p, got, want)
			}
		}
		var one wire.Value
		body, err = s.ask("GetUnitProperty", name, "", "Id")
		if err := errors.Join(err, peer.Decode(body, &one)); err != nil {
			t.Errorf("%s: one property: %v", name, err)
		}
	}
	var state, target string
	body, err = s.ask("GetUnitFileState", "ok.service")
	if err := errors.Join(err, peer.Decode(body, &state)); err != nil || state != "enabled" {
		t.Errorf("file state %q, %v", state, err)
	}
	body, err = s.ask("GetDefaultTarget")
	if err := errors.Join(err, peer.Decode(body, &target)); err != nil || target != "multi-user.target" {
		t.Errorf("default target %q, %v", target, err)
	}
	var processes []struct {
		Group   string
		PID     uint32
		Command string
	}
	body, err = s.ask("GetUnitProcesses", "run.service")
	if err := errors.Join(err, peer.Decode(body, &processes)); err != nil || len(processes) != 1 || !strings.Contains(processes[0].Command, "sleep") {
		t.Errorf("processes %v, %v", processes, err)
	}
}

func TestWatchedUnits(t *testing.T) {
	n, s, r := start(t, Options{}, sampleUnits)
	takeUp(t, r)
	run(t, n, "systemctl", "enable", "--now", "ok.service")
	rows, err := s.rows("also.service")
	if want := []agent.UnitRow{{Asked: "also.service", ID: "ok.service", Active: "active", Sub: "exited"}}; err != nil || !slices.Equal(rows, want) {
		t.Errorf("by alias: %v, %v", rows, err)
	}
	if rows, err := s.rows("none.service"); err != nil || len(rows) != 0 {
		t.Errorf("not loaded: %v, %v", rows, err)
	}
	if rows, err := s.rows("*"); err != nil || !slices.ContainsFunc(rows, func(u agent.UnitRow) bool { return u.ID == "ok.service" && u.Active == "active" }) {
		t.Errorf("all units: %d rows, %v", len(rows), err)
	}
	glob, err := unit.CompileGlob("r*.service")
	if err != nil {
		t.Fatal(err)
	}
	s.Watch(glob.Match)
	job := s.job(wire.Start, "run.service", "replace")
	seen := r.until(t, "state run.service active")
	if !slices.Contains(seen, "new run.service") || !slices.Contains(seen, "state run.service activating") && job.err == nil && len(seen) < 2 {
		t.Errorf("seen %q", seen)
	}
	s.job(wire.Start, "bad.service", "replace")
	s.job(wire.Stop, "run.service", "replace")
	for _, e := range r.until(t, "gone run.service") {
		if strings.Contains(e, "bad.service") && !strings.HasPrefix(e, "removed") {
			t.Errorf("an unwatched unit was reported: %s", e)
		}
	}
	s.Watch(nil)
}

func TestReadUnitFiles(t *testing.T) {
	n, s, r := start(t, Options{}, sampleUnits)
	takeUp(t, r)
	type file struct{ Path, Text string }
	// Paths are the node's: the adapter reads them where it runs, so only refusals can be
	// shown from outside.
	if _, err := s.ask("ReadUnitFiles", "none.service"); !errors.Is(err, wire.ErrSystemdNoSuchUnit) {
		t.Errorf("missing unit: %v", err)
	}
	var files []file
	body, err := s.ask("ReadUnitFiles", "system.slice")
	if err := errors.Join(err, peer.Decode(body, &files)); err != nil || len(files) > 1 {
		t.Errorf("a unit without drop-ins: %v, %v", files, err)
	}
	body, err = s.ask("ReadUnitFiles", "dbus.service")
	if err := errors.Join(err, peer.Decode(body, &files)); err != nil || len(files) != 1 || files[0].Text != run(t, n, "cat", files[0].Path)+"\n" {
		t.Errorf("dbus.service: %v, %v", files, err)
	}
}
