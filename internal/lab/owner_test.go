package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helperVariable makes this test program do one thing in a process of its own.
const helperVariable = "LAB_TEST_HELPER"

func helper(what string) {
	verb, name, _ := strings.Cut(what, " ")
	if verb == "why" {
		fmt.Println(Unavailable())
		return
	}
	l, err := New(context.Background(), Options{Name: name, Keep: verb == "keep"})
	if err == nil {
		_, err = l.Boot(context.Background(), "a")
	}
	fmt.Println("up", err)
	if verb == "hold" {
		select {}
	}
}

// startHelper starts one in a process group of its own, and waits until its node is up.
func startHelper(t *testing.T, what string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperVariable+"="+what)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	do(t, err)
	do(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "up <nil>\n" {
		t.Fatalf("helper said %q, %v", line, err)
	}
	return cmd
}

// traces are what there is of a lab.
func traces(name string) []string {
	var found []string
	l, _ := locate(name)
	for _, pattern := range []string{l.dir, l.dir + "/*", lockFile(name), l.cgroup, "/run/netns/" + bridgeSpace(name), "/run/netns/" + bridgeSpace(name) + "+*"} {
		files, _ := filepath.Glob(pattern)
		found = append(found, files...)
	}
	return found
}

// alive tells whether the process lives that is the node's PID 1 now.
func alive(t *testing.T, n *Node) func() bool {
	t.Helper()
	fd, err := unix.PidfdOpen(n.PID(), 0)
	do(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return func() bool {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		do(t, err)
		return ended == 0
	}
}

func TestAbortedTestsLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, abort := range map[string]func(*exec.Cmd) error{
		"t-killed":    func(c *exec.Cmd) error { return c.Process.Kill() },
		"t-ctrl-c":    func(c *exec.Cmd) error { return syscall.Kill(-c.Process.Pid, syscall.SIGINT) },
		"t-all-group": func(c *exec.Cmd) error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			cmd := startHelper(t, "hold "+name)
			n, err := Find(name, "a")
			do(t, err)
			if !alive(t, n)() || len(traces(name)) < 6 {
				t.Fatalf("PID 1 is %d, traces are %q", n.PID(), traces(name))
			}
			lives := alive(t, n)
			do(t, abort(cmd))
			cmd.Wait()
			// The name is free when the guard has done its work.
			o, err := own(context30(t), name)
			do(t, err)
			o.release()
			if left := traces(name); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
			if lives() {
				t.Error("PID 1 lives on")
			}
		})
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	l := newLab(t, "t-gone", Options{})
	other := newLab(t, "t-gone-2", Options{})
	n := boot(t, l, "a")[0]
	kept := boot(t, other, "a")[0]
	lives := alive(t, n)
	if !lives() {
		t.Fatal("PID 1 is not there")
	}
	l.Close()
	l.Close() // does nothing
	if left := traces("t-gone"); len(left) > 0 || slices.Contains(Labs(), "t-gone") {
		t.Errorf("left are %q", left)
	}
	if lives() {
		t.Error("PID 1 lives on")
	}
	out(t, kept, "systemctl", "is-system-running")
	RemoveStale()
	out(t, kept, "systemctl", "is-system-running")
}

// TestStaleLabs: where the guard died too, the next lab of whatever name cleans up.
func TestStaleLabs(t *testing.T) {
	l := newLab(t, "t-stale", Options{})
	boot(t, l, "a")
	do(t, l.owner.guard.Process.Kill())
	l.owner.guard.Wait()
	l.owner.lock.Close() // as the kernel does for a dead process
	newLab(t, "t-stale-2", Options{})
	if left := traces("t-stale"); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	l.owner.lock = nil
}

func TestOneOwner(t *testing.T) {
	t.Parallel()
	newLab(t, "t-one", Options{})
	if _, err := New(t.Context(), Options{Name: "t-one"}); err == nil || !strings.Contains(err.Error(), "this process has") {
		t.Errorf("twice in one process: %v", err)
	}
	cmd := startHelper(t, "hold t-one-2")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := New(ctx, Options{Name: "t-one-2"}); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), fmt.Sprintf("process %d has a lab of that name", cmd.Process.Pid)) {
		t.Errorf("while another process has it: %v", err)
	}
	n, err := Find("t-one-2", "a")
	do(t, err)
	out(t, n, "systemctl", "is-system-running") // not harmed by the one who waited
	do(t, cmd.Process.Kill())
	cmd.Wait()
	newLab(t, "t-one-2", Options{})
}

// TestKeptLab: a lab that stays is found by its name, and used and removed by others.
func TestKeptLab(t *testing.T) {
	t.Parallel()
	const name = "t-kept"
	t.Cleanup(func() { Remove(name) })
	do(t, startHelper(t, "keep "+name).Wait())
	if _, err := os.Stat(lockFile(name)); err == nil {
		t.Error("a lab of nobody is locked")
	}
	RemoveStale()
	l, err := Open(name)
	do(t, err)
	a := l.Nodes()[0]
	if got := out(t, a, "hostname"); got != "a" {
		t.Errorf("host name %q", got)
	}
	ctx := context30(t)
	b, err := l.Node("b")
	do(t, err)
	do(t, b.Boot(ctx))
	expect(t, true, b, "a", "booted by another process")
	do(t, a.Cut(ctx))
	expect(t, false, b, "a", "cut by another process")
	do(t, a.Heal(ctx))
	do(t, a.Kill(ctx))
	if again, err := Find(name, "a"); err != nil || again.PID() != 0 {
		t.Errorf("a node that is off is found as %+v, %v", again, err)
	}
	do(t, a.Boot(ctx))
	expect(t, true, b, "a", "booted again by another process")
	// The number of a node's PID 1 may have gone to a stranger.
	do(t, os.WriteFile(filepath.Join(a.dir, "pid"), []byte(fmt.Sprint(os.Getpid())), 0o644))
	if again, err := Find(name, "a"); err != nil || again.PID() != 0 {
		t.Errorf("a stranger passes for a node: %+v, %v", again, err)
	}
	Remove(name)
	if left := traces(name); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	if _, err := Open(name); err == nil {
		t.Error("a lab that was removed is found")
	}
	if _, err := Find("t-none", "a"); err == nil {
		t.Error("a lab that never was is found")
	}
}

func TestUnavailable(t *testing.T) {
	run := func(uid uint32, path string) string {
		exe, err := os.Executable()
		do(t, err)
		program, err := os.ReadFile(exe)
		do(t, err)
		copied := filepath.Join("/run", fmt.Sprintf("lab-why-%d.test", os.Getpid())) // where others may read
		do(t, os.WriteFile(copied, program, 0o755))
		defer os.Remove(copied)
		cmd := exec.Command(copied)
		cmd.Env = []string{helperVariable + "=why", "PATH=" + path}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return string(text)
	}
	for _, tt := range []struct {
		uid        uint32
		path, want string
	}{
		{65534, os.Getenv("PATH"), "labs need root\n"},
		{0, "/nowhere", "labs need the program ip (packages systemd, dbus, iproute2, util-linux)\n"},
		{0, os.Getenv("PATH"), "\n"},
	} {
		if got := run(tt.uid, tt.path); got != tt.want {
			t.Errorf("uid %d with PATH=%s: %q, want %q", tt.uid, tt.path, got, tt.want)
		}
	}
}
