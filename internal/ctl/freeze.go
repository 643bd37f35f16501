package ctl

import (
	"context"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

func freezeCommand(a *app) *cobra.Command {
	return freezer(a, "freeze", "Suspend the processes of units", "Suspends all processes of units until thaw.", client.NodeAPI.FreezeUnit)
}

func thawCommand(a *app) *cobra.Command {
	return freezer(a, "thaw", "Let frozen units go on", "Ends what freeze began.", client.NodeAPI.ThawUnit)
}

func freezer(a *app, word, short, long string, do func(client.NodeAPI, context.Context, string) error) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{Use: word + " NODE UNIT…", Short: short, Long: long, Example: "  ctl " + word + " node1 foo.service", GroupID: groupUnits}
	f.addParallel(cmd)
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.unitAction(cmd, args, action{f: f, doing: word, do: func(ctx context.Context, api client.NodeAPI, unit string) error {
			return do(api, ctx, unit)
		}})
	}
	return cmd
}
