package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if why := Unavailable(); why != "" {
		fmt.Println("left out: all lab tests:", why)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func context30(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newLab(t *testing.T, name string, opt Options) *Lab {
	t.Helper()
	opt.Name = name
	l, err := New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func boot(t *testing.T, l *Lab, names ...string) []*Node {
	t.Helper()
	nodes, err := l.Boot(context30(t), names...)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func must(t *testing.T) func(string, error) string {
	return func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
}

func TestNodeIsARealMachine(t *testing.T) {
	install := func(dir string) error {
		unit := filepath.Join(dir, "usr/lib/systemd/system/hello.service")
		if err := os.MkdirAll(filepath.Dir(unit), 0o755); err != nil {
			return err
		}
		return os.WriteFile(unit, []byte("[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/echo hello from %H\n"), 0o644)
	}
	l := newLab(t, "t-real", Options{Install: install})
	a := boot(t, l, "a", "b.C_d")[0]
	ctx, ok := context30(t), must(t)
	if got := ok(a.Run(ctx, "systemctl", "is-system-running")); got != "running" {
		t.Errorf("system is %s", got)
	}
	ok(a.Run(ctx, "systemctl", "start", "hello"))
	if got := a.Journal(ctx, "hello"); !strings.Contains(got, "hello from a") {
		t.Errorf("journal of hello: %q", got)
	}
	if got := ok(a.Run(ctx, "busctl", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
		"org.freedesktop.systemd1.Manager", "GetDefaultTarget")); got != `s "multi-user.target"` {
		t.Errorf("over the bus: %s", got)
	}
	if err := a.WriteFile("/etc/x/y", []byte("z"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ok(a.Run(ctx, "cat", "/etc/x/y")); got != "z" {
		t.Errorf("file holds %q", got)
	}
	if r, err := a.Exec(ctx, "sh", "-c", "echo out; echo err >&2; exit 3"); err != nil || r != (Result{"out\n", "err\n", 3}) {
		t.Errorf("exec gave %+v, %v", r, err)
	}
	if _, err := os.Stat("/etc/x"); err == nil {
		t.Error("a node's file is on this machine")
	}
}

func TestCutHealPartition(t *testing.T) {
	l := newLab(t, "t-net", Options{})
	n := boot(t, l, "a", "b", "c")
	ctx := context30(t)
	// A port nobody listens on answers "refused" where packets get through, and nothing where
	// they vanish.
	reaches := func(from *Node, to string) bool {
		r, err := from.Exec(ctx, "timeout", "2", "bash", "-c", "</dev/tcp/"+to+"/1")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(r.Stderr, "refused")
	}
	expect := func(want bool, from *Node, to string, when string) {
		t.Helper()
		if got := reaches(from, to); got != want {
			t.Errorf("%s: %s reaches %s: %v", when, from.Name, to, got)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect(true, n[0], "b", "at first")
	do(n[1].Cut(ctx))
	expect(false, n[0], "b", "cut")
	expect(true, n[0], "c", "cut")
	if carrier := must(t)(n[1].Run(ctx, "cat", "/sys/class/net/eth0/carrier")); carrier != "1" {
		t.Errorf("the link of a cut node is down (carrier %s)", carrier)
	}
	do(n[1].Heal(ctx))
	expect(true, n[0], "b", "healed")
	do(n[0].Partition(ctx, n[2]))
	expect(false, n[0], "c", "partitioned")
	expect(true, n[1], "c", "partitioned")
	do(n[0].Rejoin(ctx, n[2]))
	expect(true, n[0], "c", "rejoined")
}

func TestPowerOffKeepsTheDisk(t *testing.T) {
	l := newLab(t, "t-power", Options{})
	a := boot(t, l, "a")[0]
	ctx, ok := context30(t), must(t)
	bootID := ok(a.Run(ctx, "cat", "/etc/machine-id"))
	ok(a.Run(ctx, "sh", "-c", "echo kept >/var/lib/kept; echo lost >/run/lost"))
	if err := a.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Exec(ctx, "true"); err == nil {
		t.Error("a node that is off runs programs")
	}
	if err := a.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	if got := ok(a.Run(ctx, "cat", "/var/lib/kept")); got != "kept" {
		t.Errorf("disk holds %q", got)
	}
	if r, _ := a.Exec(ctx, "test", "-e", "/run/lost"); r.Code == 0 {
		t.Error("/run outlived the power")
	}
	if got := ok(a.Run(ctx, "cat", "/etc/machine-id")); got != bootID {
		t.Error("machine id changed")
	}
}

func TestLabsLeaveNothing(t *testing.T) {
	l := newLab(t, "t-gone", Options{})
	other := newLab(t, "t-gone-2", Options{})
	n := boot(t, l, "a")[0]
	kept := boot(t, other, "a")[0]
	pid := n.PID()
	l.Close()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/run", pid)); err == nil {
		t.Error("PID 1 lives on")
	}
	for _, path := range []string{l.Dir(), "/run/netns/" + bridgeSpace("t-gone"), "/run/netns/" + nodeSpace("t-gone", "a"), l.cgroup} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	must(t)(kept.Run(context30(t), "systemctl", "is-system-running"))
	// What a process that was killed leaves is removed by the next one.
	if err := os.WriteFile(other.path("owner"), []byte("4194305"), 0o644); err != nil {
		t.Fatal(err)
	}
	RemoveStale()
	if _, err := os.Stat(other.Dir()); err == nil {
		t.Error("a lab without owner is left")
	}
}
