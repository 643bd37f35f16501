package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

func workloadCommand(a *app) *cobra.Command {
	cmd := family(a, "workload COMMAND", "Look at what was applied, and change it",
		`Shows and changes the workloads that ctl apply has delivered. Nodes keep what they have, and the last
ten revisions of it: nothing goes because a manager is away.`,
		"  ctl workload list\n  ctl workload describe web\n  ctl workload rollback web\n  ctl workload delete web",
		workloadListCommand, workloadDescribeCommand, workloadStartCommand, workloadStopCommand, workloadRestartCommand,
		workloadHistoryCommand, workloadRollbackCommand, workloadDeleteCommand, workloadGCCommand)
	cmd.GroupID = groupWorkloads
	cmd.Aliases = []string{"wl"}
	return cmd
}

// workloadRow is one workload on one node.
type workloadRow struct {
	Workload   string    `col:"WORKLOAD"`
	Node       string    `col:"NODE"`
	Desired    string    `col:"DESIRED"`
	State      string    `col:"STATE"`
	Ready      string    `col:"READY"`
	Revision   uint64    `col:"REVISION"`
	Since      time.Time `col:"SINCE"`
	Note       string    `col:"NOTE"`
	Generation uint64    `col:"GENERATION,wide"`
}

// Style implements render.Styled.
func (r workloadRow) Style(column string) render.Style {
	switch {
	case column != "STATE":
	case r.State == bundle.StateRunning, r.State == bundle.StateCompleted:
		return render.Good
	case r.State == bundle.StateFailed, r.State == bundle.StateDegraded:
		return render.Bad
	case r.State == wire.WorkloadUnreachable, r.State == wire.WorkloadHeld, r.State == wire.WorkloadOrphan, r.State == wire.WorkloadPending:
		return render.Faint
	}
	return render.Plain
}

// onNodes is the flag that limits a command to some of a workload's nodes.
func onNodes(cmd *cobra.Command, nodes *[]string) {
	cmd.Flags().StringSliceVar(nodes, "node", nil, "only on these `NODES`")
}

func workloadListCommand(a *app) *cobra.Command {
	var nodes []string
	cmd := &cobra.Command{
		Use:   "list [WORKLOAD…]",
		Short: "List workloads and how they are on each node",
		Long: `Lists workloads on nodes. Nodes that are online are asked; of a node that is away it shows what it said
last. Globs are allowed. A workload that a node has and this manager has not applied is an orphan: it stays until
somebody applies or deletes it.`,
		Example: "  ctl workload list\n  ctl workload list 'web-*' --node node1",
	}
	onNodes(cmd, &nodes)
	cmd.ValidArgsFunction = a.completeWorkloads
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		list, err := c.Workloads(a.ctx, args, nodes)
		if err != nil {
			return &failure{doing: "cannot list workloads", err: err}
		}
		rows := make([]workloadRow, len(list))
		for i, r := range list {
			rows[i] = workloadRow{r.Workload, r.Node, r.Desired, r.State, r.Ready, r.Revision, client.Moment(r.Since), r.Note, r.Generation}
		}
		return write(a, rows, "no workloads; ctl apply -f FILE delivers one")
	}
	return cmd
}

// completeWorkloads completes the names of workloads.
func (a *app) completeWorkloads(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.ask(func(ctx context.Context, c *client.Client) []string {
		rows, err := c.Workloads(ctx, nil, nil)
		if err != nil {
			return nil
		}
		var names []string
		for _, r := range rows {
			if strings.HasPrefix(r.Workload, typed) && !slices.Contains(names, r.Workload) && !slices.Contains(args, r.Workload) {
				names = append(names, r.Workload)
			}
		}
		return names
	})
}

// oneWorkload is a command about one workload.
func (a *app) oneWorkload(cmd *cobra.Command, run func(c *client.Client, name string) error) *cobra.Command {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completeWorkloads(cmd, args, typed)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return needs(cmd, "a WORKLOAD")
		case len(args) > 1:
			return usage("workload %s takes one workload; %q is too much", cmd.Name(), args[1])
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		return run(c, args[0])
	}
	return cmd
}

func workloadDescribeCommand(a *app) *cobra.Command {
	return a.oneWorkload(&cobra.Command{
		Use:   "describe WORKLOAD",
		Short: "Show all that is known of a workload",
		Long: `Shows where a workload belongs, who applied it and when, and for each node its revision, its units with
their states, and files that are not as they were delivered.`,
		Example: "  ctl workload describe web",
	}, func(c *client.Client, name string) error {
		d, err := c.Workload(a.ctx, name)
		if err != nil {
			return &failure{doing: "cannot describe workload " + name, err: err}
		}
		return a.describe(name, d)
	})
}

