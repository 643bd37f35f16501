package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/raw"
	"example.org/ctrl/internal/unit"
)

// sourceFlags say what is applied, and where.
type sourceFlags struct {
	files    []string
	name     string
	nodes    string
	allNodes bool
	runtime  bool
}

func (f *sourceFlags) add(cmd *cobra.Command, placed bool) {
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "a `FILE` of documents, a folder of unit files, or - for standard input; may be given several times")
	cmd.Flags().StringVar(&f.name, "name", "", "`NAME` of the workload of a folder")
	cmd.Flags().BoolVar(&f.runtime, "runtime", false, "units that are gone after a reboot, below /run/systemd/system")
	if placed {
		cmd.Flags().StringVar(&f.nodes, "node", "", "on these `NODES`, in the place of those in the documents: names and globs, with commas")
		cmd.Flags().BoolVar(&f.allNodes, "all-nodes", false, "on every node")
	}
}

// load reads all that is named.
func (f *sourceFlags) load(a *app, cmd *cobra.Command, args []string) ([]raw.Workload, error) {
	if len(args) > 0 {
		return nil, usage("%s takes no argument; name files with -f %s", cmd.Name(), args[0])
	}
	if len(f.files) == 0 {
		return nil, needs(cmd, "-f FILE")
	}
	var all []raw.Workload
	seen := make(map[string]string)
	for _, file := range f.files {
		list, err := raw.Load(file, f.name, a.in)
		if err != nil {
			return nil, &usageError{text: err.Error()}
		}
		for _, w := range list {
			name := w.Package.Bundle.Workload
			if before, ok := seen[name]; ok {
				return nil, usage("workload %s is in %s and in %s", name, before, w.Source)
			}
			seen[name] = w.Source
			w.Package.Bundle.Runtime = w.Package.Bundle.Runtime || f.runtime
			if err := f.place(&w); err != nil {
				return nil, err
			}
			all = append(all, w)
		}
	}
	return all, nil
}

// place puts the command line's nodes in the place of the document's.
func (f *sourceFlags) place(w *raw.Workload) error {
	switch {
	case f.allNodes && f.nodes != "":
		return usage("--all-nodes and --node exclude each other")
	case f.allNodes:
		w.Nodes, w.Selector = []string{"*"}, nil
	case f.nodes != "":
		nodes, err := nodePatterns(f.nodes)
		if err != nil {
			return err
		}
		w.Nodes, w.Selector = nodes, nil
	}
	return nil
}

func placement(w raw.Workload) client.Placement {
	return client.Placement{Nodes: w.Nodes, Selector: w.Selector}
}

// applyFlags are how an apply goes about it.
type applyFlags struct {
	sourceFlags
	dryRun         bool
	diff           bool
	wait           string
	timeout        time.Duration
	maxUnavailable uint32
	rollback       bool
	prune          string
	noRestart      bool
	allowUnknown   bool
}

func applyCommand(a *app) *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Deliver units and their configuration to nodes",
		Long: `Makes nodes have exactly the units and files that are described: it delivers what is new or has
changed, removes what is no longer there, and starts or restarts only what changed. What is so
already is left alone. Nodes are done one after the other, and the first failure ends it.

A folder holds unit files, their drop-ins in UNIT.d/NAME.conf, and below files/ the files of their
configuration at the paths that they have on the node. A document (kind: Units) says the same in one
file, and on which nodes. A node must allow it: AllowApply=yes in [policy] of its agent.conf.

Nodes that are away get it when they come back; that is exit code 6, or 0 with --wait=none.`,
		Example: "  ctl apply -f web/ --name web --node node1,node2\n  ctl apply -f web.yaml --diff --dry-run\n  ctl apply -f web.yaml --rollback-on-failure",
		GroupID: groupWorkloads,
	}
	f.add(cmd, true)
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "only say what would be done")
	flags.BoolVar(&f.diff, "diff", false, "show the differences of unit files first")
	flags.StringVar(&f.wait, "wait", "active", "wait until units are active or have failed (`active`, ready), or for nothing (none)")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long a node may wait for its units, as 30s or 5m (the default)")
	flags.Uint32Var(&f.maxUnavailable, "max-unavailable", 1, "work on `N` nodes at a time")
	flags.BoolVar(&f.rollback, "rollback-on-failure", false, "let a node go back to the revision before where its units do not come up")
	flags.StringVar(&f.prune, "prune", "", "then delete workloads whose name matches `GLOB` and which are not among those applied")
	flags.BoolVar(&f.noRestart, "no-restart", false, "write and reload, but restart nothing")
	flags.BoolVar(&f.allowUnknown, "allow-unknown", false, "accept unit files with lines that the node's systemd ignores")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all, err := f.load(a, cmd, args)
		if err != nil {
			return err
		}
		if !slices.Contains([]string{"active", "ready", "none"}, f.wait) {
			return usage("--wait=%s: use active, ready or none", f.wait)
		}
		if f.dryRun || f.diff {
			changed, err := a.plan(all, f.options(), f.diff, !f.dryRun)
			if err != nil || f.dryRun {
				return err
			}
			if !changed {
				a.note("nothing changes")
			}
		}
		return a.apply(all, &f)
	}
	return cmd
}

