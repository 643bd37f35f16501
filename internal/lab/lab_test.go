package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(helperVariable); what != "" {
		helper(what)
		return
	}
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
	t.Helper()
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

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// out is what a program that must succeed prints on a node.
func out(t *testing.T, n *Node, argv ...string) string {
	t.Helper()
	s, err := n.Run(context30(t), argv...)
	do(t, err)
	return strings.TrimSpace(s)
}

func installUnits(units map[string]string) func(string) error {
	return func(dir string) error {
		folder := filepath.Join(dir, "usr/lib/systemd/system")
		err := os.MkdirAll(folder, 0o755)
		for name, text := range units {
			err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
		}
		return err
	}
}

func TestNodeIsARealMachine(t *testing.T) {
	l := newLab(t, "t-real", Options{Install: func(dir string) error {
		users := filepath.Join(dir, "usr/lib/sysusers.d")
		return errors.Join(os.MkdirAll(users, 0o755),
			os.WriteFile(filepath.Join(users, "lab.conf"), []byte("u labuser 60777\n"), 0o644),
			installUnits(map[string]string{
				"hello.service": "[Service]\nType=oneshot\nRemainAfterExit=yes\nUser=labuser\nExecStart=/bin/sh -c 'echo hello from %H as $(id -u)'\n",
			})(dir))
	}})
	nodes := boot(t, l, "a", "b.C_d", strings.Repeat("n", 64))
	a, b := nodes[0], nodes[1]
	ctx := context30(t)
	if got := out(t, a, "systemctl", "is-system-running"); got != "running" {
		t.Errorf("system is %s", got)
	}
	if got := out(t, b, "ps", "-o", "comm=", "-p", "1"); got != "systemd" {
		t.Errorf("PID 1 is %s", got)
	}
	out(t, a, "systemctl", "start", "hello")
	if got := a.Journal(ctx, "hello"); !strings.Contains(got, "hello from a as 60777") {
		t.Errorf("journal of hello: %q", got)
	}
	if got := l.Journals(ctx); !strings.Contains(got, "journal of b.C_d") || !strings.Contains(got, "hello from a as 60777") {
		t.Errorf("journals of all: %q", got)
	}
	if r, err := a.Exec(ctx, "sh", "-c", "echo out; echo err >&2; exit 3"); err != nil || r != (Result{"out\n", "err\n", 3}) {
		t.Errorf("exec gave %+v, %v", r, err)
	}
	if r, err := a.ExecInput(ctx, "in", "cat"); err != nil || r.Stdout != "in" {
		t.Errorf("exec with input gave %+v, %v", r, err)
	}
	for what, argv := range map[string][]string{
		"host name":  {"hostname"},
		"machine id": {"cat", "/etc/machine-id"},
		"boot id":    {"cat", "/proc/sys/kernel/random/boot_id"},
		"network":    {"ip", "-4", "addr", "show", "eth0"},
	} {
		if x, y := out(t, a, argv...), out(t, b, argv...); x == y {
			t.Errorf("two nodes have one %s: %s", what, x)
		}
	}
}

// TestBus: processes of a node talk over its bus, and services are started by it.
func TestBus(t *testing.T) {
	t.Parallel()
	l := newLab(t, "t-bus", Options{})
	a := boot(t, l, "a")[0]
	if got := out(t, a, "busctl", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
		"org.freedesktop.systemd1.Manager", "GetDefaultTarget"); got != `s "multi-user.target"` {
		t.Errorf("systemd says %s", got)
	}
	if got := out(t, a, "busctl", "get-property", "org.freedesktop.hostname1", "/org/freedesktop/hostname1",
		"org.freedesktop.hostname1", "Hostname"); got != `s "a"` {
		t.Errorf("a service started by the bus says %s", got)
	}
	t.Run("user session", func(t *testing.T) {
		out(t, a, "useradd", "--create-home", "--shell", "/bin/sh", "somebody")
		out(t, a, "runuser", "-l", "somebody", "-c", "systemctl --user start dbus.socket")
		got := out(t, a, "runuser", "-l", "somebody", "-c",
			"busctl --user call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager GetUnit s dbus.socket")
		if !strings.Contains(got, "dbus_2esocket") {
			t.Errorf("the user's systemd says %s", got)
		}
	})
}

