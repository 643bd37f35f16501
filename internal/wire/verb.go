package wire

import "strings"

// Verb is what a job does to its unit.
type Verb uint8

// The seven job verbs of systemctl(1).
const (
	Start Verb = iota
	Stop
	Reload
	Restart
	TryRestart
	ReloadOrRestart
	TryReloadOrRestart
	verbCount
)

var verbs = [verbCount]struct{ word, method string }{
	Start:              {"start", "StartUnit"},
	Stop:               {"stop", "StopUnit"},
	Reload:             {"reload", "ReloadUnit"},
	Restart:            {"restart", "RestartUnit"},
	TryRestart:         {"try-restart", "TryRestartUnit"},
	ReloadOrRestart:    {"reload-or-restart", "ReloadOrRestartUnit"},
	TryReloadOrRestart: {"try-reload-or-restart", "ReloadOrTryRestartUnit"},
}

// Verbs lists all job verbs.
func Verbs() []Verb {
	all := make([]Verb, verbCount)
	for i := range all {
		all[i] = Verb(i)
	}
	return all
}

// String is systemctl's word for the verb, which is also a job's JobType.
func (v Verb) String() string { return verbs[v].word }

// Method is the name of the D-Bus method that asks for the verb, the same on the Node
// interface, between manager and agent, and in systemd's own Manager interface.
func (v Verb) Method() string { return verbs[v].method }

// Conflicts reports whether a job of verb v and one of verb o cannot both be carried out
// (systemd's job.c: a stop conflicts with everything but a stop).
func (v Verb) Conflicts(o Verb) bool { return (v == Stop) != (o == Stop) }

// VerbOfMethod finds the verb that a D-Bus method asks for.
func VerbOfMethod(method string) (Verb, bool) {
	for i := range verbs {
		if verbs[i].method == method {
			return Verb(i), true
		}
	}
	return 0, false
}

// JobModes are systemd's words for how a new job treats jobs already queued
// (org.freedesktop.systemd1(5), StartUnit), less those that need no unit.
var JobModes = []string{
	"replace", "fail", "replace-irreversibly", "isolate", "ignore-dependencies", "ignore-requirements",
}

// CheckJobMode refuses a word that is no job mode with InvalidArgs.
func CheckJobMode(mode string) error {
	for _, m := range JobModes {
		if m == mode {
			return nil
		}
	}
	return ErrInvalidArgs.With("job mode %q is not known; use one of %s", mode, strings.Join(JobModes, ", "))
}

// States of a job, as its State property says.
const (
	JobWaiting = "waiting"
	JobRunning = "running"
)

// Results of a job. Systemd's other words (dependency, skipped, invalid, assert,
// unsupported, collected, once …) pass through as they come.
const (
	ResultDone     = "done"
	ResultFailed   = "failed"
	ResultCanceled = "canceled"
	ResultTimeout  = "timeout"
)

// Words of Node.Status, Manager.Status and the agent's Status.
const (
	NodeOnline     = "online"
	NodeOffline    = "offline"
	StatusUp       = "up"
	StatusDegraded = "degraded"
	StatusDown     = "down"
)
