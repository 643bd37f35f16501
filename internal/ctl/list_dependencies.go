package ctl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// dependencyRow is one unit of a tree of dependencies, in the order in which the tree is drawn.
type dependencyRow struct {
	Node       string `col:"NODE"`
	Unit       string `col:"UNIT"`
	Active     string `col:"ACTIVE"`
	By         string `col:"BY"`
	ParentNode string `col:"PARENT-NODE"`
	ParentUnit string `col:"PARENT-UNIT"`
	Depth      uint32 `col:"DEPTH"`
}

func listDependenciesCommand(a *app) *cobra.Command {
	var reverse, dot bool
	cmd := &cobra.Command{
		Use:   "list-dependencies NODE UNIT",
		Short: "Show what a unit needs, across nodes",
		Long: `Shows the units that UNIT of NODE needs (Wants=, Requires=, Requisite=, BindsTo=, Upholds=), and those that
they need, on that node and on all others, with their states. What every unit needs, such as slices
and sysinit.target, is shown with --all. A unit that was shown before is not taken apart again.
With --reverse it shows the loaded units that need UNIT.`,
		Example:     "  ctl list-dependencies node1 web\n  ctl list-dependencies --reverse node2 db\n  ctl list-dependencies --dot node1 web | dot -Tsvg >web.svg",
		GroupID:     groupUnits,
		Annotations: map[string]string{takesFilters: "all"},
	}
	cmd.Flags().BoolVar(&reverse, "reverse", false, "show what needs the unit, instead of what it needs")
	cmd.Flags().BoolVar(&dot, "dot", false, "print a graph for dot(1) instead of a tree")
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 {
			return needs(cmd, "a NODE and one UNIT")
		}
		if !wire.ValidNodeName(args[0]) {
			return usage("node name %q is not valid: %s", args[0], wire.NodeNameRule)
		}
		name := unit.Mangle(args[1], false)
		if err := unit.CheckInstance(name); err != nil {
			return usage("%v", err)
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		w := &dependencyWalk{a: a, c: c, reverse: reverse, seen: make(map[nodeUnit]bool)}
		if reverse {
			if err := w.findProxies(); err != nil {
				return err
			}
		}
		if err := w.root(nodeUnit{args[0], name}); err != nil {
			return err
		}
		switch {
		case dot:
			return a.writeDot(w.rows)
		case a.opt.format == render.Table:
			return a.writeTree(w.rows)
		}
		return write(a, w.rows, "")
	}
	return cmd
}

// nodeUnit is one unit of one node.
type nodeUnit struct{ node, unit string }

// maxDependencies bounds a tree.
const maxDependencies = 10_000

// Properties that say what a unit needs, and what needs it, by the directive.
var (
	dependsBy = []struct{ property, directive string }{
		{"Requires", "Requires"}, {"Requisite", "Requisite"}, {"BindsTo", "BindsTo"}, {"Upholds", "Upholds"}, {"Wants", "Wants"},
	}
	neededBy = []struct{ property, directive string }{
		{"RequiredBy", "Requires"}, {"RequisiteOf", "Requisite"}, {"BoundBy", "BindsTo"}, {"UpheldBy", "Upholds"}, {"WantedBy", "Wants"},
	}
)

// dependencyWalk reads a tree of dependencies, depth first.
type dependencyWalk struct {
	a       *app
	c       *client.Client
	reverse bool
	seen    map[nodeUnit]bool
	rows    []dependencyRow
	proxies map[nodeUnit][]nodeUnit // by the unit that they stand for
}

// findProxies looks on all nodes for what stands for units of others.
func (w *dependencyWalk) findProxies() error {
	units, fleet, err := w.a.askUnits(w.c, nil, nil, []string{unit.ProxyGlob})
	if err != nil {
		return err
	}
	w.proxies = make(map[nodeUnit][]nodeUnit)
	for _, n := range fleet.Nodes {
		for _, u := range units[n.Name] {
			if node, target, err := unit.ParseProxy(u.Name); err == nil {
				w.proxies[nodeUnit{node, target}] = append(w.proxies[nodeUnit{node, target}], nodeUnit{n.Name, u.Name})
			}
		}
	}
	return nil
}

func (w *dependencyWalk) root(at nodeUnit) error {
	p, err := w.c.Node(at.node).UnitProperties(w.a.ctx, at.unit, wire.SystemdUnitInterface)
	if err == nil && props(p).text("LoadState") == "not-found" {
		err = wire.ErrSystemdNoSuchUnit.With("Unit %s not found.", at.unit)
	}
	if err != nil {
		return &failure{doing: fmt.Sprintf("cannot read the dependencies of %s on %s", at.unit, at.node), node: at.node, unit: at.unit, err: err}
	}
	w.add(at, props(p).text("ActiveState"), "", nodeUnit{}, 0)
	w.children(at, props(p), 0)
	return nil
}

func (w *dependencyWalk) add(at nodeUnit, active, by string, parent nodeUnit, depth uint32) {
	w.rows = append(w.rows, dependencyRow{at.node, at.unit, active, by, parent.node, parent.unit, depth})
}

