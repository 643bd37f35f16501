package ctl

import (
	"io"
	"time"

	"example.org/ctrl/internal/ctl/render"
)

// streamTime is how lines of streams begin: as tables write times, to the millisecond.
const streamTime = "2006-01-02 15:04:05.000"

// streamLine writes one line of what comes as it happens.
func (a *app) streamLine(at time.Time, node, unit, what, text string) error {
	o := a.options()
	line := o.Paint(render.Faint, at.Local().Format(streamTime)) + "  " + render.Clean(node) + "  " + o.Paint(render.Bold, render.Clean(unit)) + "  " + what
	if text != "" {
		line += "  " + text
	}
	_, err := io.WriteString(a.out, line+"\n")
	return err
}

// streamRow writes one row of a stream for programs: one object a line, or one item of a YAML
// list.
func (a *app) streamRow(row any) error {
	if a.opt.format == render.JSON {
		return render.Line(a.out, row)
	}
	return render.Item(a.out, row)
}
