// Package managerd is the manager as a program: it ties the core to the bus and to the
// agents, and runs.
package managerd

import (
	"context"
	"io"
	"log/slog"

	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/pki"
)

// Run runs the manager until a signal or ctx ends it, and returns its exit code. args are
// those after the program's name, env is as os.Environ gives it.
func Run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	return daemon.Run(ctx, daemon.Spec[*config.Manager]{
		Name:    "ctrl-manager",
		Summary: "serves one D-Bus API for the systemd units of a whole fleet.",
		Example: "ctrl-manager --check-config",
		Flags: []daemon.Flag{
			{Short: "p", Long: "port", Key: "Port", Value: "PORT", Help: "TCP port on which agents are awaited"},
		},
		Load:   config.LoadManager,
		Common: func(c *config.Manager) *config.Common { return &c.Common },
		Check:  check,
		Start: func(ctx context.Context, c *config.Manager, e *daemon.Env) (daemon.Service[*config.Manager], error) {
			return start(ctx, c, e)
		},
	}, args, env, stdout, stderr)
}

// check looks at what the configuration names: certificates, a group.
func check(c *config.Manager, _ *daemon.Env, thorough bool) error {
	if _, err := groupID(c.SocketGroup); err != nil {
		return err
	}
	if !c.TLS || !c.UseTCP || !ownFiles(c) {
		return nil // what the manager makes for itself is looked at when it starts
	}
	store, err := pki.Open(pkiConfig(c), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if thorough {
		return store.CheckTime()
	}
	return nil
}

func pkiConfig(c *config.Manager) pki.Config {
	return pki.Config{Role: pki.Manager, CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile}
}
