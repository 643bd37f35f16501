package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/unitfile"
	"example.org/ctrl/test/fleet"
)

// The node's half of workloads on real systemd, driven without a manager.

// holder is a node that holds workloads, with the program that is the agent's half of it.
type holder struct {
	t *testing.T
	n *lab.Node
}

const bundlenode = "/usr/local/bin/bundlenode"

func newHolder(t *testing.T) *holder {
	t.Helper()
	top, err := fleet.Top()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "bundlenode")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./test/bundlenode")
	cmd.Dir, cmd.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.New(t.Context(), lab.Options{Name: labName(t.Name())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	nodes, err := l.Boot(within(t), "node1")
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{t, nodes[0]}
	on(t, h.n, "mkdir", "-p", "/usr/local/bin")
	do(t, h.n.WriteFile(bundlenode, data, 0o755))
	return h
}

// pack makes a package of unit texts and of files by path.
func pack(units, files map[string]string, start ...string) bundle.Package {
	p := bundle.Package{Bundle: bundle.Bundle{Format: bundle.Format, Workload: "web", Start: start}, Blobs: make(map[string][]byte)}
	for name, text := range units {
		p.Bundle.Units = append(p.Bundle.Units, bundle.Unit{Name: name, Text: text})
		if strings.Contains(text, "[Install]") {
			p.Bundle.Enable = append(p.Bundle.Enable, name)
		}
	}
	for at, content := range files {
		at, write := strings.CutPrefix(at, "w ")
		p.Blobs[bundle.Sum([]byte(content))] = []byte(content)
		p.Bundle.Files = append(p.Bundle.Files, bundle.File{Path: at, SHA256: bundle.Sum([]byte(content)), Mode: 0o644, Write: write})
	}
	p.Bundle = p.Bundle.Canonical()
	return p
}

func sleeper(version string) string {
	return "[Unit]\nDescription=" + version + "\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
}

// ask runs the program; code is 137 where it was killed.
func (h *holder) ask(p *bundle.Package, opt bundle.Options, args ...string) (string, int) {
	h.t.Helper()
	input := ""
	if p != nil {
		text, err := json.Marshal(map[string]any{"Package": p, "Options": opt})
		if err != nil {
			h.t.Fatal(err)
		}
		input = string(text)
	}
	r, err := h.n.ExecInput(within(h.t), input, append([]string{"sh", "-c", `"$@"; exit $?`, "sh", bundlenode}, args...)...)
	if err != nil {
		h.t.Fatal(err)
	}
	if r.Code != 0 && r.Code != 137 {
		h.t.Fatalf("%v: exit code %d: %s", args, r.Code, r.Stderr)
	}
	return r.Stdout, r.Code
}

func (h *holder) apply(p bundle.Package, opt bundle.Options) bundle.Result {
	h.t.Helper()
	out, _ := h.ask(&p, opt, "apply")
	return h.result(out)
}

func (h *holder) result(out string) bundle.Result {
	h.t.Helper()
	var r bundle.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		h.t.Fatalf("%v: %q", err, out)
	}
	return r
}

func (h *holder) want(r bundle.Result, outcome bundle.Outcome, parts ...string) {
	h.t.Helper()
	all := fmt.Sprintf("%+v", r)
	for _, part := range append(parts, "Outcome:"+string(outcome)) {
		if !strings.Contains(all, part) {
			h.t.Errorf("%q is not in %s", part, all)
		}
	}
}

func (h *holder) show(unit, property string) string {
	h.t.Helper()
	return on(h.t, h.n, "systemctl", "show", "-P", property, "--", unit)
}

// whole reports which of the bundles the node has, exactly, and runs.
func (h *holder) whole(bundles ...bundle.Bundle) (int, error) {
	h.t.Helper()
	have := on(h.t, h.n, "sh", "-c", "grep -rl 'Workload=web' /etc/systemd/system; find /etc/systemd/system /etc/ctrl-files -name '*.ctrl-new'; find /etc/ctrl-files -type f -size +0 2>/dev/null; true")
	paths := strings.Fields(have)
	slices.Sort(paths)
	var errs []string
	for i, b := range bundles {
		var want []string
		for _, text := range b.Render(bundle.SystemLayout) {
			want = append(want, text.Path)
			if got, err := h.n.ReadFile(text.Path); err != nil || string(got) != text.Text {
				errs = append(errs, fmt.Sprintf("bundle %d: %s is another text (%v)", i, text.Path, err))
			}
		}
		for _, f := range b.Files {
			if f.Write {
				want = append(want, f.Path)
			}
		}
		slices.Sort(want)
		if !slices.Equal(paths, want) {
			errs = append(errs, fmt.Sprintf("bundle %d: files %q, want %q", i, paths, want))
		}
		if len(errs) == i {
			return i, h.runs(b)
		}
		errs = append(errs[:i], strings.Join(errs[i:], "; "))
	}
	return -1, fmt.Errorf("none of the bundles: %s", strings.Join(errs, "\n"))
}

