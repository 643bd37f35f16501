package ctl

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// unitRow is one unit of one node.
type unitRow struct {
	Node        string `col:"NODE"`
	Unit        string `col:"UNIT,cut"`
	Load        string `col:"LOAD"`
	Active      string `col:"ACTIVE"`
	Sub         string `col:"SUB"`
	Description string `col:"DESCRIPTION,cut"`
}

// Style implements render.Styled, with systemctl's colours.
func (r unitRow) Style(column string) render.Style {
	switch column {
	case "LOAD":
		if wrongLoad(r.Load) {
			return render.Bad
		}
	case "UNIT", "ACTIVE", "SUB":
		return activeStyle(r.Active)
	}
	return render.Plain
}

// Mark implements render.Marked: a dot where something is wrong.
func (r unitRow) Mark() render.Mark {
	if r.Active == "failed" || wrongLoad(r.Load) {
		return render.Mark{UTF8: "●", ASCII: "*", Style: render.Bad}
	}
	return render.Mark{}
}

func wrongLoad(load string) bool {
	return load == "error" || load == "not-found" || load == "bad-setting"
}

func activeStyle(active string) render.Style {
	switch active {
	case "failed":
		return render.Bad
	case "active":
		return render.Good
	case "activating", "deactivating", "reloading", "refreshing", "maintenance":
		return render.Changing
	}
	return render.Plain
}

// notInactive are all active states but "inactive" (systemctl --state=help). A list without
// filters asks for these, so that what is not shown does not leave its node.
var notInactive = []string{"active", "reloading", "failed", "activating", "deactivating", "maintenance", "refreshing"}

type listFlags struct{ nodeFlags }

func listUnitsCommand(a *app) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list-units [NODE [PATTERN…]]",
		Short: "List units that are in memory",
		Long: `Lists the units that systemd has in memory on all nodes, or on NODE; without --all those that are
not inactive. Filters and patterns are applied on the nodes. A node that is offline or does not
answer is named on standard error and makes the exit code 1, unless it is optional.`,
		Example:     "  ctl list-units node1\n  ctl list-units '*' 'web-*' --state=failed",
		GroupID:     groupUnits,
		Annotations: map[string]string{takesFilters: "state type failed all"},
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(_ *cobra.Command, args []string) error { return a.listUnits(args, f) }
	return cmd
}

