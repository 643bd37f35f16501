package wire

// MethodKind says how a method of the Node interface is carried out.
type MethodKind uint8

const (
	// JobMethod makes a job: queued by the manager, answered with the job's path.
	JobMethod MethodKind = iota
	// QueryMethod only reads and is passed to the node's systemd unopened.
	QueryMethod
	// ChangeMethod changes something on the node and is passed on unopened.
	ChangeMethod
	// AgentMethod is carried out by the agent itself, not by systemd.
	AgentMethod
)

// NodeMethod describes one method of the Node interface. Manager, agent, rights and
// documentation are driven by this one table, so a verb is added in one place.
type NodeMethod struct {
	Name string
	In   Signature
	Out  Signature
	Kind MethodKind
	// UnitArg is true where the first argument names one unit, which names the unit in
	// rights and in the action log.
	UnitArg bool
}

// UnitsSignature is the type of systemd's ListUnits: name, description, load state, active
// state, sub state, followed unit, object path, job id, job type, job path.
const UnitsSignature Signature = "a(ssssssouso)"

// NodeMethods is the Node interface, in the order of its documentation. The internal
// Agent interface has the same methods, where a JobMethod takes the manager's job id (u)
// before its other arguments and answers without a path.
var NodeMethods = []NodeMethod{
	{"StartUnit", "ss", "o", JobMethod, true},
	{"StopUnit", "ss", "o", JobMethod, true},
	{"ReloadUnit", "ss", "o", JobMethod, true},
	{"RestartUnit", "ss", "o", JobMethod, true},
	{"TryRestartUnit", "ss", "o", JobMethod, true},
	{"ReloadOrRestartUnit", "ss", "o", JobMethod, true},
	{"ReloadOrTryRestartUnit", "ss", "o", JobMethod, true},
	{"StartTransientUnit", "ssa(sv)a(sa(sv))", "o", JobMethod, true},
	{"KillUnit", "ssi", "", ChangeMethod, true},
	{"FreezeUnit", "s", "", ChangeMethod, true},
	{"ThawUnit", "s", "", ChangeMethod, true},
	{"ResetFailedUnit", "s", "", ChangeMethod, true},
	{"ResetFailed", "", "", ChangeMethod, false},
	{"Reload", "", "", ChangeMethod, false},
	{"GetUnitProperties", "ss", "a{sv}", QueryMethod, true},
	{"GetUnitProperty", "sss", "v", QueryMethod, true},
	{"SetUnitProperties", "sba(sv)", "", ChangeMethod, true},
	{"EnableUnitFiles", "asbb", "ba(sss)", ChangeMethod, false},
	{"DisableUnitFiles", "asb", "a(sss)", ChangeMethod, false},
	{"MaskUnitFiles", "asbb", "a(sss)", ChangeMethod, false},
	{"UnmaskUnitFiles", "asb", "a(sss)", ChangeMethod, false},
	{"PresetUnitFiles", "asbb", "ba(sss)", ChangeMethod, false},
	{"GetUnitFileState", "s", "s", QueryMethod, true},
	{"GetUnitProcesses", "s", "a(sus)", QueryMethod, true},
	{"ReadUnitFiles", "s", "a(ss)", QueryMethod, true},
	{"ListUnits", "", UnitsSignature, QueryMethod, false},
	{"ListUnitsFiltered", "asas", UnitsSignature, QueryMethod, false},
	{"ListUnitFiles", "", "a(ss)", QueryMethod, false},
	{"GetDefaultTarget", "", "s", QueryMethod, false},
	{"SetDefaultTarget", "sb", "a(sss)", ChangeMethod, false},
	{"SetLogLevel", "s", "", AgentMethod, false},
	{"SwitchManager", "s", "", AgentMethod, false},
	{"Shutdown", "", "", AgentMethod, false},
}

// NodeMethodByName finds a method of the Node interface.
func NodeMethodByName(name string) (*NodeMethod, bool) {
	for i := range NodeMethods {
		if NodeMethods[i].Name == name {
			return &NodeMethods[i], true
		}
	}
	return nil, false
}
