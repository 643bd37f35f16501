package ctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// runRow is how a command that was waited for ended.
type runRow struct {
	Node   string `col:"NODE"`
	Unit   string `col:"UNIT"`
	Result string `col:"RESULT"`
	Code   string `col:"CODE"`
	Status int32  `col:"STATUS"`
}

// watched is what events say about a unit that is waited for.
type watched struct {
	began  bool // it was active, or on its way there
	ended  bool
	gone   bool // systemd has forgotten it
	result string
	code   int32
	status int32
}

// runAndWait starts a transient unit and returns when it has ended. It watches before it
// starts: systemd forgets such a unit as soon as it is over.
func (a *app) runAndWait(job *transientJob, node, name string, f runFlags) error {
	ctx := a.ctx
	if f.timeout > 0 {
		limited, cancel := a.deadline(a.ctx, f.timeout)
		defer cancel()
		ctx = limited
	}
	fail := func(err error) error {
		if errors.Is(err, errGaveUp) {
			err = &gaveUp{after: f.timeout}
		}
		return &failure{doing: fmt.Sprintf("cannot run %s on %s", name, node), node: node, unit: name, err: err}
	}
	monitor, err := job.c.Monitor(ctx)
	if err != nil {
		return fail(err)
	}
	if err := monitor.Subscribe(ctx, node, []string{name}); err != nil {
		return fail(err)
	}
	started, err := job.follow(ctx, node, name)
	switch {
	case err == nil:
		a.note("Running as unit: %s on %s", name, node)
	case a.ctx.Err() != nil:
		return a.runInterrupted(job, node, name, f)
	default:
		return fail(err)
	}
	w := &watched{}
	err = a.watch(ctx, monitor, started, node, w)
	switch {
	case a.ctx.Err() != nil:
		return a.runInterrupted(job, node, name, f)
	case errors.Is(err, errGaveUp):
		return &failure{doing: fmt.Sprintf("stopped waiting for %s on %s", name, node), node: node, unit: name, err: &gaveUp{after: f.timeout, unit: name}}
	case err != nil:
		return fail(err)
	}
	return a.ranTo(w, node, name)
}

// graceAfterEnd is how long the last properties of a unit may come after its last state.
const graceAfterEnd = 2 * time.Second

// watch follows a unit until it has ended and its exit status is known.
func (a *app) watch(ctx context.Context, m *client.Monitor, job *client.Job, node string, w *watched) error {
	var grace <-chan time.Time
	jobDone := job.Done()
	for {
		if w.ended && (w.code != 0 || w.gone) {
			return nil
		}
		if w.ended && grace == nil {
			timer := time.NewTimer(graceAfterEnd)
			defer timer.Stop()
			grace = timer.C
		}
		select {
		case e := <-m.Events():
			if err := w.take(e); err != nil {
				return err
			}
		case <-jobDone:
			jobDone = nil
			result, err := job.Result()
			if err != nil {
				return err
			}
			if result != wire.ResultDone && !w.began {
				return errors.New(jobText(result))
			}
		case <-grace:
			return nil
		case <-m.Over():
			return m.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func jobText(result string) string {
	if text := jobTexts[result]; text != "" {
		return text
	}
	return "its job ended as " + result
}

// take learns from one event.
func (w *watched) take(e client.Event) error {
	switch e.Kind {
	case client.UnitStateChanged:
		switch {
		case e.Reason != "real" && e.Sub == "agent-offline":
			return wire.ErrNodeOffline.With("node %s went offline; the unit goes on", e.Node)
		case e.Active == "inactive" || e.Active == "failed":
			w.began = w.began || e.Active == "failed" && e.Reason == "real"
			w.ended = w.ended || w.began
		default:
			w.began = true
		}
	case client.UnitRemoved:
		if e.Reason != "real" {
			return wire.ErrNodeOffline.With("node %s went offline; the unit goes on", e.Node)
		}
		w.gone = w.began
		w.ended = w.ended || w.began
	case client.UnitPropertiesChanged:
		p := props(e.Properties)
		if _, has := p["ExecMainCode"]; has {
			w.code, w.status = int32(p.number("ExecMainCode")), int32(p.number("ExecMainStatus"))
		}
		if result := p.text("Result"); result != "" {
			w.result = result
		}
	}
	return nil
}

// ranTo reports the end of a command; its exit code becomes ours.
func (a *app) ranTo(w *watched, node, name string) error {
	if a.opt.format != render.Table {
		row := runRow{Node: node, Unit: name, Result: w.result, Status: w.status,
			Code: map[int32]string{cldExited: "exited", cldKilled: "killed", cldDumped: "dumped"}[w.code]}
		if err := render.Write(a.out, []runRow{row}, a.options()); err != nil {
			return err
		}
	}
	how := processEnd(w.code, w.status)
	if how == "" && (w.result == "success" || w.result == "") {
		return nil
	}
	text := "it failed"
	if w.result != "" && w.result != "success" {
		text += ": Result=" + w.result
		if means := resultTexts[w.result]; means != "" {
			text += " (" + means + ")"
		}
	}
	if how != "" {
		text += ", main process " + how
	}
	a.say("error: %s on %s: %s", name, node, text)
	a.say("hint: %s", a.logHint(node, name))
	if w.code == cldExited && w.status > 0 && w.status < 256 {
		return exit(w.status)
	}
	return exit(exitFailed)
}

// runInterrupted says that the unit goes on, or stops it where the user wants that.
func (a *app) runInterrupted(job *transientJob, node, name string, f runFlags) error {
	if !f.cancelOnInterrupt {
		a.say("interrupted: unit %s on %s goes on; to end it: ctl stop %s %s", name, node, node, name)
		return exit(exitInterrupted)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), cancelLimit)
	defer cancel()
	if _, err := job.c.QueueJob(ctx, node, wire.Stop, name, "replace"); err != nil {
		a.report(&failure{doing: fmt.Sprintf("cannot stop %s on %s", name, node), node: node, unit: name, err: err})
	} else {
		a.say("interrupted: stopping %s on %s", name, node)
	}
	return exit(exitInterrupted)
}