func (a *app) listUnits(args []string, f listFlags) error {
	var nodes, patterns []string
	if !f.allNodes && len(args) > 0 {
		parts, err := nodePatterns(args[0])
		if err != nil {
			return err
		}
		nodes, args = parts, args[1:]
	}
	patterns, err := a.unitPatterns(args)
	if err != nil {
		return err
	}
	states := a.stateFilter()
	if len(states) == 0 && !a.opt.all {
		states = notInactive
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	units, fleet, err := a.askUnits(c, nodes, states, a.typePatterns(patterns))
	if err != nil {
		return err
	}
	rows := a.unitRows(units)
	a.page()
	if err := write(a, rows, "no units"); err != nil {
		return err
	}
	a.unitLegend(rows, len(units))
	return a.missing(fleet, nodes, func(node string) bool { _, ok := units[node]; return ok })
}

// askUnits asks the nodes for units and, at the same time, the manager for its nodes.
func (a *app) askUnits(c *client.Client, nodes, states, patterns []string) (map[string][]wire.UnitStatus, client.Fleet, error) {
	type answer struct {
		fleet client.Fleet
		err   error
	}
	nodesSeen := make(chan answer, 1)
	go func() {
		fleet, err := c.Fleet(a.ctx)
		nodesSeen <- answer{fleet, err}
	}()
	units, err := c.ListUnits(a.ctx, nodes, states, patterns)
	seen := <-nodesSeen
	if err == nil {
		err = seen.err
	}
	if errors.Is(err, wire.ErrNoSuchNode) {
		err = a.whichNode(err, seen.fleet, nodes)
	}
	return units, seen.fleet, err
}

// whichNode finds the pattern that matches no node.
func (a *app) whichNode(err error, fleet client.Fleet, patterns []string) error {
	for _, p := range patterns {
		if !slices.ContainsFunc(fleet.Nodes, func(n client.Node) bool { return matchNode(p, n.Name) }) {
			return &failure{doing: fmt.Sprintf("no node matches %q", p), node: p, err: &silentKind{wire.ErrNoSuchNode}}
		}
	}
	return err
}

func matchNode(pattern, name string) bool {
	if pattern == name {
		return true
	}
	glob, err := unit.CompileGlob(pattern)
	return err == nil && glob.Match(name)
}

// unitPatterns checks the patterns of a list. A name without a glob is completed.
func (a *app) unitPatterns(typed []string) ([]string, error) {
	var patterns []string
	for _, t := range typed {
		if t == "" {
			return nil, usage("a unit pattern is empty")
		}
		name := unit.Mangle(t, true)
		if unit.HasGlob(name) {
			if _, err := unit.CompileGlob(name); err != nil {
				return nil, usage("unit %v", err)
			}
		} else if err := unit.CheckName(name); err != nil {
			return nil, usage("%v", err)
		}
		patterns = append(patterns, name)
	}
	return patterns, nil
}

// stateFilter is what --state and --failed say.
func (a *app) stateFilter() []string {
	states := a.opt.states
	if a.opt.failed {
		states = append(slices.Clone(states), "failed")
	}
	return states
}

// typePatterns lets the nodes filter by type too, where no patterns say more.
func (a *app) typePatterns(patterns []string) []string {
	if len(patterns) > 0 {
		return patterns
	}
	for _, t := range a.opt.types {
		if slices.Contains(unit.Types, t) {
			patterns = append(patterns, "*."+t)
		}
	}
	return patterns
}

// wantedType reports whether --type lets a unit pass. As with systemctl a word may also be a
// load state.
func (a *app) wantedType(name, load string) bool {
	if len(a.opt.types) == 0 {
		return true
	}
	return slices.Contains(a.opt.types, unit.TypeOf(name)) || slices.Contains(a.opt.types, load)
}

func (a *app) unitRows(units map[string][]wire.UnitStatus) []unitRow {
	rows := []unitRow{}
	for _, node := range slices.Sorted(maps.Keys(units)) {
		list := units[node]
		slices.SortFunc(list, func(x, y wire.UnitStatus) int { return compareUnits(x.Name, y.Name) })
		for i := range list {
			u := &list[i]
			// A device shows up under every name that it has; the others follow one.
			if a.wantedType(u.Name, u.LoadState) && (u.Followed == "" || a.opt.all) {
				rows = append(rows, unitRow{node, u.Name, u.LoadState, u.ActiveState, u.SubState, u.Description})
			}
		}
	}
	return rows
}

// compareUnits orders units as systemctl does: by type, then by name, without case.
func compareUnits(x, y string) int {
	return cmp.Or(
		strings.Compare(unit.TypeOf(x), unit.TypeOf(y)),
		strings.Compare(strings.ToLower(x), strings.ToLower(y)),
		strings.Compare(x, y),
	)
}

func (a *app) unitLegend(rows []unitRow, nodes int) {
	if a.opt.noLegend || !a.outIs.terminal || a.opt.format != render.Table || len(rows) == 0 {
		return
	}
	failed := 0
	for _, r := range rows {
		if r.Active == "failed" {
			failed++
		}
	}
	line := fmt.Sprintf("\n%s on %s", count(len(rows), "unit"), count(nodes, "node"))
	if failed > 0 {
		line += fmt.Sprintf(", %d failed", failed)
	}
	if !a.opt.all && len(a.stateFilter()) == 0 {
		line += "; --all shows the inactive ones too"
	}
	fmt.Fprintln(a.out, line+".")
}

// missing names the nodes that a list lacks. A node that was named, and not matched, is
// missed also where it is optional.
func (a *app) missing(fleet client.Fleet, patterns []string, have func(node string) bool) error {
	code, asked := exitOK, 0
	for i := range fleet.Nodes {
		n := &fleet.Nodes[i]
		named := slices.Contains(patterns, n.Name)
		if len(patterns) > 0 && !slices.ContainsFunc(patterns, func(p string) bool { return matchNode(p, n.Name) }) {
			continue
		}
		asked++
		if have(n.Name) {
			continue
		}
		missed := exitTimeout
		if n.Online() {
			a.say("warning: node %s did not answer in time", n.Name)
		} else {
			missed = exitOffline
			a.say("warning: %s", a.offlineText(n))
		}
		if n.Optional && !named {
			continue
		}
		if code = exitFailed; asked == 1 && len(patterns) == 1 && named {
			code = missed
		}
	}
	if code != exitOK {
		return exit(code)
	}
	return nil
}

func (a *app) offlineText(n *client.Node) string {
	text := fmt.Sprintf("node %s is offline", n.Name)
	if n.LastSeen.IsZero() {
		text += ", not seen since the manager started"
	} else {
		text += ", last seen " + render.Ago(n.LastSeen, a.now())
	}
	if n.DisconnectReason != "" {
		text += " (" + n.DisconnectReason + ")"
	}
	if n.Optional {
		text += "; it is optional"
	}
	return text
}
