package ctl

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
)

// scene is something to watch: how to draw it, and the units whose events change it.
type scene struct {
	draw         func() (picture, error)
	nodes, units []string
}

// redrawGap is how long a picture stays at least, for the sake of the eye and of the manager.
const redrawGap = 100 * time.Millisecond

// watchStatus draws a scene whenever it changes, until the user has seen enough or the manager
// is gone.
func (a *app) watchStatus(s scene) error {
	a.opt.noPager = true
	c, err := a.client()
	if err != nil {
		return err
	}
	w, err := c.Watch(a.ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	ctx, stop := context.WithCancel(a.ctx)
	defer stop()
	events, err := a.unitEvents(ctx, c, s)
	if err != nil {
		return err
	}
	v := &view{a: a, rows: make(map[string]string)}
	for {
		p, err := s.draw()
		switch {
		case a.ctx.Err() != nil:
			return exit(exitInterrupted)
		case w.Lapses(client.ManagerProcess.Is) > 0: // also where only parts of the picture say so
			return &failure{doing: "the watch has ended", err: client.ErrManagerGone.With("the manager left the bus")}
		case err != nil:
			return err
		}
		if err := v.show(p); err != nil {
			return err
		}
		gap := time.NewTimer(redrawGap)
		select {
		case <-w.Changed():
		case <-events:
		case <-a.ctx.Done():
		}
		select {
		case <-gap.C:
		case <-a.ctx.Done():
			return exit(exitInterrupted)
		}
	}
}

// unitEvents tells that something has happened to the units of a scene. It takes events off
// the connection all the time: answers come behind them.
func (a *app) unitEvents(ctx context.Context, c *client.Client, s scene) (<-chan struct{}, error) {
	if len(s.units) == 0 {
		return nil, nil
	}
	m, err := c.Monitor(ctx)
	if err != nil {
		return nil, err
	}
	for _, node := range s.nodes {
		if err := m.Subscribe(ctx, node, s.units); err != nil {
			return nil, &failure{doing: "cannot watch " + node, node: node, err: err}
		}
	}
	happened := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-m.Events():
			case <-ctx.Done():
				return
			case <-m.Over():
				return // the watch of the manager tells
			}
			select {
			case happened <- struct{}{}:
			default:
			}
		}
	}()
	return happened, nil
}

// view is where pictures are shown one after the other.
type view struct {
	a     *app
	shown bool
	last  string            // the state of the last picture
	body  string            // and what was drawn
	rows  map[string]string // and of its rows
}

// show shows a picture: on a terminal in the place of the last one, else where it is another.
func (v *view) show(p picture) error {
	a := v.a
	state := p.whole()
	again := v.shown && state == v.last
	first := !v.shown
	v.last, v.shown = state, true
	switch {
	case a.outIs.terminal && a.opt.format == render.Table:
		return v.redraw(p, first)
	case again:
		return nil
	case a.opt.format != render.Table:
		return v.stream(p)
	}
	if !first && len(p.rows) > 0 {
		if _, err := io.WriteString(a.out, "\n"); err != nil {
			return err
		}
	}
	if err := p.write(); err != nil {
		return err
	}
	a.report(join(p.errs))
	return nil
}

// stream writes the rows that have changed.
func (v *view) stream(p picture) error {
	now := make(map[string]string, len(p.rows))
	for _, r := range p.rows {
		now[r.name] = r.state
		if v.rows[r.name] == r.state {
			continue
		}
		if err := v.a.streamRow(r.row); err != nil {
			return err
		}
	}
	v.rows = now
	v.a.report(join(p.errs))
	return nil
}

// Escape sequences of terminals (ECMA-48).
const (
	cursorHome = "\x1b[H"
	eraseAll   = "\x1b[2J"
	eraseLine  = "\x1b[K" // from the cursor on
	eraseBelow = "\x1b[J" // and all lines below
)

// drawnOn draws a picture, with what is said about it, on something else than the screen.
func (a *app) drawnOn(canvas io.Writer, p picture) error {
	out, errOut := a.out, a.errOut
	a.out, a.errOut = canvas, canvas
	defer func() { a.out, a.errOut = out, errOut }()
	clear(a.hinted) // each picture is all that the user sees
	if err := p.write(); err != nil {
		return err
	}
	a.report(join(p.errs))
	return nil
}

// redraw draws over what is there, so that nothing flickers.
func (v *view) redraw(p picture, first bool) error {
	a := v.a
	var body bytes.Buffer
	if err := a.drawnOn(&body, p); err != nil {
		return err
	}
	if !first && body.String() == v.body {
		return nil
	}
	v.body = body.String()
	head := a.options().Paint(render.Faint, render.Stamp(a.now())) + "\n\n"
	lines := strings.Split(head+strings.TrimSuffix(v.body, "\n"), "\n")
	if limit := a.outIs.height - 1; limit > 0 && len(lines) > limit {
		lines = lines[:limit]
	}
	var b strings.Builder
	if first {
		b.WriteString(eraseAll)
	}
	b.WriteString(cursorHome)
	for i, line := range lines {
		erase := eraseLine
		if i == len(lines)-1 {
			erase = eraseBelow
		}
		b.WriteString(line + erase + "\n")
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}
