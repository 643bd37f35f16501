package ctl

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
)

// addFlags are the flags of node add.
type addFlags struct {
	expires  waitFlag
	reusable string
	count    uint32
	manager  string
}

// invitationRow is what lets a machine join.
type invitationRow struct {
	Node    string    `col:"NODE"`
	Command string    `col:"COMMAND"`
	Manager string    `col:"MANAGER"`
	Token   string    `col:"TOKEN"`
	Expires time.Time `col:"EXPIRES"`
}

func nodeAddCommand(a *app) *cobra.Command {
	var f addFlags
	cmd := &cobra.Command{
		Use:   "add NODE…",
		Short: "Add nodes, and print what to run on their machines",
		Long: `Makes names members of the fleet, and prints for each of them the line to run on its machine, as root.
The line holds a token, which lets one machine be that node, once, within an hour or what --expires
says; who has it can be the node, so treat it as a password. A node that is in the fleet already can
be added again: the machine that runs the new line takes its place.

With --reusable one token lets in up to --count machines, such as those of one image. Each is the node
of its host name, which must match the pattern and be new to the fleet.`,
		Example: "  ctl node add node1\n  ctl node add node1 --expires 1d --manager 192.0.2.1\n  ctl node add --reusable 'web-*' --count 20 --expires 1w",
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().Var(&f.expires, "expires", "how long the token is good (default 1h)")
	cmd.Flags().StringVar(&f.reusable, "reusable", "", "a token for all nodes whose names match `PATTERN`")
	cmd.Flags().Uint32Var(&f.count, "count", 0, "how many machines a reusable token lets in")
	cmd.Flags().StringVar(&f.manager, "manager", "", "`HOST[:PORT]` at which nodes find the manager (default: its host name)")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case f.reusable == "" && len(args) == 0:
			return needs(cmd, "a NODE")
		case f.reusable == "" && f.count > 0:
			return usage("--count is for --reusable: a token for one node lets one machine in")
		case f.reusable != "" && len(args) > 0:
			return usage("--reusable is for names that match its pattern; %q is too much", args[0])
		case f.reusable != "" && f.count == 0:
			return usage("--reusable needs --count: how many machines may join with the token")
		}
		return a.nodeAdd(f, args)
	}
	return cmd
}

func (a *app) nodeAdd(f addFlags, names []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	life := f.expires.d
	if f.reusable != "" {
		i, err := c.AddToken(a.ctx, f.reusable, f.count, life)
		if err != nil {
			return &failure{doing: "cannot make a token", err: err}
		}
		return a.invite([]invitationRow{a.invitation(f, f.reusable, i)}, fmt.Sprintf("on each of up to %d machines", f.count), f)
	}
	var rows []invitationRow
	for _, name := range names {
		i, err := c.AddNode(a.ctx, name, life)
		if err != nil {
			return join([]error{a.invite(rows, "", f), &failure{doing: "cannot add " + name, err: err}})
		}
		rows = append(rows, a.invitation(f, name, i))
	}
	return a.invite(rows, "", f)
}

// invite prints the lines to run.
func (a *app) invite(rows []invitationRow, where string, f addFlags) error {
	if a.opt.format != render.Table {
		return render.Write(a.out, rows, a.options())
	}
	for _, r := range rows {
		at := where
		if at == "" {
			at = "on " + r.Node
		}
		a.note("to run %s, as root, within %s:", at, render.Span(uint64(f.lifetime().Microseconds()), uint64(time.Second.Microseconds())))
		if _, err := fmt.Fprintln(a.out, r.Command); err != nil {
			return err
		}
	}
	return nil
}

func (f *addFlags) lifetime() time.Duration {
	if f.expires.d == 0 {
		return time.Hour // the manager's default
	}
	return f.expires.d
}

func (a *app) invitation(f addFlags, name string, i client.Invitation) invitationRow {
	manager := i.Manager
	if f.manager != "" {
		manager = f.manager
		if _, port, err := net.SplitHostPort(i.Manager); err == nil && hasNoPort(f.manager) {
			manager = net.JoinHostPort(trimBrackets(f.manager), port)
		}
	}
	return invitationRow{
		Node: name, Manager: manager, Token: i.Token, Expires: a.now().Add(f.lifetime()).UTC().Truncate(time.Second),
		Command: "ctrl-agent join --manager " + manager + " --token " + i.Token,
	}
}

func hasNoPort(host string) bool {
	_, _, err := net.SplitHostPort(host)
	return err != nil
}

// trimBrackets takes an IPv6 address out of its brackets.
func trimBrackets(host string) string {
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		return host[1 : n-1]
	}
	return host
}
