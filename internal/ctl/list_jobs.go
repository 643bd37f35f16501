package ctl

import (
	"github.com/spf13/cobra"

	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// jobRow is one job that waits or runs.
type jobRow struct {
	Node  string `col:"NODE"`
	Job   uint32 `col:"JOB"`
	Unit  string `col:"UNIT,cut"`
	Type  string `col:"TYPE"`
	State string `col:"STATE"`
}

// Style implements render.Styled.
func (r jobRow) Style(column string) render.Style {
	if column == "STATE" && r.State == wire.JobRunning {
		return render.Bold
	}
	return render.Plain
}

func listJobsCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "list-jobs [NODE]",
		Short: "List jobs that wait or run",
		Long: `Lists the jobs that were asked for through the manager and have not ended: "waiting" in the
manager's queue or in systemd's, or "running".`,
		Example: "  ctl list-jobs\n  ctl list-jobs node1",
		GroupID: groupJobs,
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage("list-jobs takes one NODE, which may be a list or a glob; %q is too much", args[1])
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		fleet, err := c.Fleet(a.ctx)
		if err != nil {
			return err
		}
		nodes, err := pickNodes(fleet, args)
		if err != nil {
			return err
		}
		asked := make(map[string]bool)
		for _, n := range nodes {
			asked[n.Name] = true
		}
		rows := []jobRow{}
		for _, j := range fleet.Jobs {
			if asked[j.Node] {
				rows = append(rows, jobRow{j.Node, j.ID, j.Unit, j.Type, j.State})
			}
		}
		return write(a, rows, "no jobs")
	}
	return cmd
}
