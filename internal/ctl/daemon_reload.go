package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

func daemonReloadCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:     "daemon-reload NODE",
		Short:   "Make systemd read its unit files again",
		Long:    "Makes the systemd of nodes read all unit files again and run its generators. Running units go on.",
		Example: "  ctl daemon-reload node1\n  ctl daemon-reload --all-nodes",
		GroupID: groupFiles,
	}
	f.addParallel(cmd)
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.nodeAction(cmd, args, f, "reload systemd", func(ctx context.Context, api client.NodeAPI) error { return api.Reload(ctx) })
	}
	return cmd
}

// nodeAction carries out a command NODE.
func (a *app) nodeAction(cmd *cobra.Command, args []string, f nodeFlags, doing string, do func(context.Context, client.NodeAPI) error) error {
	pattern, rest, err := f.split(cmd, args)
	if err == nil && len(rest) > 0 {
		err = usage("%s takes one NODE, which may be a list or a glob; %q is too much", cmd.Name(), rest[0])
	}
	if err != nil {
		return err
	}
	nodes, err := a.nodes(a.ctx, pattern)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	return a.forNodes(nodes, f, func(node string) error {
		if err := do(a.ctx, c.Node(node)); err != nil {
			return &failure{doing: fmt.Sprintf("cannot %s on %s", doing, node), node: node, err: err}
		}
		return nil
	})
}
