package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Node is one machine of a lab. Its disk outlives it: Kill and Boot are power off and on.
type Node struct {
	Name  string
	Addr  string // IPv4 on the lab's network
	Addr6 string

	lab    *Lab
	number int
	dir    string
	pid    int
	exited chan struct{} // closed when PID 1 is gone
	output *bytes.Buffer // of the boot script; read it after exited only
}

// BootTimeout bounds the time from power on to the end of systemd's boot job.
const BootTimeout = 30 * time.Second

// Node makes a node that is switched off. Files may be written to its disk before Boot.
func (l *Lab) Node(name string) (*Node, error) {
	if !validName(name) || len(name) > 64 {
		return nil, fmt.Errorf("node name %q is not 1 to 64 of a-z, 0-9, -, . and _", name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	number := len(l.nodes) + 1
	n := &Node{
		Name: name, lab: l, number: number, dir: l.path("nodes", strconv.Itoa(number)),
	}
	n.Addr, n.Addr6 = addresses(number)
	for _, sub := range []string{"root", "upper/etc", "work", "notify"} {
		if err := os.MkdirAll(filepath.Join(n.dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	id := fmt.Sprintf("%016x%016x", time.Now().UnixNano(), number)
	if err := errors.Join(
		os.WriteFile(filepath.Join(n.dir, "name"), []byte(name), 0o644),
		os.WriteFile(filepath.Join(n.dir, "upper/etc/machine-id"), []byte(id+"\n"), 0o444),
		os.WriteFile(filepath.Join(n.dir, "upper/etc/hostname"), []byte(n.hostName()+"\n"), 0o644),
	); err != nil {
		return nil, err
	}
	l.nodes = append(l.nodes, n)
	return n, l.writeHosts()
}

// addresses are those of the node with that number on its lab's network.
func addresses(number int) (v4, v6 string) {
	return fmt.Sprintf("10.88.%d.%d", number/250, number%250+2), fmt.Sprintf("fd88::%x", number+1)
}

// Boot makes nodes and boots them side by side.
func (l *Lab) Boot(ctx context.Context, names ...string) ([]*Node, error) {
	nodes := make([]*Node, len(names))
	for i, name := range names {
		n, err := l.Node(name)
		if err != nil {
			return nil, err
		}
		nodes[i] = n
	}
	failed := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() { failed <- n.Boot(ctx) }()
	}
	var errs []error
	for range nodes {
		errs = append(errs, <-failed)
	}
	return nodes, errors.Join(errs...)
}

// Boot switches the node on and waits until its systemd has finished booting.
func (n *Node) Boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, BootTimeout)
	defer cancel()
	if err := n.boot(ctx); err != nil {
		n.Kill(context.WithoutCancel(ctx))
		return fmt.Errorf("cannot boot node %s: %w", n.Name, err)
	}
	return nil
}

func (n *Node) boot(ctx context.Context) error {
	if n.pid != 0 {
		return errors.New("it is on already")
	}
	if err := n.plug(ctx); err != nil {
		return err
	}
	group := filepath.Join(n.lab.cgroup, n.Name)
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	socket := filepath.Join(n.dir, "notify/ready")
	os.Remove(socket)
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer ready.Close()
	if err := n.spawn(group); err != nil {
		return err
	}
	return n.awaitReady(ctx, ready)
}

func (n *Node) spawn(group string) error {
	lower := n.lab.path("base") + ":/"
	if n.lab.layer {
		lower = n.lab.path("layer") + ":" + lower
	}
	n.output = new(bytes.Buffer)
	cmd := exec.Command("nsenter", "--net=/run/netns/"+nodeSpace(n.lab.name, n.Name),
		"unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc", "sh", "-e", n.lab.path("boot.sh"), "enter")
	cmd.Env = append(os.Environ(), "LAB_DIR="+n.dir, "LAB_LOWER="+lower, "LAB_HOST="+n.hostName(), "LAB_CGROUP="+group)
	cmd.Stdout, cmd.Stderr = n.output, n.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C at the test is not for PID 1
	if err := cmd.Start(); err != nil {
		return err
	}
	n.exited = make(chan struct{})
	go func(exited chan struct{}) {
		cmd.Wait()
		close(exited)
	}(n.exited)
	n.pid = cmd.Process.Pid
	return nil
}

// awaitReady waits for systemd's own word that it has booted, then finds PID 1.
func (n *Node) awaitReady(ctx context.Context, ready *net.UnixConn) error {
	said := make(chan error, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			size, err := ready.Read(buf)
			if err != nil || bytes.Contains(buf[:size], []byte("READY=1")) {
				said <- err
				return
			}
		}
	}()
	select {
	case err := <-said:
		if err != nil {
			return err
		}
	case <-n.exited:
		return fmt.Errorf("its PID 1 ended while booting: %s", strings.TrimSpace(n.output.String()))
	case <-ctx.Done():
		return fmt.Errorf("systemd did not finish booting: %w", ctx.Err())
	}
	pid, err := childOf(n.pid)
	if err == nil {
		n.pid = pid
		err = os.WriteFile(filepath.Join(n.dir, "pid"), []byte(strconv.Itoa(pid)), 0o644)
	}
	return err
}

// childOf finds the only child of unshare, which is the node's PID 1.
func childOf(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// hostName is the node's name as far as host names allow it.
func (n *Node) hostName() string { return strings.ReplaceAll(n.Name, "_", "-") }

// PID is the process of the node's PID 1 as this machine sees it.
func (n *Node) PID() int { return n.pid }

// Kill switches the power off: the link is cut first, so no FIN leaves, then everything dies
// at once. The disk stays. Killing a node that is off does nothing.
func (n *Node) Kill(ctx context.Context) error {
	if n.pid == 0 {
		return nil
	}
	n.Cut(ctx) // fails only where the link was never made
	pid := n.pid
	syscall.Kill(pid, syscall.SIGKILL)
	n.pid = 0
	if err := n.gone(ctx, pid); err != nil {
		return fmt.Errorf("node %s did not die: %w", n.Name, err)
	}
	n.unplug(ctx)
	return nil
}

// Disk is a path of the node's disk as this machine sees it: what a node that is switched
// off finds at that place when it boots. Not for reading what a layer below provides.
func (n *Node) Disk(path string) string { return filepath.Join(n.dir, "upper", path) }

// Command prepares a program to run inside the node. It runs outside of every unit.
func (n *Node) Command(ctx context.Context, argv ...string) *exec.Cmd {
	args := append([]string{"-t", strconv.Itoa(n.pid), "-a", "--", "env", "-i",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "TERM=dumb"}, argv...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Result is what a program in a node did.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Exec runs a program inside the node. err is for what kept it from running; a program that
// fails is a Result with its exit code.
func (n *Node) Exec(ctx context.Context, argv ...string) (Result, error) {
	if n.pid == 0 {
		return Result{}, fmt.Errorf("node %s is switched off", n.Name)
	}
	cmd := n.Command(ctx, argv...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return r, nil
	}
	return r, err
}

// Run is Exec for programs that must succeed; it returns what was printed on stdout.
func (n *Node) Run(ctx context.Context, argv ...string) (string, error) {
	r, err := n.Exec(ctx, argv...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("exit status %d", r.Code)
	}
	if err != nil {
		return r.Stdout, fmt.Errorf("%s: %s: %w: %s", n.Name, strings.Join(argv, " "), err, strings.TrimSpace(r.Stderr+r.Stdout))
	}
	return r.Stdout, nil
}

// WriteFile writes a file of a running node, with its folders.
func (n *Node) WriteFile(path string, data []byte, mode os.FileMode) error {
	path = n.inside(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// ReadFile reads a file of a running node.
func (n *Node) ReadFile(path string) ([]byte, error) { return os.ReadFile(n.inside(path)) }

func (n *Node) inside(path string) string {
	return filepath.Join("/proc", strconv.Itoa(n.pid), "root", path)
}

// Journal is what the node's journal has of a unit, or all of it for "".
func (n *Node) Journal(ctx context.Context, unit string) string {
	argv := []string{"journalctl", "--no-pager", "-q", "-o", "short-precise"}
	if unit != "" {
		argv = append(argv, "-u", unit)
	}
	r, err := n.Exec(ctx, argv...)
	if err != nil {
		return "no journal: " + err.Error()
	}
	return r.Stdout + r.Stderr
}

// MainPID is the main process of a service as the node numbers it.
func (n *Node) MainPID(ctx context.Context, unit string) (int, error) {
	out, err := n.Run(ctx, "systemctl", "show", "-P", "MainPID", unit)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err == nil && pid == 0 {
		err = fmt.Errorf("%s: %s has no main process", n.Name, unit)
	}
	return pid, err
}

// Signal sends a signal to the main process of a service, past systemd: SIGSTOP freezes a
// daemon as a hang would, SIGKILL is a crash.
func (n *Node) Signal(ctx context.Context, unit, signal string) error {
	pid, err := n.MainPID(ctx, unit)
	if err != nil {
		return err
	}
	_, err = n.Run(ctx, "kill", "-s", strings.TrimPrefix(signal, "SIG"), strconv.Itoa(pid))
	return err
}

// SmallDisk puts a disk of the given size over a folder of the running node.
func (n *Node) SmallDisk(ctx context.Context, path string, bytes int) error {
	_, err := n.Run(ctx, "mount", "-t", "tmpfs", "-o", "size="+strconv.Itoa(bytes), "tmpfs", path)
	return err
}
