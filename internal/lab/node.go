package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Node is one machine of a lab. Its disk outlives it: Kill and Boot are power off and on.
type Node struct {
	Name  string
	Addr  string // IPv4 on the lab's network
	Addr6 string

	lab    *Lab
	number int
	dir    string
	pid    atomic.Int64 // of PID 1, 0 while it is off
	cut    atomic.Bool
	cable  *cable // while the link is shaped
}

// BootTimeout bounds the time from power on to the end of systemd's boot job.
const BootTimeout = 30 * time.Second

// Node makes a node that is switched off. Files may be written to its disk before Boot.
func (l *Lab) Node(name string) (*Node, error) {
	if !validNodeName(name) {
		return nil, fmt.Errorf("node name %q is not 1 to 64 of A-Z, a-z, 0-9, -, . and _", name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	number := 1
	for _, n := range l.nodes {
		if n.Name == name {
			return nil, fmt.Errorf("lab %s has a node %s already", l.name, name)
		}
		number = max(number, n.number+1)
	}
	n := l.newNode(name, number)
	for _, sub := range []string{"root", "upper/etc", "work", "notify"} {
		if err := os.MkdirAll(filepath.Join(n.dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(n.dir, "name"), []byte(name), 0o644),
		os.WriteFile(n.Disk("/etc/machine-id"), []byte(randomID()+"\n"), 0o444),
		os.WriteFile(n.Disk("/etc/hostname"), []byte(n.hostName()+"\n"), 0o644),
	); err != nil {
		return nil, err
	}
	l.nodes = append(l.nodes, n)
	return n, l.writeHosts()
}

func (l *Lab) newNode(name string, number int) *Node {
	n := &Node{Name: name, lab: l, number: number, dir: l.path("nodes", strconv.Itoa(number))} // paths of sockets are short
	n.Addr, n.Addr6 = addresses(number)
	return n
}

func validNodeName(s string) bool {
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '.' && c != '_') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// randomID is an id as machine-id(5) wants it.
func randomID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: crypto/rand
	return hex.EncodeToString(b[:])
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
	return nodes, BootAll(ctx, nodes...)
}

// BootAll switches nodes on, side by side.
func BootAll(ctx context.Context, nodes ...*Node) error {
	failed := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() { failed <- n.Boot(ctx) }()
	}
	var errs []error
	for range nodes {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

// Boot switches the node on and waits until its systemd has finished booting.
func (n *Node) Boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, BootTimeout)
	defer cancel()
	if n.PID() != 0 {
		return fmt.Errorf("cannot boot node %s: it is on already", n.Name)
	}
	if err := n.boot(ctx); err != nil {
		n.Kill(context.WithoutCancel(ctx))
		return fmt.Errorf("cannot boot node %s: %w", n.Name, err)
	}
	return nil
}

func (n *Node) boot(ctx context.Context) error {
	n.unplug(ctx) // what is left where the node ended by itself
	if err := n.plug(ctx); err != nil {
		return err
	}
	socket := filepath.Join(n.dir, "notify/ready")
	os.Remove(socket)
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer ready.Close()
	ended, err := n.spawn()
	if err != nil {
		return err
	}
	return n.awaitReady(ctx, ready, ended)
}

// spawn starts the node's first process. What it says when it fails comes out of ended.
func (n *Node) spawn() (ended <-chan string, err error) {
	group := filepath.Join(n.lab.cgroup, n.Name)
	if err := os.MkdirAll(group, 0o755); err != nil {
		return nil, err
	}
	into, err := os.Open(group)
	if err != nil {
		return nil, err
	}
	defer into.Close()
	m := machine{
		Dir: n.dir, Names: n.lab.path("names"), Lower: n.lab.path("base") + ":/", HostName: n.hostName(),
		NetSpace: "/run/netns/" + nodeSpace(n.lab.name, n.Name), BootID: bootID(),
	}
	if _, err := os.Stat(n.lab.path("layer")); err == nil {
		m.Lower = n.lab.path("layer") + ":" + m.Lower
		users, _ := filepath.Glob(n.lab.path("layer", "usr/lib/sysusers.d/*.conf"))
		m.Sysusers = len(users) > 0
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{bootVariable + "=" + string(text)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:      true, // a Ctrl-C at the test is not for PID 1
		Cloneflags:  unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		UseCgroupFD: true, CgroupFD: int(into.Fd()),
	}
	output := new(strings.Builder)
	cmd.Stderr = output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n.pid.Store(int64(cmd.Process.Pid))
	said := make(chan string, 1)
	go func() {
		cmd.Wait()
		said <- strings.TrimSpace(output.String())
	}()
	return said, os.WriteFile(filepath.Join(n.dir, "pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// bootID is an id in the form of /proc/sys/kernel/random/boot_id.
func bootID() string {
	s := randomID()
	return strings.Join([]string{s[:8], s[8:12], s[12:16], s[16:20], s[20:]}, "-")
}

// awaitReady waits for systemd's own word that it has booted.
func (n *Node) awaitReady(ctx context.Context, ready *net.UnixConn, ended <-chan string) error {
	said := make(chan error, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			size, err := ready.Read(buf)
			if err != nil || strings.Contains(string(buf[:size]), "READY=1") {
				said <- err
				return
			}
		}
	}()
	select {
	case err := <-said:
		return err
	case output := <-ended:
		return fmt.Errorf("its PID 1 ended while booting: %s", output)
	case <-ctx.Done():
		return fmt.Errorf("systemd did not finish booting: %w; its journal: %s", ctx.Err(), n.Journal(context.WithoutCancel(ctx), ""))
	}
}

// hostName is the node's name as far as host names allow it.
func (n *Node) hostName() string { return strings.ReplaceAll(n.Name, "_", "-") }

// PID is the process of the node's PID 1 as this machine sees it, 0 while it is off.
func (n *Node) PID() int { return int(n.pid.Load()) }

// Kill switches the power off: the link is cut first, so no FIN leaves, then everything dies
// at once. The disk stays. Killing a node that is off does nothing.
func (n *Node) Kill(ctx context.Context) error {
	pid := int(n.pid.Swap(0))
	if pid == 0 {
		return nil
	}
	n.detach(ctx) // fails only where the link was never made
	gone, err := n.end(ctx, pid)
	if err == nil && !gone {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("node %s did not die: %w", n.Name, err)
	}
	os.Remove(filepath.Join(n.dir, "pid"))
	n.unplug(ctx)
	return nil
}

// end kills PID 1 and waits until it is no more. The kernel lets it end last of all
// processes of its namespace: pid_namespaces(7).
func (n *Node) end(ctx context.Context, pid int) (gone bool, err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, err
	}
	return awaitExit(ctx, fd)
}

// Wait waits until the node is off, because it was told to from within, or ctx ends.
func (n *Node) Wait(ctx context.Context) error {
	pid := n.PID()
	if pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer unix.Close(fd)
		if gone, waitErr := awaitExit(ctx, fd); waitErr != nil || !gone {
			return errors.Join(waitErr, ctx.Err())
		}
	} else if !errors.Is(err, unix.ESRCH) {
		return err
	}
	return n.Kill(ctx) // what is left: its link and its number
}

// awaitExit waits for the end of the process behind a pidfd. The kernel's wait does not hear
// of a context, so it looks at that between.
func awaitExit(ctx context.Context, fd int) (gone bool, err error) {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 {
			return true, nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, err
		}
	}
	return false, nil
}
