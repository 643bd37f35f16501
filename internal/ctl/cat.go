package ctl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/unit"
)

// fileRow is one file of a unit.
type fileRow struct {
	Node string `col:"NODE"`
	Unit string `col:"UNIT"`
	Path string `col:"PATH"`
	Text string `col:"TEXT"`
}

func catCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:     "cat NODE UNIT…",
		Short:   "Show the files of units",
		Long:    "Shows the unit file and the drop-ins of units and templates, as they are on the node. Files that not everyone may read are left out.",
		Example: "  ctl cat node1 foo.service\n  ctl cat node1 web@",
		GroupID: groupFiles,
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeFiles
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pattern, typed, err := f.split(cmd, args)
		if err == nil && len(typed) == 0 {
			err = needs(cmd, "a NODE and at least one UNIT")
		}
		if err != nil {
			return err
		}
		units, err := a.unitNamesOr(typed, unit.CheckName)
		if err != nil {
			return err
		}
		nodes, err := a.nodes(a.ctx, pattern)
		if err != nil {
			return err
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		perNode := make([][]fileRow, len(nodes))
		errs := make([]error, len(nodes))
		var missed unmatched
		each(nodes, maxNodesAtOnce, func(i int, node string) {
			found, none, err := a.expand(a.ctx, node, units)
			missed.add(none)
			if err != nil {
				errs[i] = &failure{doing: "cannot ask " + node, node: node, err: err}
			}
			for _, u := range found {
				files, err := c.Node(node).ReadUnitFiles(a.ctx, u)
				if err != nil {
					errs[i] = join([]error{errs[i], &failure{doing: fmt.Sprintf("cannot read the files of %s on %s", u, node), node: node, unit: u, err: err}})
				}
				for _, file := range files {
					perNode[i] = append(perNode[i], fileRow{node, u, file.Path, file.Text})
				}
			}
		})
		rows := slices.Concat(perNode...)
		a.page()
		if a.opt.format != render.Table {
			err = render.Write(a.out, rows, a.options())
		} else {
			err = a.showFiles(rows, len(nodes) > 1)
		}
		return join(slices.Concat([]error{err}, errs, noMatches(nodes, missed.counts)))
	}
	return cmd
}

func (a *app) showFiles(rows []fileRow, several bool) error {
	var b strings.Builder
	for i, r := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		path := r.Path
		if several {
			path = r.Node + ":" + path
		}
		first := i == 0 || rows[i-1].Unit != r.Unit || rows[i-1].Node != r.Node
		if r.Text == "" && first && !unit.IsTemplate(r.Unit) {
			// An empty file masks, as a link to /dev/null does.
			b.WriteString(a.options().Paint(render.Faint, "# Unit "+render.Clean(r.Unit)+" is masked.") + "\n")
			continue
		}
		b.WriteString(a.options().Paint(render.Faint, "# "+render.Clean(path)) + "\n")
		b.WriteString(render.CleanLines(r.Text))
		if !strings.HasSuffix(r.Text, "\n") {
			b.WriteByte('\n')
		}
	}
	_, err := a.out.Write([]byte(b.String()))
	return err
}
