package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/wire"
)

// verdict is what there is to say about a unit whose job has ended.
type verdict struct {
	result string // replaces the job's, where not ""
	note   string // good to know
	failed error  // the job did not bring what was asked for
	log    bool   // the unit's log has more to say
}

type props map[string]client.Value

func (p props) text(name string) string {
	s, _ := p[name].Data.(string)
	return s
}

func (p props) flag(name string) bool {
	b, _ := p[name].Data.(bool)
	return b
}

func (p props) number(name string) uint64 {
	switch v := p[name].Data.(type) {
	case uint64:
		return v
	case uint32:
		return uint64(v)
	case int32:
		return uint64(uint32(v))
	case int64:
		return uint64(v)
	}
	return 0
}

func (p props) texts(name string) []string {
	list, _ := p[name].Data.([]string)
	return list
}

func (p props) rows(name string) [][]any {
	rows, _ := p[name].Data.([][]any)
	return rows
}

// jobTexts are what systemd's words for the ends of jobs mean
// (org.freedesktop.systemd1(5), JobRemoved).
var jobTexts = map[string]string{
	"canceled":    "its job was canceled",
	"timeout":     "its job timed out",
	"dependency":  "a unit that it depends on failed",
	"invalid":     "it is not active, so it cannot be reloaded",
	"assert":      "an assertion of the unit was not met",
	"unsupported": "this unit type is not supported on the node",
	"collected":   "its job was dropped, because nothing needed it any more",
	"once":        "it was started once already and cannot be started again",
}

// jobKinds are ends of jobs that have an exit code of their own.
var jobKinds = map[string]*wire.Error{wire.ResultTimeout: wire.ErrTimeout}

// judgeResult words the end of a job that did not do what was asked for.
func judgeResult(ctx context.Context, c *client.Client, node, unit, result string) verdict {
	text, known := jobTexts[result]
	v := verdict{log: true}
	switch {
	case !known && result != wire.ResultFailed:
		text = "its job ended as " + result
	case result == wire.ResultFailed:
		text = "its job failed"
		if p, err := c.Node(node).UnitProperties(ctx, unit, ""); err == nil {
			text += whyFailed(p)
		}
	case result == "assert":
		if p, err := c.Node(node).UnitProperties(ctx, unit, wire.SystemdUnitInterface); err == nil {
			if failed := notMet(props(p), "Asserts"); failed != "" {
				text = "assertion " + failed + " was not met"
			}
		}
	case result == wire.ResultCanceled:
		v.log = false
	}
	v.failed = errors.New(text)
	if kind := jobKinds[result]; kind != nil {
		v.failed = kind.With("%s", text)
	}
	return v
}

// judgeStart looks at a unit once more after its job was done: systemd calls a job done also
// where a condition was not met, and where a simple service has died at once.
func judgeStart(ctx context.Context, c *client.Client, node, unit string, verb wire.Verb) verdict {
	all, err := c.Node(node).UnitProperties(ctx, unit, wire.SystemdUnitInterface)
	if err != nil {
		return verdict{} // the job is done; that nothing more is known is no failure of it
	}
	p := props(all)
	v := decideStart(p, verb)
	if v.failed != nil {
		if full, err := c.Node(node).UnitProperties(ctx, unit, ""); err == nil {
			v.failed = errors.New(v.failed.Error() + whyFailed(full))
		}
	}
	if p.flag("NeedDaemonReload") && v.note == "" {
		v.note = fmt.Sprintf("its unit file has changed on disk; to use it: ctl daemon-reload %s", node)
	}
	return v
}

// decideStart is judgeStart's decision, from the properties of the Unit interface.
func decideStart(p props, verb wire.Verb) verdict {
	switch {
	case p.text("ActiveState") == "failed":
		return verdict{failed: errors.New("its job is done, but the unit has failed"), result: wire.ResultFailed, log: true}
	case p.text("SubState") == "auto-restart":
		return verdict{failed: errors.New("its job is done, but the unit has failed and will be restarted"), result: wire.ResultFailed, log: true}
	case !starts(verb) || p.text("ActiveState") != "inactive" || p.flag("ConditionResult") || p.number("ConditionTimestampMonotonic") == 0:
		return verdict{}
	}
	failed := notMet(p, "Conditions")
	if failed == "" {
		failed = "of the unit"
	}
	return verdict{result: resultNotStarted, note: "not started: condition " + failed + " failed"}
}

func starts(verb wire.Verb) bool {
	return verb == wire.Start || verb == wire.Restart || verb == wire.ReloadOrRestart
}

// notMet names the condition, or assertion, that failed. Each is a "(sbbsi)": name, trigger,
// negate, parameter, state (below 0 where it failed, 0 where it is not known). Of those that
// trigger one must hold, so they count only where no other failed. Systemd forgets the states
// with an inactive unit; where the unit has only one condition, it is that one all the same.
func notMet(p props, name string) string {
	var trigger, unknown string
	rows := p.rows(name)
	for _, row := range rows {
		if len(row) != 5 {
			continue
		}
		text, isTrigger := conditionName(row)
		switch state, _ := row[4].(int32); {
		case state == 0 && len(rows) == 1:
			unknown = text
		case state >= 0:
		case !isTrigger:
			return text
		default:
			trigger = text
		}
	}
	if trigger == "" {
		return unknown
	}
	return trigger
}

