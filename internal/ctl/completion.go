package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/unit"
)

func completionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell",
		Long: `Prints a script that makes a shell complete commands, flags, nodes and units. Nodes and units are
asked of the manager while you type.`,
		Example: `  source <(ctl completion bash)
  ctl completion zsh > "${fpath[1]}/_ctl"
  ctl completion fish > ~/.config/fish/completions/ctl.fish`,
		GroupID:   groupOther,
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return needs(cmd, "one shell: bash, zsh or fish")
			}
			switch args[0] {
			case "bash":
				return a.root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return a.root.GenZshCompletion(a.out)
			case "fish":
				return a.root.GenFishCompletion(a.out, true)
			}
			return usage("shell %q is not known; use bash, zsh or fish", args[0])
		},
	}
}

// completionLimit is how long a user who presses TAB waits for the manager.
const completionLimit = time.Second

// ask runs a question for completion. Whatever goes wrong, there is nothing to complete.
func (a *app) ask(question func(ctx context.Context, c *client.Client) []string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(a.ctx, completionLimit)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return question(ctx, c), cobra.ShellCompDirectiveNoFileComp
}

// completeNodes completes a NODE, also behind a comma.
func (a *app) completeNodes(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(func(ctx context.Context, c *client.Client) []string { return nodeChoices(ctx, c, typed) })
}

func nodeChoices(ctx context.Context, c *client.Client, typed string) []string {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil
	}
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var out []string
	for _, n := range nodes {
		if name := before + n.Name; strings.HasPrefix(name, typed) && !slices.Contains(strings.Split(before, ","), n.Name) {
			out = append(out, name+"\t"+strings.TrimSpace(n.Status+" "+n.Address))
		}
	}
	return out
}

// completeUnits completes a NODE and then units that are loaded there.
func (a *app) completeUnits(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeThen(cmd, args, typed, func(ctx context.Context, c *client.Client, nodes []string) []string {
		units, err := c.ListUnits(ctx, nodes, nil, []string{globFor(typed)})
		if err != nil {
			return nil
		}
		var out []string
		for _, list := range units {
			for _, u := range list {
				out = append(out, u.Name+"\t"+u.ActiveState+" "+u.Description)
			}
		}
		return out
	})
}

// completeFiles completes a NODE and then unit files that it has.
func (a *app) completeFiles(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeThen(cmd, args, typed, func(ctx context.Context, c *client.Client, nodes []string) []string {
		var out []string
		for _, node := range nodes {
			files, err := c.Node(node).ListUnitFiles(ctx)
			if err != nil {
				continue
			}
			for _, f := range files {
				if name := baseName(f.Path); strings.HasPrefix(name, typed) {
					out = append(out, name+"\t"+f.State)
				}
			}
		}
		return out
	})
}

func (a *app) completeThen(cmd *cobra.Command, args []string, typed string, units func(ctx context.Context, c *client.Client, nodes []string) []string) ([]string, cobra.ShellCompDirective) {
	return a.ask(func(ctx context.Context, c *client.Client) []string {
		pattern := "*"
		if all, err := cmd.Flags().GetBool("all-nodes"); err != nil || !all {
			if len(args) == 0 {
				return nodeChoices(ctx, c, typed)
			}
			pattern = args[0]
		}
		nodes, err := a.nodes(ctx, pattern)
		if err != nil {
			return nil
		}
		out := units(ctx, c, nodes)
		slices.Sort(out)
		return slices.Compact(out)
	})
}

// globFor makes a pattern for what begins with a text.
func globFor(typed string) string {
	if unit.HasGlob(typed) {
		return "*"
	}
	return typed + "*"
}

// completeJobs completes job numbers.
func (a *app) completeJobs(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.ask(func(ctx context.Context, c *client.Client) []string {
		jobs, err := c.Jobs(ctx)
		if err != nil {
			return nil
		}
		var out []string
		for _, j := range jobs {
			if id := fmt.Sprint(j.ID); strings.HasPrefix(id, typed) {
				out = append(out, fmt.Sprintf("%s\t%s %s on %s", id, j.Type, j.Unit, j.Node))
			}
		}
		return out
	})
}

func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
