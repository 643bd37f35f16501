package ctl

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// unitStatusRow is one unit as programs see it.
type unitStatusRow struct {
	Node        string    `col:"NODE"`
	Unit        string    `col:"UNIT"`
	Load        string    `col:"LOAD"`
	Active      string    `col:"ACTIVE"`
	Sub         string    `col:"SUB"`
	Since       time.Time `col:"SINCE"`
	Result      string    `col:"RESULT"`
	Enabled     string    `col:"ENABLED"`
	Preset      string    `col:"PRESET"`
	Freezer     string    `col:"FREEZER"`
	MainPID     uint32    `col:"MAIN-PID"`
	Tasks       uint64    `col:"TASKS"`
	Memory      uint64    `col:"MEMORY"`
	CPU         uint64    `col:"CPU-NSEC"`
	Path        string    `col:"PATH"`
	Stale       bool      `col:"NEED-DAEMON-RELOAD"`
	Description string    `col:"DESCRIPTION"`

	all       props
	processes []client.Process
	err       error
}

func (a *app) unitPicture(pattern string, units []string) (picture, error) {
	nodes, err := a.nodes(a.ctx, pattern)
	if err != nil {
		return picture{}, err
	}
	c, err := a.client()
	if err != nil {
		return picture{}, err
	}
	var mu sync.Mutex
	unmatched := make(map[string]int)
	perNode := make([][]unitStatusRow, len(nodes))
	errs := make([]error, len(nodes))
	each(nodes, maxNodesAtOnce, func(i int, node string) {
		found, none, err := a.expand(a.ctx, node, units)
		if err != nil {
			errs[i] = &failure{doing: "cannot ask " + node, node: node, err: err}
			return
		}
		mu.Lock()
		for _, glob := range none {
			unmatched[glob]++
		}
		mu.Unlock()
		perNode[i] = make([]unitStatusRow, len(found))
		each(found, 8, func(j int, unit string) { perNode[i][j] = a.unitStatusOf(c, node, unit) })
	})
	rows, more := found(perNode)
	p := picture{errs: append(append(errs, noMatches(nodes, unmatched)...), more...), write: func() error { return a.showUnits(rows) }}
	for _, r := range rows {
		same := r
		same.Memory, same.CPU, same.Tasks = 0, 0, 0
		p.add(r.Node+" "+r.Unit, same, r)
	}
	return p, nil
}

func (a *app) unitStatusOf(c *client.Client, node, unit string) unitStatusRow {
	all, err := c.Node(node).UnitProperties(a.ctx, unit, "")
	if err != nil {
		return unitStatusRow{Node: node, Unit: unit, err: &failure{doing: fmt.Sprintf("cannot ask %s about %s", node, unit), node: node, unit: unit, err: err}}
	}
	p := props(all)
	row := unitStatusRow{
		Node: node, Unit: unit, Load: p.text("LoadState"), Active: p.text("ActiveState"), Sub: p.text("SubState"), Since: stateSince(p),
		Result: p.text("Result"), Enabled: p.text("UnitFileState"), Preset: p.text("UnitFilePreset"), Freezer: p.text("FreezerState"),
		MainPID: uint32(p.number("MainPID")), Tasks: p.measured("TasksCurrent"), Memory: p.measured("MemoryCurrent"), CPU: p.measured("CPUUsageNSec"),
		Path: p.text("FragmentPath"), Stale: p.flag("NeedDaemonReload"), Description: p.text("Description"), all: p,
	}
	if id := p.text("Id"); id != "" {
		row.Unit = id
	}
	if p.text("ControlGroup") != "" && row.Active != "inactive" {
		// An answer without its processes is better than none.
		row.processes, _ = c.Node(node).UnitProcesses(a.ctx, unit)
	}
	return row
}

// measured is a counter, 0 where systemd does not count it.
func (p props) measured(name string) uint64 {
	if n := p.number(name); n != render.Infinity {
		return n
	}
	return 0
}

// stateSince is when a unit came into its state, as systemctl chooses it.
func stateSince(p props) time.Time {
	name := "ActiveEnterTimestamp"
	switch p.text("ActiveState") {
	case "inactive", "failed":
		name = "InactiveEnterTimestamp"
	case "activating":
		name = "InactiveExitTimestamp"
	case "deactivating":
		name = "ActiveExitTimestamp"
	}
	return client.Moment(p.number(name))
}