// runs checks that what is started runs with the texts that are there.
func (h *holder) runs(b bundle.Bundle) error {
	for _, name := range b.Start {
		for property, want := range map[string]string{"ActiveState": "active", "NeedDaemonReload": "no", "UnitFileState": "enabled"} {
			if got := h.show(name, property); got != want {
				return fmt.Errorf("%s of %s is %s", property, name, got)
			}
		}
	}
	return nil
}

func TestBundleAppliesOnce(t *testing.T) {
	h := newHolder(t)
	p := pack(map[string]string{"a.service": sleeper("1"), "b.service": sleeper("1")}, map[string]string{"/etc/ctrl-files/a.conf": "1", "w /etc/ctrl-files/b.conf": "1"}, "a.service", "b.service")
	p.Bundle.Files[0].Units = []string{"a.service"}
	p.Bundle.Files[1].Units = []string{"b.service"}
	h.want(h.apply(p, bundle.Options{}), bundle.Created)
	if _, err := h.whole(p.Bundle); err != nil {
		t.Fatal(err)
	}
	stat := []string{"sh", "-c", "stat -c '%n %Y %Z %i' /etc/systemd/system/*.service /etc/systemd/system/*.d/* /etc/ctrl-files/* /var/lib/ctrl/config/* /var/lib/ctrl/workloads/web/*"}
	before, a, b := on(t, h.n, stat...), h.show("a", "InvocationID"), h.show("b", "InvocationID")
	h.want(h.apply(p, bundle.Options{}), bundle.Unchanged, "Changes:[]")
	if after := on(t, h.n, stat...); after != before || h.show("a", "InvocationID") != a || h.show("b", "InvocationID") != b {
		t.Errorf("the second apply has changed something:\n%s\n%s", before, after)
	}
	seen := on(t, h.n, "sh", "-c", "nsenter -t $(systemctl show -P MainPID a) -m cat /etc/ctrl-files/a.conf")
	if seen != "1" {
		t.Errorf("a.service sees %q", seen)
	}
	// One byte of one file: only its unit restarts.
	next := pack(map[string]string{"a.service": sleeper("1"), "b.service": sleeper("1")}, map[string]string{"/etc/ctrl-files/a.conf": "2", "w /etc/ctrl-files/b.conf": "1"}, "a.service", "b.service")
	next.Bundle.Files[0].Units, next.Bundle.Files[1].Units = p.Bundle.Files[0].Units, p.Bundle.Files[1].Units
	h.want(h.apply(next, bundle.Options{}), bundle.Configured, "{What:restart Name:a.service Result:done}")
	if h.show("a", "InvocationID") == a || h.show("b", "InvocationID") != b {
		t.Error("the wrong units have restarted")
	}
	out, _ := h.ask(nil, bundle.Options{}, "rollback")
	h.want(h.result(out), bundle.RolledBack, "Revision:3")
	if _, err := h.whole(p.Bundle); err != nil {
		t.Error(err)
	}
	h.want(h.apply(pack(map[string]string{"a.service": "[Service]\nExecStart=/bin/true\nFoo=1\nTimeoutStartSec=banana\n"}, nil), bundle.Options{}),
		bundle.Failed, "Code:ignored", "a.service:3: Unknown key 'Foo'", "a.service:4: Failed to parse TimeoutStartSec=")
	h.want(h.apply(pack(map[string]string{"dbus.service": sleeper("x")}, nil), bundle.Options{}), bundle.Failed, "Code:conflict", "/usr/lib/systemd/system/dbus.service")
	bad := pack(map[string]string{"a.service": "[Service]\nExecStart=/bin/false\nType=oneshot\n[Install]\nWantedBy=multi-user.target\n"}, nil, "a.service")
	h.want(h.apply(bad, bundle.Options{RollbackOnFailure: true}), bundle.RolledBack, "Code:units", "restart of a.service: failed")
	if _, err := h.whole(p.Bundle); err != nil {
		t.Error(err)
	}
	out, _ = h.ask(nil, bundle.Options{}, "delete")
	h.want(h.result(out), bundle.Deleted)
	if left := on(t, h.n, "sh", "-c", "find /etc/systemd/system -name '[ab].service*'; systemctl list-units --all --no-legend a.service b.service; find /var/lib/ctrl/config -type f"); left != "" {
		t.Errorf("a delete has left %s", left)
	}
}

func TestBundleOfManyUnits(t *testing.T) {
	h := newHolder(t)
	units := make(map[string]string)
	var names []string
	for i := range 200 {
		name := fmt.Sprintf("many%d.service", i)
		units[name] = strings.Replace(sleeper("x"), "/bin/sleep infinity", "/bin/true\nType=oneshot\nRemainAfterExit=yes", 1)
		names = append(names, name)
	}
	p := pack(units, nil, names...)
	began := time.Now()
	r := h.apply(p, bundle.Options{})
	t.Logf("200 units: first apply %s", time.Since(began))
	h.want(r, bundle.Created)
	reloads := 0
	for _, c := range r.Changes {
		if c.What == "reload-daemon" {
			reloads++
		}
	}
	if reloads != 1 {
		t.Errorf("%d reloads", reloads)
	}
	began = time.Now()
	h.want(h.apply(p, bundle.Options{}), bundle.Unchanged, "Changes:[]")
	t.Logf("200 units: second apply %s", time.Since(began))
}

