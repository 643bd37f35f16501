package ctl

import (
	"errors"
	"fmt"
	"strings"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// The exit codes; docs and help texts name them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotActive   = 3
	exitNoSuch      = 4
	exitDenied      = 5
	exitOffline     = 6
	exitTimeout     = 7
	exitInterrupted = 130
	exitPipe        = 141 // as if SIGPIPE had ended it, which it does where out is standard output
)

// exit is an error that is only an exit code: what there is to say was said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a command line that cannot be right.
type usageError struct {
	text string
	hint string
}

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{text: fmt.Sprintf(format, args...)} }

// failure is an error with what was tried where.
type failure struct {
	doing string // "cannot start foo.service on node1"
	node  string
	unit  string
	err   error
	log   bool   // the unit's log has more to say
	alias string // the unit's primary name, where unit is another
}

func (f *failure) Error() string {
	if f.err.Error() == "" {
		return f.doing
	}
	return f.doing + ": " + f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// failures are several errors of one command.
type failures []error

func (f failures) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "\n")
}

// join makes one error of many, nil of none.
func join(list []error) error {
	var out failures
	for _, err := range list {
		var more failures
		switch {
		case err == nil:
		case errors.As(err, &more):
			out = append(out, more...)
		default:
			out = append(out, err)
		}
	}
	switch len(out) {
	case 0:
		return nil
	case 1:
		return out[0]
	}
	return out
}

// codes are the exit codes of error kinds. What is not here is exitFailed.
var codes = []struct {
	kind *wire.Error
	code int
}{
	{wire.ErrNoSuchNode, exitNoSuch},
	{wire.ErrNoSuchJob, exitNoSuch},
	{wire.ErrNoSuchWorkload, exitNoSuch},
	{wire.ErrNoSuchOperation, exitNoSuch},
	{wire.ErrSystemdNoSuchUnit, exitNoSuch},
	{errNoFile, exitNoSuch},
	{wire.ErrAccessDenied, exitDenied},
	{wire.ErrInteractiveAuth, exitDenied},
	{wire.ErrNodeNotAllowed, exitDenied},
	{wire.ErrDependencyDenied, exitDenied},
	{errOnlyByDependency, exitDenied},
	{errNoIsolation, exitDenied},
	{errDestructive, exitDenied},
	{wire.ErrNodeOffline, exitOffline},
	{wire.ErrTimeout, exitTimeout},
	{wire.ErrInvalidArgs, exitUsage},
}

// Refusals that systemctl counts as denied access (translate_bus_error_to_exit_status).
var (
	errOnlyByDependency = &wire.Error{Name: wire.SystemdName + ".OnlyByDependency"}
	errNoIsolation      = &wire.Error{Name: wire.SystemdName + ".NoIsolation"}
	errDestructive      = &wire.Error{Name: wire.SystemdName + ".TransactionIsDestructive"}
)

// errNoFile is what systemd says about unit files that do not exist (ENOENT in sd-bus).
var errNoFile = &wire.Error{Name: wire.DBusName + ".Error.FileNotFound"}

// exitCode is the exit code for an error: that of its kind, or of the one kind that all of
// several errors have.
func exitCode(err error) int {
	var (
		code exit
		many failures
		bad  *usageError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &many):
		first := exitCode(many[0])
		for _, e := range many[1:] {
			if exitCode(e) != first {
				return exitFailed
			}
		}
		return first
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &bad):
		return exitUsage
	}
	for _, c := range codes {
		if errors.Is(err, c.kind) {
			return c.code
		}
	}
	return exitFailed
}

// report tells people about an error, with a hint where there is something to do.
func (a *app) report(err error) {
	var (
		code exit
		many failures
	)
	switch {
	case err == nil:
		return
	case errors.As(err, &many):
		for _, e := range many {
			a.report(e)
		}
		return
	case errors.As(err, &code):
		return
	}
	a.say("error: %s", err)
	if hint := a.hint(err); hint != "" && !a.hinted[hint] {
		a.hinted[hint] = true
		a.say("hint: %s", hint)
	}
}

// say writes one line, or several, to standard error.
func (a *app) say(format string, args ...any) {
	a.saying.Lock()
	defer a.saying.Unlock()
	text := fmt.Sprintf(format, args...)
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(a.errOut, render.Clean(line))
	}
}

// note says what is good to know and no error.
func (a *app) note(format string, args ...any) {
	if !a.opt.quiet {
		a.say(format, args...)
	}
}

// noDaemon reports kinds that mean that nobody is there to ask.
func noDaemon(err error) bool {
	return errors.Is(err, client.ErrNoBus) || errors.Is(err, client.ErrNotRunning)
}
