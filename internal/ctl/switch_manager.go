package ctl

import (
	"context"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

func switchManagerCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "switch-manager NODE ADDRESS",
		Short: "Make nodes belong to another manager",
		Long: `Makes the agents of nodes connect to the manager at a D-Bus ADDRESS, as
"tcp:host=HOST,port=PORT" or "unix:path=PATH"; several with ";" between them are tried in order. It
holds until the agent restarts: then its configuration counts again. The node goes offline here, its
units go on, and the agent tries the new address until it is let in there.`,
		Example: "  ctl switch-manager node1 tcp:host=boss2,port=842",
		GroupID: groupFleet,
	}
	f.addParallel(cmd)
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		wanted := 2
		if f.allNodes {
			wanted = 1
		}
		if len(args) < wanted {
			return needs(cmd, "a NODE and an ADDRESS")
		}
		if len(args) > wanted {
			return usage("switch-manager takes one NODE, which may be a list or a glob, and one ADDRESS; %q is too much", args[wanted])
		}
		address := args[wanted-1]
		if err := client.CheckAddress(address); err != nil {
			return &usageError{text: err.Error(), hint: "an address is like tcp:host=boss2,port=842 or unix:path=/run/ctrl/ctrl.sock"}
		}
		return a.nodeAction(cmd, args[:wanted-1], f, "switch the manager", func(ctx context.Context, n client.NodeAPI) error {
			if err := n.SwitchManager(ctx, address); err != nil {
				return err
			}
			a.note("%s leaves this manager for the one at %s; to undo, on %s: %s restart ctrl-agent", n.Name(), address, n.Name(), a.systemctl())
			return nil
		})
	}
	return cmd
}
