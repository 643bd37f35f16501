package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// changeRow is one change that a command made to unit files.
type changeRow struct {
	Node   string `col:"NODE"`
	Type   string `col:"TYPE"`
	File   string `col:"FILE"`
	Source string `col:"SOURCE"`
}

// fileFlags are the flags of commands that change unit files.
type fileFlags struct {
	jobFlags
	now      bool
	runtime  bool
	force    bool
	noReload bool
}

// fileCommand is one command that changes unit files.
type fileCommand struct {
	word, short, long string
	force             bool      // takes --force
	now               bool      // takes --now
	then              wire.Verb // what --now does
	// change does it. carries is true where it is not known whether the files can be enabled.
	change func(ctx context.Context, n client.NodeAPI, files []string, f fileFlags) (carries bool, _ []client.Change, _ error)
}

func enableCommand(a *app) *cobra.Command {
	return fileChange(a, fileCommand{"enable", "Let units start at boot", "Enables unit files as their [Install] sections say.", true, true, wire.Start,
		func(ctx context.Context, n client.NodeAPI, files []string, f fileFlags) (bool, []client.Change, error) {
			return n.EnableUnitFiles(ctx, files, f.runtime, f.force)
		}})
}

func disableCommand(a *app) *cobra.Command {
	return fileChange(a, fileCommand{"disable", "Let units not start at boot", "Disables unit files.", false, true, wire.Stop,
		func(ctx context.Context, n client.NodeAPI, files []string, f fileFlags) (bool, []client.Change, error) {
			list, err := n.DisableUnitFiles(ctx, files, f.runtime)
			return true, list, err
		}})
}

func maskCommand(a *app) *cobra.Command {
	return fileChange(a, fileCommand{"mask", "Make it impossible to start units", "Masks unit files, so that they can be started neither by hand nor by others.", true, true, wire.Stop,
		func(ctx context.Context, n client.NodeAPI, files []string, f fileFlags) (bool, []client.Change, error) {
			list, err := n.MaskUnitFiles(ctx, files, f.runtime, f.force)
			return true, list, err
		}})
}

func unmaskCommand(a *app) *cobra.Command {
	return fileChange(a, fileCommand{"unmask", "Undo mask", "Ends what mask began.", false, false, 0,
		func(ctx context.Context, n client.NodeAPI, files []string, f fileFlags) (bool, []client.Change, error) {
			list, err := n.UnmaskUnitFiles(ctx, files, f.runtime)
			return true, list, err
		}})
}

func presetCommand(a *app) *cobra.Command {
	return fileChange(a, fileCommand{"preset", "Enable or disable units as the node's policy says", "Enables or disables unit files as the preset files of the node say.", true, false, 0,
		func(ctx context.Context, n client.NodeAPI, files []string, f fileFlags) (bool, []client.Change, error) {
			return n.PresetUnitFiles(ctx, files, f.runtime, f.force)
		}})
}

func fileChange(a *app, c fileCommand) *cobra.Command {
	f := fileFlags{jobFlags: jobFlags{mode: "replace"}}
	cmd := &cobra.Command{
		Use: c.word + " NODE UNIT…", Short: c.short, GroupID: groupFiles,
		Long:    c.long + " Then systemd reads its unit files again, unless --no-reload is given.",
		Example: "  ctl " + c.word + " node1 foo.service",
	}
	f.addParallel(cmd)
	cmd.Flags().BoolVar(&f.runtime, "runtime", false, "until the next boot only")
	cmd.Flags().BoolVar(&f.noReload, "no-reload", false, "do not make systemd read its unit files again")
	if c.force {
		cmd.Flags().BoolVarP(&f.force, "force", "f", false, "overwrite links that stand in the way")
	}
	if c.now {
		cmd.Flags().BoolVar(&f.now, "now", false, "also "+c.then.String()+" the units")
		cmd.Flags().Var(spanFlag{&f.timeout}, "timeout", "with --now: wait at most this `TIME`")
		cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "with --now: do not wait for the jobs")
		cmd.Example += "\n  ctl " + c.word + " --now 'web-*' nginx"
	}
	cmd.ValidArgsFunction = a.completeFiles
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		nodes, files, err := a.nodesAndFiles(cmd, args, f.nodeFlags)
		if err == nil {
			err = f.check()
		}
		if err != nil {
			return err
		}
		if c.word == "disable" {
			files = a.namesOf(files)
		}
		return a.changeFiles(nodes, files, c, f)
	}
	return cmd
}

// namesOf makes names of paths: disabling is by name, also where a path was enabled.
func (a *app) namesOf(files []string) []string {
	names := make([]string, len(files))
	for i, file := range files {
		if names[i] = baseName(file); names[i] != file {
			a.note("a path cannot be disabled; %s is meant", names[i])
		}
	}
	return unique(names)
}

