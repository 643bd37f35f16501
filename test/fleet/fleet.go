// Package fleet brings up a manager and agents on real systemd nodes of a lab, installed as
// a package would install them, for scenarios, the demo and benchmarks.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/pki/pkitest"
)

// Boss is the name of the node on which the manager runs. It is no node of the fleet.
const Boss = "boss"

// Options describe a fleet.
type Options struct {
	Lab   string   // name of the lab
	Nodes []string // the agents' node names
	// Insecure switches TLS off, on both sides.
	Insecure bool
	// Manager and Agent are lines added below [manager] and [agent] of the configuration.
	Manager string
	Agent   string
	// Policy is what every node says in [policy], in a file of its own.
	Policy string
	// Units are unit files that every node has, by name.
	Units map[string]string
	// Keep leaves everything running when the process ends.
	Keep bool
	// Joining makes the manager its fleet's authority: nodes become members by joining with a
	// token, as people do it.
	Joining bool
	// Bare are machines with the product installed and nothing else, members of no fleet.
	Bare []string
	// Offline are nodes of the fleet whose machines are made but not booted.
	Offline []string
}

// Fleet is a running manager and its agents.
type Fleet struct {
	Lab   *lab.Lab
	Boss  *lab.Node
	Nodes map[string]*lab.Node
	opt   Options
	ca    *pkitest.CA
	temp  string
}

// New brings a fleet up and waits until all its agents are online. Close it.
func New(ctx context.Context, opt Options) (*Fleet, error) {
	f := &Fleet{opt: opt, Nodes: make(map[string]*lab.Node)}
	if err := f.up(ctx); err != nil {
		err = fmt.Errorf("%w%s", err, f.Evidence(context.WithoutCancel(ctx)))
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Fleet) up(ctx context.Context) error {
	var err error
	if f.temp, err = os.MkdirTemp("", "ctrl-fleet"); err != nil {
		return err
	}
	if f.ca, err = pkitest.New("fleet"); err != nil {
		return err
	}
	if f.Lab, err = lab.New(ctx, lab.Options{Name: f.opt.Lab, Install: f.install, Keep: f.opt.Keep}); err != nil {
		return err
	}
	if f.Boss, err = f.Lab.Node(Boss); err != nil {
		return err
	}
	if err := f.configureManager(); err != nil {
		return err
	}
	var boot []*lab.Node
	for _, name := range f.opt.Nodes {
		n, err := f.Lab.Node(name)
		if err != nil {
			return err
		}
		if err := f.configureAgent(n); err != nil {
			return err
		}
		f.Nodes[name] = n
		if !slices.Contains(f.opt.Offline, name) {
			boot = append(boot, n)
		}
	}
	all := append(boot[:len(boot):len(boot)], f.Boss)
	for _, name := range f.opt.Bare {
		n, err := f.Lab.Node(name)
		if err != nil {
			return err
		}
		f.Nodes[name] = n
		all = append(all, n)
	}
	if err := lab.BootAll(ctx, all...); err != nil {
		return err
	}
	return f.start(ctx, boot)
}

// start starts the daemons; Type=notify makes systemctl return when they are ready.
func (f *Fleet) start(ctx context.Context, nodes []*lab.Node) error {
	if _, err := f.Boss.Run(ctx, "systemctl", "start", "ctrl-manager"); err != nil {
		return err
	}
	failed := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() {
			if f.opt.Joining {
				failed <- f.Join(ctx, n.Name)
				return
			}
			_, err := n.Run(ctx, "systemctl", "start", "ctrl-agent")
			if err == nil {
				err = f.WaitOnline(ctx, n.Name, true)
			}
			failed <- err
		}()
	}
	var errs []error
	for range nodes {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

// Join makes a machine a node, with the line that ctl node add prints.
func (f *Fleet) Join(ctx context.Context, node string, args ...string) error {
	r, err := f.Ctl(ctx, "node", "add", node)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("ctl node add %s: %s", node, r.Stderr)
	}
	if err != nil {
		return err
	}
	line := strings.Fields(JoinLine(r.Stdout))
	if len(line) == 0 {
		return fmt.Errorf("ctl node add %s prints no line to run: %s", node, r.Stdout)
	}
	_, err = f.Nodes[node].Run(ctx, append(line, args...)...)
	return err
}

// JoinLine finds the command to run on the node in what ctl node add prints.
func JoinLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "ctrl-agent join ") {
			return line
		}
	}
	return ""
}

