// Package daemon is the life of both daemons: command line, configuration, log, signals, and
// what systemd is told.
package daemon

import (
	"context"
	"io"
	"log/slog"

	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/logging"
)

// Hopeless marks an error of a start that does not go away by itself, as a wrong
// configuration does not: the daemon ends with ExitConfig.
type Hopeless struct{ Err error }

func (e Hopeless) Error() string { return e.Err.Error() }
func (e Hopeless) Unwrap() error { return e.Err }

// Exit codes. Units do not start a daemon again after ExitUsage and ExitConfig, so neither may
// be 2: a Go program ends with that after a panic and when the watchdog aborts it.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 64 // EX_USAGE of sysexits.h(3)
	ExitConfig = 78 // EX_CONFIG
)

// Config is what both configurations can do.
type Config interface {
	CheckStart() error
	Print(io.Writer) error
}

// Spec describes a daemon to Run.
type Spec[C Config] struct {
	Name    string // of the program
	Summary string // one sentence
	Example string // a command line that works
	Flags   []Flag // besides those that both daemons have
	// Commands are what the program does instead of running as a daemon, by its first argument.
	Commands []Command
	Load     func(config.Options) (C, error)
	Common   func(C) *config.Common
	// Check says what else keeps the daemon from starting: files and groups that the
	// configuration names. It changes nothing and logs nothing. Where it is thorough, as for
	// --check-config, it also finds what the daemon would start with in hope of better times.
	Check func(c C, e *Env, thorough bool) error
	// Start starts the daemon. What the context ends is only the start.
	Start func(context.Context, C, *Env) (Service[C], error)
}

// Command is something that a daemon's program does at once, and ends.
type Command struct {
	Name string
	Help string // what it does, for the daemon's help
	// Run gets the arguments after the name, and returns the exit code.
	Run func(ctx context.Context, args, env []string, stdout, stderr io.Writer) int
}

// Flag is an option that sets a key of the configuration.
type Flag struct {
	Short, Long string
	Key         string
	Value       string // what help calls the value
	Help        string
}

// Service is a running daemon.
type Service[C Config] interface {
	// Reload applies what can be applied of a changed configuration. It logs what it did not
	// apply, and keeps working whatever happens.
	Reload(C)
	// Alive calls reply once the core has handled what came before: the sign that it lives.
	Alive(reply func())
	// Stop ends everything in order. ctx is the time for it.
	Stop(ctx context.Context)
}

// Env is what surrounds a daemon.
type Env struct {
	Log     *logging.Log
	Options config.Options // as the configuration was loaded with
	// Shutdown ends the daemon as SIGTERM does. It does not block.
	Shutdown func()
	// Fail ends the daemon in the same order, but as failed: exit code 1, and the reason in
	// the log. It does not block.
	Fail func(reason error)
	// Status tells systemd, in one line, what the daemon is doing. It waits a second at most.
	Status func(string)
}

// Logger is the daemon's root logger.
func (e *Env) Logger() *slog.Logger { return e.Log.Logger() }

// Getenv reads the environment that the daemon was started with.
func (e *Env) Getenv(key string) string {
	if e.Options.Getenv == nil {
		return ""
	}
	return e.Options.Getenv(key)
}