// nodesAndFiles reads the arguments NODE FILE…: names of unit files, templates among them, or
// absolute paths on the node.
func (a *app) nodesAndFiles(cmd *cobra.Command, args []string, f nodeFlags) (nodes, files []string, err error) {
	pattern, typed, err := f.split(cmd, args)
	if err == nil && len(typed) == 0 {
		err = needs(cmd, "a NODE and at least one UNIT")
	}
	if err != nil {
		return nil, nil, err
	}
	if err := noGlobs(cmd, typed); err != nil {
		return nil, nil, err
	}
	for _, t := range typed {
		name := t
		if !strings.HasPrefix(t, "/") {
			if t == "" {
				return nil, nil, usage("a unit name is empty")
			}
			name = unit.Mangle(t, false)
			if err := unit.CheckName(name); err != nil {
				return nil, nil, usage("%v", err)
			}
		}
		files = append(files, name)
	}
	nodes, err = a.nodes(a.ctx, pattern)
	return nodes, unique(files), err
}

func noGlobs(cmd *cobra.Command, units []string) error {
	if i := slices.IndexFunc(units, unit.HasGlob); i >= 0 {
		return usage("%s takes no globs of units: %q", cmd.Name(), units[i])
	}
	return nil
}

func (a *app) changeFiles(nodes, files []string, c fileCommand, f fileFlags) error {
	bus, err := a.client()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	made := make(map[string][]changeRow)
	err = a.forNodes(nodes, f.nodeFlags, func(node string) error {
		rows, err := a.changeNode(bus.Node(node), node, files, c, f)
		mu.Lock()
		defer mu.Unlock()
		made[node] = rows
		return err
	})
	if werr := a.showChanges(nodes, made); werr != nil {
		return werr
	}
	if !f.now {
		return err
	}
	var did []string // nodes where nothing failed
	for _, node := range nodes {
		if made[node] != nil {
			did = append(did, node)
		}
	}
	if len(did) == 0 {
		return err
	}
	units := make([]string, len(files))
	for i, file := range files {
		units[i] = baseName(file)
	}
	return join([]error{err, a.runJobs(did, units, &verbJob{c: bus, verb: c.then, mode: f.mode}, f.jobFlags)})
}

// changeNode changes the unit files of one node. It returns nil rows where that failed.
func (a *app) changeNode(n client.NodeAPI, node string, files []string, c fileCommand, f fileFlags) ([]changeRow, error) {
	carries, list, err := c.change(a.ctx, n, files, f)
	if err != nil {
		failed := &failure{doing: fmt.Sprintf("cannot %s %s on %s", c.word, joined(files), node), node: node, err: err}
		if len(files) == 1 {
			failed.unit = files[0]
			failed.alias = a.aliasOf(n, files[0], err)
		}
		return nil, failed
	}
	if !carries && len(list) == 0 {
		a.note("%s on %s: no [Install] section, so there is nothing to %s; such units are started by others or by hand", joined(files), node, c.word)
	}
	if !f.noReload {
		if err := n.Reload(a.ctx); err != nil {
			return nil, &failure{doing: "cannot reload systemd on " + node, node: node, err: err}
		}
	}
	rows := []changeRow{}
	for _, ch := range list {
		rows = append(rows, changeRow{node, ch.Type, ch.File, ch.Source})
	}
	return rows, nil
}

// aliasOf finds the primary name of a unit that systemd refuses because it is an alias.
func (a *app) aliasOf(n client.NodeAPI, name string, err error) string {
	if !errors.Is(err, errUnitLinked) {
		return ""
	}
	all, err := n.UnitProperties(a.ctx, name, wire.SystemdUnitInterface)
	if id := props(all).text("Id"); err == nil && id != name {
		return id
	}
	return ""
}

// showChanges says what was done, on standard error, as systemctl does; for programs, on
// standard output.
func (a *app) showChanges(nodes []string, made map[string][]changeRow) error {
	rows := []changeRow{}
	for _, node := range nodes {
		rows = append(rows, made[node]...)
	}
	if a.opt.format != render.Table {
		return render.Write(a.out, rows, a.options())
	}
	for _, r := range rows {
		where := ""
		if len(nodes) > 1 {
			where = r.Node + ": "
		}
		switch r.Type {
		case "symlink":
			a.note("%sCreated symlink %s → %s.", where, r.File, r.Source)
		case "unlink":
			a.note("%sRemoved %s.", where, r.File)
		default:
			a.note("%s%s: %s", where, r.Type, r.File)
		}
	}
	return nil
}

func joined(list []string) string { return strings.Join(list, ", ") }