func (f *Fleet) configureManager() error {
	text := "[manager]\n"
	if !f.opt.Joining {
		text += "AllowedNodeNames=" + strings.Join(f.opt.Nodes, ",") + "\n"
	}
	switch {
	case f.opt.Joining:
	case f.opt.Insecure:
		text += "TLS=no\nAllowInsecureNetwork=yes\n"
	default:
		text += tlsLines("manager")
		if err := f.certify(f.Boss, "manager", pkitest.ManagerLeaf()); err != nil {
			return err
		}
	}
	return writeDisk(f.Boss, "/etc/ctrl/manager.conf", text+f.opt.Manager, 0o644)
}

func (f *Fleet) configureAgent(n *lab.Node) error {
	text := "[agent]\n"
	if !f.opt.Joining { // which says both
		text += "NodeName=" + n.Name + "\nManagerHost=" + Boss + "\n"
	}
	switch {
	case f.opt.Joining:
	case f.opt.Insecure:
		text += "TLS=no\n"
	default:
		text += tlsLines("agent")
		if err := f.certify(n, "agent", pkitest.NodeLeaf(n.Name)); err != nil {
			return err
		}
	}
	if f.opt.Policy != "" {
		if err := writeDisk(n, PolicyFile, "[policy]\n"+f.opt.Policy, 0o644); err != nil {
			return err
		}
	}
	return writeDisk(n, "/etc/ctrl/agent.conf", text+f.opt.Agent, 0o644)
}

// PolicyFile is where a node's [policy] stands.
const PolicyFile = "/etc/ctrl/agent.conf.d/50-policy.conf"

const pkiFolder = "/etc/ctrl/pki/"

func tlsLines(name string) string {
	return "CAFile=" + pkiFolder + "ca.crt\nCertFile=" + pkiFolder + name + ".crt\nKeyFile=" + pkiFolder + name + ".key\n"
}

// certify gives a node a certificate of the fleet's authority.
func (f *Fleet) certify(n *lab.Node, name string, leaf pkitest.Leaf) error {
	dir := filepath.Join(f.temp, n.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	files, err := f.ca.Write(dir, name, leaf)
	if err != nil {
		return err
	}
	for from, to := range map[string]string{files.CA: "ca.crt", files.Cert: name + ".crt", files.Key: name + ".key"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if from == files.Key {
			mode = 0o600
		}
		if err := writeDisk(n, pkiFolder+to, string(data), mode); err != nil {
			return err
		}
	}
	if name != "manager" {
		return nil
	}
	// The user of the manager is made when the node boots, and owns its key by then.
	return writeDisk(n, "/etc/tmpfiles.d/fleet.conf", "z "+pkiFolder+"manager.key 0600 ctrl ctrl\n", 0o644)
}

func writeDisk(n *lab.Node, path, text string, mode os.FileMode) error {
	path = n.Disk(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), mode)
}

// Ctl runs ctl on the manager's machine, as root.
func (f *Fleet) Ctl(ctx context.Context, args ...string) (lab.Result, error) {
	return f.Boss.Exec(ctx, append([]string{"ctl"}, args...)...)
}

// Evidence is what the journals of all running nodes say about ctrl, for failures.
func (f *Fleet) Evidence(ctx context.Context) string {
	var b strings.Builder
	show := func(n *lab.Node, unit string) {
		if n != nil && n.PID() != 0 {
			fmt.Fprintf(&b, "\n--- %s, %s ---\n%s", n.Name, unit, n.Journal(ctx, unit))
		}
	}
	show(f.Boss, "ctrl-manager")
	for _, name := range append(f.opt.Nodes[:len(f.opt.Nodes):len(f.opt.Nodes)], f.opt.Bare...) {
		show(f.Nodes[name], "ctrl-agent")
	}
	return b.String()
}

// Close removes everything, also of a fleet that came up in part.
func (f *Fleet) Close() {
	if f.Lab != nil {
		f.Lab.Close()
	}
	os.RemoveAll(f.temp)
}
