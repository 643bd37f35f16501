// Package lab boots nodes with a real systemd as PID 1, in namespaces of this machine, for
// tests.
//
// A node is an overlay over the live root file system with its own process, mount, network
// and host name space: real systemd, real D-Bus daemon, real TCP, no images and no container
// engine. Everything that a lab makes carries its name and is found again by it, so that an
// aborted test leaves nothing that the next one would not remove.
package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed boot.sh
var bootScript []byte

// root is the folder below which every lab has a tmpfs of its own: overlayfs refuses lower
// layers that lie inside another lower layer, and "/" is one of ours.
const root = "/run/ctrl-lab"

// Options describe a lab.
type Options struct {
	// Name tells labs apart; letters, digits and "-", at most 20.
	Name string
	// Install puts files below dir, which every node sees as part of its root. May be nil.
	Install func(dir string) error
	// Keep leaves the lab running when this process ends.
	Keep bool
}

// Lab is a bridge and the nodes on it.
type Lab struct {
	name   string
	dir    string
	layer  bool
	cgroup string

	mu    sync.Mutex
	nodes []*Node
}

// Unavailable says in one line why labs cannot run on this machine, or "" where they can.
func Unavailable() string {
	if os.Geteuid() != 0 {
		return "labs need root"
	}
	for _, tool := range []string{"ip", "nsenter", "unshare", "setpriv", "mount", "dbus-daemon", "systemctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "labs need the program " + tool + " (packages systemd, dbus, iproute2, util-linux)"
		}
	}
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		return "labs need systemd installed: /lib/systemd/systemd is missing"
	}
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil || !strings.Contains(string(known), "\toverlay\n") {
		return "labs need overlayfs in the kernel"
	}
	if _, err := cgroup2(); err != nil {
		return err.Error()
	}
	return ""
}

// New makes a lab without nodes, after removing what dead processes left of theirs.
func New(ctx context.Context, opt Options) (*Lab, error) {
	if why := Unavailable(); why != "" {
		return nil, errors.New(why)
	}
	if !validName(opt.Name) || len(opt.Name) > 20 {
		return nil, fmt.Errorf("lab name %q is not 1 to 20 of a-z, 0-9 and -", opt.Name)
	}
	RemoveStale()
	Remove(opt.Name)
	group, err := cgroup2()
	if err != nil {
		return nil, err
	}
	l := &Lab{name: opt.Name, dir: filepath.Join(root, opt.Name), cgroup: filepath.Join(group, "ctrl-lab-"+opt.Name)}
	if err := l.create(ctx, opt); err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot make lab %s: %w", opt.Name, err)
	}
	return l, nil
}

func (l *Lab) create(ctx context.Context, opt Options) error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", l.dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("cannot mount a tmpfs on %s: %w", l.dir, err)
	}
	owner := strconv.Itoa(os.Getpid())
	if opt.Keep {
		owner = "kept"
	}
	if err := errors.Join(
		os.WriteFile(l.path("owner"), []byte(owner), 0o644),
		os.WriteFile(l.path("boot.sh"), bootScript, 0o644),
		os.WriteFile(l.path("hosts"), []byte("127.0.0.1 localhost\n::1 localhost\n"), 0o644),
		os.Mkdir(l.path("nodes"), 0o755),
		os.Mkdir(l.cgroup, 0o755),
		makeBase(l.path("base")),
		raiseInotify(),
	); err != nil {
		return err
	}
	if opt.Install != nil {
		l.layer = true
		if err := os.Mkdir(l.path("layer"), 0o755); err != nil {
			return err
		}
		if err := opt.Install(l.path("layer")); err != nil {
			return err
		}
	}
	return l.makeBridge(ctx)
}

// Dir is the lab's folder on this machine.
func (l *Lab) Dir() string { return l.dir }

// Name is the name that the lab was made with.
func (l *Lab) Name() string { return l.name }

func (l *Lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

// Close ends all nodes and removes everything of the lab.
func (l *Lab) Close() { Remove(l.name) }

// raiseInotify lifts the limit that ends at about 15 nodes: each systemd holds several
// inotify instances, and all count for the one root user.
func raiseInotify() error {
	const file, enough = "/proc/sys/fs/inotify/max_user_instances", 8192
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && n >= enough {
		return nil
	}
	return os.WriteFile(file, []byte(strconv.Itoa(enough)), 0o644)
}

// cgroup2 finds where the host has its cgroup2 hierarchy.
func cgroup2() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("labs need a cgroup2 mount on this machine")
}

func validName(s string) bool {
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '.' && c != '_') {
			return false
		}
	}
	return s != ""
}

// run runs a program of this machine and gives what it printed as the error.
func run(ctx context.Context, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Labs lists the names of all labs of this machine.
func Labs() []string {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// RemoveStale removes the labs of processes that are no more.
func RemoveStale() {
	for _, name := range Labs() {
		owner, err := os.ReadFile(filepath.Join(root, name, "owner"))
		if err == nil && strings.TrimSpace(string(owner)) == "kept" {
			continue
		}
		pid, convErr := strconv.Atoi(strings.TrimSpace(string(owner)))
		if err == nil && convErr == nil && (pid == os.Getpid() || syscall.Kill(pid, 0) == nil) {
			continue
		}
		Remove(name)
	}
}
