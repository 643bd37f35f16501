package ctl

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/unit"
)

// targetRow is the target that a node boots into.
type targetRow struct {
	Node   string `col:"NODE"`
	Target string `col:"TARGET"`
}

func getDefaultCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use: "get-default NODE", Short: "Show the target that a node boots into", Long: "Shows the target that a node boots into.",
		Example: "  ctl get-default node1\n  ctl get-default '*'", GroupID: groupFiles,
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var mu sync.Mutex
		found := make(map[client.NodeAPI]string)
		var order []client.NodeAPI
		err := a.nodeAction(cmd, args, f, "read the default target", func(ctx context.Context, api client.NodeAPI) error {
			target, err := api.DefaultTarget(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				found[api] = target
				order = append(order, api)
			}
			return err
		})
		rows := []targetRow{}
		for _, api := range order {
			rows = append(rows, targetRow{api.Name(), found[api]})
		}
		sortByNode(rows, func(r targetRow) string { return r.Node })
		return join([]error{a.showTargets(rows), err})
	}
	return cmd
}

func (a *app) showTargets(rows []targetRow) error {
	if a.opt.format == render.Table && len(rows) == 1 {
		_, err := fmt.Fprintln(a.out, render.Clean(rows[0].Target))
		return err
	}
	return render.Write(a.out, rows, a.options())
}

func setDefaultCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use: "set-default NODE TARGET", Short: "Set the target that a node boots into", Long: "Sets the target that a node boots into, from its next boot on.",
		Example: "  ctl set-default node1 multi-user.target", GroupID: groupFiles,
	}
	f.addParallel(cmd)
	cmd.ValidArgsFunction = a.completeFiles
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pattern, rest, err := f.split(cmd, args)
		if err == nil && len(rest) != 1 {
			err = needs(cmd, "a NODE and one TARGET")
		}
		if err != nil {
			return err
		}
		target := rest[0]
		if unit.TypeOf(target) == "" {
			target += ".target"
		}
		if err := unit.CheckName(target); err != nil {
			return usage("%v", err)
		}
		if !strings.HasSuffix(target, ".target") {
			return usage("%s is no target", target)
		}
		nodes, err := a.nodes(a.ctx, pattern)
		if err != nil {
			return err
		}
		return a.changeFiles(nodes, []string{target}, fileCommand{word: "set the default target to",
			change: func(ctx context.Context, n client.NodeAPI, files []string, _ fileFlags) (bool, []client.Change, error) {
				list, err := n.SetDefaultTarget(ctx, files[0], true)
				return true, list, err
			}}, fileFlags{jobFlags: jobFlags{nodeFlags: f}})
	}
	return cmd
}
