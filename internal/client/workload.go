package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/wire"
)

// workloads is the root object's interface for what is delivered.
func workloads() target {
	return target{wire.BusName, dbus.ObjectPath(wire.RootPath), wire.WorkloadsInterface}
}

// Placement says on which nodes a workload belongs: names and globs, and labels.
type Placement struct {
	Nodes    []string
	Selector map[string]string
}

// WorkloadOptions are how an operation goes about it. The zero value is the default of each.
type WorkloadOptions struct {
	NoRestart         bool
	RollbackOnFailure bool
	AllowUnknown      bool
	NoWait            bool
	Timeout           time.Duration
	MaxUnavailable    uint32
}

func (o WorkloadOptions) wire() map[string]dbus.Variant {
	out := make(map[string]dbus.Variant)
	for name, on := range map[string]bool{
		wire.OptionNoRestart: o.NoRestart, wire.OptionRollbackOnFailure: o.RollbackOnFailure,
		wire.OptionAllowUnknown: o.AllowUnknown, wire.OptionNoWait: o.NoWait,
	} {
		if on {
			out[name] = dbus.MakeVariant(true)
		}
	}
	if o.Timeout > 0 {
		out[wire.OptionTimeout] = dbus.MakeVariant(uint64(o.Timeout.Microseconds()))
	}
	if o.MaxUnavailable > 0 {
		out[wire.OptionMaxUnavailable] = dbus.MakeVariant(o.MaxUnavailable)
	}
	return out
}

// list makes an array of D-Bus of a list that may be nil.
func list(words []string) []string { return append([]string{}, words...) }

func (p Placement) selector() map[string]string {
	if p.Selector == nil {
		return map[string]string{}
	}
	return p.Selector
}

// ApplyWorkload makes an encoded package what nodes should have. It answers with the id of an
// operation (Operations) when the manager has written that down.
// Errors: wire.ErrInvalidArgs, ErrNoSuchNode, ErrWorkloadBusy, ErrAccessDenied.
func (c *Client) ApplyWorkload(ctx context.Context, name string, pack []byte, at Placement, o WorkloadOptions) (uint32, error) {
	return only[uint32](c.change(ctx, workloads(), "Apply", name, pack, list(at.Nodes), at.selector(), o.wire()))
}

// NodePlan is what an apply would do on one node.
type NodePlan struct {
	Node string            `json:"node"`
	Plan bundle.PlanResult `json:"plan"`
}

// PlanWorkload says what ApplyWorkload would do.
func (c *Client) PlanWorkload(ctx context.Context, name string, pack []byte, at Placement, o WorkloadOptions) ([]NodePlan, error) {
	var plans []NodePlan
	body, err := c.change(ctx, workloads(), "Plan", name, pack, list(at.Nodes), at.selector(), o.wire())
	return plans, document(body, err, &plans)
}

// document reads an answer that is the JSON of a value.
func document(body []any, err error, into any) error {
	text, err := only[string](body, err)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return badAnswer(err.Error())
	}
	return nil
}

// DeleteWorkload, RollbackWorkload and ControlWorkload begin operations on a workload, on all its
// nodes where none is named. Errors: those of ApplyWorkload, wire.ErrNoSuchWorkload.
func (c *Client) DeleteWorkload(ctx context.Context, name string, nodes []string, o WorkloadOptions) (uint32, error) {
	return only[uint32](c.change(ctx, workloads(), "Delete", name, list(nodes), o.wire()))
}

// RollbackWorkload goes back to a revision, 0 for the one before the present one.
func (c *Client) RollbackWorkload(ctx context.Context, name string, nodes []string, to uint64, o WorkloadOptions) (uint32, error) {
	return only[uint32](c.change(ctx, workloads(), "Rollback", name, list(nodes), to, o.wire()))
}

// ControlWorkload starts, stops or restarts the units of a workload.
func (c *Client) ControlWorkload(ctx context.Context, name string, nodes []string, verb string, o WorkloadOptions) (uint32, error) {
	return only[uint32](c.change(ctx, workloads(), "Control", name, list(nodes), verb, o.wire()))
}

// CancelOperation begins no further node. Error: wire.ErrNoSuchOperation.
func (c *Client) CancelOperation(ctx context.Context, id uint32) error {
	_, err := c.change(ctx, workloads(), "CancelOperation", id)
	return err
}

// Workloads lists workloads on nodes; patterns are globs, none is all.
func (c *Client) Workloads(ctx context.Context, names, nodes []string) ([]wire.WorkloadRow, error) {
	body, err := c.read(ctx, workloads(), "List", list(names), list(nodes))
	if err != nil {
		return nil, err
	}
	var rows []wire.WorkloadRow
	return rows, store(body, &rows)
}

// WorkloadDetail is all that is known of one workload.
type WorkloadDetail struct {
	Spec *struct {
		Name       string `json:"name"`
		Generation uint64 `json:"generation"`
		Bundle     string `json:"bundle"`
		Placement  struct {
			Nodes    []string          `json:"nodes"`
			Selector map[string]string `json:"selector"`
		} `json:"placement"`
		Actor   string                    `json:"actor"`
		Made    time.Time                 `json:"made"`
		Targets map[string]WorkloadTarget `json:"targets"`
	} `json:"spec"`
	Nodes  map[string]bundle.Status `json:"nodes"`
	Online []string                 `json:"online"`
}

// WorkloadTarget is what one node should have, and how far that has come.
type WorkloadTarget struct {
	Generation uint64    `json:"generation"`
	Remove     bool      `json:"remove"`
	Phase      string    `json:"phase"`
	Outcome    string    `json:"outcome"`
	Revision   uint64    `json:"revision"`
	Error      string    `json:"error"`
	At         time.Time `json:"at"`
}

// Workload describes one workload.
func (c *Client) Workload(ctx context.Context, name string) (WorkloadDetail, error) {
	var d WorkloadDetail
	body, err := c.read(ctx, workloads(), "Describe", name)
	return d, document(body, err, &d)
}

// NodeHistory is a workload's history on one node.
type NodeHistory struct {
	Node    string         `json:"node"`
	History bundle.History `json:"history"`
	Error   string         `json:"error"`
}

// WorkloadHistory lists the revisions that nodes keep.
func (c *Client) WorkloadHistory(ctx context.Context, name string, nodes []string) ([]NodeHistory, error) {
	var all []NodeHistory
	body, err := c.read(ctx, workloads(), "GetHistory", name, list(nodes))
	return all, document(body, err, &all)
}

// NodeGarbage is what one node has removed, or would.
type NodeGarbage struct {
	Node    string         `json:"node"`
	Garbage bundle.Garbage `json:"garbage"`
	Error   string         `json:"error"`
}

// CollectGarbage lets nodes remove what no kept revision needs.
func (c *Client) CollectGarbage(ctx context.Context, nodes []string, dryRun bool) ([]NodeGarbage, error) {
	var all []NodeGarbage
	body, err := c.change(ctx, workloads(), "CollectGarbage", list(nodes), dryRun)
	return all, document(body, err, &all)
}
