package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

// action is a command that does one thing to units and makes no job.
type action struct {
	f     nodeFlags
	doing string // "cannot DOING UNIT on NODE"
	// do does it to one unit of one node.
	do func(ctx context.Context, n client.NodeAPI, unit string) error
}

// unitAction carries out a command NODE UNIT…. Globs stand for the loaded units.
func (a *app) unitAction(cmd *cobra.Command, args []string, act action) error {
	pattern, typed, err := act.f.split(cmd, args)
	if err == nil && len(typed) == 0 {
		err = needs(cmd, "a NODE and at least one UNIT")
	}
	if err != nil {
		return err
	}
	units, err := a.unitNames(typed)
	if err != nil {
		return err
	}
	nodes, err := a.nodes(a.ctx, pattern)
	if err != nil {
		return err
	}
	return a.actOnUnits(nodes, units, act)
}

func (a *app) actOnUnits(nodes, units []string, act action) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var missed unmatched
	err = a.forNodes(nodes, act.f, func(node string) error {
		found, none, err := a.expand(a.ctx, node, units)
		if err != nil {
			return &failure{doing: fmt.Sprintf("cannot %s units on %s", act.doing, node), node: node, err: err}
		}
		missed.add(none)
		var errs []error
		for _, u := range found {
			if err := act.do(a.ctx, c.Node(node), u); err != nil {
				errs = append(errs, &failure{doing: fmt.Sprintf("cannot %s %s on %s", act.doing, u, node), node: node, unit: u, err: err})
			}
		}
		return join(errs)
	})
	return join(append([]error{err}, noMatches(nodes, missed.counts)...))
}

// forNodes does something on every node, as the flags say: in parallel, or one after the
// other until one fails.
func (a *app) forNodes(nodes []string, f nodeFlags, do func(node string) error) error {
	errs := make([]error, len(nodes))
	stopped := -1
	each(nodes, f.limit(), func(i int, node string) {
		if f.serial && stopped >= 0 {
			return
		}
		errs[i] = do(node)
		if errs[i] != nil && f.serial {
			stopped = i
		}
	})
	if stopped >= 0 && stopped < len(nodes)-1 {
		a.say("stopped after the first failure; not tried: %s", joined(nodes[stopped+1:]))
	}
	return join(errs)
}
