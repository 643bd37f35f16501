package managerbus

import (
	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

// acted writes down how a call of the public API ended.
func (b *Bus) acted(o busobject.Outcome) {
	e := actionlog.Entry{
		Node: o.Node, Units: o.Units, Verb: o.Verb,
		Caller: actionlog.Caller{Name: o.Call.Sender, UID: o.UID, Known: o.Known},
	}
	if id, ok := wire.ParseJobPath(o.Call.Path); ok {
		e.Job = id // Cancel of a job's own object
	}
	if o.Method == "CancelJob" {
		_ = o.Call.Decode(&e.Job) // its type was checked
	}
	if path, ok := o.Answer.(wire.ObjectPath); ok {
		if id, ok := wire.ParseJobPath(path); ok {
			e.Job, e.Result = id, actionlog.ResultQueued
		}
	}
	e.Judge(o.Method, o.Err)
	b.actions.Write(e)
}

// ended writes down the end of a job.
func (b *Bus) ended(j manager.JobInfo, result string) {
	b.actions.Write(actionlog.Entry{
		Kind: actionlog.JobEnded, Node: j.Node, Units: []string{j.Unit}, Verb: j.Type, Job: j.ID, Result: result,
		Caller: actionlog.Caller(j.Caller),
	})
}

// cancel cancels a job, and says in the action log whose.
func (b *Bus) cancel(c *busobject.Call, id uint32, done func(error)) {
	b.core.Job(id, func(j manager.JobInfo, err error) {
		if err == nil {
			c.Concerns(busobject.About{Node: j.Node, Units: []string{j.Unit}})
		}
	})
	b.core.CancelJob(id, done)
}
