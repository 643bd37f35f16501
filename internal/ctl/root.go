package ctl

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/version"
)

// globals are the flags that every command has.
type globals struct {
	output   string
	format   render.Format
	noLegend bool
	plain    bool
	full     bool
	quiet    bool
	noPager  bool
	noAsk    bool
	color    string

	user    bool
	system  bool
	host    string
	address string

	// Filters, which only listing commands take (annotation takesFilters).
	states  []string
	types   []string
	failed  bool
	all     bool
	version bool
}

// Groups of commands in the help text.
const (
	groupFleet = "fleet"
	groupUnits = "units"
	groupFiles = "files"
	groupJobs  = "jobs"

	groupWorkloads = "workloads"

	groupOther = "other"
)

// takesFilters marks commands that take --state, --type, --failed and --all; its value names
// those that it takes.
const takesFilters = "filters"

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "ctl [OPTIONS] COMMAND",
		Short: "Control systemd units on many machines",
		Long: `ctl controls systemd units on the nodes of a fleet: systemctl's words, with a node in front.

NODE is a name, a list of names with commas, or a glob in quotes; '*' is every node. A unit
without a suffix is a service.`,
		Example: `  ctl list-nodes
  ctl start node1 foo.service
  ctl restart 'web-*' nginx`,
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runRoot(cmd, args) },
		Annotations:       map[string]string{takesFilters: "state type failed all"},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.SetFlagErrorFunc(a.flagError)
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(a.errOut, usageText(cmd))
		return err
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { _, _ = io.WriteString(a.out, helpText(cmd)) })
	a.addGlobals(root.PersistentFlags())
	root.Flags().BoolVar(&a.opt.version, "version", false, "print the version of ctl")
	root.AddGroup(&cobra.Group{ID: groupFleet, Title: "Fleet:"}, &cobra.Group{ID: groupUnits, Title: "Units:"},
		&cobra.Group{ID: groupFiles, Title: "Unit files:"}, &cobra.Group{ID: groupJobs, Title: "Jobs:"}, &cobra.Group{ID: groupWorkloads, Title: "Workloads:"}, &cobra.Group{ID: groupOther, Title: "Other:"})
	root.SetHelpCommandGroupID(groupOther)
	for _, c := range commands {
		root.AddCommand(c(a))
	}
	return root
}

// commands are all commands, one function per command.
var commands = []func(*app) *cobra.Command{
	listNodesCommand, nodeCommand, pkiCommand, statusCommand, isOnlineCommand, logLevelCommand, metricsCommand, shutdownCommand, switchManagerCommand, versionCommand,
	startCommand, stopCommand, restartCommand, reloadCommand, tryRestartCommand, reloadOrRestartCommand, tryReloadOrRestartCommand,
	runCommand, listUnitsCommand, monitorCommand, isActiveCommand, isFailedCommand, showCommand, killCommand, freezeCommand, thawCommand, resetFailedCommand, setPropertyCommand,
	listUnitFilesCommand, catCommand, enableCommand, disableCommand, maskCommand, unmaskCommand, presetCommand, isEnabledCommand,
	getDefaultCommand, setDefaultCommand, daemonReloadCommand,
	listJobsCommand, cancelCommand, eventsCommand,
	applyCommand, diffCommand, renderCommand, workloadCommand,
	proxyNameCommand, listDependenciesCommand,
	completionCommand,
}

func (a *app) addGlobals(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVarP(&a.opt.output, "output", "o", "table", "`FORMAT` of results: table, json or yaml")
	f.BoolVar(&a.opt.noLegend, "no-legend", false, "no line of column names, no counts")
	f.BoolVar(&a.opt.plain, "plain", false, "no marks before rows")
	f.BoolVarP(&a.opt.full, "full", "l", false, "cut nothing, show all columns")
	f.BoolVarP(&a.opt.quiet, "quiet", "q", false, "only errors on standard error")
	f.BoolVar(&a.opt.noPager, "no-pager", false, "no pager")
	f.BoolVar(&a.opt.noAsk, "no-ask-password", false, "ask for no password")
	f.StringVar(&a.opt.color, "color", "auto", "colours `WHEN`: auto, always or never")
	f.BoolVar(&a.opt.user, "user", false, "the manager on the user's bus")
	f.BoolVar(&a.opt.system, "system", false, "the manager on the system's bus (the default)")
	f.StringVarP(&a.opt.host, "host", "H", "", "the manager on `[USER@]HOST[:PORT]`, over ssh")
	f.StringVar(&a.opt.address, "address", "", "the manager on the bus at a D-Bus `ADDRESS`")
	f.StringSliceVar(&a.opt.states, "state", nil, "only what is in one of these `STATES`")
	f.StringSliceVarP(&a.opt.types, "type", "t", nil, "only units of these `TYPES`")
	f.BoolVar(&a.opt.failed, "failed", false, "only what has failed (--state=failed)")
	f.BoolVarP(&a.opt.all, "all", "a", false, "also what is inactive or empty")
	for _, filter := range []string{"state", "type", "failed", "all"} {
		_ = f.SetAnnotation(filter, filterFlag, nil) // the flag exists
	}
}

