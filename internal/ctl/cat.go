package ctl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/ctl/render"
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
		nodes, units, err := a.nodesAndFiles(cmd, args, f)
		if err != nil {
			return err
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		perNode := make([][]fileRow, len(nodes))
		errs := make([]error, len(nodes))
		each(nodes, maxNodesAtOnce, func(i int, node string) {
			for _, u := range units {
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
		return join(append([]error{err}, errs...))
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
		b.WriteString(a.options().Paint(render.Faint, "# "+render.Clean(path)) + "\n")
		b.WriteString(render.CleanLines(r.Text))
		if !strings.HasSuffix(r.Text, "\n") {
			b.WriteByte('\n')
		}
	}
	_, err := a.out.Write([]byte(b.String()))
	return err
}
