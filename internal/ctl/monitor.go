package ctl

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// eventRow is one event as programs see it. An event about several properties is a row for
// each.
type eventRow struct {
	Time      time.Time `col:"TIME"`
	Node      string    `col:"NODE"`
	Unit      string    `col:"UNIT"`
	Event     string    `col:"EVENT"`
	Reason    string    `col:"REASON"`
	Active    string    `col:"ACTIVE"`
	Sub       string    `col:"SUB"`
	Interface string    `col:"INTERFACE"`
	Property  string    `col:"PROPERTY"`
	Value     string    `col:"VALUE"`
}

// eventWords are the words for events.
var eventWords = map[client.EventKind]string{
	client.UnitNew: "new", client.UnitRemoved: "removed", client.UnitStateChanged: "state", client.UnitPropertiesChanged: "properties",
}

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

With -o json it writes one object a line, and one for each property.`,
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
	return a.follow(m)
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

// follow writes events until the user has seen enough, or the manager is gone.
func (a *app) follow(m *client.Monitor) error {
	for {
		select {
		case e := <-m.Events():
			if err := a.writeEvent(e); err != nil {
				return err
			}
		case <-m.Over():
			if len(m.Events()) > 0 {
				continue // what came before the end
			}
			return &failure{doing: "the monitor has ended", err: m.Err()}
		case <-a.ctx.Done():
			return exit(exitInterrupted)
		}
	}
}

func (a *app) writeEvent(e client.Event) error {
	row := eventRow{Time: a.now(), Node: e.Node, Unit: e.Unit, Event: eventWords[e.Kind], Reason: e.Reason, Active: e.Active, Sub: e.Sub, Interface: e.Interface}
	if e.Kind != client.UnitPropertiesChanged {
		if a.opt.format != render.Table {
			return a.streamRow(row)
		}
		return a.streamLine(row.Time, row.Node, row.Unit, a.eventText(e), "")
	}
	row.Reason = "real"
	if a.opt.format == render.Table {
		if err := a.streamLine(row.Time, row.Node, row.Unit, row.Event, shortInterface(e.Interface)); err != nil {
			return err
		}
	}
	return a.writeProperties(row, e.Properties)
}

// eventText says what happened, but for properties.
func (a *app) eventText(e client.Event) string {
	text := eventWords[e.Kind]
	if e.Kind == client.UnitStateChanged {
		text += "  " + a.options().Paint(activeStyle(e.Active), render.Clean(e.Active)+" ("+render.Clean(e.Sub)+")")
	}
	if e.Reason != "real" {
		text += "  " + a.options().Paint(render.Faint, render.Clean(e.Reason))
	}
	return text
}

// writeProperties writes what has changed, each on a line of its own.
func (a *app) writeProperties(row eventRow, all map[string]client.Value) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		lines := propertyText(name, all[name])
		if len(lines) == 0 {
			lines = []string{""}
		}
		for _, line := range lines {
			if a.opt.format == render.Table {
				fmt.Fprintf(&b, "    %s=%s\n", render.Clean(name), render.Clean(line))
				continue
			}
			row.Property, row.Value = name, line
			if err := a.streamRow(row); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

// shortInterface is systemd's interface without what all of them begin with.
func shortInterface(name string) string {
	return render.Clean(strings.TrimPrefix(name, wire.SystemdName+"."))
}
