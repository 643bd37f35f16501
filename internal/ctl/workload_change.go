package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

// changeFlags are those of commands that change a workload.
type changeFlags struct {
	nodes          []string
	timeout        time.Duration
	maxUnavailable uint32
	noWait         bool
}

func (f *changeFlags) add(cmd *cobra.Command) {
	onNodes(cmd, &f.nodes)
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "how long a node may wait for its units, as 30s or 5m (the default)")
	cmd.Flags().Uint32Var(&f.maxUnavailable, "max-unavailable", 1, "work on `N` nodes at a time")
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "do not wait for units; a node that is away is no failure")
}

func (f *changeFlags) options() client.WorkloadOptions {
	return client.WorkloadOptions{Timeout: f.timeout, MaxUnavailable: f.maxUnavailable, NoWait: f.noWait}
}

// change is a command that does one thing to a workload.
func (a *app) change(cmd *cobra.Command, f *changeFlags, word string, begin func(ctx context.Context, c *client.Client, name string) (uint32, error)) *cobra.Command {
	f.add(cmd)
	return a.oneWorkload(cmd, func(c *client.Client, name string) error {
		o, err := a.startOperations(word)
		if err != nil {
			return err
		}
		o.later = f.noWait
		o.run(name, func(ctx context.Context) (uint32, error) { return begin(ctx, c, name) })
		return o.finish()
	})
}

func (a *app) control(verb, short, long string) *cobra.Command {
	var f changeFlags
	cmd := &cobra.Command{Use: verb + " WORKLOAD", Short: short, Long: long, Example: "  ctl workload " + verb + " web\n  ctl workload " + verb + " web --node node1"}
	return a.change(cmd, &f, verb, func(ctx context.Context, c *client.Client, name string) (uint32, error) {
		return c.ControlWorkload(ctx, name, f.nodes, verb, f.options())
	})
}

func workloadStartCommand(a *app) *cobra.Command {
	return a.control("start", "Start the units of a workload", `Starts the units of a workload on its nodes, and waits until they are active or have failed.`)
}

func workloadStopCommand(a *app) *cobra.Command {
	return a.control("stop", "Stop the units of a workload, and leave them on the nodes",
		`Stops the units of a workload. Nodes remember that: an apply does not start them, and they are not
started at the next boot, until ctl workload start.`)
}

func workloadRestartCommand(a *app) *cobra.Command {
	return a.control("restart", "Restart the units of a workload", `Restarts the units of a workload, node by node; the first failure ends it.`)
}

func workloadRollbackCommand(a *app) *cobra.Command {
	var f changeFlags
	var to uint64
	cmd := &cobra.Command{
		Use:   "rollback WORKLOAD",
		Short: "Go back to an earlier revision",
		Long: `Makes nodes go back to the revision before the present one, or to the one named by --to, as
ctl workload history numbers them. Nodes have kept it, so nothing is sent. It is a new revision with
the old content. The next ctl apply goes forward again.`,
		Example: "  ctl workload rollback web\n  ctl workload rollback web --to 3 --node node1",
	}
	cmd.Flags().Uint64Var(&to, "to", 0, "go back to `REVISION`")
	return a.change(cmd, &f, "roll back", func(ctx context.Context, c *client.Client, name string) (uint32, error) {
		return c.RollbackWorkload(ctx, name, f.nodes, to, f.options())
	})
}

func workloadDeleteCommand(a *app) *cobra.Command {
	var f changeFlags
	cmd := &cobra.Command{
		Use:   "delete WORKLOAD",
		Short: "Stop the units of a workload and remove them from nodes",
		Long: `Stops the units of a workload, disables them, removes their files and reloads systemd. A node that is
away loses the workload when it comes back; that is exit code 6, or 0 with --no-wait.`,
		Example: "  ctl workload delete web\n  ctl workload delete web --node node3",
	}
	return a.change(cmd, &f, "delete", func(ctx context.Context, c *client.Client, name string) (uint32, error) {
		return c.DeleteWorkload(ctx, name, f.nodes, f.options())
	})
}

// garbageRow is what one node has removed, or would.
type garbageRow struct {
	Node  string `col:"NODE"`
	Files int    `col:"FILES"`
	Bytes int64  `col:"BYTES"`
	Units string `col:"UNITS"`
}

func workloadGCCommand(a *app) *cobra.Command {
	var nodes []string
	dryRun := false
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove what no kept revision needs",
		Long: `Lets nodes remove contents of files that no revision needs which they keep, and unit files that bear
ctrl's mark and belong to no workload.`,
		Example: "  ctl workload gc --dry-run\n  ctl workload gc --node node1",
	}
	onNodes(cmd, &nodes)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be removed")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("workload gc takes no argument; %q is too much", args[0])
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		all, err := c.CollectGarbage(a.ctx, nodes, dryRun)
		if err != nil {
			return &failure{doing: "cannot collect garbage", err: err}
		}
		rows := []garbageRow{}
		var errs []error
		for _, g := range all {
			if g.Error != "" {
				errs = append(errs, nodeFailure("cannot collect garbage on "+g.Node, g.Node, g.Error))
				continue
			}
			rows = append(rows, garbageRow{g.Node, len(g.Garbage.Blobs), g.Garbage.Bytes, strings.Join(g.Garbage.Orphans, " ")})
		}
		return join(append([]error{write(a, rows, "no nodes that take workloads")}, errs...))
	}
	return cmd
}

func nodeFailure(doing, node, text string) error {
	return &failure{doing: doing, node: node, err: fmt.Errorf("%w", errors.New(text))}
}