// workloadUnitRow is one unit of a workload on one node, for programs.
type workloadUnitRow struct {
	Workload string `col:"WORKLOAD"`
	Node     string `col:"NODE"`
	State    string `col:"STATE"`
	Revision uint64 `col:"REVISION"`
	Unit     string `col:"UNIT"`
	Active   string `col:"ACTIVE"`
	Sub      string `col:"SUB"`
	Result   string `col:"RESULT"`
}

func (a *app) describe(name string, d client.WorkloadDetail) error {
	if a.opt.format != render.Table {
		rows := []workloadUnitRow{}
		for _, node := range slices.Sorted(maps.Keys(d.Nodes)) {
			st := d.Nodes[node]
			for _, u := range st.Units {
				rows = append(rows, workloadUnitRow{name, node, st.State, st.Revision, u.Name, u.Active, u.Sub, u.Result})
			}
		}
		return render.Write(a.out, rows, a.options())
	}
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%12s: %s\n", key, render.Clean(fmt.Sprintf(format, args...)))
	}
	line("Workload", "%s", name)
	nodes := slices.Collect(maps.Keys(d.Nodes))
	if d.Spec != nil {
		line("Applied", "%s by %s, generation %d", stamp(d.Spec.Made), d.Spec.Actor, d.Spec.Generation)
		line("Nodes", "%s", placed(d.Spec.Placement.Nodes, d.Spec.Placement.Selector))
		for node := range d.Spec.Targets {
			if _, known := d.Nodes[node]; !known {
				nodes = append(nodes, node)
			}
		}
	}
	slices.Sort(nodes)
	for _, node := range nodes {
		b.WriteString("\n")
		line("Node", "%s", node)
		a.describeNode(line, node, d)
	}
	_, err := a.out.Write([]byte(b.String()))
	return err
}

// placed says in words on which nodes a workload belongs.
func placed(nodes []string, selector map[string]string) string {
	words := slices.Clone(nodes)
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		words = append(words, key+"="+selector[key])
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, " ")
}

func (a *app) describeNode(line func(key, format string, args ...any), node string, d client.WorkloadDetail) {
	if !slices.Contains(d.Online, node) {
		line("Note", "the node is away; this is what it said last")
	}
	if d.Spec != nil {
		if t, ok := d.Spec.Targets[node]; ok {
			wanted := "present"
			if t.Remove {
				wanted = "absent"
			}
			line("Desired", "%s, %s", wanted, t.Phase)
			if t.Error != "" {
				line("Error", "%s", t.Error)
			}
		}
	}
	st, known := d.Nodes[node]
	if !known {
		return
	}
	line("State", "%s", st.State)
	line("Revision", "%d", st.Revision)
	for _, u := range st.Units {
		text := fmt.Sprintf("%s %s (%s)", u.Name, u.Active, u.Sub)
		if u.Result != "" && u.Result != "success" {
			text += ", result " + u.Result
		}
		if u.NeedRestart {
			text += ", needs a restart"
		}
		line("Unit", "%s", text)
	}
	for _, drift := range st.Drift {
		line("Drift", "%s is %s", drift.Path, drift.What)
	}
}

// historyRow is one revision on one node.
type historyRow struct {
	Node     string    `col:"NODE"`
	Revision uint64    `col:"REVISION"`
	Current  string    `col:"CURRENT"`
	Made     time.Time `col:"MADE"`
	Actor    string    `col:"ACTOR"`
	Outcome  string    `col:"OUTCOME"`
	Message  string    `col:"MESSAGE"`
	Digest   string    `col:"DIGEST,wide"`
}

func workloadHistoryCommand(a *app) *cobra.Command {
	var nodes []string
	cmd := &cobra.Command{
		Use:     "history WORKLOAD",
		Short:   "List the revisions that nodes keep",
		Long:    `Lists the revisions of a workload that its nodes keep, the oldest first: when they came, who applied them, and what came of it.`,
		Example: "  ctl workload history web\n  ctl workload history web --node node1",
	}
	onNodes(cmd, &nodes)
	return a.oneWorkload(cmd, func(c *client.Client, name string) error {
		all, err := c.WorkloadHistory(a.ctx, name, nodes)
		if err != nil {
			return &failure{doing: "cannot list the history of workload " + name, err: err}
		}
		rows := []historyRow{}
		var errs []error
		for _, h := range all {
			if h.Error != "" {
				errs = append(errs, nodeFailure("cannot ask "+h.Node, h.Node, h.Error))
				continue
			}
			for _, r := range h.History.Revisions {
				current := ""
				if r.Number == h.History.Current {
					current = "*"
				}
				message := r.Error
				if r.Of > 0 {
					message = strings.TrimSpace(fmt.Sprintf("as revision %d %s", r.Of, message))
				}
				rows = append(rows, historyRow{h.Node, r.Number, current, r.Made, r.Actor, string(r.Outcome), message, r.Digest})
			}
		}
		return join(append([]error{write(a, rows, "no revisions")}, errs...))
	})
}
