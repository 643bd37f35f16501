package ctl

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// memberRow is one node with its certificate.
type memberRow struct {
	Node        string    `col:"NODE"`
	Origin      string    `col:"ORIGIN"`
	Certificate string    `col:"CERTIFICATE"`
	Expires     time.Time `col:"EXPIRES"`
	Joined      time.Time `col:"JOINED,wide"`
	Generation  uint64    `col:"GENERATION,wide"`
}

// Style implements render.Styled.
func (r memberRow) Style(column string) render.Style {
	switch {
	case column != "CERTIFICATE":
	case r.Certificate == wire.MemberExpired:
		return render.Bad
	case r.Certificate == wire.MemberNone:
		return render.Faint
	}
	return render.Plain
}

// tokenRow is one token that can still be used.
type tokenRow struct {
	Token   string    `col:"TOKEN"`
	Node    string    `col:"NODE"`
	Left    uint32    `col:"LEFT"`
	Count   uint32    `col:"COUNT"`
	Expires time.Time `col:"EXPIRES"`
	Created time.Time `col:"CREATED,wide"`
}

func nodeListCommand(a *app) *cobra.Command {
	tokens := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List nodes with their certificates, or tokens",
		Long: `Lists the nodes of the fleet: what makes each of them a member, a place in the configuration or "added",
and its certificate: none before its machine has joined, joined, renewing where the node is to renew
it now, expired where the machine must join again. A node without ORIGIN is no member, but has a
certificate that would count if it became one; ctl node remove ends that.

With --tokens it lists the tokens that can still be used, by their numbers.`,
		Example: "  ctl node list\n  ctl node list --tokens",
	}
	cmd.Flags().BoolVar(&tokens, "tokens", false, "the tokens that can still be used")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("node list takes no argument; %q is too much", args[0])
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		if tokens {
			return a.listTokens(c)
		}
		members, err := c.Members(a.ctx)
		if err != nil {
			return &failure{doing: "cannot list nodes", err: err}
		}
		rows := []memberRow{}
		for _, m := range members {
			rows = append(rows, memberRowOf(m))
		}
		return write(a, rows, "no nodes; ctl node add NODE adds one")
	}
	return cmd
}

func memberRowOf(m wire.MemberRow) memberRow {
	return memberRow{m.Name, m.Origin, m.State, client.Moment(m.Expires), client.Moment(m.Joined), m.Generation}
}

func (a *app) listTokens(c *client.Client) error {
	tokens, err := c.Tokens(a.ctx)
	if err != nil {
		return &failure{doing: "cannot list tokens", err: err}
	}
	rows := []tokenRow{}
	for _, t := range tokens {
		rows = append(rows, tokenRow{t.ID, t.Name, t.Left, t.Count, client.Moment(t.Expires), client.Moment(t.Created)})
	}
	return write(a, rows, "no tokens that can be used")
}

func nodeShowCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NODE…",
		Short:   "Show what is known of nodes and their certificates",
		Long:    `Shows a node's place in the fleet and its certificate, one thing a line.`,
		Example: "  ctl node show node1",
	}
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return needs(cmd, "a NODE")
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		members, err := c.Members(a.ctx)
		if err != nil {
			return &failure{doing: "cannot show " + args[0], err: err}
		}
		rows := []memberRow{}
		var errs []error
		for _, name := range args {
			found := false
			for _, m := range members {
				if m.Name == name {
					rows, found = append(rows, memberRowOf(m)), true
				}
			}
			if !found {
				errs = append(errs, &failure{doing: fmt.Sprintf("there is no node %q", name), node: name, err: &silentKind{wire.ErrNoSuchNode}})
			}
		}
		return join(append([]error{a.showMembers(rows)}, errs...))
	}
	return cmd
}

func (a *app) showMembers(rows []memberRow) error {
	if a.opt.format != render.Table {
		return render.Write(a.out, rows, a.options())
	}
	for i, r := range rows {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		for _, line := range []struct{ key, value string }{
			{"Node", r.Node}, {"Origin", r.Origin}, {"Certificate", r.Certificate}, {"Joined", stamp(r.Joined)},
			{"Expires", stamp(r.Expires)}, {"Generation", fmt.Sprint(r.Generation)},
		} {
			if line.value == "" {
				line.value = render.None
			}
			if _, err := fmt.Fprintf(a.out, "%11s: %s\n", line.key, render.Clean(line.value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// stamp is a time as tables show it.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}
