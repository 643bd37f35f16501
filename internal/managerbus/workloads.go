package managerbus

import (
	"encoding/json"
	"strconv"
	"time"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/internal/workload"
)

// Workloads is what of *workload.Engine the Workloads interface needs, with its rules.
type Workloads interface {
	Apply(r workload.Request, reply func(uint32, error))
	Plan(r workload.Request, reply func([]workload.NodePlan, error))
	Delete(r workload.Request, reply func(uint32, error))
	Rollback(r workload.Request, reply func(uint32, error))
	Control(r workload.Request, reply func(uint32, error))
	CancelOperation(id uint32, reply func(error))
	Operations(reply func([]workload.OperationInfo))
	List(workloads, nodes []string, reply func([]workload.Row, error))
	Describe(name string, reply func(workload.Detail, error))
	History(name string, nodes []string, reply func([]workload.NodeHistory, error))
	Revision(node, name string, number uint64, reply func(string, error))
	Collect(nodes []string, dryRun bool, reply func([]workload.NodeGarbage, error))
}

func (b *Bus) workloadsInterface() *busobject.Interface {
	b.workloadsIface = busobject.NewInterface(wire.WorkloadsInterface, map[string]busobject.Method{
		"Apply":           {Serve: b.applyWorkload, About: aboutPackage},
		"Plan":            {Serve: b.planWorkload, About: aboutPackage},
		"Delete":          {Serve: b.onWorkload(Workloads.Delete), About: aboutWorkload},
		"Rollback":        {Serve: b.rollbackWorkload, About: aboutWorkload},
		"Control":         {Serve: b.controlWorkload, About: aboutWorkload},
		"CancelOperation": {Serve: b.cancelOperation},
		"ListOperations":  {Serve: b.listOperations},
		"List":            {Serve: b.listWorkloads},
		"Describe":        {Serve: b.describeWorkload},
		"GetHistory":      {Serve: b.workloadHistory},
		"GetRevision":     {Serve: b.workloadRevision},
		"CollectGarbage":  {Serve: b.collectGarbage, About: aboutNodes},
	}, nil)
	return b.workloadsIface
}

// aboutPackage is for methods that begin with a workload, its package, and nodes.
func aboutPackage(c *busobject.Call) (about busobject.About, err error) {
	var name string
	var pack []byte
	head, _, err := peer.SplitBody(c.Args, 3)
	if err == nil {
		err = peer.Decode(head, &name, &pack, &about.Nodes)
	}
	about.Units = []string{name}
	return about, err
}

// aboutWorkload is for methods that begin with a workload and nodes.
func aboutWorkload(c *busobject.Call) (about busobject.About, err error) {
	var name string
	head, _, err := peer.SplitBody(c.Args, 2)
	if err == nil {
		err = peer.Decode(head, &name, &about.Nodes)
	}
	about.Units = []string{name}
	return about, err
}

// actor says who asks, for the history that nodes keep.
func actor(c *busobject.Call) string {
	if uid, known := c.User(); known {
		return "uid " + strconv.FormatUint(uint64(uid), 10)
	}
	return c.Sender
}

// readOptions reads the a{sv} of a call into a request. What is not known is refused: it may
// have been meant to keep something from happening.
func readOptions(options map[string]wire.Value, r *workload.Request) error {
	var timeout uint64
	var unavailable uint32
	targets := map[string]any{
		wire.OptionNoRestart: &r.Options.NoRestart, wire.OptionRollbackOnFailure: &r.Options.RollbackOnFailure,
		wire.OptionAllowUnknown: &r.Options.AllowUnknown, wire.OptionNoWait: &r.Options.NoWait,
		wire.OptionTimeout: &timeout, wire.OptionMaxUnavailable: &unavailable,
	}
	for name, value := range options {
		target, ok := targets[name]
		if !ok {
			return wire.ErrInvalidArgs.With("option %.80q is not known", name)
		}
		if err := peer.DecodeValue(value, target); err != nil {
			return wire.ErrInvalidArgs.With("option %s: %v", name, err)
		}
	}
	const perMilli = uint64(time.Millisecond / time.Microsecond)
	r.Options.TimeoutMs = (timeout + perMilli - 1) / perMilli
	r.MaxUnavailable = int(min(unavailable, 1<<16))
	return nil
}

