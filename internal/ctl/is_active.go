package ctl

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// stateRow is the state of one unit.
type stateRow struct {
	Node   string `col:"NODE"`
	Unit   string `col:"UNIT,cut"`
	Load   string `col:"LOAD"`
	Active string `col:"ACTIVE"`
	Sub    string `col:"SUB"`
}

// Style implements render.Styled.
func (r stateRow) Style(column string) render.Style {
	if column == "ACTIVE" {
		return activeStyle(r.Active)
	}
	return render.Plain
}

func isActiveCommand(a *app) *cobra.Command {
	return stateCommand(a, "is-active", "Check whether units are active",
		`Prints the active state of each unit. The exit code is 0 where at least one of them is active, else 3;
4 where none of them exists.`, exitNotActive, "active", "reloading", "refreshing")
}

func isFailedCommand(a *app) *cobra.Command {
	return stateCommand(a, "is-failed", "Check whether units have failed",
		`Prints the active state of each unit. The exit code is 0 where at least one of them has failed, else
1; 4 where none of them exists.`, exitFailed, "failed")
}

func stateCommand(a *app, word, short, long string, otherwise int, good ...string) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use: word + " NODE UNIT…", Short: short, Long: long, GroupID: groupUnits,
		Example: "  ctl " + word + " node1 foo.service\n  ctl " + word + " --quiet node1 foo && echo yes",
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rows, err := a.askStates(cmd, args, f)
		if werr := a.showStates(rows); werr != nil {
			return werr
		}
		if err != nil {
			return err
		}
		code := exitNoSuch
		for _, r := range rows {
			switch {
			case slices.Contains(good, r.Active):
				return nil
			case r.Load != "not-found" || r.Active != "inactive": // it may run without a file
				code = otherwise
			}
		}
		return exit(code)
	}
	return cmd
}

// askStates reads the states of the units that are asked about.
func (a *app) askStates(cmd *cobra.Command, args []string, f nodeFlags) ([]stateRow, error) {
	pattern, typed, err := f.split(cmd, args)
	if err == nil && len(typed) == 0 {
		err = needs(cmd, "a NODE and at least one UNIT")
	}
	if err != nil {
		return nil, err
	}
	units, err := a.unitNames(typed)
	if err != nil {
		return nil, err
	}
	nodes, err := a.nodes(a.ctx, pattern)
	if err != nil {
		return nil, err
	}
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	perNode := make([][]stateRow, len(nodes))
	errs := make([]error, len(nodes))
	each(nodes, maxNodesAtOnce, func(i int, node string) {
		rows, err := a.statesOf(c, node, units)
		perNode[i] = rows
		if err != nil {
			errs[i] = &failure{doing: "cannot ask " + node, node: node, err: err}
		}
	})
	return slices.Concat(perNode...), join(errs)
}

func (a *app) statesOf(c *client.Client, node string, typed []string) ([]stateRow, error) {
	units, _, err := a.expand(a.ctx, node, typed)
	if err != nil {
		return nil, err
	}
	var rows []stateRow
	for _, u := range units {
		all, err := c.Node(node).UnitProperties(a.ctx, u, wire.SystemdUnitInterface)
		if err != nil {
			return rows, err
		}
		p := props(all)
		rows = append(rows, stateRow{node, u, p.text("LoadState"), p.text("ActiveState"), p.text("SubState")})
	}
	return rows, nil
}

// showStates prints bare words for one node, as systemctl does, and a table for several.
func (a *app) showStates(rows []stateRow) error {
	several := len(rows) > 0 && rows[0].Node != rows[len(rows)-1].Node
	switch {
	case a.opt.format != render.Table || several && !a.opt.quiet:
		return render.Write(a.out, rows, a.options())
	case a.opt.quiet:
		return nil
	}
	for _, r := range rows {
		if _, err := fmt.Fprintln(a.out, render.Clean(r.Active)); err != nil {
			return err
		}
	}
	return nil
}
