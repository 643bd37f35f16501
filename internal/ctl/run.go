// Package ctl is the command line tool: systemctl's words, tables and exit codes, with a node
// in front.
package ctl

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/client"
)

// Run is the whole of ctl: it carries out the command that args name and returns the exit
// code. Nothing of the process but env and the three streams is used, except that a pager is
// started where env names one and out is a terminal, and polkit's agent for passwords where a
// user who is not root changes something and in is a terminal. When ctx ends, ctl stops waiting: the
// exit code is 130.
func Run(ctx context.Context, args []string, env func(string) string, in io.Reader, out, errOut io.Writer) int {
	a := &app{ctx: ctx, env: env, in: in, out: out, errOut: errOut, now: time.Now}
	a.screen = a.screenOf
	a.deadline = giveUpAfter
	a.journalctl, a.passwordAgent, a.asks = "journalctl", passwordAgent, a.canAsk
	return a.run(args)
}

// app is one run of ctl.
type app struct {
	ctx    context.Context
	env    func(string) string
	in     io.Reader
	out    io.Writer
	errOut io.Writer
	now    func() time.Time

	args   []string
	root   *cobra.Command
	opt    globals
	outIs  screen
	errIs  screen
	screen func(io.Writer) screen // what a stream leads to
	// deadline makes the context of a wait that --timeout ends, with the cause errGaveUp.
	deadline func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	// journalctl is the program by that name.
	journalctl string
	// passwordAgent is the program that asks for a password, asks whether somebody is there to
	// be asked, and agent is the program while it runs.
	passwordAgent string
	asks          func() bool
	asking        sync.Mutex // held for agent
	agent         *exec.Cmd
	bus           *client.Client
	pager         *pager
	hinted        map[string]bool // hints that were given already
	saying        sync.Mutex      // lines on errOut come from several goroutines
}

func (a *app) run(args []string) int {
	a.args = args
	a.hinted = make(map[string]bool)
	a.root = newRoot(a)
	a.root.SetArgs(args)
	err := a.root.ExecuteContext(a.ctx)
	defer func() {
		if a.bus != nil {
			a.bus.Close()
		}
		a.endAgent()
	}()
	paged := a.closePager()
	if closedPipe(err) {
		if paged {
			return exitOK // the user has seen enough
		}
		return exitPipe
	}
	var code exit
	if err != nil && a.ctx.Err() != nil && !errors.As(err, &code) {
		a.say("interrupted")
		return exitInterrupted
	}
	a.report(err)
	return exitCode(err)
}

// client connects to the bus, once.
func (a *app) client() (*client.Client, error) {
	if a.bus != nil {
		return a.bus, nil
	}
	bus, err := client.Dial(a.ctx, client.Options{
		User: a.opt.user, Address: a.opt.address, Host: a.opt.host, Getenv: a.env, UID: os.Geteuid(),
	})
	if err == nil {
		a.bus = bus
		bus.BeforeChange(a.beforeChange)
	}
	return bus, err
}

// closedPipe reports that whoever read our output has left, which is no error to talk about.
func closedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