// conditionName is a condition as its unit file has it: ConditionPathExists=|!/path.
func conditionName(row []any) (text string, isTrigger bool) {
	kind, _ := row[0].(string)
	isTrigger, _ = row[1].(bool)
	negate, _ := row[2].(bool)
	parameter, _ := row[3].(string)
	text = kind + "="
	if isTrigger {
		text += "|"
	}
	if negate {
		text += "!"
	}
	return text + parameter, isTrigger
}

// resultTexts are what a unit's Result= means, where its word alone does not say.
var resultTexts = map[string]string{
	"resources":       "something that it needs was not to be had",
	"protocol":        "the service did not do what its Type= promises",
	"start-limit-hit": "it was started too often in too short a time",
	"oom-kill":        "it ran out of memory",
	"watchdog":        "it gave no sign of life within WatchdogSec=",
	"timeout":         "it took too long",
	"condition":       "ExecCondition= said no",
}

// whyFailed adds a unit's Result= and what its processes ended with.
func whyFailed(all map[string]client.Value) string {
	p := props(all)
	result := p.text("Result")
	if result == "" || result == "success" {
		return ""
	}
	text := ": Result=" + result
	if means := resultTexts[result]; means != "" {
		text += " (" + means + ")"
	}
	if command := failedCommand(p); command != "" {
		text += ", " + command
	}
	return text
}

var commandProperties = []string{"ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost", "ExecMount", "ExecUnmount", "ExecRemount"}

// failedCommand finds the command that ended badly. Each is an "(sasbttttuii)": path,
// arguments, whether failure is ignored, four times, PID, code, status.
func failedCommand(p props) string {
	for _, name := range commandProperties {
		for _, row := range p.rows(name) {
			if len(row) != 10 {
				continue
			}
			path, _ := row[0].(string)
			ignored, _ := row[2].(bool)
			code, _ := row[8].(int32)
			status, _ := row[9].(int32)
			if how := processEnd(code, status); how != "" && !ignored {
				return name + "=" + path + " " + how
			}
		}
	}
	if how := processEnd(int32(p.number("ExecMainCode")), int32(p.number("ExecMainStatus"))); how != "" {
		return "main process " + how
	}
	return ""
}

// The codes of siginfo's si_code for SIGCHLD (sigaction(2)).
const (
	cldExited = 1
	cldKilled = 2
	cldDumped = 3
)

// processEnd words how a process ended, "" where it ended well or not at all.
func processEnd(code, status int32) string {
	switch code {
	case cldExited:
		if status != 0 {
			return "exited with status " + exitStatusName(status)
		}
	case cldKilled:
		return "was killed by " + signalName(status)
	case cldDumped:
		return "dumped core on " + signalName(status)
	}
	return ""
}

// failedUnits are units of a node that had failed before ctl did anything.
type failedUnits struct {
	mu    sync.Mutex
	known map[string]map[string]bool // node → units
}

// read asks which of the units have failed. It loads no unit, so that stopping one that is
// not loaded remains the error that it is.
func (f *failedUnits) read(ctx context.Context, c *client.Client, node string, units []string) error {
	rows, err := c.Node(node).ListUnits(ctx, []string{"failed"}, units)
	if err != nil {
		return err
	}
	for _, r := range rows {
		f.add(node, r.Name)
	}
	return nil
}

// readLoading is read by any name of a unit, also by an alias; it loads the units. What cannot
// be read has not failed.
func (f *failedUnits) readLoading(ctx context.Context, c *client.Client, node string, units []string) {
	for _, u := range units {
		p, err := c.Node(node).UnitProperties(ctx, u, wire.SystemdUnitInterface)
		if err == nil && props(p).text("ActiveState") == "failed" {
			f.add(node, u)
		}
	}
}

func (f *failedUnits) add(node, unit string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil {
		f.known = make(map[string]map[string]bool)
	}
	if f.known[node] == nil {
		f.known[node] = make(map[string]bool)
	}
	f.known[node][unit] = true
}

func (f *failedUnits) has(node, unit string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[node][unit]
}

// judge tells where a unit has failed while it was stopped: systemd calls that done.
func (f *failedUnits) judge(ctx context.Context, c *client.Client, node, unit string) verdict {
	rows, err := c.Node(node).ListUnits(ctx, []string{"failed"}, []string{unit})
	if err != nil || f.has(node, unit) || !slices.ContainsFunc(rows, func(r wire.UnitStatus) bool { return r.Name == unit }) {
		return verdict{}
	}
	note := "stopped, but the unit has failed"
	if full, err := c.Node(node).UnitProperties(ctx, unit, ""); err == nil {
		note += whyFailed(full)
	}
	return verdict{note: strings.TrimSpace(note)}
}
