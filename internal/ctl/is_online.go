package ctl

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/ctl/render"
)

// waitFlag is a flag that takes a time span for which something is waited for; infinity is a
// span here.
type waitFlag struct{ d time.Duration }

func (f *waitFlag) String() string {
	if f.d == 0 {
		return ""
	}
	return f.d.String()
}

func (f *waitFlag) Set(s string) error {
	us, err := parseSpan(s, second)
	if err != nil {
		return err
	}
	f.d = time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond
	return nil
}

func (f *waitFlag) Type() string { return "time" }

// onlineFlags are the flags of is-online.
type onlineFlags struct {
	wait    waitFlag
	monitor bool
	forgive waitFlag
}

// onlineWords are what is-online knows besides nodes.
var onlineWords = []string{"agent", "manager", "system"}

func isOnlineCommand(a *app) *cobra.Command {
	var f onlineFlags
	cmd := &cobra.Command{
		Use:   "is-online [agent|manager|system|[node] NODE]",
		Short: "Check whether agent, manager, system or nodes are online",
		Long: `Prints whether something is online: the agent of this machine, that is, registered with its manager;
the manager; the system, which is all nodes that are not optional (also without an argument); or NODE,
which may be a list or a glob of nodes that must all be. "node" before it makes agent, manager and
system names of nodes.

The exit code is 0 where it is online, 6 where it is not, 4 where there is no such node. With --wait it
is waited for, also for a manager, an agent or a bus that is not there yet. With --monitor ctl stays
while it is online and ends with 6 when it is not any more; Ctrl-C and SIGTERM then end it with 0. A
daemon that ends, or is killed, is not online; with --switch-timeout it may come back, as the agent does
that is restarted or belongs to another manager now.`,
		Example: "  ctl is-online node1\n  ctl is-online agent --wait 5s --monitor\n  ctl is-online system --quiet && echo up",
		GroupID: groupFleet,
	}
	cmd.Flags().Var(&f.wait, "wait", "wait at most this `TIME` (5s, infinity) until it is online")
	cmd.Flags().BoolVar(&f.monitor, "monitor", false, "stay until it is not online any more")
	cmd.Flags().Var(&f.forgive, "switch-timeout", "with --monitor: it may be offline for this `TIME`")
	cmd.ValidArgsFunction = a.completeOnline
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		q, err := onlineQuestion(args)
		if err == nil && f.forgive.d > 0 && !f.monitor {
			err = usage("--switch-timeout is for --monitor")
		}
		if err != nil {
			return err
		}
		return a.isOnline(q, f)
	}
	return cmd
}

// onlineQuestion reads what is asked about.
func onlineQuestion(args []string) (question, error) {
	word := "system"
	if len(args) > 0 {
		word = args[0]
	}
	switch {
	case len(args) == 2 && word == "node":
		_, err := nodePatterns(args[1])
		return question{pattern: args[1]}, err
	case len(args) > 1:
		return question{}, usage("is-online takes one of agent, manager, system or a NODE, which may be a list or a glob; %q is too much", args[len(args)-1])
	case slices.Contains(onlineWords, word):
		return question{of: word}, nil
	}
	_, err := nodePatterns(word)
	return question{pattern: word}, err
}

func (a *app) isOnline(q question, f onlineFlags) error {
	o := &onlooker{a: a, q: q}
	var err error
	if f.wait.d > 0 {
		ctx, cancel := a.deadline(a.ctx, f.wait.d)
		err = o.until(ctx)
		cancel()
	} else {
		err = o.look(a.ctx)
	}
	if err != nil && !errors.Is(err, errGaveUp) {
		return err
	}
	if err := a.showOnline(o, f.monitor); err != nil {
		return err
	}
	if !o.up() {
		return exit(exitOffline)
	}
	if f.monitor {
		return a.stayOnline(o, f.forgive)
	}
	return nil
}

// stayOnline returns when it is not online any more.
func (a *app) stayOnline(o *onlooker, forgive waitFlag) error {
	for {
		known := o.lapses
		if err := o.wait(a.ctx); err != nil {
			return nil // interrupted while it is online
		}
		if err := o.look(a.ctx); err != nil {
			if a.ctx.Err() != nil {
				return nil
			}
			return err
		}
		if o.up() && o.lapses == known {
			continue
		}
		back, err := a.forgiven(o, forgive)
		if err != nil {
			return err
		}
		if !back {
			if o.up() {
				a.say("%s was offline for a moment", o.name())
			}
			return join([]error{a.showOnline(o, true), exit(exitOffline)})
		}
	}
}

// forgiven reports whether what was lost is back in time.
func (a *app) forgiven(o *onlooker, forgive waitFlag) (back bool, err error) {
	if forgive.d == 0 {
		return false, nil
	}
	ctx, cancel := a.deadline(a.ctx, forgive.d)
	defer cancel()
	err = o.until(ctx)
	switch {
	case err == nil:
		a.note("%s is online again", o.name())
		return true, nil
	case errors.Is(err, errGaveUp):
		return false, nil
	}
	return false, err
}

// showOnline prints a bare word for one answer, as is-active does, and a table for several.
func (a *app) showOnline(o *onlooker, stream bool) error {
	if a.opt.quiet {
		return nil
	}
	if a.opt.format == render.Table && len(o.rows) == 1 {
		if _, err := fmt.Fprintln(a.out, render.Clean(o.rows[0].Status)); err != nil {
			return err
		}
		if !o.up() {
			a.note("%s", o.why())
		}
		return nil
	}
	if a.opt.format == render.Table || !stream {
		return render.Write(a.out, o.rows, a.options())
	}
	for _, r := range o.rows {
		if err := a.streamRow(r); err != nil {
			return err
		}
	}
	return nil
}

// completeOnline completes what is-online is about.
func (a *app) completeOnline(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 && args[0] == "node" {
		args = nil
	} else if len(args) == 0 {
		nodes, directive := a.completeNodes(cmd, args, typed)
		for _, w := range onlineWords {
			if strings.HasPrefix(w, typed) {
				nodes = append(nodes, w)
			}
		}
		return nodes, directive
	}
	return a.completeNodes(cmd, args, typed)
}
