package agent

import (
	"context"
	"log/slog"

	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/wire"
)

// Agent is the core. Make one with New and run it with Run.
type Agent struct {
	loop *loop.Loop
	log  *slog.Logger
}

// New makes a core. It does nothing until Run.
func New(cfg Config, systemd Systemd, dialer Dialer, events Events, log *slog.Logger) *Agent {
	panic("skeleton")
}

// Run dials, registers and serves until ctx ends, then closes the link and returns. It
// stops no unit.
func (a *Agent) Run(ctx context.Context) { panic("skeleton") }

// Reconfigure applies a changed configuration.
func (a *Agent) Reconfigure(cfg Config) { panic("skeleton") }

// StartJob is the manager asking for a job. A nil error says that systemd has taken it.
func (a *Agent) StartJob(s Session, req JobRequest, reply func(error)) { panic("skeleton") }

// CancelJob is the manager cancelling its job.
func (a *Agent) CancelJob(s Session, job uint32, reply func(error)) { panic("skeleton") }

// Call is the manager asking for a query or change of wire.NodeMethods.
func (a *Agent) Call(s Session, method string, args wire.Raw, reply func(wire.Raw, error)) {
	panic("skeleton")
}

// Closed says that the link of session s has died.
func (a *Agent) Closed(s Session, err error) { panic("skeleton") }

// SystemdUp says that the connection to systemd stands, with its version and the facts of
// this node. Jobs that began before are looked up again.
func (a *Agent) SystemdUp(facts map[string]wire.Value) { panic("skeleton") }

// SystemdDown says that the connection to systemd is lost (daemon-reexec closes it).
func (a *Agent) SystemdDown(err error) { panic("skeleton") }

// SystemdJobRunning is systemd's job leaving the waiting state.
func (a *Agent) SystemdJobRunning(job uint32) { panic("skeleton") }

// SystemdJobRemoved is systemd's signal that a job has ended.
func (a *Agent) SystemdJobRemoved(job uint32, unit, result string) { panic("skeleton") }

// Info tells the local API what to show.
func (a *Agent) Info(reply func(Info)) { panic("skeleton") }

// SwitchManager changes the manager's address until the next restart and dials it at once.
// Errors: ErrInvalidArgs, ErrFailed when the address is the present one.
func (a *Agent) SwitchManager(address string, reply func(error)) { panic("skeleton") }
