package ctl

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

func monitorCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "monitor [NODE [UNIT…]]",
		Short: "Show what happens to units as it happens",
		Long: `Shows units that come and go, their states and their properties as they change, until Ctrl-C. NODE and
UNIT may be globs, and need not exist yet; without them it shows all units of all nodes. It begins with
the present state. What is marked "virtual" did not happen on the node: it is what was found at the
beginning, or what a node that comes or goes brings or takes along. The unit '*' stands for the node's
agent.

systemd tells many properties at a time; those are shown whose value is another one than was shown
before, and all with --full. With -o json ctl writes all, one object a line for each.`,
		Example: "  ctl monitor node1 foo.service\n  ctl monitor '*' '*.timer'\n  ctl monitor -o json node1",
		GroupID: groupUnits,
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pattern, typed := "*", []string{}
		if len(args) > 0 || f.allNodes {
			var err error
			if pattern, typed, err = f.split(cmd, args); err != nil {
				return err
			}
		}
		return a.monitor(pattern, typed)
	}
	return cmd
}

func (a *app) monitor(pattern string, typed []string) error {
	nodes, err := nodePatterns(pattern)
	if err != nil {
		return err
	}
	units, err := a.monitored(typed)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	m, err := c.Monitor(a.ctx)
	if err != nil {
		return &failure{doing: "cannot monitor " + pattern, err: err}
	}
	for _, node := range nodes {
		if err := m.Subscribe(a.ctx, node, units); err != nil {
			return &failure{doing: "cannot monitor " + node, node: node, err: err}
		}
	}
	if err := a.noteAbsent(c, nodes); err != nil {
		return &failure{doing: "cannot monitor " + pattern, err: err}
	}
	return (&eventWriter{a: a, shown: make(map[[2]string]map[string]string)}).follow(m)
}

// monitored makes the list of units to subscribe to; several may be in one word, as lists of
// nodes are.
func (a *app) monitored(typed []string) ([]string, error) {
	if len(typed) == 0 {
		return []string{"*"}, nil
	}
	var words []string
	for _, t := range typed {
		words = append(words, strings.Split(t, ",")...)
	}
	if slices.Contains(words, "*") { // it is no name of a service here
		rest, err := a.unitNames(slices.DeleteFunc(words, func(w string) bool { return w == "*" }))
		return append([]string{"*"}, rest...), err
	}
	return a.unitNames(words)
}

// noteAbsent names nodes that nothing can come from yet.
func (a *app) noteAbsent(c *client.Client, patterns []string) error {
	rows, err := c.Nodes(a.ctx)
	if err != nil {
		return err
	}
	for _, p := range patterns {
		if unit.HasGlob(p) {
			continue
		}
		i := slices.IndexFunc(rows, func(r wire.NodeRow) bool { return r.Name == p })
		switch {
		case i < 0:
			a.note("node %s is not in the fleet; waiting for it", p)
		case rows[i].Status != wire.NodeOnline:
			a.note("node %s is offline; waiting for it", p)
		}
	}
	return nil
}