func (f *applyFlags) options() client.WorkloadOptions {
	return client.WorkloadOptions{
		NoRestart: f.noRestart, RollbackOnFailure: f.rollback, AllowUnknown: f.allowUnknown, NoWait: f.wait == "none",
		Timeout: f.timeout, MaxUnavailable: f.maxUnavailable,
	}
}

// apply applies workloads one after the other; the first failure ends it.
func (a *app) apply(all []raw.Workload, f *applyFlags) error {
	o, err := a.startOperations("apply")
	if err != nil {
		return err
	}
	o.later = f.wait == "none"
	c := a.bus
	for i, w := range all {
		name := w.Package.Bundle.Workload
		o.run(name, func(ctx context.Context) (uint32, error) {
			return c.ApplyWorkload(ctx, name, w.Package.Encode(), placement(w), f.options())
		})
		if exitCode(join(o.errs)) != exitOK && exitCode(join(o.errs)) != exitOffline {
			if rest := len(all) - i - 1; rest > 0 {
				a.say("stopped after workload %s failed; not applied: %d", name, rest)
			}
			return o.finish()
		}
	}
	if f.prune != "" {
		if err := a.prune(o, all, f); err != nil {
			o.errs = append(o.errs, err)
		}
	}
	return o.finish()
}

// prune deletes workloads that were not among those applied.
func (a *app) prune(o *operations, applied []raw.Workload, f *applyFlags) error {
	if _, err := unit.CompileGlob(f.prune); err != nil {
		return usage("--prune: %v", err)
	}
	rows, err := a.bus.Workloads(a.ctx, []string{f.prune}, nil)
	if err != nil {
		return &failure{doing: "cannot list workloads", err: err}
	}
	var names []string
	for _, r := range rows {
		given := slices.ContainsFunc(applied, func(w raw.Workload) bool { return w.Package.Bundle.Workload == r.Workload })
		if !given && r.Desired != "" && !slices.Contains(names, r.Workload) {
			names = append(names, r.Workload)
		}
	}
	o.word = "delete"
	for _, name := range names {
		o.run(name, func(ctx context.Context) (uint32, error) { return a.bus.DeleteWorkload(ctx, name, nil, f.options()) })
	}
	return nil
}

func diffCommand(a *app) *cobra.Command {
	var f sourceFlags
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show how nodes differ from what is described",
		Long: `Shows, for each node, how its unit files would change by ctl apply. Of files of configuration their
digests are shown, never their contents. The exit code is that of diff(1): 0 where nothing
differs, 1 where something does, 2 where that could not be found out.`,
		Example: "  ctl diff -f web.yaml\n  ctl diff -f web/ --name web --node node1",
		GroupID: groupWorkloads,
	}
	f.add(cmd, true)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all, err := f.load(a, cmd, args)
		if err != nil {
			return err
		}
		changed, err := a.plan(all, client.WorkloadOptions{}, true, true)
		switch {
		case err != nil:
			a.report(err)
			return exit(exitUsage)
		case changed:
			return exit(exitFailed)
		}
		return nil
	}
	return cmd
}

func renderCommand(a *app) *cobra.Command {
	var f sourceFlags
	cmd := &cobra.Command{
		Use:   "render -f FILE",
		Short: "Print the unit files that ctl apply would write",
		Long: `Prints the unit files as they would be on a node, each with its path before it. It asks nobody: what
is described is read and checked here.`,
		Example: "  ctl render -f web.yaml\n  ctl render -f web/ --name web",
		GroupID: groupWorkloads,
	}
	f.add(cmd, false)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all, err := f.load(a, cmd, args)
		if err != nil {
			return err
		}
		return a.render(all)
	}
	return cmd
}

// renderedFile is one file for programs.
type renderedFile struct {
	Workload string `col:"WORKLOAD"`
	Path     string `col:"PATH"`
	Text     string `col:"TEXT"`
}

func (a *app) render(all []raw.Workload) error {
	var rows []renderedFile
	for _, w := range all {
		for _, t := range w.Package.Bundle.Canonical().Render(bundle.SystemLayout) {
			rows = append(rows, renderedFile{w.Package.Bundle.Workload, t.Path, t.Text})
		}
	}
	if a.opt.format != render.Table {
		return render.Write(a.out, rows, a.options())
	}
	for i, r := range rows {
		space := ""
		if i > 0 {
			space = "\n"
		}
		if _, err := fmt.Fprintf(a.out, "%s# %s\n%s", space, r.Path, cleanLines(r.Text)); err != nil {
			return err
		}
	}
	return nil
}

// cleanLines makes text of somebody's file fit for a terminal, line by line.
func cleanLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(render.Clean(strings.TrimSuffix(line, "\n")))
		b.WriteByte('\n')
	}
	return b.String()
}
