package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/ctrl/internal/ctl/render"
)

// helpText is what --help prints for a command; man pages are made from the same fields.
func helpText(cmd *cobra.Command) string {
	var b strings.Builder
	text := cmd.Long
	if text == "" {
		text = cmd.Short
	}
	fmt.Fprintf(&b, "%s\n\n%s", text, usageText(cmd))
	return b.String()
}

func usageText(cmd *cobra.Command) string {
	var b strings.Builder
	if cmd.HasParent() {
		name, args, _ := strings.Cut(cmd.Use, " ")
		fmt.Fprintf(&b, "Usage: %s %s [OPTIONS] %s\n", cmd.Parent().CommandPath(), name, args)
	} else {
		fmt.Fprintf(&b, "Usage: %s\n", cmd.Use)
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, group := range cmd.Groups() {
		fmt.Fprintf(&b, "\n%s\n", group.Title)
		for _, c := range cmd.Commands() {
			if c.GroupID == group.ID && c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-22s %s\n", c.Name(), c.Short)
			}
		}
	}
	if flags := flagText(cmd.LocalFlags(), nil); flags != "" {
		fmt.Fprintf(&b, "\nOptions:\n%s", flags)
	}
	if cmd.HasParent() {
		if filters := flagText(cmd.InheritedFlags(), strings.Fields(cmd.Annotations[takesFilters])); filters != "" {
			fmt.Fprintf(&b, "\nFilters:\n%s", filters)
		}
		b.WriteString("\nOptions of all commands: ctl --help\n")
	} else {
		b.WriteString("\nMore about a command: ctl COMMAND --help\n" +
			"\nExit codes: 0 ok, 1 failed, 2 usage, 3 not active, 4 no such unit or node, 5 access denied,\n" +
			"6 node offline, 7 timed out, 130 interrupted\n")
	}
	return b.String()
}

// flagText describes flags, or only those among them that are named.
func flagText(flags *pflag.FlagSet, only []string) string {
	var heads, tails []string
	width := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || only != nil && !contains(only, f.Name) || only == nil && f.Name == "help" {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		head := "      --" + f.Name
		if f.Shorthand != "" {
			head = "  -" + f.Shorthand + ", --" + f.Name
		}
		if f.Value.Type() != "bool" {
			head += " " + value
		}
		heads, tails = append(heads, head), append(tails, text)
		width = max(width, render.Width(head))
	})
	var b strings.Builder
	for i, head := range heads {
		fmt.Fprintf(&b, "%s%s  %s\n", head, strings.Repeat(" ", width-render.Width(head)), tails[i])
	}
	return b.String()
}
