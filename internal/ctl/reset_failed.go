package ctl

import (
	"context"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

func resetFailedCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "reset-failed [NODE [UNIT…]]",
		Short: "Forget that units have failed",
		Long: `Resets the failed state of units; of all units of NODE where none is named, and of all units of
all nodes without a NODE. It also resets the counter of start limits.`,
		Example: "  ctl reset-failed node1 foo.service\n  ctl reset-failed",
		GroupID: groupUnits,
	}
	f.addParallel(cmd)
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			args = []string{"*"}
			f.allNodes = false
		}
		if len(args) > 1 || f.allNodes {
			return a.unitAction(cmd, args, action{f: f, doing: "reset", do: func(ctx context.Context, api client.NodeAPI, unit string) error {
				return api.ResetFailedUnit(ctx, unit)
			}})
		}
		return a.nodeAction(cmd, args, f, "reset failed units", func(ctx context.Context, api client.NodeAPI) error { return api.ResetFailed(ctx) })
	}
	return cmd
}