func TestFiles(t *testing.T) {
	l := newLab(t, "t-files", Options{})
	a := boot(t, l, "a")[0]
	do(t, a.WriteFile("/etc/x/y", []byte("z"), 0o600))
	if got := out(t, a, "sh", "-c", "cat /etc/x/y; stat -c ' %a' /etc/x/y"); got != "z 600" {
		t.Errorf("file is %q", got)
	}
	if got, err := a.ReadFile("/etc/x/y"); err != nil || string(got) != "z" {
		t.Errorf("read %q, %v", got, err)
	}
	// A link of the node is followed inside of the node.
	link := filepath.Join(t.TempDir(), "f")
	out(t, a, "mkdir", "-p", filepath.Dir(link))
	out(t, a, "ln", "-s", link, "/etc/link")
	do(t, a.WriteFile("/etc/link", []byte("inside"), 0o644))
	if got := out(t, a, "cat", link); got != "inside" {
		t.Errorf("through a link: %q", got)
	}
	for _, path := range []string{"/etc/x", link} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("a node's file is on this machine: %s", path)
		}
	}
	if _, err := a.ReadFile("/etc/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestPowerOffKeepsTheDisk(t *testing.T) {
	t.Parallel()
	l := newLab(t, "t-power", Options{})
	n, err := l.Node("a")
	do(t, err)
	do(t, os.WriteFile(n.Disk("/etc/before"), []byte("written before"), 0o644))
	ctx := context30(t)
	do(t, n.Boot(ctx))
	if got := out(t, n, "cat", "/etc/before"); got != "written before" {
		t.Errorf("disk holds %q", got)
	}
	ids := func() string { return out(t, n, "cat", "/etc/machine-id", "/sys/class/net/eth0/address") }
	before, bootBefore := ids(), out(t, n, "cat", "/proc/sys/kernel/random/boot_id")
	out(t, n, "sh", "-c", "echo kept >/var/lib/kept; echo lost >/run/lost")
	do(t, n.Kill(ctx))
	if _, err := n.Exec(ctx, "true"); err == nil {
		t.Error("a node that is off runs programs")
	}
	do(t, n.Kill(ctx)) // does nothing
	do(t, n.Boot(ctx))
	if err := n.Boot(ctx); err == nil {
		t.Error("a node that is on was booted")
	}
	if got := out(t, n, "cat", "/var/lib/kept"); got != "kept" {
		t.Errorf("disk holds %q", got)
	}
	if r, _ := n.Exec(ctx, "test", "-e", "/run/lost"); r.Code == 0 {
		t.Error("/run outlived the power")
	}
	if got := ids(); got != before {
		t.Errorf("machine id and hardware address were %q, are %q", before, got)
	}
	if got := out(t, n, "cat", "/proc/sys/kernel/random/boot_id"); got == bootBefore {
		t.Error("the boot id is the one of the boot before")
	}
	// A node that is told to from within ends too, in order.
	out(t, n, "systemctl", "--no-block", "poweroff")
	do(t, n.Wait(ctx))
	do(t, n.Boot(ctx))
	if got := out(t, n, "cat", "/var/lib/kept"); got != "kept" {
		t.Errorf("after poweroff and boot the disk holds %q", got)
	}
}

// serve starts a service on a node that sends back what it receives, and connects to it.
func serve(t *testing.T, n *Node) net.Conn {
	t.Helper()
	do(t, n.WriteFile("/etc/systemd/system/echo.socket", []byte("[Socket]\nListenStream=7\nAccept=yes\n"), 0o644))
	do(t, n.WriteFile("/etc/systemd/system/echo@.service", []byte("[Service]\nExecStart=cat\nStandardInput=socket\n"), 0o644))
	out(t, n, "systemctl", "daemon-reload")
	out(t, n, "systemctl", "start", "echo.socket")
	nc, err := n.lab.Dial(context30(t), "tcp", net.JoinHostPort(n.Addr, "7"))
	do(t, err)
	t.Cleanup(func() { nc.Close() })
	echo(t, nc)
	return nc
}

func echo(t *testing.T, nc net.Conn) {
	t.Helper()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	_, err := nc.Write([]byte("ping\n"))
	do(t, err)
	_, err = io.ReadFull(nc, make([]byte, 5))
	do(t, err)
}

// hush checks that nothing comes from the other side, above all no end of the connection.
func hush(t *testing.T, nc net.Conn) {
	t.Helper()
	nc.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := nc.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v; expected silence", n, err)
	}
}

func TestPowerOffSaysNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, "t-fin", Options{})
	a := boot(t, l, "a")[0]
	nc := serve(t, a)
	ctx := context30(t)
	do(t, a.Kill(ctx))
	hush(t, nc)
	do(t, a.Boot(ctx))
	// Now there is a machine again, which knows nothing of that connection.
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	nc.Write([]byte("ping\n"))
	if _, err := nc.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection lives on after a reboot: %v", err)
	}
}