// packed reads the arguments of Apply and Plan.
func packed(c *busobject.Call) (workload.Request, error) {
	r := workload.Request{Actor: actor(c)}
	var options map[string]wire.Value
	if err := c.Decode(&r.Workload, &r.Package, &r.Placement.Nodes, &r.Placement.Selector, &options); err != nil {
		return r, err
	}
	return r, readOptions(options, &r)
}

func (b *Bus) applyWorkload(c *busobject.Call) {
	r, err := packed(c)
	if err != nil {
		c.Fail(err)
		return
	}
	b.work.Go(func() { b.workloads.Apply(r, begun(c)) }) // reading a large package takes time
}

func (b *Bus) planWorkload(c *busobject.Call) {
	r, err := packed(c)
	if err != nil {
		c.Fail(err)
		return
	}
	b.work.Go(func() {
		b.workloads.Plan(r, func(plans []workload.NodePlan, err error) { document(c, plans, err) })
	})
}

// begun answers with the id of an operation.
func begun(c *busobject.Call) func(uint32, error) {
	return func(id uint32, err error) {
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply(id)
	}
}

// document answers with the JSON of a value.
func document(c *busobject.Call, v any, err error) {
	var text []byte
	if err == nil {
		text, err = json.Marshal(v)
	}
	if err != nil {
		c.Fail(err)
		return
	}
	c.Reply(string(text))
}

// onWorkload serves methods with a workload, nodes and options.
func (b *Bus) onWorkload(serve func(Workloads, workload.Request, func(uint32, error))) func(*busobject.Call) {
	return func(c *busobject.Call) {
		r := workload.Request{Actor: actor(c)}
		var options map[string]wire.Value
		b.begin(c, &r, &options, serve, &r.Workload, &r.Nodes, &options)
	}
}

func (b *Bus) begin(c *busobject.Call, r *workload.Request, options *map[string]wire.Value, serve func(Workloads, workload.Request, func(uint32, error)), args ...any) {
	err := c.Decode(args...)
	if err == nil {
		err = readOptions(*options, r)
	}
	if err != nil {
		c.Fail(err)
		return
	}
	serve(b.workloads, *r, begun(c))
}

func (b *Bus) rollbackWorkload(c *busobject.Call) {
	r := workload.Request{Actor: actor(c)}
	var options map[string]wire.Value
	b.begin(c, &r, &options, Workloads.Rollback, &r.Workload, &r.Nodes, &r.To, &options)
}

func (b *Bus) controlWorkload(c *busobject.Call) {
	r := workload.Request{Actor: actor(c)}
	var options map[string]wire.Value
	b.begin(c, &r, &options, Workloads.Control, &r.Workload, &r.Nodes, &r.Verb, &options)
}

func (b *Bus) cancelOperation(c *busobject.Call) {
	b.withJobID(c, func(id uint32) { b.workloads.CancelOperation(id, answer(c)) })
}

func (b *Bus) listOperations(c *busobject.Call) {
	b.workloads.Operations(func(list []workload.OperationInfo) {
		rows := make([]wire.OperationRow, len(list))
		for i, o := range list {
			rows[i] = wire.OperationRow{ID: o.ID, Workload: o.Workload, Verb: o.Verb, Nodes: o.Nodes}
		}
		c.Reply(rows)
	})
}

