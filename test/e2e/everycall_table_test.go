package e2e

// apiCall is one method of the API with arguments for both kinds of client.
type apiCall struct {
	method  string // Interface.Member below org.example.ctrl1
	busctl  string // words behind the signature; {job} is a job that runs, {job2} another
	python  string // arguments of a call
	refused string // a part of the error's name, "" where it must succeed
}

const noMonitor = "UnknownObject" // a monitor ends with the client that made it, as each busctl does

// apiCalls are all methods of the public API, in the order in which they are called: what ends
// a daemon comes last. A method that the XML has and this table has not fails the test.
var apiCalls = []apiCall{
	{"Manager.ListUnits", "", "", ""}, {"Manager.ListUnitFiles", "", "", ""}, {"Manager.ListNodes", "", "", ""}, {"Manager.ListJobs", "", "", ""},
	{"Manager.ListUnitsFiltered", "1 node1 1 active 1 *.mount", "['node1'], ['active'], ['*.mount']", ""},
	{"Manager.GetNode", "node1", "'node1'", ""}, {"Manager.GetJob", "{job}", "{job}", ""}, {"Manager.CancelJob", "{job}", "{job}", ""},
	{"Job.Cancel", "", "", ""}, {"Manager.SetLogLevel", "info", "'info'", ""},
	{"Manager.EnableMetrics", "", "", ""},
	{"Manager.CreateMonitor", "", "", ""},
	{"Monitor.Subscribe", "node1 run.service", "'node1', 'run.service'", noMonitor},
	{"Monitor.SubscribeList", "node1 2 ok.service fast.service", "'node1', ['ok.service', 'fast.service']", noMonitor},
	{"Monitor.AddPeer", ":1.1", "peer.get_unique_name()", noMonitor},
	{"Node.StartUnit", "run.service replace", "'run.service', 'replace'", ""},
	{"Node.ReloadUnit", "run.service replace", "'run.service', 'replace'", ""}, {"Node.RestartUnit", "run.service replace", "'run.service', 'replace'", ""},
	{"Node.TryRestartUnit", "run.service replace", "'run.service', 'replace'", ""}, {"Node.ReloadOrRestartUnit", "run.service replace", "'run.service', 'replace'", ""},
	{"Node.ReloadOrTryRestartUnit", "run.service replace", "'run.service', 'replace'", ""},
	{"Node.StartTransientUnit", "{client}.service fail 2 Description s called RemainAfterExit b true 0", "'{client}.service', 'fail', [('Description', 'called'), ('RemainAfterExit', True)], []", "BadUnitSetting"},
	{"Node.GetUnitProperties", "run.service Unit", "'run.service', 'Unit'", ""}, {"Node.GetUnitProperty", "run.service Service MainPID", "'run.service', 'Service', 'MainPID'", ""},
	{"Node.SetUnitProperties", "run.service true 1 CPUWeight t 70", "'run.service', True, [('CPUWeight', dbus.UInt64(70, variant_level=1))]", ""},
	{"Node.GetUnitProcesses", "run.service", "'run.service'", ""}, {"Node.ReadUnitFiles", "run.service", "'run.service'", ""},
	{"Node.KillUnit", "run.service all 18", "'run.service', 'all', 18", ""}, {"Node.StopUnit", "run.service replace", "'run.service', 'replace'", ""},
	{"Node.FreezeUnit", "none.service", "'none.service'", "NoSuchUnit"}, {"Node.ThawUnit", "none.service", "'none.service'", "NoSuchUnit"},
	{"Node.ResetFailedUnit", "init.scope", "'init.scope'", ""}, {"Node.ResetFailed", "", "", ""}, {"Node.Reload", "", "", ""},
	{"Node.EnableUnitFiles", "1 ok.service true false", "['ok.service'], True, False", ""}, {"Node.GetUnitFileState", "ok.service", "'ok.service'", ""},
	{"Node.DisableUnitFiles", "1 ok.service true", "['ok.service'], True", ""}, {"Node.MaskUnitFiles", "1 fast.service true false", "['fast.service'], True, False", ""},
	{"Node.UnmaskUnitFiles", "1 fast.service true", "['fast.service'], True", ""}, {"Node.PresetUnitFiles", "1 bad.service true false", "['bad.service'], True, False", ""},
	{"Node.ListUnits", "", "", ""}, {"Node.ListUnitsFiltered", "0 1 run.service", "[], ['run.service']", ""}, {"Node.ListUnitFiles", "", "", ""},
	{"Node.GetDefaultTarget", "", "", ""}, {"Node.SetDefaultTarget", "multi-user.target true", "'multi-user.target', True", ""}, {"Node.SetLogLevel", "info", "'info'", ""},
	{"Monitor.Unsubscribe", "1", "answers['Monitor.Subscribe']", noMonitor}, {"Monitor.RemovePeer", "1 enough", "answers['Monitor.AddPeer'], 'enough'", noMonitor},
	{"Monitor.Close", "", "", noMonitor}, {"Manager.DisableMetrics", "", "", ""},
	{"Enrolment.ListMembers", "", "", ""}, {"Enrolment.ListTokens", "", "", anyError},
	// This fleet has certificates of its own, not those of the manager's authority.
	{"Enrolment.AddNode", "node7 0", "'node7', 0", anyError}, {"Enrolment.AddToken", "node* 7 0", "'node*', 7, 0", anyError},
	{"Enrolment.WithdrawToken", "none", "'none'", anyError}, {"Enrolment.RemoveNode", "nobody", "'nobody'", anyError},
	{"Enrolment.ShowAuthority", "", "", anyError}, {"Enrolment.RotateAuthority", "false", "False", anyError},
	// What these do is shown by their own scenarios; here nothing is delivered.
	{"Workloads.Apply", "web 1 120 1 node1 0 0", "'web', b'x', ['node1'], {}, {}", anyError}, {"Workloads.Plan", "web 1 120 1 node1 0 0", "'web', b'x', ['node1'], {}, {}", anyError},
	{"Workloads.Delete", "web 1 node1 0", "'web', ['node1'], {}", anyError}, {"Workloads.Rollback", "web 1 node1 1 0", "'web', ['node1'], 1, {}", anyError},
	{"Workloads.Control", "web 1 node1 stop 0", "'web', ['node1'], 'stop', {}", anyError}, {"Workloads.CancelOperation", "1", "1", anyError},
	{"Workloads.ListOperations", "", "", ""}, {"Workloads.List", "1 node1 0", "['node1'], []", ""}, {"Workloads.Describe", "web", "'web'", anyError},
	{"Workloads.GetHistory", "web 1 node1", "'web', ['node1']", anyError}, {"Workloads.GetRevision", "node1 web 1", "'node1', 'web', 1", anyError},
	{"Workloads.CollectGarbage", "1 node1 true", "['node1'], True", ""},
	{"Agent.CreateProxy", "{client}.service node2 x.service", "'{client}.service', 'node2', 'x.service'", anyError},
	{"Agent.RemoveProxy", "{client}.service node2 x.service", "'{client}.service', 'node2', 'x.service'", anyError},
	{"Agent.WaitDependents", "x.service", "'x.service'", anyError},
	{"Agent.SwitchManager", "nonsense", "'nonsense'", "InvalidArgs"},
	{"Node.SwitchManager", "nonsense", "'nonsense'", "InvalidArgs"},
	{"Node.Shutdown", "", "", ""}, {"Manager.Shutdown", "", "", ""},
}

// anyError is where the method answers, with success or with an error of its own.
const anyError = "*"
