package ctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/version"
	"example.org/ctrl/internal/wire"
)

// versionRow is one program of the fleet.
type versionRow struct {
	Program string `col:"PROGRAM"`
	Node    string `col:"NODE"`
	Version string `col:"VERSION"`
	Systemd string `col:"SYSTEMD"`
}

func versionCommand(a *app) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of ctl, the manager and the agents",
		Long: `Shows the version of ctl and, where the manager runs, its version and those of the agents that
have been connected.`,
		Example: "  ctl version\n  ctl version --client",
		GroupID: groupFleet,
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "only ctl itself, without asking the manager")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("version takes no arguments; %q is too much", args[0])
		}
		rows := []versionRow{{Program: "ctl", Version: version.Short()}}
		if !clientOnly {
			more, err := a.daemonVersions()
			if noDaemon(err) {
				a.note("note: %v", err)
			} else if err != nil {
				return err
			}
			rows = append(rows, more...)
		}
		return write(a, rows, "")
	}
	return cmd
}

// versionLimit is how long version waits for the manager.
const versionLimit = 5 * time.Second

func (a *app) daemonVersions() ([]versionRow, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(a.ctx, versionLimit)
	defer cancel()
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	fleet, err := c.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	rows := []versionRow{{Program: "ctrl-manager", Version: info.Version}}
	for i := range fleet.Nodes {
		n := &fleet.Nodes[i]
		rows = append(rows, versionRow{"ctrl-agent", n.Name, n.Fact(wire.FactAgentVersion), n.Fact(wire.FactSystemdVersion)})
	}
	return rows, nil
}
