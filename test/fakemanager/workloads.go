package fakemanager

import (
	"encoding/json"
	"strings"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/wire"
)

// Workloads is what the manager pretends about what was delivered.
type Workloads struct {
	Rows []wire.WorkloadRow
	// Results are what an operation comes to on each node, in order.
	Results []WorkloadResult
	Ends    string // the operation's result; done where empty
	Refuses string // why no operation is begun: the last part of an error's name
	// The documents that methods answer with.
	Plan, Detail, History, Garbage string
}

// WorkloadResult is one node's part in an operation.
type WorkloadResult struct {
	Node    string
	Outcome string
	Result  bundle.Result
}

const workloadOperation = 7

func (m *Manager) serveWorkloads(c *call) error {
	w := &m.fleet.Workloads
	body := append([]any(nil), c.body...)
	if len(body) > 1 {
		if pack, ok := body[1].([]byte); ok {
			p, err := bundle.DecodePackage(pack)
			if err != nil {
				return wire.ErrInvalidArgs.With("%v", err)
			}
			var units []string
			for _, u := range p.Bundle.Units {
				units = append(units, u.Name)
			}
			body[1] = units
		}
	}
	m.calls = append(m.calls, strings.TrimSpace("workloads "+c.member+" "+arguments(body)))
	switch c.member {
	case "Apply", "Delete", "Rollback", "Control":
		if w.Refuses != "" {
			return (&wire.Error{Name: wire.BusName + ".Error." + w.Refuses}).With("it is refused")
		}
		c.reply(uint32(workloadOperation))
		m.operate(c.member)
	case "CancelOperation":
		if c.body[0] != uint32(workloadOperation) {
			return wire.ErrNoSuchOperation.With("there is no operation %v; it may have ended", c.body[0])
		}
		c.reply()
	case "List":
		c.reply(append([]wire.WorkloadRow{}, w.Rows...))
	case "Plan":
		c.reply(w.Plan)
	case "Describe":
		if w.Detail == "" {
			return wire.ErrNoSuchWorkload.With("there is no workload %q; ctl workload list shows which there are", c.body[0])
		}
		c.reply(w.Detail)
	case "GetHistory":
		c.reply(w.History)
	case "CollectGarbage":
		c.reply(w.Garbage)
	default:
		return wire.ErrUnknownMethod.With("no method %s", c.member)
	}
	return nil
}

// operate tells how an operation goes, with one of somebody else's in between.
func (m *Manager) operate(verb string) {
	w := &m.fleet.Workloads
	tell := func(signal string, values ...any) {
		m.emit("", wire.RootPath, wire.WorkloadsInterface, signal, values...)
	}
	tell("OperationNew", uint32(workloadOperation), "web", strings.ToLower(verb), []string{})
	tell("OperationRemoved", uint32(workloadOperation+1), "db", "apply", wire.ResultFailed)
	for _, r := range w.Results {
		tell("NodeProgress", uint32(workloadOperation), r.Node, uint32(1), uint32(2), "write", "web.service", "")
		text, err := json.Marshal(r.Result)
		if err != nil {
			panic(err) // a result holds nothing that JSON cannot
		}
		tell("NodeResult", uint32(workloadOperation), r.Node, r.Outcome, string(text))
	}
	ends := w.Ends
	if ends == "" {
		ends = wire.ResultDone
	}
	tell("OperationRemoved", uint32(workloadOperation), "web", strings.ToLower(verb), ends)
}
