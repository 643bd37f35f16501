package ctl

import (
	"github.com/spf13/cobra"
)

func nodeRemoveCommand(a *app) *cobra.Command {
	var tokens []string
	cmd := &cobra.Command{
		Use:   "remove NODE…",
		Short: "Remove nodes from the fleet",
		Long: `Takes nodes out of the fleet: their sessions end at once, and their certificates and the tokens for
their names are worth nothing any more. Units on their machines stay as they are. A node that stands
in the manager's configuration must be taken out there first.

With --token a token ends that was not used up yet; ctl node list --tokens shows its number.`,
		Example: "  ctl node remove node1\n  ctl node remove --token 5f3c09aa",
	}
	cmd.Flags().StringSliceVar(&tokens, "token", nil, "end the tokens with these `NUMBERS`")
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && len(tokens) == 0 {
			return needs(cmd, "a NODE, or --token")
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		var errs []error
		for _, id := range tokens {
			if err := c.WithdrawToken(a.ctx, id); err != nil {
				errs = append(errs, &failure{doing: "cannot end the token", err: err})
			}
		}
		for _, name := range args {
			if err := c.RemoveNode(a.ctx, name); err != nil {
				errs = append(errs, &failure{doing: "cannot remove " + name, node: name, err: err})
			}
		}
		return join(errs)
	}
	return cmd
}
