package ctl

import (
	"context"
	"errors"
	"fmt"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// outcomeRow is what became of a workload on one node.
type outcomeRow struct {
	Workload string `col:"WORKLOAD"`
	Node     string `col:"NODE"`
	Outcome  string `col:"OUTCOME"`
	Revision uint64 `col:"REVISION"`
	Message  string `col:"MESSAGE"`
}

// Style implements render.Styled.
func (r outcomeRow) Style(column string) render.Style {
	switch {
	case column != "OUTCOME":
	case r.Outcome == string(bundle.Failed), r.Outcome == string(bundle.RolledBack):
		return render.Bad
	case r.Outcome == string(wire.OutcomePending), r.Outcome == string(wire.OutcomeSkipped):
		return render.Faint
	case r.Outcome != string(bundle.Unchanged):
		return render.Good
	}
	return render.Plain
}

// operations runs operations on workloads, one after the other, and shows them.
type operations struct {
	a     *app
	word  string // what is done, for errors: "apply"
	news  *client.Operations
	rows  []outcomeRow
	errs  []error
	later bool // a node that is away is no failure
}

// startOperations begins to listen, before anything is asked for.
func (a *app) startOperations(word string) (*operations, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	news, err := c.Operations(a.ctx)
	if err != nil {
		return nil, &failure{doing: "cannot " + word, err: err}
	}
	return &operations{a: a, word: word, news: news}, nil
}

// run follows one operation to its end. It reports whether all went well.
func (o *operations) run(name string, begin func(context.Context) (uint32, error)) bool {
	id, err := begin(o.a.ctx)
	if err != nil {
		o.errs = append(o.errs, &failure{doing: "cannot " + o.word + " workload " + name, err: err})
		return false
	}
	for {
		e, err := o.news.Next(o.a.ctx)
		if err != nil {
			if o.a.ctx.Err() != nil {
				o.a.say("interrupted: operation %d goes on; to begin no further node: ctl cancel --operation %d", id, id)
			}
			o.errs = append(o.errs, &failure{doing: "cannot say how to " + o.word + " workload " + name + " ended", err: err})
			return false
		}
		if e.Operation != id {
			continue
		}
		switch {
		case e.Ended != "":
			return e.Ended == wire.ResultDone
		case e.Change != nil:
			o.step(name, e)
		case e.Result != nil:
			o.node(name, e.Node, *e.Result)
		}
	}
}

// step shows what a node does, to people who watch.
func (o *operations) step(name string, e client.OperationEvent) {
	if !o.a.errIs.terminal {
		return
	}
	text := e.Change.What
	if e.Change.Name != "" {
		text += " " + e.Change.Name
	}
	if e.Change.Result != "" {
		text += ": " + e.Change.Result
	}
	o.a.note("%s on %s: %d/%d %s", name, e.Node, e.Step, e.Steps, text)
}

// node takes what became of one node.
func (o *operations) node(name, node string, r bundle.Result) {
	row := outcomeRow{Workload: name, Node: node, Outcome: string(r.Outcome), Revision: r.Revision, Message: r.Error}
	if r.OK() && len(r.NeedRestart) > 0 {
		row.Message = fmt.Sprintf("%s: ctl workload restart %s --node %s", units(len(r.NeedRestart)), name, node)
	}
	o.rows = append(o.rows, row)
	for _, n := range r.Notes {
		o.a.note("%s on %s: %s", name, node, n)
	}
	if err := o.judge(name, node, r); err != nil {
		o.errs = append(o.errs, err)
	}
}

func units(n int) string {
	if n == 1 {
		return "1 unit runs as before"
	}
	return fmt.Sprintf("%d units run as before", n)
}

// judge makes the error of a node that is not as it should be.
func (o *operations) judge(name, node string, r bundle.Result) error {
	doing := fmt.Sprintf("cannot %s workload %s on %s", o.word, name, node)
	switch {
	case r.Outcome == wire.OutcomePending && o.later:
		return nil
	case r.Outcome == wire.OutcomePending:
		return &failure{doing: fmt.Sprintf("workload %s is pending on %s", name, node), node: node, err: wire.ErrNodeOffline.With("%s; it is done when the node is back", r.Error)}
	case r.Outcome == wire.OutcomeSkipped:
		return &failure{doing: doing, node: node, err: errors.New(r.Error)}
	case r.OK():
		return nil
	case r.Code == bundle.CodeDenied:
		return &failure{doing: doing, node: node, err: wire.ErrAccessDenied.With("%s", r.Error)}
	case r.Code == bundle.CodeTimeout:
		return &failure{doing: doing, node: node, err: wire.ErrTimeout.With("%s", r.Error)}
	case r.Code == wire.CodeOffline:
		return &failure{doing: doing, node: node, err: wire.ErrNodeOffline.With("%s", r.Error)}
	}
	return &failure{doing: doing, node: node, err: errors.New(r.Error)}
}

// finish shows the table and makes the error of the command.
func (o *operations) finish() error {
	if len(o.rows) > 0 {
		if err := render.Write(o.a.out, o.rows, o.a.options()); err != nil {
			return err
		}
	}
	return join(o.errs)
}