// found takes apart what there is to show, and what the exit code is made of besides.
func found(perNode [][]unitStatusRow) (rows []unitStatusRow, errs []error) {
	for _, list := range perNode {
		for _, r := range list {
			switch {
			case r.err != nil:
				errs = append(errs, r.err)
			case r.Load == "not-found" && r.Active == "inactive":
				errs = append(errs, &failure{doing: fmt.Sprintf("unit %s could not be found on %s", r.Unit, r.Node), node: r.Node, unit: r.Unit, err: &silentKind{wire.ErrSystemdNoSuchUnit}})
			default:
				rows = append(rows, r)
				if r.Active != "active" && r.Active != "reloading" && r.Active != "refreshing" {
					errs = append(errs, exit(exitNotActive))
				}
			}
		}
	}
	return rows, errs
}

func (a *app) showUnits(rows []unitStatusRow) error {
	if a.opt.format != render.Table {
		return render.Write(a.out, rows, a.options())
	}
	for i := range rows {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		if err := a.showUnit(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

func unitMark(active string) render.Mark {
	switch active {
	case "active", "activating", "deactivating":
		return render.Mark{UTF8: "●", ASCII: "*", Style: activeStyle(active)}
	case "reloading", "refreshing":
		return render.Mark{UTF8: "↻", ASCII: "R", Style: render.Good}
	case "failed":
		return render.Mark{UTF8: "×", ASCII: "x", Style: render.Bad}
	}
	return render.Mark{UTF8: "○", ASCII: " ", Style: render.Plain}
}

// showUnit writes a unit as systemctl status does, with the node before its name.
func (a *app) showUnit(r *unitStatusRow) error {
	d := a.details()
	title := r.Node + " " + r.Unit
	if r.Description != "" && r.Description != r.Unit {
		title += " - " + r.Description
	}
	d.head(unitMark(r.Active), title)
	d.loaded(r)
	d.dropIns(r.all.texts("DropInPaths"))
	d.active(r)
	d.conditions(r.all)
	d.references(r.all)
	d.commands(r)
	d.numbers(r)
	d.processes(r)
	if err := d.flush(); err != nil {
		return err
	}
	if r.Stale {
		a.note("%s on %s: its unit file has changed on disk; to use it: ctl daemon-reload %s", r.Unit, r.Node, r.Node)
	}
	return nil
}

func (d *details) loaded(r *unitStatusRow) {
	style := render.Plain
	if wrongLoad(r.Load) {
		style = render.Bad
	}
	load := d.a.options().Paint(style, render.Clean(r.Load))
	if row, ok := r.all["LoadError"].Data.([]any); ok && len(row) == 2 && row[1] != "" {
		d.line("Loaded", "%s (Reason: %s)", load, render.Clean(fmt.Sprint(row[1])))
		return
	}
	var in []string
	path := r.Path
	if source := r.all.text("SourcePath"); source != "" {
		path = source
	}
	if path != "" {
		in = append(in, path)
	}
	if r.Enabled != "" {
		in = append(in, r.Enabled)
	}
	if r.Preset != "" {
		in = append(in, "preset: "+r.Preset)
	}
	if len(in) > 0 {
		load += " (" + render.Clean(strings.Join(in, "; ")) + ")"
	}
	d.line("Loaded", "%s", load)
	if r.all.flag("Transient") {
		d.line("Transient", "yes")
	}
}

func (d *details) dropIns(paths []string) {
	byFolder := make(map[string][]string)
	var folders []string
	for _, p := range paths {
		folder := strings.TrimSuffix(p, "/"+baseName(p))
		if byFolder[folder] == nil {
			folders = append(folders, folder)
		}
		byFolder[folder] = append(byFolder[folder], baseName(p))
	}
	for i, folder := range folders {
		if i == 0 {
			d.line("Drop-In", "%s", render.Clean(folder))
		} else {
			d.more(render.Clean(folder))
		}
		d.more(d.branch(true) + render.Clean(strings.Join(byFolder[folder], ", ")))
	}
}

func (d *details) branch(last bool) string {
	switch {
	case d.a.utf8() && last:
		return "└─"
	case d.a.utf8():
		return "├─"
	case last:
		return "`-"
	}
	return "|-"
}

func (d *details) active(r *unitStatusRow) {
	text := r.Active
	if r.Sub != "" && r.Sub != r.Active {
		text += " (" + r.Sub + ")"
	}
	if r.Result != "" && r.Result != "success" {
		text += " (Result: " + r.Result + ")"
	}
	if r.Freezer != "" && r.Freezer != "running" {
		text += " (" + r.Freezer + ")"
	}
	d.line("Active", "%s%s", d.a.options().Paint(activeStyle(r.Active), render.Clean(text)), d.a.since(r.Since))
	if from, to := r.all.number("ActiveEnterTimestampMonotonic"), r.all.number("ActiveExitTimestampMonotonic"); ended(r.Active) && from > 0 && to > from {
		d.line("Duration", "%s", render.Span(to-from, 1000))
	}
}

// ended tells whether a unit in this state has run and runs no more.
func ended(active string) bool { return active == "inactive" || active == "failed" }

func (d *details) conditions(p props) {
	if p.flag("ConditionResult") || p.number("ConditionTimestamp") == 0 {
		return
	}
	d.line("Condition", "start %s at %s", d.a.options().Paint(render.Changing, "condition failed"), strings.TrimPrefix(d.a.since(client.Moment(p.number("ConditionTimestamp"))), " since "))
	if failed := notMet(p, "Conditions"); failed != "" {
		d.more(d.branch(true) + render.Clean(failed) + " was not met")
	}
}

func (d *details) references(p props) {
	d.list("TriggeredBy", p.texts("TriggeredBy"))
	if next := nextElapse(p); !next.IsZero() {
		d.line("Trigger", "%s; %s", render.Stamp(next), render.Ago(next, d.a.now()))
	}
	d.list("Triggers", p.texts("Triggers"))
	d.list("Docs", p.texts("Documentation"))
	var listen []string
	for _, row := range p.rows("Listen") {
		listen = append(listen, fmt.Sprintf("%v (%v)", row[len(row)-1], row[0]))
	}
	d.list("Listen", listen)
	d.optional("Where", p.text("Where"))
	d.optional("What", p.text("What"))
}

// list writes several texts under one label.
func (d *details) list(label string, texts []string) {
	for i, text := range texts {
		if i == 0 {
			d.line(label, "%s", render.Clean(text))
		} else {
			d.more(render.Clean(text))
		}
	}
}

// nextElapse is when a timer triggers next, the zero time for never. A timer that counts from
// an event knows that in the node's monotonic clock, which the time stamps of the unit's last
// change tie to the calendar.
func nextElapse(p props) time.Time {
	next := p.number("NextElapseUSecRealtime")
	since, at := p.number("NextElapseUSecMonotonic"), p.number("StateChangeTimestampMonotonic")
	if at == 0 || since == 0 || since == ^uint64(0) {
		return client.Moment(next)
	}
	if monotonic := p.number("StateChangeTimestamp") + since - at; next == 0 || monotonic < next {
		next = monotonic
	}
	return client.Moment(next)
}

// commands writes the processes that have ended, and the main one.
func (d *details) commands(r *unitStatusRow) {
	for _, name := range commandProperties {
		for _, row := range r.all.rows(name) {
			if len(row) != 10 {
				continue
			}
			argv, _ := row[1].([]string)
			pid, _ := row[7].(uint32)
			code, _ := row[8].(int32)
			status, _ := row[9].(int32)
			if pid == 0 || pid == r.MainPID || code == 0 || name == "ExecStart" && pid == uint32(r.all.number("ExecMainPID")) {
				continue
			}
			d.line("Process", "%d %s=%s (%s)", pid, name, render.Clean(strings.Join(argv, " ")), codeText(code, status))
		}
	}
	switch pid, code := r.all.number("ExecMainPID"), int32(r.all.number("ExecMainCode")); {
	case r.MainPID != 0:
		text := fmt.Sprint(r.MainPID)
		for _, p := range r.processes {
			if p.PID == r.MainPID {
				program, _, _ := strings.Cut(p.Command, " ")
				text += " (" + baseName(program) + ")"
			}
		}
		d.line("Main PID", "%s", render.Clean(text))
	case pid != 0 && code != 0:
		d.line("Main PID", "%d (%s)", pid, codeText(code, int32(r.all.number("ExecMainStatus"))))
	}
	if pid := r.all.number("ControlPID"); pid != 0 {
		d.line("Cntrl PID", "%d", pid)
	}
	if text := r.all.text("StatusText"); text != "" {
		d.line("Status", "%q", text)
	}
}

// codeText writes an end of a process as systemctl does.
func codeText(code, status int32) string {
	switch code {
	case cldExited:
		name := exitNames[status]
		if name == "" && int(status) < len(lsbNames) && status >= 0 {
			name = lsbNames[status]
		}
		if name == "" {
			return fmt.Sprintf("code=exited, status=%d", status)
		}
		return fmt.Sprintf("code=exited, status=%d/%s", status, name)
	case cldKilled:
		return "code=killed, signal=" + strings.TrimPrefix(signalName(status), "SIG")
	case cldDumped:
		return "code=dumped, signal=" + strings.TrimPrefix(signalName(status), "SIG")
	}
	return fmt.Sprintf("code=%d, status=%d", code, status)
}

// lsbNames are names for exit statuses of services (Linux Standard Base, as systemd.exec(5)
// lists them).
var lsbNames = []string{"SUCCESS", "FAILURE", "INVALIDARGUMENT", "NOTIMPLEMENTED", "NOPERMISSION", "NOTINSTALLED", "NOTCONFIGURED", "NOTRUNNING"}

func (d *details) numbers(r *unitStatusRow) {
	if r.Tasks > 0 {
		text := fmt.Sprint(r.Tasks)
		if limit := r.all.measured("TasksMax"); limit > 0 {
			text += fmt.Sprintf(" (limit: %d)", limit)
		}
		d.line("Tasks", "%s", text)
	}
	if r.Memory > 0 {
		d.line("Memory", "%s", bytesText(r.Memory))
	}
	if r.CPU > 0 {
		d.line("CPU", "%s", render.Span(max(1, r.CPU/1000), 1000))
	}
}

// bytesText writes a number of bytes as systemd does: "1.2M".
func bytesText(n uint64) string {
	const letters = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	size, i := n, -1
	rest := uint64(0)
	for size >= 1024 && i < len(letters)-1 {
		rest, size, i = size%1024, size/1024, i+1
	}
	return fmt.Sprintf("%d.%d%c", size, rest*10/1024, letters[i])
}

// group is a control group with what is in it.
type group struct {
	processes []client.Process
	children  map[string]*group
}

// processes draws the control group of a unit as a tree.
func (d *details) processes(r *unitStatusRow) {
	root := r.all.text("ControlGroup")
	if root == "" {
		return
	}
	d.line("CGroup", "%s", render.Clean(root))
	top := &group{}
	for _, p := range r.processes {
		g := top
		for name := range strings.SplitSeq(strings.Trim(strings.TrimPrefix(p.ControlGroup, root), "/"), "/") {
			if name == "" {
				continue
			}
			if g.children == nil {
				g.children = make(map[string]*group)
			}
			if g.children[name] == nil {
				g.children[name] = &group{}
			}
			g = g.children[name]
		}
		g.processes = append(g.processes, p)
	}
	d.tree(top, "")
}

func (d *details) tree(g *group, indent string) {
	sort.Slice(g.processes, func(i, j int) bool { return g.processes[i].PID < g.processes[j].PID })
	width := 0
	for _, p := range g.processes {
		width = max(width, len(fmt.Sprint(p.PID)))
	}
	var names []string
	for name := range g.children {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, p := range g.processes {
		text := fmt.Sprintf("%s%s%*d %s", indent, d.branch(i == len(g.processes)-1 && len(names) == 0), width, p.PID, render.Clean(p.Command))
		if w := d.a.outIs.width; w > 0 && !d.a.opt.full {
			text = render.Cut(text, max(20, w-labelWidth-2))
		}
		d.more(text)
	}
	for i, name := range names {
		last := i == len(names)-1
		d.more(indent + d.branch(last) + render.Clean(name))
		below := "  "
		if !last {
			below = strings.Replace(d.branch(false), "─", " ", 1)
			below = strings.Replace(below, "-", " ", 1)
		}
		d.tree(g.children[name], indent+below)
	}
}
