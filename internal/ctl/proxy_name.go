package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// proxyNameRow is the local unit that stands for a unit of another node.
type proxyNameRow struct {
	Node  string `col:"NODE"`
	Unit  string `col:"UNIT"`
	Proxy string `col:"PROXY"`
}

func proxyNameCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proxy-name NODE UNIT...",
		Short: "Show the unit to depend on for a unit of another node",
		Long: `Prints the name that stands, on every other node, for a unit of NODE. A unit that needs it names it in
Wants=, Requires= or BindsTo=, and in After=.`,
		Example: "  ctl proxy-name node2 db\n  ctl proxy-name node2 data.mount",
		GroupID: groupUnits,
	}
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 {
			return needs(cmd, "a NODE and at least one UNIT")
		}
		if !wire.ValidNodeName(args[0]) {
			return usage("node name %q is not valid: %s", args[0], wire.NodeNameRule)
		}
		rows := []proxyNameRow{}
		for _, typed := range args[1:] {
			target := unit.Mangle(typed, false)
			name, err := unit.ProxyName(args[0], target)
			if err != nil {
				return usage("%v", err)
			}
			rows = append(rows, proxyNameRow{args[0], target, name})
		}
		if a.opt.format == render.Table {
			for _, r := range rows {
				if _, err := fmt.Fprintln(a.out, r.Proxy); err != nil {
					return err
				}
			}
			return nil
		}
		return write(a, rows, "")
	}
	return cmd
}
