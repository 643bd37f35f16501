package ctl

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// eventRow is one event as programs see it. An event about several properties is a row for
// each.
type eventRow struct {
	Time      time.Time `col:"TIME"`
	Node      string    `col:"NODE"`
	Unit      string    `col:"UNIT"`
	Event     string    `col:"EVENT"`
	Reason    string    `col:"REASON"`
	Active    string    `col:"ACTIVE"`
	Sub       string    `col:"SUB"`
	Interface string    `col:"INTERFACE"`
	Property  string    `col:"PROPERTY"`
	Value     string    `col:"VALUE"`
}

// eventWords are the words for events.
var eventWords = map[client.EventKind]string{
	client.UnitNew: "new", client.UnitRemoved: "removed", client.UnitStateChanged: "state", client.UnitPropertiesChanged: "properties",
}

// eventWriter writes the events of a monitor.
type eventWriter struct {
	a *app
	// shown are the values of properties that people have seen, by interface and name, of units
	// by node and name, for as long as a unit is there: systemd repeats them with every change of any.
	shown map[[2]string]map[string]string
}

// follow writes events until the user has seen enough, or the manager is gone.
func (w *eventWriter) follow(m *client.Monitor) error {
	for {
		select {
		case e := <-m.Events():
			if err := w.write(e); err != nil {
				return err
			}
		case <-m.Over():
			if len(m.Events()) > 0 {
				continue // what came before the end
			}
			return &failure{doing: "the monitor has ended", err: m.Err()}
		case <-w.a.ctx.Done():
			return exit(exitInterrupted)
		}
	}
}

func (w *eventWriter) write(e client.Event) error {
	row := eventRow{Time: w.a.now(), Node: e.Node, Unit: e.Unit, Event: eventWords[e.Kind], Reason: e.Reason, Active: e.Active, Sub: e.Sub, Interface: e.Interface}
	forPeople := w.a.opt.format == render.Table
	switch {
	case e.Kind == client.UnitPropertiesChanged && forPeople:
		return w.showProperties(row, e)
	case e.Kind == client.UnitPropertiesChanged:
		row.Reason = "real"
		return w.streamProperties(row, e)
	case !forPeople:
		return w.a.streamRow(row)
	}
	if e.Kind == client.UnitRemoved {
		delete(w.shown, [2]string{e.Node, e.Unit})
	}
	return w.a.streamLine(row.Time, row.Node, row.Unit, w.a.eventText(e), "")
}

// eventText says what happened, but for properties.
func (a *app) eventText(e client.Event) string {
	text := eventWords[e.Kind]
	if e.Kind == client.UnitStateChanged {
		text += "  " + a.options().Paint(activeStyle(e.Active), render.Clean(e.Active)+" ("+render.Clean(e.Sub)+")")
	}
	if e.Reason != "real" {
		text += "  " + a.options().Paint(render.Faint, render.Clean(e.Reason))
	}
	return text
}

// streamProperties writes properties for programs, each as an object of its own.
func (w *eventWriter) streamProperties(row eventRow, e client.Event) error {
	for _, name := range slices.Sorted(maps.Keys(e.Properties)) {
		for _, line := range valueLines(name, e.Properties[name]) {
			row.Property, row.Value = name, line
			if err := w.a.streamRow(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// showProperties writes properties for people, each on a line of its own, where there is news.
func (w *eventWriter) showProperties(row eventRow, e client.Event) error {
	of := [2]string{e.Node, e.Unit}
	if w.shown[of] == nil {
		w.shown[of] = make(map[string]string)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(e.Properties)) {
		lines := valueLines(name, e.Properties[name])
		if !w.a.opt.full && !news(w.shown[of], e.Interface+"."+name, strings.Join(lines, "\n")) {
			continue
		}
		for _, line := range lines {
			fmt.Fprintf(&b, "    %s=%s\n", render.Clean(name), render.Clean(line))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if err := w.a.streamLine(row.Time, row.Node, row.Unit, row.Event, shortInterface(e.Interface)); err != nil {
		return err
	}
	_, err := io.WriteString(w.a.out, b.String())
	return err
}

// news reports whether a value is another one than people have seen. A value that is empty is
// none before there was another, and the monotonic twins of times say nothing to people.
func news(shown map[string]string, name, value string) bool {
	if strings.HasSuffix(name, "TimestampMonotonic") || shown[name] == value {
		return false
	}
	shown[name] = value
	return true
}

// valueLines are the lines of a property's value, at least one.
func valueLines(name string, v client.Value) []string {
	if lines := propertyText(name, v); len(lines) > 0 {
		return lines
	}
	return []string{""}
}

// shortInterface is systemd's interface without what all of them begin with.
func shortInterface(name string) string {
	return render.Clean(strings.TrimPrefix(name, wire.SystemdName+"."))
}