// filterFlag marks the flags that only some commands take.
const filterFlag = "filter"

// prepare checks the global flags before a command runs.
func (a *app) prepare(cmd *cobra.Command) error {
	format, err := render.ParseFormat(a.opt.output)
	if err != nil {
		return usage("%v", err)
	}
	a.opt.format = format
	switch a.opt.color {
	case "auto", "always", "never":
	default:
		return usage("--color=%s is not known; use auto, always or never", a.opt.color)
	}
	if a.opt.user && a.opt.system {
		return usage("--user and --system exclude each other")
	}
	if a.opt.host != "" && a.opt.address != "" {
		return usage("--host and --address exclude each other")
	}
	a.look()
	takes := strings.Fields(cmd.Annotations[takesFilters])
	var refused error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, filter := f.Annotations[filterFlag]; filter && !contains(takes, f.Name) {
			refused = usage("%s does not take --%s", cmd.Name(), f.Name)
		}
	})
	return refused
}

func contains(list []string, s string) bool {
	for _, one := range list {
		if one == s {
			return true
		}
	}
	return false
}

// runRoot is ctl without a command that it knows.
func (a *app) runRoot(cmd *cobra.Command, args []string) error {
	switch {
	case a.opt.version:
		fmt.Fprintln(a.out, "ctl "+version.String())
		return nil
	case len(args) > 0:
		return a.unknownCommand(args[0])
	case a.opt.failed || len(a.opt.states) > 0 || len(a.opt.types) > 0 || a.opt.all:
		return a.listUnits(nil, listFlags{})
	}
	_ = cmd.Usage() // it goes to standard error, where nothing helps against failures
	return exit(exitUsage)
}

func (a *app) unknownCommand(word string) error {
	err := &usageError{text: fmt.Sprintf("command %q is not known", word), hint: "see: ctl --help"}
	var names []string
	for _, c := range a.root.Commands() {
		names = append(names, c.Name())
	}
	if near := closest(word, names); near != "" {
		err.hint = fmt.Sprintf("did you mean %q?", near)
	}
	return err
}

// flagError words what the flag parser did not like. An unknown flag behind an unknown command
// is the command's mistake.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	if cmd == a.root {
		if word := a.firstWord(); word != "" {
			return a.unknownCommand(word)
		}
	}
	text := err.Error()
	bad := &usageError{text: text, hint: "see: " + cmd.CommandPath() + " --help"}
	if name, ok := strings.CutPrefix(text, "unknown flag: --"); ok {
		bad.text = fmt.Sprintf("%s does not know --%s", cmd.CommandPath(), name)
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := closest(name, names); near != "" {
			bad.hint = fmt.Sprintf("did you mean --%s?", near)
		}
	}
	return bad
}

// firstWord is the first argument that is neither a flag nor a flag's value.
func (a *app) firstWord() string {
	flags := a.root.PersistentFlags()
	for i := 0; i < len(a.args); i++ {
		word := a.args[i]
		var f *pflag.Flag
		switch {
		case word == "--":
			return ""
		case strings.HasPrefix(word, "--"):
			f = flags.Lookup(word[2:])
		case strings.HasPrefix(word, "-") && len(word) == 2:
			f = flags.ShorthandLookup(word[1:])
		case !strings.HasPrefix(word, "-"):
			return word
		}
		if f != nil && f.NoOptDefVal == "" {
			i++
		}
	}
	return ""
}
