package ctl

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/wire"
)

func startCommand(a *app) *cobra.Command {
	return verbCommand(a, wire.Start, "Start units", `Starts units and waits until their start jobs have ended. A unit whose conditions are not met
is not started, which is no failure; a unit that has failed by the time its job is done is one.`)
}

func stopCommand(a *app) *cobra.Command {
	return verbCommand(a, wire.Stop, "Stop units", `Stops units and waits until their stop jobs have ended.`)
}

func restartCommand(a *app) *cobra.Command {
	return verbCommand(a, wire.Restart, "Stop and start units", `Restarts units; units that do not run are started.`)
}

func reloadCommand(a *app) *cobra.Command {
	return verbCommand(a, wire.Reload, "Make units read their own configuration again", `Tells units to read their own configuration again; unit files are read again by daemon-reload.`)
}

func tryRestartCommand(a *app) *cobra.Command {
	return verbCommand(a, wire.TryRestart, "Restart units that run", `Restarts units that run and leaves the others alone.`)
}

func reloadOrRestartCommand(a *app) *cobra.Command {
	return verbCommand(a, wire.ReloadOrRestart, "Reload units that can, restart the others", `Reloads units that can reload and restarts the others; units that do not run are started.`)
}

func tryReloadOrRestartCommand(a *app) *cobra.Command {
	return verbCommand(a, wire.TryReloadOrRestart, "Reload or restart units that run", `Reloads units that run and can reload, restarts the others that run.`)
}

// jobFlags are the flags of commands that make jobs.
type jobFlags struct {
	nodeFlags
	noWait            bool
	timeout           time.Duration
	mode              string
	cancelOnInterrupt bool
	waitOnline        waitFlag
}

func (f *jobFlags) add(cmd *cobra.Command) {
	f.addParallel(cmd)
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "print the paths of the jobs and do not wait")
	cmd.Flags().BoolVar(&f.noWait, "no-block", false, "as --no-wait")
	_ = cmd.Flags().MarkHidden("no-block") // systemctl's word; the flag exists
	cmd.Flags().Var(spanFlag{&f.timeout}, "timeout", "wait at most this `TIME` (30s, 5min); jobs go on")
	cmd.Flags().StringVar(&f.mode, "job-mode", "replace", "how to treat jobs already queued, as systemctl's `MODE`: "+strings.Join(wire.JobModes, ", "))
	cmd.Flags().StringVar(&f.mode, "mode", "replace", "as --job-mode")
	_ = cmd.Flags().MarkHidden("mode") // the flag exists
	cmd.Flags().BoolVar(&f.cancelOnInterrupt, "cancel-on-interrupt", false, "Ctrl-C cancels the jobs")
	cmd.Flags().Var(&f.waitOnline, "wait-online", "before, wait at most this `TIME` for the nodes, and for the manager")
}

func (f *jobFlags) check() error {
	if !slices.Contains(wire.JobModes, f.mode) {
		return usage("job mode %q is not known; use one of %s", f.mode, strings.Join(wire.JobModes, ", "))
	}
	if f.noWait && f.timeout > 0 {
		return usage("--no-wait does not wait, so it takes no --timeout")
	}
	return nil
}

func verbCommand(a *app, verb wire.Verb, short, long string) *cobra.Command {
	var f jobFlags
	cmd := &cobra.Command{
		Use:     verb.String() + " NODE UNIT…",
		Short:   short,
		Long:    long + "\n\nSeveral nodes are worked on in parallel. A glob among the units stands for the units that are\nloaded on the node. Ctrl-C ends the wait, not the jobs.",
		Example: "  ctl " + verb.String() + " node1 foo.service\n  ctl " + verb.String() + " --serial 'web-*' nginx",
		GroupID: groupUnits,
	}
	f.add(cmd)
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		pattern, typed, err := f.split(cmd, args)
		if err == nil && len(typed) == 0 {
			err = needs(cmd, "a NODE and at least one UNIT")
		}
		if err == nil {
			err = f.check()
		}
		if err != nil {
			return err
		}
		units, err := a.unitNames(typed)
		if err != nil {
			return err
		}
		if err := a.awaitOnline(pattern, f.waitOnline); err != nil {
			return err
		}
		nodes, err := a.nodes(a.ctx, pattern)
		if err != nil {
			return err
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		return a.runJobs(nodes, units, &verbJob{c: c, verb: verb, mode: f.mode}, f)
	}
	return cmd
}

// maker makes the jobs of a command and judges their ends.
type maker interface {
	// word is the verb for texts: "start".
	word() string
	// before is called once per node, before jobs are made.
	before(ctx context.Context, node string, units []string) error
	follow(ctx context.Context, node, unit string) (*client.Job, error)
	queue(ctx context.Context, node, unit string) (uint32, error)
	// spares tells whether a refusal only means that there is nothing to do.
	spares(err error) bool
	// after looks at a unit whose job is done.
	after(ctx context.Context, node, unit string) verdict
}

// verbJob makes the jobs of one verb.
type verbJob struct {
	c    *client.Client
	verb wire.Verb
	mode string

	failedBefore failedUnits
}

func (v *verbJob) word() string { return v.verb.String() }

func (v *verbJob) before(ctx context.Context, node string, units []string) error {
	switch {
	case v.verb == wire.Stop:
		return v.failedBefore.read(ctx, v.c, node, units)
	case onlyRunning(v.verb):
		v.failedBefore.readLoading(ctx, v.c, node, units)
	}
	return nil
}

// onlyRunning tells the verbs that leave alone what does not run.
func onlyRunning(verb wire.Verb) bool {
	return verb == wire.TryRestart || verb == wire.TryReloadOrRestart
}

// spares is systemd's refusal of a masked unit, where the verb is only for what runs: as with
// systemctl there is nothing to do then.
func (v *verbJob) spares(err error) bool {
	return onlyRunning(v.verb) && errors.Is(err, wire.ErrSystemdUnitMasked)
}

func (v *verbJob) follow(ctx context.Context, node, unit string) (*client.Job, error) {
	return v.c.StartJob(ctx, node, v.verb, unit, v.mode)
}

func (v *verbJob) queue(ctx context.Context, node, unit string) (uint32, error) {
	return v.c.QueueJob(ctx, node, v.verb, unit, v.mode)
}

func (v *verbJob) after(ctx context.Context, node, unit string) verdict {
	switch {
	case v.verb == wire.Stop:
		return v.failedBefore.judge(ctx, v.c, node, unit)
	case onlyRunning(v.verb) && v.failedBefore.has(node, unit):
		return verdict{} // it did not run, so nothing was done to it
	}
	return judgeStart(ctx, v.c, node, unit, v.verb)
}
