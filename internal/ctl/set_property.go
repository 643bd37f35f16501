package ctl

import (
	"context"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

func setPropertyCommand(a *app) *cobra.Command {
	var f nodeFlags
	var runtime bool
	cmd := &cobra.Command{
		Use:   "set-property NODE UNIT NAME=VALUE…",
		Short: "Change properties of a unit while it runs",
		Long: `Changes settings of a unit that can be changed while it runs, resource limits above all, with the
names and values of unit files. The change is kept over reboots unless --runtime is given.`,
		Example: "  ctl set-property node1 foo.service MemoryMax=1G CPUQuota=50%\n  ctl set-property --runtime node1 foo.service CPUWeight=20",
		GroupID: groupUnits,
	}
	f.addParallel(cmd)
	cmd.Flags().BoolVar(&runtime, "runtime", false, "until the next boot only")
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pattern, rest, err := f.split(cmd, args)
		if err == nil && len(rest) < 2 {
			err = needs(cmd, "a NODE, a UNIT and at least one NAME=VALUE")
		}
		if err != nil {
			return err
		}
		props, err := assignments(rest[1:])
		if err != nil {
			return err
		}
		return a.unitAction(cmd, []string{pattern, rest[0]}, action{f: nodeFlags{maxParallel: f.maxParallel, serial: f.serial}, doing: "set properties of",
			do: func(ctx context.Context, api client.NodeAPI, unit string) error {
				return api.SetUnitProperties(ctx, unit, runtime, props)
			}})
	}
	return cmd
}
