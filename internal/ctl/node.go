package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// groupHere is the one group of commands below a command.
const groupHere = "here"

// family is a command that only has others below it.
func family(a *app, use, short, long, example string, members ...func(*app) *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example, GroupID: groupFleet}
	cmd.AddGroup(&cobra.Group{ID: groupHere, Title: "Commands:"})
	var words []string
	for _, member := range members {
		c := member(a)
		c.GroupID = groupHere
		words = append(words, c.Name())
		cmd.AddCommand(c)
	}
	all := strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return needs(cmd, all)
		}
		bad := &usageError{text: fmt.Sprintf("%s does not know %q; use %s", cmd.Name(), args[0], all)}
		if near := closest(args[0], words); near != "" {
			bad.hint = fmt.Sprintf("did you mean %q?", cmd.Name()+" "+near)
		}
		return bad
	}
	return cmd
}

func nodeCommand(a *app) *cobra.Command {
	return family(a, "node COMMAND", "Add nodes to the fleet, and remove them",
		`Says which machines belong to the fleet. Nodes that stand in the manager's configuration belong to it
without further ado, but need a token as well to get their certificate.`,
		"  ctl node add node1\n  ctl node list\n  ctl node remove node1",
		nodeAddCommand, nodeRemoveCommand, nodeListCommand, nodeShowCommand)
}
