package agent

import (
	"maps"
	"slices"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/policy"
)

// write writes down what came of something that the manager asked for.
func (a *Agent) write(act policy.Act, job uint32, result string, err error) {
	if !act.Changes() {
		return
	}
	e := actionlog.Entry{Node: a.cfg.Node, Units: act.Units, Verb: act.Verb(), Job: job, Result: result, Caller: a.manager()}
	e.Judge(act.Method, err)
	a.cfg.Actions.Write(e)
}

// writeEnd writes down the end of a job.
func (a *Agent) writeEnd(j *job, result, reason string) {
	a.cfg.Actions.Write(actionlog.Entry{
		Kind: actionlog.JobEnded, Node: a.cfg.Node, Units: []string{j.req.Unit}, Verb: j.req.Verb.String(), Job: j.id,
		Result: result, Reason: reason, Caller: a.manager(),
	})
}

// writeLost says of the jobs of a session that their ends will not be seen.
func (a *Agent) writeLost(why string) {
	for _, id := range slices.Sorted(maps.Keys(a.jobs.byID)) {
		if j := a.jobs.byID[id]; j.state.Is != jobAsking {
			a.writeEnd(j, actionlog.ResultUnknown, "the session has ended ("+why+"); systemd goes on with the job")
		}
	}
}

// manager is who asks on a node: there the manager is the caller, and its own action log has
// whose wish it was, by the job.
func (a *Agent) manager() actionlog.Caller {
	return actionlog.Caller{Name: "manager " + a.conn.presentAddress()}
}