// children adds what a unit needs, or what needs it.
func (w *dependencyWalk) children(at nodeUnit, p props, depth uint32) {
	w.seen[at] = true
	w.follow(at, at.node, p, depth)
	for _, proxy := range w.proxies[at] {
		if own, err := w.c.Node(proxy.node).UnitProperties(w.a.ctx, proxy.unit, wire.SystemdUnitInterface); err == nil {
			w.follow(at, proxy.node, own, depth)
		}
	}
}

// follow adds the units of a node that p, of at or of a proxy that stands for it, names.
func (w *dependencyWalk) follow(at nodeUnit, node string, p props, depth uint32) {
	list := dependsBy
	if w.reverse {
		list = neededBy
	}
	for _, kind := range list {
		names, _ := p[kind.property].Data.([]string)
		for _, name := range slices.Sorted(slices.Values(names)) {
			child := nodeUnit{node, name}
			if n, target, err := unit.ParseProxy(name); err == nil {
				if w.reverse {
					continue
				}
				child = nodeUnit{n, target}
			}
			_, isDep := unit.ParseDep(name)
			if isDep && unit.IsDep(name) || !w.a.opt.all && ordinary(name) || len(w.rows) >= maxDependencies {
				continue
			}
			w.visit(child, kind.directive, at, depth+1)
		}
	}
}

func (w *dependencyWalk) visit(at nodeUnit, by string, parent nodeUnit, depth uint32) {
	p, err := w.c.Node(at.node).UnitProperties(w.a.ctx, at.unit, wire.SystemdUnitInterface)
	if err != nil {
		w.a.note("note: cannot ask %s about %s: %v", at.node, at.unit, err)
		w.add(at, "unknown", by, parent, depth)
		return
	}
	active := props(p).text("ActiveState")
	if load := props(p).text("LoadState"); wrongLoad(load) || load == "masked" {
		active = load
	}
	w.add(at, active, by, parent, depth)
	if !w.seen[at] {
		w.children(at, p, depth)
	}
}

// ordinary are units that nearly every unit needs or is needed by.
func ordinary(name string) bool {
	return strings.HasSuffix(name, ".slice") || slices.Contains([]string{"sysinit.target", "basic.target", "shutdown.target", "-.mount"}, name)
}

// writeTree draws the rows as systemctl list-dependencies does, with a node in front.
func (a *app) writeTree(rows []dependencyRow) error {
	o := a.options()
	branch, last, pipe, space := "├─", "└─", "│ ", "  "
	if !o.UTF8 {
		branch, last, pipe = "|-", "`-", "| "
	}
	for i, r := range rows {
		line := ""
		for d := uint32(1); d <= r.Depth; d++ {
			more := slices.ContainsFunc(rows[i+1:min(len(rows), i+1+untilShallower(rows[i+1:], d))], func(x dependencyRow) bool { return x.Depth == d })
			switch {
			case d == r.Depth && more:
				line += branch
			case d == r.Depth:
				line += last
			case more:
				line += pipe
			default:
				line += space
			}
		}
		if _, err := fmt.Fprintf(a.out, "%s%s %s  %s\n", line, render.Clean(r.Node), render.Clean(r.Unit), render.Clean(r.Active)); err != nil {
			return err
		}
	}
	return nil
}

// untilShallower counts the rows that belong to the same branch as deep as depth.
func untilShallower(rows []dependencyRow, depth uint32) int {
	if i := slices.IndexFunc(rows, func(r dependencyRow) bool { return r.Depth < depth }); i >= 0 {
		return i
	}
	return len(rows)
}

// writeDot prints a graph with one cluster per node.
func (a *app) writeDot(rows []dependencyRow) error {
	var b strings.Builder
	b.WriteString("digraph dependencies {\n  rankdir=LR;\n  node [shape=box];\n")
	nodes := make(map[string][]string)
	var order []string
	seen := make(map[string]bool)
	id := func(node, unit string) string { return fmt.Sprintf("%q", node+" "+unit) }
	for _, r := range rows {
		if nodes[r.Node] == nil {
			order = append(order, r.Node)
		}
		line := fmt.Sprintf("    %s [label=%q];\n", id(r.Node, r.Unit), r.Unit+"\n"+r.Active)
		if !slices.Contains(nodes[r.Node], line) {
			nodes[r.Node] = append(nodes[r.Node], line)
		}
	}
	for i, node := range order {
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%q;\n%s  }\n", i, node, strings.Join(nodes[node], ""))
	}
	for _, r := range rows {
		line := fmt.Sprintf("  %s -> %s [label=%q];\n", id(r.ParentNode, r.ParentUnit), id(r.Node, r.Unit), r.By)
		if r.Depth > 0 && !seen[line] {
			seen[line] = true
			b.WriteString(line)
		}
	}
	b.WriteString("}\n")
	_, err := fmt.Fprint(a.out, b.String())
	return err
}
