package ctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/unit"
)

// unitFileRow is one unit file.
type unitFileRow struct {
	Node     string `col:"NODE"`
	UnitFile string `col:"UNIT-FILE,cut"`
	State    string `col:"STATE"`
	Path     string `col:"PATH,wide"`
}

// Style implements render.Styled, with systemctl's colours.
func (r unitFileRow) Style(column string) render.Style {
	if column != "STATE" {
		return render.Plain
	}
	switch {
	case strings.HasPrefix(r.State, "enabled"):
		return render.Good
	case strings.HasPrefix(r.State, "masked"), r.State == "bad":
		return render.Bad
	case r.State == "disabled", strings.HasPrefix(r.State, "linked"), r.State == "invalid":
		return render.Changing
	}
	return render.Plain
}

func listUnitFilesCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "list-unit-files [NODE [PATTERN…]]",
		Short: "List unit files and whether they are enabled",
		Long: `Lists the unit files of all nodes, or of NODE. A node that is offline or does not answer is named on
standard error and makes the exit code 1, unless it is optional.`,
		Example:     "  ctl list-unit-files node1\n  ctl list-unit-files '*' 'web*' --state=enabled",
		GroupID:     groupFiles,
		Annotations: map[string]string{takesFilters: "state type"},
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeFiles
	cmd.RunE = func(_ *cobra.Command, args []string) error { return a.listUnitFiles(args, f) }
	return cmd
}

func (a *app) listUnitFiles(args []string, f nodeFlags) error {
	var patterns []string
	if !f.allNodes && len(args) > 0 {
		parts, err := nodePatterns(args[0])
		if err != nil {
			return err
		}
		patterns, args = parts, args[1:]
	}
	names, err := a.unitPatterns(args)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	fleet, err := c.Fleet(a.ctx)
	if err != nil {
		return err
	}
	files, failed, err := a.askFiles(c, fleet, patterns)
	if err != nil {
		return err
	}
	rows := a.fileRows(files, names)
	a.page()
	if err := write(a, rows, "no unit files"); err != nil {
		return err
	}
	if a.outIs.terminal && !a.opt.noLegend && a.opt.format == render.Table && len(rows) > 0 {
		fmt.Fprintf(a.out, "\n%s on %s.\n", count(len(rows), "unit file"), count(len(files), "node"))
	}
	err = a.missing(fleet, patterns, func(node string) bool { _, ok := files[node]; return ok || failed[node] != nil })
	return join(append(slices.Collect(maps.Values(failed)), err))
}

// askFiles asks the manager for all nodes at once, or each node that is meant.
func (a *app) askFiles(c *client.Client, fleet client.Fleet, patterns []string) (files map[string][]client.UnitFile, failed map[string]error, _ error) {
	if len(patterns) == 0 {
		files, err := c.ListUnitFiles(a.ctx)
		return files, nil, err
	}
	nodes, err := pickNodes(fleet, []string{strings.Join(patterns, ",")})
	if err != nil {
		return nil, nil, err
	}
	files, failed = make(map[string][]client.UnitFile), make(map[string]error)
	var mu sync.Mutex
	each(nodes, maxNodesAtOnce, func(_ int, n client.Node) {
		if !n.Online() {
			return
		}
		list, err := c.Node(n.Name).ListUnitFiles(a.ctx)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed[n.Name] = &failure{doing: "cannot list the unit files of " + n.Name, node: n.Name, err: err}
			return
		}
		files[n.Name] = list
	})
	return files, failed, nil
}

func (a *app) fileRows(files map[string][]client.UnitFile, names []string) []unitFileRow {
	globs := make([]unit.Glob, 0, len(names))
	for _, name := range names {
		if g, err := unit.CompileGlob(name); err == nil { // they were checked
			globs = append(globs, g)
		}
	}
	rows := []unitFileRow{}
	for _, node := range slices.Sorted(maps.Keys(files)) {
		list := files[node]
		slices.SortFunc(list, func(x, y client.UnitFile) int { return compareUnits(baseName(x.Path), baseName(y.Path)) })
		for _, file := range list {
			name := baseName(file.Path)
			switch {
			case len(a.opt.states) > 0 && !slices.Contains(a.opt.states, file.State):
			case len(a.opt.types) > 0 && !slices.Contains(a.opt.types, unit.TypeOf(name)):
			case len(globs) > 0 && !slices.ContainsFunc(globs, func(g unit.Glob) bool { return g.Match(name) }):
			default:
				rows = append(rows, unitFileRow{node, name, file.State, file.Path})
			}
		}
	}
	return rows
}

// sortByNode orders rows that were gathered in parallel.
func sortByNode[T any](rows []T, node func(T) string) {
	slices.SortStableFunc(rows, func(x, y T) int { return strings.Compare(node(x), node(y)) })
}
