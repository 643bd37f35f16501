// Package lab boots nodes with a real systemd as PID 1, in namespaces of this machine, for
// tests.
//
// A node is an overlay over the live root file system with its own process, mount, network
// and host name space: real systemd, real D-Bus daemon, real TCP, no images and no container
// engine. Everything that a lab makes carries its name and is found again by it. A lab ends
// with the process that made it, however that ends, unless it is told to stay.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// root is the folder below which every lab has a tmpfs of its own: overlayfs refuses lower
// layers that lie inside another lower layer, and "/" is one of ours.
const root = "/run/ctrl-lab"

// Options describe a lab.
type Options struct {
	// Name tells labs apart: 1 to 20 of a-z, 0-9 and "-", first a letter or digit.
	Name string
	// Install puts files below dir, which every node sees as part of its root. May be nil.
	Install func(dir string) error
	// Keep leaves the lab running when this process ends, until Remove, or until a lab of the
	// same name is made.
	Keep bool
}

// Lab is a bridge and the nodes on it.
type Lab struct {
	name   string
	dir    string
	cgroup string
	owner  *owner // nil for a lab that another process made

	mu    sync.Mutex
	nodes []*Node
	apart map[[2]string]bool // pairs of nodes that Partition has parted
}

// New makes a lab without nodes, after removing what dead processes left of theirs. While
// another process has a lab of that name it waits for the end of it, until ctx ends; a lab
// that was kept is replaced.
func New(ctx context.Context, opt Options) (*Lab, error) {
	if why := Unavailable(); why != "" {
		return nil, errors.New(why)
	}
	if !validLabName(opt.Name) {
		return nil, fmt.Errorf("lab name %q is not 1 to 20 of a-z, 0-9 and -", opt.Name)
	}
	RemoveStale()
	l, err := locate(opt.Name)
	if err == nil {
		l.owner, err = own(ctx, opt.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make lab %s: %w", opt.Name, err)
	}
	remove(opt.Name)
	if err := l.create(ctx, opt); err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot make lab %s: %w", opt.Name, err)
	}
	if opt.Keep {
		l.owner.release() // it belongs to nobody from now on
	}
	return l, nil
}

// locate says where a lab of that name has its things, whether it is there or not.
func locate(name string) (*Lab, error) {
	group, err := cgroup2()
	if err != nil {
		return nil, err
	}
	return &Lab{name: name, dir: filepath.Join(root, name), cgroup: filepath.Join(group, prefix+name), apart: make(map[[2]string]bool)}, nil
}

// prefix begins the names of a lab's cgroup and network namespaces.
const prefix = "ctrl-lab-"

func (l *Lab) create(ctx context.Context, opt Options) error {
	unix.Umask(0o022) // of the whole process: folders made here become folders of the nodes
	if !opt.Keep {
		if err := l.owner.watch(opt.Name); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", l.dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("cannot mount a tmpfs on %s: %w", l.dir, err)
	}
	if opt.Keep {
		if err := os.WriteFile(l.path(keptFile), nil, 0o644); err != nil {
			return err
		}
	}
	if err := errors.Join(
		os.Mkdir(l.path("nodes"), 0o755),
		os.Mkdir(l.path("names"), 0o755),
		l.writeHosts(),
		makeBase(l.path("base")),
		l.makeGroup(),
		raiseInotify(),
	); err != nil {
		return err
	}
	if opt.Install != nil {
		if err := os.Mkdir(l.path("layer"), 0o755); err != nil {
			return err
		}
		if err := opt.Install(l.path("layer")); err != nil {
			return err
		}
	}
	return l.makeBridge(ctx)
}

// keptFile marks a lab that outlives the process that made it.
const keptFile = "kept"

// makeGroup makes the lab's cgroup and passes on to its nodes the controllers that it has:
// none where the host has them in its cgroup v1 hierarchies.
func (l *Lab) makeGroup() error {
	if err := os.Mkdir(l.cgroup, 0o755); err != nil {
		return err
	}
	controllers, err := os.ReadFile(filepath.Join(l.cgroup, "cgroup.controllers"))
	for _, name := range strings.Fields(string(controllers)) {
		err = errors.Join(err, os.WriteFile(filepath.Join(l.cgroup, "cgroup.subtree_control"), []byte("+"+name), 0o644))
	}
	return err
}

// Dir is the lab's folder on this machine.
func (l *Lab) Dir() string { return l.dir }

// Name is the name that the lab was made with.
func (l *Lab) Name() string { return l.name }

// Nodes are the lab's nodes in the order in which they were made.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*Node(nil), l.nodes...)
}

// Journals is what the journals of all nodes that are on have to say, for a test that fails.
func (l *Lab) Journals(ctx context.Context) string {
	var b strings.Builder
	for _, n := range l.Nodes() {
		if n.PID() != 0 {
			fmt.Fprintf(&b, "\n--- journal of %s ---\n%s", n.Name, n.Journal(ctx, ""))
		}
	}
	return b.String()
}

func (l *Lab) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

// Close ends all nodes and removes everything of the lab.
func (l *Lab) Close() {
	for _, n := range l.Nodes() {
		n.unshape()
	}
	remove(l.name)
	l.owner.release()
}

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

func validLabName(s string) bool {
	for i, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || i > 0 && c == '-') {
			return false
		}
	}
	return s != "" && len(s) <= 20
}

// run runs a program of this machine and gives what it printed as the error.
func run(ctx context.Context, argv ...string) error { return runInput(ctx, "", argv...) }

func runInput(ctx context.Context, input string, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
