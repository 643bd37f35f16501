package ctl

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// nodeRow is one node of the fleet.
type nodeRow struct {
	Node     string        `col:"NODE"`
	Status   string        `col:"STATUS"`
	Address  string        `col:"ADDRESS"`
	Since    time.Time     `col:"SINCE"`
	LastSeen render.Moment `col:"LAST-SEEN"`
	Version  string        `col:"VERSION"`
	Systemd  string        `col:"SYSTEMD"`
	Optional bool          `col:"OPTIONAL,wide"`
	Reason   string        `col:"REASON,wide,cut"`
}

// Style implements render.Styled.
func (r nodeRow) Style(column string) render.Style {
	switch {
	case column != "NODE" && column != "STATUS":
	case r.Status == wire.NodeOnline:
		if column == "STATUS" {
			return render.Good
		}
	case r.Optional:
		return render.Faint
	default:
		return render.Bad
	}
	return render.Plain
}

// Mark implements render.Marked.
func (r nodeRow) Mark() render.Mark {
	if r.Status == wire.NodeOffline && !r.Optional {
		return render.Mark{UTF8: "●", ASCII: "*", Style: render.Bad}
	}
	return render.Mark{}
}

func listNodesCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "list-nodes [NODE]",
		Short: "List the nodes of the fleet",
		Long: `Lists the nodes that are configured or connected, with what they said about themselves. SINCE is
since when STATUS holds.`,
		Example:     "  ctl list-nodes\n  ctl list-nodes -o json",
		GroupID:     groupFleet,
		Annotations: map[string]string{takesFilters: "state"},
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage("list-nodes takes one NODE, which may be a list or a glob; %q is too much", args[1])
		}
		return a.listNodes(args)
	}
	return cmd
}

func (a *app) listNodes(args []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	fleet, err := c.Fleet(a.ctx)
	if err != nil {
		return err
	}
	found, err := pickNodes(fleet, args)
	if err != nil {
		return err
	}
	rows := []nodeRow{}
	online := 0
	for i := range found {
		n := &found[i]
		if len(a.opt.states) > 0 && !slices.Contains(a.opt.states, n.Status) {
			continue
		}
		if n.Online() {
			online++
		}
		rows = append(rows, a.nodeRow(n))
	}
	if err := write(a, rows, "no nodes"); err != nil {
		return err
	}
	if a.outIs.terminal && !a.opt.noLegend && a.opt.format == render.Table && len(rows) > 0 {
		fmt.Fprintf(a.out, "\n%s, %d online.\n", count(len(rows), "node"), online)
	}
	return nil
}

func (a *app) nodeRow(n *client.Node) nodeRow {
	return nodeRow{
		Node: n.Name, Status: n.Status, Address: n.Address, Since: n.StatusSince, LastSeen: render.Moment{Time: n.LastSeen, Now: a.now()},
		Version: n.Fact(wire.FactAgentVersion), Systemd: n.Fact(wire.FactSystemdVersion), Optional: n.Optional, Reason: n.DisconnectReason,
	}
}

// pickNodes takes the nodes that a pattern means out of a fleet; all where there is none.
func pickNodes(fleet client.Fleet, args []string) ([]client.Node, error) {
	if len(args) == 0 {
		return fleet.Nodes, nil
	}
	patterns, err := nodePatterns(args[0])
	if err != nil {
		return nil, err
	}
	var found []client.Node
	for _, p := range patterns {
		matched := false
		for _, n := range fleet.Nodes {
			if matchNode(p, n.Name) {
				matched = true
				found = append(found, n)
			}
		}
		if !matched {
			return nil, &failure{doing: fmt.Sprintf("no node matches %q", p), node: p, err: &silentKind{wire.ErrNoSuchNode}}
		}
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(found, func(n client.Node) bool {
		twice := seen[n.Name]
		seen[n.Name] = true
		return twice
	}), nil
}
