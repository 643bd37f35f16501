package ctl

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/ctl/render"
)

// enabledRow is whether one unit file is enabled.
type enabledRow struct {
	Node    string `col:"NODE"`
	Unit    string `col:"UNIT,cut"`
	Enabled string `col:"ENABLED"`
}

// enabledStates are those that systemctl is-enabled counts as enabled.
var enabledStates = []string{"enabled", "enabled-runtime", "static", "alias", "indirect", "generated"}

func isEnabledCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "is-enabled NODE UNIT…",
		Short: "Check whether units are enabled",
		Long: `Prints whether each unit file is enabled, in systemctl's words. The exit code is 0 where at least one
of them is enabled, static, an alias, indirect or generated, else 1; 4 where one does not exist.`,
		Example: "  ctl is-enabled node1 foo.service",
		GroupID: groupFiles,
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeFiles
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		nodes, files, err := a.nodesAndFiles(cmd, args, f)
		if err != nil {
			return err
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		perNode := make([][]enabledRow, len(nodes))
		errs := make([]error, len(nodes))
		each(nodes, maxNodesAtOnce, func(i int, node string) {
			for _, file := range files {
				state, err := c.Node(node).UnitFileState(a.ctx, file)
				if err != nil {
					errs[i] = join([]error{errs[i], &failure{doing: fmt.Sprintf("cannot ask %s about %s", node, file), node: node, unit: file, err: err}})
					continue
				}
				perNode[i] = append(perNode[i], enabledRow{node, file, state})
			}
		})
		rows := slices.Concat(perNode...)
		if err := a.showEnabled(rows, len(nodes) > 1); err != nil {
			return err
		}
		if err := join(errs); err != nil {
			return err
		}
		if slices.ContainsFunc(rows, func(r enabledRow) bool { return slices.Contains(enabledStates, r.Enabled) }) {
			return nil
		}
		return exit(exitFailed)
	}
	return cmd
}

func (a *app) showEnabled(rows []enabledRow, several bool) error {
	switch {
	case a.opt.format != render.Table || several && !a.opt.quiet:
		return render.Write(a.out, rows, a.options())
	case a.opt.quiet:
		return nil
	}
	for _, r := range rows {
		if _, err := fmt.Fprintln(a.out, render.Clean(r.Enabled)); err != nil {
			return err
		}
	}
	return nil
}
