package ctl

import (
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/unit"
)

// actionRow is one entry of the action log.
type actionRow struct {
	Time      time.Time `col:"TIME"`
	Node      string    `col:"NODE"`
	Unit      string    `col:"UNIT"`
	Verb      string    `col:"VERB"`
	Job       uint32    `col:"JOB"` // 0 is none
	Event     string    `col:"EVENT"`
	Result    string    `col:"RESULT"`
	CallerUID string    `col:"CALLER-UID"`
	Caller    string    `col:"CALLER"`
	Reason    string    `col:"REASON"`
	Source    string    `col:"SOURCE"`
}

type eventsFlags struct {
	nodeFlags
	since, until string
	follow       bool
	lines        int
}

func eventsCommand(a *app) *cobra.Command {
	var f eventsFlags
	cmd := &cobra.Command{
		Use:   "events [NODE]",
		Short: "Show who changed what: the action log",
		Long: `Shows acts that changed something, refusals and the ends of jobs, oldest first: when, on which node,
to which unit, what, with which result, and who asked. It reads the journal of this machine: the
manager's has all nodes and names the users who asked; a node's has what its agent did and refused.

NODE may be a list or a glob. TIME is as in journalctl (2024-05-01 12:00, yesterday) or a time span
back from now (2h). With -o json it writes one object a line.`,
		Example: "  ctl events\n  ctl events node1 --since 1h\n  ctl events -f 'web-*'",
		GroupID: groupFleet,
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.since, "since", "", "only what came at `TIME` or later")
	cmd.Flags().StringVar(&f.until, "until", "", "only what came at `TIME` or earlier")
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with what comes, until Ctrl-C")
	cmd.Flags().IntVarP(&f.lines, "lines", "n", -1, "only the latest `N` (with -f: 10)")
	cmd.ValidArgsFunction = a.completeNodes
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return usage("events takes one NODE, which may be a list or a glob; %q is too much", args[1])
		case len(args) > 0 && f.allNodes:
			return usage("--all-nodes stands in the place of NODE; %q is too much", args[0])
		case a.opt.host != "":
			return &usageError{text: "events reads the journal of the machine it runs on", hint: "try: ssh " + a.opt.host + " ctl events"}
		case a.opt.address != "":
			return usage("events reads the journal of the machine it runs on, not what is at an address")
		}
		var nodes []string
		if len(args) > 0 {
			var err error
			if nodes, err = nodePatterns(args[0]); err != nil {
				return err
			}
		}
		return a.events(f, nodes)
	}
	return cmd
}

func (a *app) events(f eventsFlags, nodes []string) error {
	query, err := a.journalQuery(f, nodes)
	if err != nil {
		return err
	}
	if !f.follow {
		a.page()
	}
	count := 0
	err = a.readJournal(query, func(e journalEntry) error {
		if !wanted(nodes, e["CTRL_NODE"]) {
			return nil
		}
		count++
		return a.writeAction(e.action())
	})
	switch {
	case err != nil:
		return &failure{doing: "cannot read the action log", err: err}
	case count == 0 && !f.follow:
		a.note("no events")
	}
	return nil
}

// wanted judges by what journalctl cannot be asked for.
func wanted(patterns []string, node string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		g, err := unit.CompileGlob(p)
		return err == nil && g.Match(node)
	})
}

func (a *app) writeAction(r actionRow) error {
	if a.opt.format != render.Table {
		return a.streamRow(r)
	}
	o := a.options()
	what := o.Paint(resultStyle(r), render.Clean(r.Verb+" "+r.Result))
	text := ""
	if r.Job != 0 {
		text = "job " + strconv.FormatUint(uint64(r.Job), 10)
	}
	who := render.Clean(r.Caller)
	if r.CallerUID != "" {
		who = "uid " + render.Clean(r.CallerUID)
	}
	for _, part := range []struct{ before, text string }{{"by ", who}, {"", render.Clean(r.Reason)}} {
		switch {
		case part.text == "":
		case text == "":
			text = part.before + part.text
		case part.before == "":
			text += ": " + part.text
		default:
			text += " " + part.before + part.text
		}
	}
	return a.streamLine(r.Time, orDash(r.Node), orDash(r.Unit), what, text)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func resultStyle(r actionRow) render.Style {
	switch {
	case r.Event == eventRefused, r.Event == eventMore, r.Result == "failed":
		return render.Bad
	case r.Event == eventEnded && r.Result == "done":
		return render.Good
	}
	return render.Plain
}