func (b *Bus) listWorkloads(c *busobject.Call) {
	var workloads, nodes []string
	if err := c.Decode(&workloads, &nodes); err != nil {
		c.Fail(err)
		return
	}
	b.asking(c, func() {
		b.workloads.List(workloads, nodes, func(list []workload.Row, err error) {
			b.work.Go(func() { // a hundred thousand rows take time
				defer b.lists.leave()
				if err != nil {
					c.Fail(err)
					return
				}
				c.Reply(workloadRows(list))
			})
		})
	})
}

// asking begins what asks many nodes, of which only so many are under way at a time.
func (b *Bus) asking(c *busobject.Call, begin func()) {
	if err := b.lists.enter(begin); err != nil {
		c.Fail(err)
	}
}

func workloadRows(list []workload.Row) []wire.WorkloadRow {
	rows := make([]wire.WorkloadRow, len(list))
	for i, r := range list {
		rows[i] = wire.WorkloadRow{
			Workload: r.Workload, Node: r.Node, Desired: r.Desired, State: r.State, Ready: r.Ready, Note: r.Note,
			Revision: r.Revision, Generation: r.Generation, Since: busobject.Realtime(r.Since),
		}
	}
	return rows
}

func (b *Bus) describeWorkload(c *busobject.Call) {
	var name string
	if err := c.Decode(&name); err != nil {
		c.Fail(err)
		return
	}
	b.asking(c, func() {
		b.workloads.Describe(name, func(d workload.Detail, err error) {
			b.lists.leave()
			document(c, d, err)
		})
	})
}

func (b *Bus) workloadHistory(c *busobject.Call) {
	var name string
	var nodes []string
	if err := c.Decode(&name, &nodes); err != nil {
		c.Fail(err)
		return
	}
	b.workloads.History(name, nodes, func(all []workload.NodeHistory, err error) { document(c, all, err) })
}

func (b *Bus) workloadRevision(c *busobject.Call) {
	var node, name string
	var number uint64
	if err := c.Decode(&node, &name, &number); err != nil {
		c.Fail(err)
		return
	}
	b.workloads.Revision(node, name, number, func(text string, err error) {
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply(text)
	})
}

func (b *Bus) collectGarbage(c *busobject.Call) {
	var nodes []string
	var dryRun bool
	if err := c.Decode(&nodes, &dryRun); err != nil {
		c.Fail(err)
		return
	}
	b.workloads.Collect(nodes, dryRun, func(all []workload.NodeGarbage, err error) { document(c, all, err) })
}

// OperationNew implements workload.Events.
func (b *Bus) OperationNew(o workload.OperationInfo) {
	b.emitWorkload("OperationNew", o.ID, o.Workload, o.Verb, o.Nodes)
}

// NodeProgress implements workload.Events.
func (b *Bus) NodeProgress(operation uint32, node string, e bundle.Event) {
	if e.Change != nil {
		b.emitWorkload("NodeProgress", operation, node, uint32(e.Step), uint32(e.Steps), e.Change.What, e.Change.Name, e.Change.Result)
	}
}

// NodeResult implements workload.Events.
func (b *Bus) NodeResult(o workload.OperationInfo, r workload.NodeResult) {
	text, err := json.Marshal(r.Result)
	if err != nil {
		text = []byte("{}") // a result holds nothing that JSON cannot
	}
	b.actions.Write(actionlog.Entry{
		Kind: actionlog.JobEnded, Node: r.Node, Units: []string{o.Workload}, Verb: "workload-" + o.Verb, Job: o.ID,
		Result: string(r.Result.Outcome), Reason: r.Result.Error, Caller: actionlog.Caller{Name: o.Actor},
	})
	b.emitWorkload("NodeResult", o.ID, r.Node, string(r.Result.Outcome), string(text))
}

// OperationRemoved implements workload.Events.
func (b *Bus) OperationRemoved(o workload.OperationInfo, result string) {
	b.emitWorkload("OperationRemoved", o.ID, o.Workload, o.Verb, result)
}

func (b *Bus) emitWorkload(signal string, args ...any) {
	b.server.Emit(wire.RootPath, b.workloadsIface, signal, args...)
}
