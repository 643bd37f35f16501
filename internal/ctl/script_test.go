package ctl

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/test/fakemanager"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // the results of tests hold times
	os.Exit(m.Run())
}

// testNow is the time at which scripts run.
var testNow = time.Unix(1_700_003_600, 0)

// TestScripts runs testdata/*.txtar: each has a bus of its own and, after the command fleet,
// a manager on it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		UpdateScripts:      os.Getenv("UPDATE_SCRIPTS") != "",
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			bus := bustest.Start(e.T().(testing.TB))
			e.Setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.Address)
			e.Setenv("LANG", "C.UTF-8")
			e.Values[worldKey{}] = &scriptWorld{bus: bus}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fleet":     fleetCmd,
			"quit":      quitCmd,
			"ctl":       ctlCmd,
			"exit":      exitCmd,
			"interrupt": interruptCmd,
			"giveup":    giveUpCmd,
			"terminal":  terminalCmd,
			"calls":     callsCmd,
			"cut":       cutCmd,
			"live":      liveCmd,

			"liveterminal": liveTerminalCmd,
			"agent":        agentCmd,
			"journal":      journalCmd,
			"asking":       askingCmd,
			"nobus":        func(ts *testscript.TestScript, _ bool, _ []string) { worldOf(ts).bus.Stop() },
		},
	})
}

type worldKey struct{}

type scriptWorld struct {
	bus     *bustest.Bus
	manager *fakemanager.Manager
	agent   *fakemanager.Agent
	// journalctl is a program that prints what the real one would.
	journalctl string
	// passwordAgent is a program in the place of pkttyagent; "": nobody is there to be asked.
	passwordAgent string
}

func worldOf(ts *testscript.TestScript) *scriptWorld { return ts.Value(worldKey{}).(*scriptWorld) }

// fleet FILE: a manager with this fleet.
func fleetCmd(ts *testscript.TestScript, _ bool, args []string) {
	f, err := fakemanager.ParseFleet([]byte(ts.ReadFile(args[0])))
	ts.Check(err)
	w := worldOf(ts)
	w.manager, err = fakemanager.Start(w.bus.Address, f)
	ts.Check(err)
	ts.Defer(w.manager.Stop)
}

// quit: the manager leaves the bus.
func quitCmd(ts *testscript.TestScript, _ bool, _ []string) { worldOf(ts).manager.Stop() }

// cut NODE [REASON]: a node goes offline.
func cutCmd(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(worldOf(ts).manager.SetOffline(args[0], true, strings.Join(args[1:], " ")))
}

// agent STATUS: an agent on this machine.
func agentCmd(ts *testscript.TestScript, _ bool, args []string) {
	w := worldOf(ts)
	ts.Check(w.setAgent(args[0]))
	if w.agent != nil {
		ts.Defer(w.agent.Stop)
	}
}

// calls: the calls so far, to standard output.
func callsCmd(ts *testscript.TestScript, _ bool, _ []string) {
	for _, c := range worldOf(ts).manager.Calls() {
		fmt.Fprintln(ts.Stdout(), c)
	}
}

func newApp(ts *testscript.TestScript, ctx context.Context, terminal int) *app {
	a := &app{ctx: ctx, env: ts.Getenv, in: strings.NewReader(""), out: ts.Stdout(), errOut: ts.Stderr(), now: func() time.Time { return testNow }}
	a.deadline = giveUpAfter
	a.journalctl = worldOf(ts).journalctl
	a.passwordAgent = worldOf(ts).passwordAgent
	a.asks = func() bool { return a.passwordAgent != "" }
	a.screen = func(w io.Writer) screen {
		return screen{terminal: terminal > 0, width: terminal, color: a.opt.color == "always"}
	}
	return a
}

func runCtl(ts *testscript.TestScript, ctx context.Context, terminal int, args []string) int {
	return newApp(ts, ctx, terminal).run(args)
}

func limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

func wantCode(ts *testscript.TestScript, got, want int) {
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// ctl ARGS…: exit code 0.
func ctlCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("say which exit code is wanted: exit CODE ARGS…")
	}
	ctx, cancel := limit()
	defer cancel()
	wantCode(ts, runCtl(ts, ctx, 0, args), 0)
}

func number(ts *testscript.TestScript, s string) int {
	n, err := strconv.Atoi(s)
	ts.Check(err)
	return n
}

// exit CODE ARGS…: ctl with this exit code.
func exitCmd(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := limit()
	defer cancel()
	wantCode(ts, runCtl(ts, ctx, 0, args[1:]), number(ts, args[0]))
}

// terminal WIDTH ARGS…: ctl on a terminal of this width.
func terminalCmd(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := limit()
	defer cancel()
	wantCode(ts, runCtl(ts, ctx, number(ts, args[0]), args[1:]), 0)
}

// interrupt NODE UNIT ARGS…: ctl that is interrupted once the unit's job is under way.
func interruptCmd(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := limit()
	defer cancel()
	go func() {
		worldOf(ts).manager.AwaitJob(args[0], args[1])
		cancel()
	}()
	wantCode(ts, runCtl(ts, ctx, 0, args[2:]), exitInterrupted)
}

// giveup NODE UNIT ARGS…: ctl whose --timeout is over once the unit's job is under way.
func giveUpCmd(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := limit()
	defer cancel()
	a := newApp(ts, ctx, 0)
	a.deadline = func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		go func() {
			worldOf(ts).manager.AwaitJob(args[0], args[1])
			cancel(errGaveUp)
		}()
		return ctx, func() { cancel(nil) }
	}
	wantCode(ts, a.run(args[2:]), exitTimeout)
}
