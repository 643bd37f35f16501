package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// onlineRow says whether something is online.
type onlineRow struct {
	Name   string `col:"NAME"`
	Status string `col:"STATUS"`
	Reason string `col:"REASON,cut"`

	up bool
}

// Style implements render.Styled.
func (r onlineRow) Style(column string) render.Style {
	switch {
	case column != "STATUS":
		return render.Plain
	case r.up:
		return render.Good
	case r.Status == wire.StatusDegraded:
		return render.Changing
	}
	return render.Bad
}

// question is what somebody wants to know whether it is online.
type question struct {
	of      string // "agent", "manager", "system", or "" for nodes
	pattern string // of nodes
}

// about reports whether an answer depends on a subject.
func (q question) about(s client.Subject) bool {
	switch q.of {
	case "agent":
		return s == client.LocalAgent
	case "system":
		return s == client.ManagerProcess || s == client.WholeSystem
	case "manager":
		return s == client.ManagerProcess
	}
	return s == client.ManagerProcess || s.Node != "" && slices.ContainsFunc(strings.Split(q.pattern, ","), func(p string) bool { return matchNode(p, s.Node) })
}

// onlooker asks again whenever something has changed, also where the daemon or the bus comes
// later or goes meanwhile.
type onlooker struct {
	a *app
	q question
	w *client.Watch

	rows   []onlineRow
	lapses int           // of what is asked about, when rows were made
	before int           // lapses that earlier connections saw, with their own ends
	pause  time.Duration // until the next try to connect
}

// lookLimit bounds one look: a daemon that hangs is not online.
const lookLimit = 10 * time.Second

// Between tries to connect to a bus that is not there; nothing tells when it comes.
const (
	dialAgain    = 250 * time.Millisecond
	dialAgainMax = 5 * time.Second
)

// look asks. What cannot be online by waiting is an error.
func (o *onlooker) look(ctx context.Context) error {
	o.dropLost()
	asking, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	rows, err := o.ask(asking)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
	case noDaemon(err), errors.Is(err, client.ErrManagerGone), errors.Is(err, wire.ErrTimeout), errors.Is(err, wire.ErrShuttingDown):
		rows = []onlineRow{o.down(err)}
	default:
		return &failure{doing: "cannot ask whether " + o.name() + " is online", node: o.q.pattern, err: err}
	}
	o.rows = rows
	return nil
}

// dropLost lets go of a connection that was lost.
func (o *onlooker) dropLost() {
	if o.a.bus == nil {
		return
	}
	select {
	case <-o.a.bus.Lost():
	default:
		return
	}
	o.before = o.lapsed() + 1
	o.a.bus.Close()
	o.a.bus, o.w = nil, nil
}

func (o *onlooker) name() string {
	if o.q.of != "" {
		return "the " + o.q.of
	}
	return o.q.pattern
}

func (o *onlooker) down(err error) onlineRow {
	row := onlineRow{Name: o.q.of, Status: wire.NodeOffline, Reason: err.Error()}
	switch o.q.of {
	case "":
		row.Name = o.q.pattern
	case "system":
		row.Status = wire.StatusDown
	}
	return row
}

// lapsed counts how often what is asked about was seen going down.
func (o *onlooker) lapsed() int {
	if o.w == nil {
		return o.before
	}
	return o.before + o.w.Lapses(o.q.about)
}

func (o *onlooker) up() bool {
	return len(o.rows) > 0 && !slices.ContainsFunc(o.rows, func(r onlineRow) bool { return !r.up })
}

// wait returns when it is time to look again.
func (o *onlooker) wait(ctx context.Context) error {
	var changed <-chan struct{}
	var again <-chan time.Time
	var lost <-chan struct{}
	if o.w != nil {
		changed, lost = o.w.Changed(), o.a.bus.Lost()
	} else {
		o.pause = min(max(2*o.pause, dialAgain), dialAgainMax)
		timer := time.NewTimer(o.pause)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-changed:
	case <-lost:
	case <-again:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// until looks until it is online, or ctx ends; then the last rows say what was seen last.
func (o *onlooker) until(ctx context.Context) error {
	waiting := false
	for {
		if err := o.look(ctx); err != nil {
			return err
		}
		if o.up() {
			return nil
		}
		if !waiting {
			waiting = true
			o.a.note("%s; waiting", o.why())
		}
		if err := o.wait(ctx); err != nil {
			return err
		}
	}
}

// why says what is not online.
func (o *onlooker) why() string {
	var down []onlineRow
	for _, r := range o.rows {
		if !r.up {
			down = append(down, r)
		}
	}
	if len(down) == 0 {
		return o.name() + " is online"
	}
	text := fmt.Sprintf("%s is %s", down[0].Name, down[0].Status)
	if down[0].Reason != "" {
		text += ": " + down[0].Reason
	}
	if len(down) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(down)-1)
	}
	return text
}

// awaitOnline waits for nodes, and for the manager before them, as --wait-online says. Where
// they do not come in time, what follows says so.
func (a *app) awaitOnline(pattern string, w waitFlag) error {
	if w.d == 0 {
		return nil
	}
	if _, err := nodePatterns(pattern); err != nil {
		return err
	}
	ctx, cancel := a.deadline(a.ctx, w.d)
	defer cancel()
	o := &onlooker{a: a, q: question{pattern: pattern}}
	err := o.until(ctx)
	if o.w != nil {
		o.w.Close()
	}
	if errors.Is(err, errGaveUp) {
		return nil
	}
	return err
}
