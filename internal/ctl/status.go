package ctl

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

func statusCommand(a *app) *cobra.Command {
	var f nodeFlags
	var watch bool
	cmd := &cobra.Command{
		Use:   "status [NODE [UNIT…]]",
		Short: "Show the state of the fleet, of nodes, or of units",
		Long: `Shows the state of the fleet; of NODE; or of units on NODE, as systemctl status does. A glob among
the units stands for the units that are loaded there.

The exit code is 0 where all is well: the fleet is up, the node online, the unit active. It is 3 where
the fleet is not up or a unit is not active, 4 where there is no such unit or node, 6 where a node
is offline.

With --watch it is shown again whenever it changes, until Ctrl-C: on a terminal in the place of what was
there, else below it, and with -o json only what has changed, one object a line.`,
		Example: "  ctl status\n  ctl status node1\n  ctl status node1 foo.service bar.timer\n  ctl status --watch node1 foo",
		GroupID: groupFleet,
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again whenever it changes")
	cmd.ValidArgsFunction = a.completeUnits
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := scene{draw: a.fleetPicture}
		if len(args) > 0 || f.allNodes {
			pattern, units, err := f.split(cmd, args)
			if err != nil {
				return err
			}
			if s, err = a.statusScene(pattern, units); err != nil {
				return err
			}
		}
		if watch {
			return a.watchStatus(s)
		}
		p, err := s.draw()
		if err != nil {
			return err
		}
		a.page()
		return join(append([]error{p.write()}, p.errs...))
	}
	return cmd
}

// statusScene is what status shows of nodes, or of units on nodes.
func (a *app) statusScene(pattern string, typed []string) (scene, error) {
	patterns, err := nodePatterns(pattern)
	if err != nil {
		return scene{}, err
	}
	if len(typed) == 0 {
		return scene{draw: func() (picture, error) { return a.nodePicture(pattern) }, nodes: patterns, units: []string{"*"}}, nil
	}
	units, err := a.unitNames(typed)
	if err != nil {
		return scene{}, err
	}
	return scene{draw: func() (picture, error) { return a.unitPicture(pattern, units) }, nodes: patterns, units: units}, nil
}

func (a *app) fleetPicture() (picture, error) {
	c, err := a.client()
	if err != nil {
		return picture{}, err
	}
	info, err := c.Info(a.ctx)
	if err != nil {
		return picture{}, err
	}
	fleet, err := c.Fleet(a.ctx)
	if err != nil {
		return picture{}, err
	}
	rows := []nodeRow{}
	online := 0
	for i := range fleet.Nodes {
		rows = append(rows, a.nodeRow(&fleet.Nodes[i]))
		if fleet.Nodes[i].Online() {
			online++
		}
	}
	p := picture{write: func() error { return a.showFleet(info, online, rows, len(fleet.Jobs)) }}
	for _, r := range rows {
		same := r
		same.LastSeen = render.Moment{}
		p.add(r.Node, same, r)
	}
	p.state += fmt.Sprint(info.Status, len(fleet.Jobs))
	if info.Status != wire.StatusUp {
		p.errs = append(p.errs, exit(exitNotActive))
	}
	return p, nil
}

func (a *app) showFleet(info client.Info, online int, rows []nodeRow, jobs int) error {
	if a.opt.format == render.Table {
		d := a.details()
		d.head(fleetMark(info.Status), "fleet")
		d.line("Status", "%s, %d of %s online", a.options().Paint(fleetStyle(info.Status), info.Status), online, count(len(rows), "node"))
		d.line("Manager", "%s", render.Clean(info.Version))
		d.line("Jobs", "%d", jobs)
		if err := d.flush(); err != nil {
			return err
		}
		if len(rows) > 0 {
			fmt.Fprintln(a.out)
		}
	}
	if len(rows) > 0 || a.opt.format != render.Table {
		return render.Write(a.out, rows, a.options())
	}
	return nil
}

func fleetStyle(status string) render.Style {
	switch status {
	case wire.StatusUp:
		return render.Good
	case wire.StatusDegraded:
		return render.Changing
	}
	return render.Bad
}

func fleetMark(status string) render.Mark {
	if status == wire.StatusDown {
		return render.Mark{UTF8: "×", ASCII: "x", Style: render.Bad}
	}
	return render.Mark{UTF8: "●", ASCII: "*", Style: fleetStyle(status)}
}

// since is " since STAMP; AGO" for a moment that is known.
func (a *app) since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + render.Stamp(t) + "; " + render.Ago(t, a.now())
}

// details writes lines "    Label: text" whose colons stand below each other.
type details struct {
	a *app
	b strings.Builder
}

// labelWidth is where systemctl puts its colons.
const labelWidth = 11

func (a *app) details() *details { return &details{a: a} }

func (d *details) head(mark render.Mark, text string) {
	if !d.a.opt.plain {
		text = mark.Text(d.a.options()) + " " + render.Clean(text)
	}
	d.b.WriteString(text + "\n")
}

func (d *details) line(label, format string, args ...any) {
	fmt.Fprintf(&d.b, "%*s: %s\n", labelWidth, label, fmt.Sprintf(format, args...))
}

// optional writes a line where there is something to say.
func (d *details) optional(label, text string) {
	if text != "" {
		d.line(label, "%s", render.Clean(text))
	}
}

// more continues a line.
func (d *details) more(text string) {
	fmt.Fprintf(&d.b, "%*s  %s\n", labelWidth, "", text)
}

func (d *details) flush() error {
	_, err := d.a.out.Write([]byte(d.b.String()))
	return err
}
