// Package clustertest runs one manager and its agents in one process, over net.Pipe and in
// fake time.
package clustertest

// Scenario is one thing that a fleet must do right, whichever tier shows it.
type Scenario struct {
	Name string // also the name of the subtest, here and in test/e2e
	What string
}

// Names of the scenarios.
const (
	StartStop            = "start-stop"
	EveryVerb            = "every-verb"
	FailingUnit          = "failing-unit"
	UnknownUnit          = "unknown-unit"
	MaskedUnit           = "masked-unit"
	BadUnitName          = "bad-unit-name"
	FastOneshot          = "fast-oneshot"
	UnitAlias            = "unit-alias"
	TransientUnit        = "transient-unit"
	EqualJobsShared      = "equal-jobs-shared"
	StopInterruptsStart  = "stop-interrupts-start"
	ReloadWaitsForStart  = "reload-waits-for-start"
	FailModeIsBusy       = "fail-mode-is-busy"
	CancelJob            = "cancel-job"
	UnknownNode          = "unknown-node"
	OfflineNode          = "offline-node"
	DuplicateName        = "duplicate-name"
	NodeNotAllowed       = "node-not-allowed"
	GhostTakeOver        = "ghost-take-over"
	CutWhileWaiting      = "cut-while-waiting"
	CutIsNoticed         = "cut-is-noticed"
	HealReconnects       = "heal-reconnects"
	ManagerRestart       = "manager-restart"
	AgentRestart         = "agent-restart"
	SystemdRestart       = "systemd-restart"
	SlowNodeDoesNotBlock = "slow-node-does-not-block-list"
	FleetStatus          = "fleet-status"
	OptionalNode         = "optional-node"
	ManagerShutdown      = "manager-shutdown"
	ManyNodes            = "many-nodes"
	ManagerRemovesNode   = "manager-removes-node"
	ReportOfOldSession   = "report-of-old-session"
	ResetConnections     = "reset-connections"
	CallsInFlight        = "calls-in-flight"
	UnpluggedUnderLoad   = "unplugged-under-load"
	MetricsOfHungNode    = "metrics-of-hung-node"
	NodesLastWord        = "nodes-last-word"
	MonitorsSeeLastState = "monitors-see-last-state"
	MonitorOfOfflineNode = "monitor-of-offline-node"
	MonitorIsQuiet       = "monitor-of-quiet-unit-asks-nothing"
	MonitorFollowsAlias  = "monitor-follows-alias"
	MonitorsAfterCut     = "monitors-after-cut"
	FloodWhileCut        = "flood-while-cut"
)

// Scenarios is the one list of them for all tiers, in the order of the names above.
var Scenarios = []Scenario{
	{StartStop, "a unit is started and stopped on one node; the other nodes do nothing"},
	{EveryVerb, "each of the seven job verbs does on the node what systemctl does"},
	{FailingUnit, "a unit whose start fails ends its job as failed"},
	{UnknownUnit, "systemd's error about a unit that does not exist reaches the caller unchanged"},
	{MaskedUnit, "systemd's error about a masked unit reaches the caller unchanged"},
	{BadUnitName, "names that cannot be right, and templates without instance, are refused at once"},
	{FastOneshot, "a job that ends before its caller reads the reply is told in order: new, reply, removed"},
	{UnitAlias, "one unit under two names: both jobs end"},
	{TransientUnit, "a transient unit is a job like others"},
	{EqualJobsShared, "two callers of the same start have one job"},
	{StopInterruptsStart, "a start that hangs is canceled by a stop"},
	{ReloadWaitsForStart, "a reload waits for the running start"},
	{FailModeIsBusy, "mode fail refuses a job that conflicts with a queued one"},
	{CancelJob, "a waiting job is removed, a running one ends as systemd says"},
	{UnknownNode, "a node that is not in the fleet is refused by name"},
	{OfflineNode, "a node that is offline is refused at once, with the time when it was last seen"},
	{DuplicateName, "a second agent with the name of a live one is refused and does no harm"},
	{NodeNotAllowed, "an agent that is not in the fleet stays out"},
	{GhostTakeOver, "a rebooted node is not locked out by its own dead connection"},
	{CutWhileWaiting, "a caller that waits for a job hears within the threshold that the node is lost"},
	{CutIsNoticed, "both sides notice a cut link within the heartbeat threshold"},
	{HealReconnects, "a healed link brings the node back by itself, and it works"},
	{ManagerRestart, "agents find a restarted manager; jobs of the old one do not confuse the new one"},
	{AgentRestart, "a restarted agent is online again; its units went on"},
	{SystemdRestart, "an agent whose systemd re-executes carries on by itself"},
	{SlowNodeDoesNotBlock, "one node that hangs does not hold up the list of the others"},
	{FleetStatus, "the fleet's status word follows the nodes"},
	{OptionalNode, "an optional node does not count for degraded"},
	{ManagerShutdown, "a manager that ends tells every caller"},
	{ManyNodes, "a fleet of many nodes connects, lists and starts units"},
	{ManagerRemovesNode, "a node that leaves the configuration is closed and stays out"},
	{ReportOfOldSession, "a report from an old session touches no job of the new one"},
	{ResetConnections, "hundreds of connections that end before they register keep no agent out"},
	{CallsInFlight, "calls that a lost node has not answered end with its session"},
	{UnpluggedUnderLoad, "both sides notice a cut link within the threshold while data is under way"},
	{MetricsOfHungNode, "a node that does not say how long its unit took holds up no other node's metrics"},
	{MonitorsSeeLastState, "5,000 changes of state on one node end as the truth in every monitor"},
	{MonitorOfOfflineNode, "a monitor of a node that is away is accepted; the node comes and goes"},
	{MonitorIsQuiet, "while nothing happens, a monitor of one unit among thousands costs systemd no question"},
	{MonitorFollowsAlias, "a subscribed name that becomes another unit's alias: removed, then the events of that unit"},
	{MonitorsAfterCut, "after a cut of 1, 5 or 60 s every monitor shows the truth"},
	{FloodWhileCut, "more changed properties than a link holds while it is cut: the session lives, the latest values come"},
	{NodesLastWord, "a node judges what the manager asks by its own policy, by names and not by aliases; its other units and the other nodes are not concerned"},
}
