package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
)

func metricsCommand(a *app) *cobra.Command {
	words := []string{"enable", "disable", "listen"}
	cmd := &cobra.Command{
		Use:   "metrics enable|disable|listen",
		Short: "Show how long jobs take",
		Long: `enable makes the manager and all agents measure how long jobs take, until disable or until the
manager restarts. listen shows what is measured, one line for each job that has ended: what the
manager saw of a start, with the time that the unit itself took, and what each agent saw of systemd.
It ends with Ctrl-C. With -o json it writes one object a line, durations in microseconds.`,
		Example: "  ctl metrics enable\n  ctl metrics listen\n  ctl metrics listen -o json",
		GroupID: groupFleet,
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, typed) }), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return needs(cmd, "enable, disable or listen")
		case len(args) > 1:
			return usage("metrics takes one word; %q is too much", args[1])
		case args[0] == "listen":
			return a.listenToMetrics()
		case slices.Contains(words, args[0]):
			return a.setMetrics(args[0])
		}
		return usage("metrics does not know %q; use enable, disable or listen", args[0])
	}
	return cmd
}

func (a *app) setMetrics(word string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if err := c.SetMetrics(a.ctx, word == "enable"); err != nil {
		return &failure{doing: "cannot " + word + " metrics", err: err}
	}
	return nil
}

// metricRow is one measurement.
type metricRow struct {
	Time   time.Time `col:"TIME"`
	Node   string    `col:"NODE"`
	Unit   string    `col:"UNIT"`
	By     string    `col:"BY"` // manager or agent
	Method string    `col:"METHOD"`
	Job    uint32    `col:"JOB"`
	Total  int64     `col:"JOB-USEC"`
	Start  int64     `col:"UNIT-START-USEC"`
}

func (a *app) listenToMetrics() error {
	c, err := a.client()
	if err != nil {
		return err
	}
	m, err := c.Metrics(a.ctx)
	if err != nil {
		return &failure{doing: "cannot listen to metrics", err: err}
	}
	on, err := c.MetricsOn(a.ctx)
	if err != nil {
		return &failure{doing: "cannot listen to metrics", err: err}
	}
	if !on {
		a.note("metrics are off; to have some: ctl metrics enable")
	}
	for {
		select {
		case metric := <-m.List():
			if err := a.writeMetric(metric); err != nil {
				return err
			}
		case <-m.Over():
			if len(m.List()) > 0 {
				continue // what came before the end
			}
			return &failure{doing: "metrics have ended", err: m.Err()}
		case <-a.ctx.Done():
			return exit(exitInterrupted)
		}
	}
}

func (a *app) writeMetric(m client.JobMetric) error {
	row := metricRow{Time: a.now(), Node: m.Node, Unit: m.Unit, By: "agent", Method: m.Method, Job: m.Job, Total: m.Total.Microseconds(), Start: m.Start.Microseconds()}
	if m.Method == "" {
		row.By, row.Method = "manager", "StartUnit"
	}
	if a.opt.format != render.Table {
		return a.streamRow(row)
	}
	text := fmt.Sprintf("%s took %s", row.Method, milliseconds(m.Total))
	if m.Start > 0 {
		text += ", the unit " + milliseconds(m.Start)
	}
	return a.streamLine(row.Time, row.Node, row.Unit, row.By, text)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1fms", float64(d.Microseconds())/1000)
}