func TestPauseAndFreeze(t *testing.T) {
	t.Parallel()
	l := newLab(t, "t-freeze", Options{Install: installUnits(map[string]string{
		"two.service": "[Service]\nExecStart=/bin/sh -c 'sleep infinity & wait'\n",
	})})
	a := boot(t, l, "a")[0]
	ctx := context30(t)
	nc := serve(t, a)
	do(t, a.Pause(ctx))
	nc.Write([]byte("ping\n"))
	hush(t, nc)
	do(t, a.Resume())
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	_, err := io.ReadFull(nc, make([]byte, 5))
	do(t, err)

	out(t, a, "systemctl", "start", "two")
	states := func() string {
		return out(t, a, "sh", "-c", `for p in $(cat /sys/fs/cgroup/system.slice/two.service/cgroup.procs); do sed -n 's/^State:\t\(.\).*/\1/p' /proc/$p/status; done | sort -u`)
	}
	do(t, a.Freeze(ctx, "two"))
	if got := states(); got != "T" {
		t.Errorf("processes of a frozen unit are in state %q", got)
	}
	do(t, a.Thaw(ctx, "two"))
	if got := states(); got != "S" {
		t.Errorf("processes of a thawed unit are in state %q", got)
	}
	do(t, a.Signal(ctx, "two", "SIGKILL"))
	if got := out(t, a, "systemctl", "show", "-P", "Result", "two"); got != "signal" && got != "success" {
		t.Errorf("result of a killed unit is %q", got)
	}
	do(t, a.Pause(ctx))
	do(t, a.Kill(ctx)) // also a paused node
}

func TestDiskFull(t *testing.T) {
	l := newLab(t, "t-disk", Options{})
	a := boot(t, l, "a")[0]
	ctx := context30(t)
	if err := a.FillDisk(ctx, "/var/lib"); err == nil {
		t.Fatal("this machine's memory was filled")
	}
	out(t, a, "sh", "-c", "mkdir -m 700 /var/lib/small && chown 12:34 /var/lib/small && echo there >/var/lib/small/f")
	do(t, a.SmallDisk(ctx, "/var/lib/small", 1<<20))
	if got := out(t, a, "sh", "-c", "cat /var/lib/small/f; stat -c '%a %u %g' /var/lib/small"); got != "there\n700 12 34" {
		t.Errorf("the small disk is %q", got)
	}
	write := func() string {
		r, err := a.Exec(ctx, "sh", "-c", "head -c 8192 /dev/zero >/var/lib/small/new")
		do(t, err)
		return r.Stderr
	}
	do(t, a.FillDisk(ctx, "/var/lib/small"))
	if got := write(); !strings.Contains(got, "No space left") {
		t.Errorf("writing on a full disk: %q", got)
	}
	do(t, a.DrainDisk(ctx, "/var/lib/small"))
	if got := write(); got != "" {
		t.Errorf("writing on a disk with space: %q", got)
	}
}

// TestProgramsEndWithTheirContext: not only nsenter, also what it started.
func TestProgramsEndWithTheirContext(t *testing.T) {
	l := newLab(t, "t-ctx", Options{})
	a := boot(t, l, "a")[0]
	ctx, cancel := context.WithCancel(context30(t))
	cmd := a.Command(ctx, "sh", "-c", "echo up; sleep 600")
	r, w, err := os.Pipe()
	do(t, err)
	defer r.Close()
	cmd.Stdout = w
	do(t, cmd.Start())
	w.Close()
	_, err = io.ReadFull(r, make([]byte, 3))
	do(t, err)
	cancel()
	cmd.Wait()
	do(t, r.SetReadDeadline(time.Now().Add(20*time.Second)))
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a process still has the pipe: %v", err)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "A", "a_b", "-a", "a/b", "a.lock", "a+b", strings.Repeat("a", 21)} {
		if l, err := New(t.Context(), Options{Name: name}); err == nil {
			l.Close()
			t.Errorf("lab name %q was taken", name)
		}
	}
	l := newLab(t, "t-names", Options{})
	for _, name := range []string{"", "-a", "a/b", "..", "a+b", "a b", strings.Repeat("a", 65)} {
		if _, err := l.Node(name); err == nil {
			t.Errorf("node name %q was taken", name)
		}
	}
	for _, name := range []string{"a", "0", "A.b-c_d", strings.Repeat("a", 64)} {
		if _, err := l.Node(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Node("a"); err == nil {
		t.Error("two nodes have one name")
	}
}
