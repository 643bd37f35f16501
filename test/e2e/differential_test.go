package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ctlprogram "example.org/ctrl/internal/ctl"
	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/test/fleet"
)

// The differential test: what `ctl VERB node1 UNIT` does on one node, `systemctl VERB UNIT`
// does on another node, which is its equal. Units of every kind, each verb with units of its
// own; compared are the states afterwards and the exit codes, by the rule of
// differential_codes_test.go.

// differ is a pair of nodes: ours is driven by ctl, theirs by systemctl.
type differ struct {
	fleet        *fleet.Fleet
	ours, theirs *pid1
	address      string // of the bus of the manager's machine
}

func newDiffer(t *testing.T) *differ {
	t.Helper()
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}})
	return &differ{
		fleet: f, ours: pid1Of(t, f.Nodes["node1"]), theirs: pid1Of(t, f.Nodes["node2"]),
		address: fmt.Sprintf("unix:path=/proc/%d/root/run/dbus/system_bus_socket", f.Boss.PID()),
	}
}

// both runs something for both nodes at once.
func (d *differ) both(do func(*pid1)) {
	var wg sync.WaitGroup
	wg.Go(func() { do(d.ours) })
	wg.Go(func() { do(d.theirs) })
	wg.Wait()
}

// ctl runs ctl as the program does, in this process: it has no other road than the bus.
func (d *differ) ctl(ctx context.Context, args ...string) lab.Result {
	var out, errOut bytes.Buffer
	args = append([]string{"--address", d.address}, args...)
	code := ctlprogram.Run(ctx, args, func(string) string { return "" }, strings.NewReader(""), &out, &errOut)
	return lab.Result{Stdout: out.String(), Stderr: errOut.String(), Code: code}
}

// verbs are the verbs that change something. Where both programs have an argument behind the
// unit it is in extra.
var verbs = []struct {
	word  string
	flags []string
	extra []string
	jobs  bool
	files bool
}{
	{word: "start", jobs: true}, {word: "stop", jobs: true}, {word: "restart", jobs: true}, {word: "reload", jobs: true},
	{word: "try-restart", jobs: true}, {word: "reload-or-restart", jobs: true}, {word: "try-reload-or-restart", jobs: true},
	{word: "kill"}, {word: "freeze"}, {word: "thaw"}, {word: "reset-failed"},
	{word: "set-property", flags: []string{"--runtime"}, extra: []string{"TasksMax=50"}},
	{word: "enable", flags: []string{"--no-reload"}, files: true}, {word: "disable", flags: []string{"--no-reload"}, files: true},
	{word: "mask", flags: []string{"--no-reload"}, files: true}, {word: "unmask", flags: []string{"--no-reload"}, files: true},
	{word: "preset", flags: []string{"--no-reload"}, files: true},
}

// hangs tells which kinds have a job under way that does not end by itself.
func (k kind) hangs() bool { return k.name == "hangstart" || k.name == "restarting" || k.stop }

func copiesFor(verb string, jobs, files bool) []copyOf {
	var list []copyOf
	for _, k := range kinds {
		if files && k.asFile || !files && !k.noRun && (jobs || !k.jobs) {
			list = append(list, copyOf{k, verb})
		}
	}
	return list
}

func TestDifferentialVerbs(t *testing.T) {
	d := newDiffer(t)
	var all []copyOf
	for _, v := range verbs {
		all = append(all, copiesFor(v.word, v.jobs, v.files)...)
	}
	began := time.Now()
	d.both(func(p *pid1) { p.prepare(t, all) })
	t.Logf("%d units were brought into their states in %v", len(all), time.Since(began))
	for _, v := range verbs {
		t.Run(v.word, func(t *testing.T) {
			t.Parallel() // each verb has units of its own
			copies := copiesFor(v.word, v.jobs, v.files)
			a, b := make([]lab.Result, len(copies)), make([]lab.Result, len(copies))
			eachOf(copies, func(i int, c copyOf) {
				flags := slices.Clone(v.flags)
				if v.jobs && c.hangs() {
					flags = append(flags, "--no-block")
				}
				tail := append(strings.Fields(c.arg()), v.extra...)
				a[i] = d.ctl(within(t), slices.Concat([]string{v.word}, flags, []string{"--", "node1"}, tail)...)
				b[i] = systemctl(t, d.theirs.node, slices.Concat([]string{v.word}, flags, []string{"--"}, tail)...)
			})
			d.compare(t, v.word, v.files, copies, a, b)
		})
	}
}

// TestDifferentialLooks is for verbs that change nothing. Both programs look at the same node.
func TestDifferentialLooks(t *testing.T) {
	tellsDifferences(t)
	d := newDiffer(t)
	d.ours.prepare(t, lookCopies())
	t.Run("look", d.look)
	t.Run("list", d.list)
}

// eachOf runs something for all copies, some at a time.
func eachOf(copies []copyOf, do func(int, copyOf)) {
	slots := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i, c := range copies {
		slots <- struct{}{}
		wg.Go(func() { do(i, c); <-slots })
	}
	wg.Wait()
}

func systemctl(t *testing.T, n *lab.Node, args ...string) lab.Result {
	r, err := n.Exec(within(t), append([]string{"systemctl"}, args...)...)
	if err != nil {
		t.Errorf("systemctl %s: %v", strings.Join(args, " "), err)
	}
	return r
}

// settleLimit is how long the nodes may differ after the commands have ended.
const settleLimit = 10 * time.Second

// compare holds states and exit codes against each other.
func (d *differ) compare(t *testing.T, verb string, files bool, copies []copyOf, a, b []lab.Result) {
	t.Helper()
	var names []string
	for _, c := range copies {
		for _, name := range c.watched() {
			if !unit.IsTemplate(name) {
				names = append(names, name)
			}
		}
	}
	d.compareStates(t, names, files)
	for i, c := range copies {
		checkCode(t, verb, c.name, a[i], b[i])
	}
}

// compareStates waits until units are the same on both nodes.
func (d *differ) compareStates(t *testing.T, names []string, files bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(within(t), settleLimit)
	defer cancel()
	ours, theirs, err := settle(ctx, d.ours, d.theirs, names, files)
	do(t, err)
	for _, name := range names {
		if ours[name] != theirs[name] {
			t.Errorf("%s is\n%+v, after systemctl\n%+v", name, ours[name], theirs[name])
		}
	}
}
