package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

// logLevels are the levels of both daemons.
var logLevels = []string{"debug", "info", "warn", "error"}

func logLevelCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "log-level [NODE] LEVEL",
		Short: "Set how much the manager, or agents, log",
		Long: `Sets the log level of the manager, or of the agents of nodes, until they restart: debug, info, warn
or error. Without arguments it prints the level of the manager.`,
		Example: "  ctl log-level debug\n  ctl log-level node1 debug\n  ctl log-level '*' info",
		GroupID: groupFleet,
	}
	f.addParallel(cmd)
	cmd.ValidArgsFunction = a.completeLevels
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !f.allNodes {
			return a.showLogLevel()
		}
		if len(args) == 0 {
			return needs(cmd, "a LEVEL")
		}
		level := args[len(args)-1]
		if !slices.Contains(logLevels, strings.ToLower(level)) {
			return badLevel(level, args)
		}
		if len(args) == 1 && !f.allNodes {
			return a.setManagerLogLevel(level)
		}
		return a.nodeAction(cmd, args[:len(args)-1], f, "set the log level", func(ctx context.Context, n client.NodeAPI) error {
			return n.SetLogLevel(ctx, level)
		})
	}
	return cmd
}

func badLevel(level string, args []string) error {
	err := &usageError{text: fmt.Sprintf("log level %q is not known; use %s", level, strings.Join(logLevels, ", "))}
	switch near := closest(level, logLevels); {
	case near != "":
		err.hint = fmt.Sprintf("did you mean %q?", near)
	case len(args) == 1:
		err.hint = "for a node's agent: ctl log-level NODE LEVEL"
	}
	return err
}

func (a *app) showLogLevel() error {
	c, err := a.client()
	if err != nil {
		return err
	}
	info, err := c.Info(a.ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.out, strings.ToLower(info.LogLevel))
	return err
}

func (a *app) setManagerLogLevel(level string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if err := c.SetLogLevel(a.ctx, level); err != nil {
		return &failure{doing: "cannot set the log level of the manager", err: err}
	}
	return nil
}

// completeLevels completes a NODE or a level, and a level behind a node.
func (a *app) completeLevels(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	var levels []string
	for _, l := range logLevels {
		if strings.HasPrefix(l, typed) {
			levels = append(levels, l)
		}
	}
	if all, _ := cmd.Flags().GetBool("all-nodes"); all || len(args) == 1 {
		return levels, cobra.ShellCompDirectiveNoFileComp
	}
	nodes, directive := a.completeNodes(cmd, args, typed)
	if len(args) == 0 {
		nodes = append(levels, nodes...)
	}
	return nodes, directive
}
