package ctl

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/wire"
)

// shutdownLimit is how long shutdown waits for a daemon to be gone. A daemon that ends as it
// should takes at most 5 s.
const shutdownLimit = 15 * time.Second

func shutdownCommand(a *app) *cobra.Command {
	var f nodeFlags
	cmd := &cobra.Command{
		Use:   "shutdown [NODE]",
		Short: "End the manager, or the agents of nodes",
		Long: `Ends the manager, or the agents of nodes, as systemctl stop does on their machines, and waits until
they are gone. Machines and units go on; jobs that are under way end as canceled. What was ended comes
back when somebody starts it on its machine, or at the next boot.`,
		Example: "  ctl shutdown node1\n  ctl shutdown",
		GroupID: groupFleet,
	}
	f.addParallel(cmd)
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !f.allNodes {
			return a.shutdownManager()
		}
		return a.nodeAction(cmd, args, f, "shut down the agent", a.shutdownAgent)
	}
	return cmd
}

func (a *app) shutdownManager() error {
	c, err := a.client()
	if err != nil {
		return err
	}
	w, err := c.Watch(a.ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := c.Shutdown(a.ctx); err != nil {
		return &failure{doing: "cannot shut down the manager", err: err}
	}
	ctx, cancel := context.WithTimeout(a.ctx, shutdownLimit)
	defer cancel()
	for w.Lapses(client.ManagerProcess.Is) == 0 {
		select {
		case <-w.Changed():
		case <-ctx.Done():
			return &failure{doing: "the manager does not end", err: notGone(ctx)}
		}
	}
	a.note("the manager has ended; units on nodes go on; to start it again, on its machine: %s start ctrl-manager", a.systemctl())
	return nil
}

func (a *app) shutdownAgent(ctx context.Context, n client.NodeAPI) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	w, err := c.Watch(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := n.Shutdown(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownLimit)
	defer cancel()
	for w.Lapses(client.NodeSubject(n.Name()).Is) == 0 {
		if w.Lapses(client.ManagerProcess.Is) > 0 {
			return client.ErrManagerGone.With("the manager left the bus before the agent had ended")
		}
		select {
		case <-w.Changed():
		case <-ctx.Done():
			return notGone(ctx)
		}
	}
	a.note("the agent on %s has ended; units there go on; to start it again, on %s: %s start ctrl-agent", n.Name(), n.Name(), a.systemctl())
	return nil
}

// notGone is why a wait for the end of a daemon is over.
func notGone(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return wire.ErrTimeout.With("it was told to, and is still there after %s", shutdownLimit)
}
