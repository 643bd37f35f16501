package ctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
)

// propertyRow is one property of one unit.
type propertyRow struct {
	Node     string `col:"NODE"`
	Unit     string `col:"UNIT"`
	Property string `col:"PROPERTY"`
	Value    string `col:"VALUE"`
}

func showCommand(a *app) *cobra.Command {
	var f nodeFlags
	var names []string
	var one string
	var value bool
	cmd := &cobra.Command{
		Use:   "show NODE UNIT…",
		Short: "Show properties of units",
		Long: `Shows properties of units as NAME=VALUE, for scripts. Values are written as systemctl show writes
them. Without --all, properties that are empty are left out; those named by -p never are.`,
		Example:     "  ctl show node1 foo.service\n  ctl show node1 foo -p ActiveState,MainPID\n  ctl show node1 foo -P MainPID",
		GroupID:     groupUnits,
		Annotations: map[string]string{takesFilters: "all"},
	}
	f.add(cmd)
	cmd.Flags().StringSliceVarP(&names, "property", "p", nil, "only these properties, `NAME[,NAME…]`")
	cmd.Flags().StringVarP(&one, "value-of", "P", "", "only the value of the property `NAME`")
	cmd.Flags().BoolVar(&value, "value", false, "only values, no names")
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if one != "" {
			names, value = append(names, one), true
		}
		pattern, typed, err := f.split(cmd, args)
		if err == nil && len(typed) == 0 {
			err = needs(cmd, "a NODE and at least one UNIT")
		}
		if err != nil {
			return err
		}
		units, err := a.unitNames(typed)
		if err != nil {
			return err
		}
		nodes, err := a.nodes(a.ctx, pattern)
		if err != nil {
			return err
		}
		return a.show(nodes, units, names, value)
	}
	return cmd
}

func (a *app) show(nodes, units, names []string, value bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	perNode := make([][][]propertyRow, len(nodes))
	errs := make([]error, len(nodes))
	var missed unmatched
	each(nodes, maxNodesAtOnce, func(i int, node string) {
		found, none, err := a.expand(a.ctx, node, units)
		missed.add(none)
		if err != nil {
			errs[i] = &failure{doing: "cannot ask " + node, node: node, err: err}
			return
		}
		for _, u := range found {
			all, err := c.Node(node).UnitProperties(a.ctx, u, "")
			if err != nil {
				errs[i] = join([]error{errs[i], &failure{doing: fmt.Sprintf("cannot ask %s about %s", node, u), node: node, unit: u, err: err}})
				continue
			}
			perNode[i] = append(perNode[i], a.propertyRows(node, u, all, names))
		}
	})
	groups := slices.Concat(perNode...)
	a.page()
	if a.opt.format != render.Table {
		err = render.Write(a.out, slices.Concat(groups...), a.options())
	} else {
		err = a.showProperties(groups, value)
	}
	return join(slices.Concat([]error{err}, errs, noMatches(nodes, missed.counts)))
}

func (a *app) propertyRows(node, unit string, all map[string]client.Value, names []string) []propertyRow {
	wanted := names
	if len(wanted) == 0 {
		wanted = slices.Sorted(maps.Keys(all))
	}
	rows := []propertyRow{}
	for _, name := range wanted {
		v, known := all[name]
		if !known {
			continue
		}
		lines := propertyText(name, v)
		if len(lines) == 0 && (a.opt.all || len(names) > 0) {
			lines = []string{""}
		}
		for _, line := range lines {
			rows = append(rows, propertyRow{node, unit, name, line})
		}
	}
	return rows
}

func (a *app) showProperties(groups [][]propertyRow, value bool) error {
	var b strings.Builder
	for i, rows := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, r := range rows {
			if !value {
				b.WriteString(render.Clean(r.Property) + "=")
			}
			b.WriteString(render.Clean(r.Value) + "\n")
		}
	}
	_, err := a.out.Write([]byte(b.String()))
	return err
}
