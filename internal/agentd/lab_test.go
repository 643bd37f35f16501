package agentd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/pki/pkitest"
)

// Both daemons on real systemd, over real TCP with TLS: the manager on boss, agents elsewhere.

func TestMain(m *testing.M) {
	if lab.Unavailable() != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "ctrl-programs")
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	programs = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// shipped are the files of a package that the daemons need, and where they go.
var shipped = map[string]string{
	"ctrl-manager.service":         "usr/lib/systemd/system",
	"ctrl-agent.service":           "usr/lib/systemd/system",
	"user/ctrl-manager.service":    "usr/lib/systemd/user",
	"user/ctrl-agent.service":      "usr/lib/systemd/user",
	"org.example.ctrl1.conf":       "usr/share/dbus-1/system.d",
	"org.example.ctrl1.Agent.conf": "usr/share/dbus-1/system.d",
	"ctrl.sysusers":                "usr/lib/sysusers.d/ctrl.conf",
}

// own are what the tests add: an end is in time or it is a failure, and starting again and
// again is what they do.
var own = map[string]string{
	"usr/lib/systemd/system/ctrl-manager.service.d/50-test.conf": "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=no\nTimeoutStopSec=5s\n",
	"usr/lib/systemd/system/ctrl-agent.service.d/50-test.conf":   "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=no\nTimeoutStopSec=5s\n",
	"usr/lib/systemd/system/hello.service":                       "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n",
	"usr/lib/systemd/system/slow.service":                        "[Service]\nType=oneshot\nExecStart=/bin/sleep 600\n",
}

// fleet is a lab with a manager on boss.
type fleet struct {
	t    *testing.T
	lab  *lab.Lab
	boss *lab.Node
	ca   *pkitest.CA
}

func newFleet(t *testing.T, name string) *fleet {
	t.Helper()
	if why := lab.Unavailable(); why != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip("left out: ", why)
	}
	ca, err := pkitest.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.New(t.Context(), lab.Options{Name: name, Install: install})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	f := &fleet{t: t, lab: l, ca: ca}
	f.boss = f.boot("boss")
	return f
}

// install puts everything where a package would.
func install(dir string) error {
	put := func(path string, data []byte, mode os.FileMode) error {
		path = filepath.Join(dir, path)
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, mode))
	}
	for name, to := range shipped {
		data, err := os.ReadFile(filepath.Join("../../units", name))
		if err != nil {
			return err
		}
		if filepath.Ext(to) != ".conf" {
			to = filepath.Join(to, filepath.Base(name))
		}
		if err := put(to, data, 0o644); err != nil {
			return err
		}
	}
	for path, text := range own {
		if err := put(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{"manager", "agent"} {
		program, err := os.ReadFile(filepath.Join(programs, name))
		if err == nil {
			err = put("usr/bin/ctrl-"+name, program, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// programs is where the built daemons are.
var programs string

func build(dir string) error {
	cmd := exec.Command("go", "build", "-o", dir, "example.org/ctrl/cmd/manager", "example.org/ctrl/cmd/agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, text)
	}
	return nil
}

func (f *fleet) boot(name string) *lab.Node {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), lab.BootTimeout)
	defer cancel()
	nodes, err := f.lab.Boot(ctx, name)
	if err != nil {
		f.t.Fatal(err)
	}
	return nodes[0]
}

// sub runs a subtest that may use the fleet.
func (f *fleet) sub(name string, test func(*testing.T)) {
	parent := f.t
	parent.Run(name, func(t *testing.T) {
		f.t = t
		defer func() { f.t = parent }()
		test(t)
	})
}

// write puts a file on a node.
func (f *fleet) write(n *lab.Node, path, text string, mode os.FileMode) {
	f.t.Helper()
	if err := n.WriteFile(path, []byte(text), mode); err != nil {
		f.t.Fatal(err)
	}
}

// certify puts a certificate on a node.
func (f *fleet) certify(n *lab.Node, leaf pkitest.Leaf) {
	f.t.Helper()
	cert, key, err := f.ca.Issue(leaf)
	if err != nil {
		f.t.Fatal(err)
	}
	f.write(n, "/etc/ctrl/pki/ca.crt", string(f.ca.PEM), 0o644)
	f.write(n, "/etc/ctrl/pki/own.crt", string(cert), 0o644)
	f.key(n, key)
}

// key puts a private key on a node, readable for the daemon there.
func (f *fleet) key(n *lab.Node, key []byte) {
	f.t.Helper()
	f.write(n, "/etc/ctrl/pki/own.key", string(key), 0o600)
	if n == f.boss {
		f.run(n, "chown", "ctrl:", "/etc/ctrl/pki/own.key")
	}
}

const files = "CAFile=/etc/ctrl/pki/ca.crt\nCertFile=/etc/ctrl/pki/own.crt\nKeyFile=/etc/ctrl/pki/own.key\n"

func (f *fleet) startManager(names string) {
	f.t.Helper()
	f.certify(f.boss, pkitest.ManagerLeaf())
	f.write(f.boss, "/etc/ctrl/manager.conf", "[manager]\nAllowedNodeNames="+names+"\n"+files, 0o644)
	f.run(f.boss, "systemctl", "start", "ctrl-manager")
}

// agent boots a node with an agent, without starting it.
func (f *fleet) agent(name string) *lab.Node {
	f.t.Helper()
	n := f.boot(name)
	f.certify(n, pkitest.NodeLeaf(name))
	f.write(n, "/etc/ctrl/agent.conf", "[agent]\nNodeName="+name+"\nManagerHost="+f.boss.Addr+"\n"+files, 0o644)
	return n
}

func (f *fleet) run(n *lab.Node, argv ...string) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	out, err := n.Run(ctx, argv...)
	if err != nil {
		f.t.Fatalf("%s: %v\nmanager: %s\nagent: %s", n.Name, err,
			f.boss.Journal(ctx, "ctrl-manager"), n.Journal(ctx, "ctrl-agent"))
	}
	return strings.TrimSpace(out)
}

// until waits until a command prints what is wanted.
func (f *fleet) until(n *lab.Node, want string, argv ...string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	for {
		res, err := n.Exec(ctx, argv...)
		if err == nil && strings.Contains(res.Stdout, want) {
			return
		}
		if ctx.Err() != nil {
			f.t.Fatalf("%s: %v printed %q %q, want %q\nmanager: %s\nagent: %s", n.Name, argv, res.Stdout, res.Stderr, want,
				f.boss.Journal(f.t.Context(), "ctrl-manager"), n.Journal(f.t.Context(), "ctrl-agent"))
		}
	}
}

// journal waits for a line of a unit's log.
func (f *fleet) journal(n *lab.Node, unit, want string) {
	f.t.Helper()
	f.until(n, want, "journalctl", "--no-pager", "-o", "cat", "-u", unit)
}

// status waits for a node's status as the manager shows it.
func (f *fleet) status(node, want string) {
	f.t.Helper()
	f.until(f.boss, `"`+want+`"`, "busctl", "get-property", bus, nodePath+node, bus+".Node", "Status")
}

// startUnit asks the manager for a job and returns its path.
func (f *fleet) startUnit(node, unit string) string {
	f.t.Helper()
	return f.run(f.boss, "busctl", "call", bus, nodePath+node, bus+".Node", "StartUnit", "ss", unit, "replace")
}

const (
	bus      = "org.example.ctrl1"
	nodePath = "/org/example/ctrl1/node/"
)
