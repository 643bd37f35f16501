package ctl

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

func pkiCommand(a *app) *cobra.Command {
	return family(a, "pki COMMAND", "Show and replace the fleet's certificate authority",
		`Shows and replaces the certificate authority that the manager is for its fleet. A manager that has
certificates from files (CertFile=) is none.`,
		"  ctl pki show\n  ctl pki rotate",
		pkiShowCommand, pkiRotateCommand)
}

// certificateRow is one certificate of the manager or of the authority.
type certificateRow struct {
	Role        string    `col:"ROLE"`
	Subject     string    `col:"SUBJECT"`
	Expires     time.Time `col:"EXPIRES"`
	Since       time.Time `col:"SINCE,wide"`
	Fingerprint string    `col:"SHA256"`
}

func pkiShowCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the authority and the manager's certificate",
		Long: `Shows the certificates of the fleet's authority and of the manager, and, while the authority is being
replaced, its successor and the nodes that the replacement waits for.`,
		Example: "  ctl pki show\n  ctl pki show -o json",
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("pki show takes no argument; %q is too much", args[0])
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		authority, err := c.Authority(a.ctx)
		if err != nil {
			return &failure{doing: "cannot show the authority", err: err}
		}
		rows := []certificateRow{}
		for _, r := range authority.Certificates {
			rows = append(rows, certificateRow{r.Role, r.Subject, client.Moment(r.NotAfter), client.Moment(r.NotBefore), r.Fingerprint})
		}
		if err := write(a, rows, "no certificates"); err != nil {
			return err
		}
		if n := len(authority.Waiting); n > 0 {
			a.note("the authority is being replaced; %s have not renewed their certificates: %s", count(n, "node"), strings.Join(authority.Waiting, ", "))
		}
		return nil
	}
	return cmd
}

func pkiRotateCommand(a *app) *cobra.Command {
	finish := false
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the authority",
		Long: `Replaces the fleet's authority without a node losing its manager: a new one stands beside the old one,
both are trusted, and every node is asked to renew its certificate. When the last one has done so,
which for one that is away is after its return, the old authority is deleted. Tokens that were made
before are then worth nothing.

With --finish a replacement that is under way ends at once: nodes that have not renewed their
certificates are out, and their machines must join again.`,
		Example: "  ctl pki rotate\n  ctl pki show",
	}
	cmd.Flags().BoolVar(&finish, "finish", false, "do not wait for the nodes that are missing")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("pki rotate takes no argument; %q is too much", args[0])
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		if err := c.RotateAuthority(a.ctx, finish); err != nil {
			return &failure{doing: "cannot replace the authority", err: err}
		}
		if !finish {
			a.note("nodes renew their certificates now; ctl pki show tells for which the old authority still waits")
		}
		return nil
	}
	return cmd
}
