// Package agentd is the agent as a program: it ties the core to the manager, to systemd and
// to the node's bus, and runs.
package agentd

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/pki"
)

// Run runs the agent until a signal or ctx ends it, and returns its exit code. args are those
// after the program's name, env is as os.Environ gives it.
func Run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == proxyCommand {
		return runProxy(ctx, args[1:], env, stdout, stderr)
	}
	return daemon.Run(ctx, daemon.Spec[*config.Agent]{
		Name:    "ctrl-agent",
		Summary: "lets a manager reach the systemd units of this node.",
		Example: "ctrl-agent --name node1 --manager-host boss --check-config",
		Flags: []daemon.Flag{
			{Short: "n", Long: "name", Key: "NodeName", Value: "NAME", Help: "name under which this node registers"},
			{Short: "H", Long: "manager-host", Key: "ManagerHost", Value: "HOST", Help: "host name or address of the manager"},
			{Short: "p", Long: "port", Key: "ManagerPort", Value: "PORT", Help: "TCP port of the manager"},
			{Short: "a", Long: "address", Key: "ManagerAddress", Value: "ADDRESS", Help: "D-Bus addresses of the manager, instead of host and port"},
			{Short: "i", Long: "interval", Key: "HeartbeatInterval", Value: "TIME", Help: "time between two signs of life to the manager"},
		},
		Commands: []daemon.Command{
			{Name: "join", Help: "make this machine a node of a manager's fleet", Run: runJoin},
		},
		Load:   config.LoadAgent,
		Common: func(c *config.Agent) *config.Common { return &c.Common },
		Check:  check,
		Start: func(ctx context.Context, c *config.Agent, e *daemon.Env) (daemon.Service[*config.Agent], error) {
			return start(ctx, c, e)
		},
	}, args, env, stdout, stderr)
}

// check looks at what the configuration names: addresses, certificates.
func check(c *config.Agent, _ *daemon.Env, thorough bool) error {
	for _, address := range c.Addresses() {
		if err := checkAddress(address); err != nil {
			return fmt.Errorf("manager address: %w", err)
		}
	}
	store, err := openStore(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if store != nil && thorough {
		return store.CheckTime()
	}
	return nil
}

// openStore opens the certificates: those that the configuration names, else those of
// ctrl-agent join. It returns nil where none are needed, over a unix socket or without TLS.
func openStore(c *config.Agent, log *slog.Logger) (*pki.Store, error) {
	switch {
	case !c.TLS:
		return nil, nil
	case hasFiles(c):
		return pki.Open(pkiConfig(c), log)
	case joined(c):
		store, err := pki.Open(nodeState(c).Config(c.NodeName), log)
		if err != nil {
			err = fmt.Errorf("%w; `ctl node add %s` on the manager's machine prints the line that makes this node join anew", err, c.NodeName)
		}
		return store, err
	case c.OverTCP():
		return nil, notJoined(c)
	}
	return nil, nil
}

// nodeState is where ctrl-agent join puts what the manager has issued.
func nodeState(c *config.Agent) pki.NodeState { return pki.NewNodeState(c.Places.StateDir) }

// joined reports whether certificates come from the manager, and not from files of one's own.
func joined(c *config.Agent) bool { return c.TLS && !hasFiles(c) && nodeState(c).Joined() }

// notJoined is the text for a manager over TCP without certificates.
func notJoined(c *config.Agent) error {
	return fmt.Errorf("this node has not joined a fleet yet: it has no certificate. `ctl node add %s` on the manager's machine prints the line to run here; "+
		"or name certificates of your own with CertFile=, KeyFile= and CAFile= in [agent] (docs/tls.md); or, in a network that nobody else can reach, write TLS=no on both sides", c.NodeName)
}

// checkAddress refuses what cannot be dialled.
func checkAddress(address string) error {
	list, err := peer.ParseAddress(address)
	if err != nil {
		return err
	}
	for _, a := range list {
		if _, _, err := a.Endpoint(); err != nil {
			return err
		}
	}
	return nil
}

// hasFiles reports whether there are certificates to use, which over a unix socket alone
// there need not be.
func hasFiles(c *config.Agent) bool {
	return c.TLS && (c.CertFile != "" || c.KeyFile != "" || c.CAFile != "")
}

func pkiConfig(c *config.Agent) pki.Config {
	return pki.Config{
		Role: pki.Node, CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile,
		NodeName: c.NodeName, ManagerName: c.ManagerName,
	}
}
