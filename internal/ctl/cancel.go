package ctl

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/wire"
)

func cancelCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel JOB…",
		Short: "Cancel jobs",
		Long: `Cancels jobs, each given by its number or its object path. A job that waits is removed, one that
runs is canceled in its node's systemd; the unit stays in the state that it is in.

With --operation it ends operations on workloads: no further node is begun, and nodes under way end
by themselves.`,
		Example: "  ctl cancel 17\n  ctl cancel $(ctl start --no-wait node1 foo.service)\n  ctl cancel --operation 3",
		GroupID: groupJobs,
	}
	operation := false
	cmd.Flags().BoolVar(&operation, "operation", false, "the numbers are those of operations on workloads")
	cmd.ValidArgsFunction = a.completeJobs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return needs(cmd, "at least one JOB")
		}
		ids := make([]uint32, len(args))
		for i, arg := range args {
			id, err := jobArg(arg)
			if err != nil {
				return err
			}
			ids[i] = id
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		errs := make([]error, len(ids))
		each(ids, maxNodesAtOnce, func(i int, id uint32) {
			if operation {
				if err := c.CancelOperation(a.ctx, id); err != nil {
					errs[i] = &failure{doing: fmt.Sprintf("cannot cancel operation %d", id), err: err}
				}
				return
			}
			if err := c.CancelJob(a.ctx, id); err != nil {
				errs[i] = &failure{doing: fmt.Sprintf("cannot cancel job %d", id), err: err}
			}
		})
		return join(errs)
	}
	return cmd
}

func jobArg(s string) (uint32, error) {
	if id, ok := wire.ParseJobPath(wire.ObjectPath(s)); ok {
		return id, nil
	}
	id, err := strconv.ParseUint(s, 10, 32)
	if err != nil || id == 0 {
		return 0, usage("%q is no job: give its number or its path, as ctl list-jobs and --no-wait print them", s)
	}
	return uint32(id), nil
}
