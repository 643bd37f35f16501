package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

func killCommand(a *app) *cobra.Command {
	var f nodeFlags
	var whom, signal string
	cmd := &cobra.Command{
		Use:     "kill NODE UNIT…",
		Short:   "Send a signal to the processes of units",
		Long:    "Sends a signal, SIGTERM by default, to the processes of units.",
		Example: "  ctl kill node1 foo.service\n  ctl kill -s USR1 --kill-whom main node1 foo.service",
		GroupID: groupUnits,
	}
	f.addParallel(cmd)
	cmd.Flags().StringVar(&whom, "kill-whom", "all", "`WHOM` the signal goes to: all, main or control")
	cmd.Flags().StringVar(&whom, "kill-who", "all", "")
	_ = cmd.Flags().MarkHidden("kill-who") // the older word; the flag exists
	cmd.Flags().StringVarP(&signal, "signal", "s", "SIGTERM", "`SIGNAL`: a name such as USR1 or RTMIN+3, or a number")
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch whom {
		case "all", "main", "control":
		default:
			return usage("--kill-whom=%s is not known; use all, main or control", whom)
		}
		if signal == "list" || signal == "help" {
			for n := int32(1); n <= sigRTMax; n++ {
				if int(n) < len(signalNames) || n >= sigRTMin {
					fmt.Fprintf(a.out, "%2d %s\n", n, signalName(n))
				}
			}
			return nil
		}
		n, err := parseSignal(signal)
		if err != nil {
			return err
		}
		return a.unitAction(cmd, args, action{f: f, doing: "kill", do: func(ctx context.Context, api client.NodeAPI, unit string) error {
			return api.KillUnit(ctx, unit, whom, n)
		}})
	}
	return cmd
}
