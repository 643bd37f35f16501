package ctl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/raw"
)

// planRow is what an apply would do with a workload on one node.
type planRow struct {
	Workload string `col:"WORKLOAD"`
	Node     string `col:"NODE"`
	Outcome  string `col:"OUTCOME"`
	Message  string `col:"MESSAGE"`
}

// plan shows what an apply would do, and reports whether that is anything.
func (a *app) plan(all []raw.Workload, o client.WorkloadOptions, diffs, quiet bool) (changed bool, err error) {
	c, err := a.client()
	if err != nil {
		return false, err
	}
	rows := []planRow{}
	var errs []error
	for _, w := range all {
		name := w.Package.Bundle.Workload
		plans, err := c.PlanWorkload(a.ctx, name, w.Package.Encode(), placement(w), o)
		if err != nil {
			errs = append(errs, &failure{doing: "cannot plan workload " + name, err: err})
			continue
		}
		for _, p := range plans {
			row := planRow{Workload: name, Node: p.Node, Outcome: string(p.Plan.Outcome), Message: planMessage(p.Plan)}
			rows = append(rows, row)
			changed = changed || p.Plan.Outcome != bundle.Unchanged
			if p.Plan.Error != "" {
				errs = append(errs, &failure{doing: fmt.Sprintf("cannot apply workload %s on %s", name, p.Node), node: p.Node, err: errors.New(p.Plan.Error)})
			}
			if diffs && a.opt.format == render.Table {
				if err := a.showDiffs(p); err != nil {
					return changed, err
				}
			}
		}
	}
	if !quiet || a.opt.format != render.Table {
		if err := render.Write(a.out, rows, a.options()); err != nil {
			return changed, err
		}
	}
	return changed, join(errs)
}

// planMessage says in one line what would be done.
func planMessage(p bundle.PlanResult) string {
	var parts []string
	for _, what := range []string{"write", "remove", "enable", "disable", "start", "stop", "restart", "reload"} {
		var names []string
		for _, c := range p.Changes {
			if c.What == what {
				names = append(names, c.Name)
			}
		}
		switch {
		case len(names) == 1:
			parts = append(parts, what+" "+names[0])
		case len(names) > 1:
			parts = append(parts, fmt.Sprintf("%s %d", what, len(names)))
		}
	}
	return strings.Join(append(parts, p.Notes...), ", ")
}

// showDiffs writes the differences of one node's files, as diff -u does.
func (a *app) showDiffs(p client.NodePlan) error {
	for _, d := range p.Plan.Diffs {
		before, after, from, to := "", "", "/dev/null", "/dev/null"
		if d.Old != nil {
			before, from = *d.Old, p.Node+":"+d.Path
		}
		if d.New != nil {
			after, to = *d.New, p.Node+":"+d.Path+" (new)"
		}
		text := diff.Diff(from, []byte(before), to, []byte(after))
		if _, err := a.out.Write([]byte(a.colorDiff(cleanLines(string(text))))); err != nil {
			return err
		}
	}
	return nil
}

// colorDiff paints the lines of a difference, where colours are wanted.
func (a *app) colorDiff(text string) string {
	if !a.outIs.color {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		code := map[byte]string{'+': "32", '-': "31", '@': "36"}[line[0]]
		if code == "" {
			b.WriteString(line)
			continue
		}
		b.WriteString("\x1b[" + code + "m" + strings.TrimSuffix(line, "\n") + "\x1b[0m\n")
	}
	return b.String()
}