// TestBundleKilledAtEveryStep kills the agent's half with SIGKILL at each fault point of an
// apply; at some of them the whole machine goes instead.
func TestBundleKilledAtEveryStep(t *testing.T) {
	h := newHolder(t)
	older := pack(map[string]string{"a.service": sleeper("old"), "gone.service": sleeper("old"), "same.service": sleeper("same")},
		map[string]string{"/etc/ctrl-files/a.conf": "old", "w /etc/ctrl-files/w.conf": "old"}, "a.service", "gone.service", "same.service")
	newer := pack(map[string]string{"a.service": sleeper("new"), "more.service": sleeper("new"), "same.service": sleeper("same")},
		map[string]string{"/etc/ctrl-files/a.conf": "new", "w /etc/ctrl-files/w.conf": "new"}, "a.service", "more.service", "same.service")
	ends := make(map[int]int)
	points := 0
	for point := 1; ; point++ {
		if r := h.apply(older, bundle.Options{}); !r.OK() {
			t.Fatalf("%+v", r)
		}
		_, code := h.ask(&newer, bundle.Options{}, "-kill", fmt.Sprint(point), "apply")
		if code == 0 {
			break
		}
		points = point
		h.ask(nil, bundle.Options{}, "recover")
		which, err := h.whole(older.Bundle, newer.Bundle)
		if err != nil {
			t.Fatalf("killed at %d: %v", point, err)
		}
		ends[which]++
	}
	if points < 20 || ends[0] == 0 || ends[1] == 0 {
		t.Errorf("%d points, ends %v", points, ends)
	}
	t.Logf("killed at %d points: %d ended with the old bundle, %d with the new one", points, ends[0], ends[1])
	for point := 3; point < points; point += 7 {
		h.apply(older, bundle.Options{})
		h.powerOff(newer, point)
		h.ask(nil, bundle.Options{}, "recover")
		if _, err := h.whole(older.Bundle, newer.Bundle); err != nil {
			t.Fatalf("power off at %d: %v", point, err)
		}
	}
}

// powerOff switches the node off while an apply stands at a fault point, and on again.
func (h *holder) powerOff(p bundle.Package, point int) {
	h.t.Helper()
	text, err := json.Marshal(map[string]any{"Package": p})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx := within(h.t)
	cmd := h.n.Command(ctx, bundlenode, "-hang", fmt.Sprint(point), "apply")
	cmd.Stdin = strings.NewReader(string(text))
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	on(h.t, h.n, "sh", "-c", "while ! test -e /run/bundlenode.hangs; do :; done; rm /run/bundlenode.hangs")
	do(h.t, h.n.Kill(ctx))
	cmd.Wait()
	do(h.t, h.n.Boot(ctx))
}

// TestArgumentsComeBack runs random argument vectors under real systemd.
func TestArgumentsComeBack(t *testing.T) {
	h := newHolder(t)
	random := rand.New(rand.NewPCG(5, 6))
	alphabet := []string{"a", "Z", "0", " ", "\t", "\n", "\r", `"`, "'", `\`, "%", "$", "${X}", "%h", ";", "#", "-", "@", ":", "+", "!", "=", "ü", "\u2028", "\x01", "\x7f", "\xff", "[X]", "{", "*", "~", "\\x41"}
	var want [][]string
	text := strings.Builder{}
	text.WriteString("[Service]\nType=oneshot\nTimeoutStartSec=300\nEnvironment=X=wrong\n")
	for range 1000 {
		args := make([]string, 1+random.IntN(5))
		var line strings.Builder
		for i := range args {
			for range random.IntN(8) {
				args[i] += alphabet[random.IntN(len(alphabet))]
			}
			quoted, err := unitfile.QuoteArg(args[i])
			if err != nil {
				t.Fatal(err)
			}
			line.WriteString(" " + quoted)
		}
		fmt.Fprintf(&text, "ExecStart=:%s argv /run/argv%s\n", bundlenode, line.String())
		want = append(want, args)
	}
	h.want(h.apply(pack(map[string]string{"argv.service": text.String()}, nil, "argv.service"), bundle.Options{}), bundle.Created)
	got, err := h.n.ReadFile("/run/argv")
	if err != nil {
		got = []byte(on(t, h.n, "cat", "/run/argv"))
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d of %d commands have run", len(lines), len(want))
	}
	for i, line := range lines {
		var args [][]byte
		if err := json.Unmarshal([]byte(line), &args); err != nil {
			t.Fatal(err)
		}
		back := make([]string, len(args))
		for j := range args {
			back[j] = string(args[j])
		}
		if !slices.Equal(back, want[i]) {
			t.Fatalf("vector %d: %q came back as %q", i, want[i], back)
		}
	}
}
