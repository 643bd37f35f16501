package manager

import "example.org/ctrl/internal/machine"

// Machines lists the state machines of the core, for the test that holds docs/states.md.
func Machines() []machine.Drawing {
	return []machine.Drawing{nodeMachine.Drawing(), jobMachine.Drawing(), proxyMachine.Drawing()}
}

// Attribute keys of this package's log lines.
const (
	keyNode    = "node"
	keyUnit    = "unit"
	keyJob     = "job"
	keySession = "session"
	keyErr     = "err"
	keyReason  = "reason"
)
