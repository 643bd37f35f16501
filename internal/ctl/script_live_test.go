package ctl

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"example.org/ctrl/test/fakemanager"
)

// live is a stream of a ctl that runs, for steps that wait for what it writes.
type live struct {
	mu      sync.Mutex
	changed sync.Cond
	all     bytes.Buffer
	seen    int // what steps have waited for
	closed  bool
}

func newLive() *live {
	l := &live{}
	l.changed.L = &l.mu
	return l
}

func (l *live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, syscall.EPIPE
	}
	l.all.Write(p)
	l.changed.Broadcast()
	return len(p), nil
}

// await waits until what a pattern matches has been written, behind what was waited for before.
func (l *live) await(ctx context.Context, pattern *regexp.Regexp) bool {
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock() // whoever has looked at ctx waits by now
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if found := pattern.FindIndex(l.all.Bytes()[l.seen:]); found != nil {
			l.seen += found[1]
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		l.changed.Wait()
	}
}

func (l *live) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *live) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// liveCmd is: live STEPS CODE ARGS…, ctl with this exit code, during which the steps in a file
// are carried out, one a line:
//
//	await REGEXP            standard output has this, behind what was awaited before
//	awaiterr REGEXP         standard error has
//	asked TEXT              the manager has had a call that begins so, since ctl began or
//	forget                  was carried out
//	unit NODE UNIT ACTIVE SUB [NAME=VALUE]…    what happens to a unit; values without blanks
//	cut NODE [REASON], heal NODE               a node goes offline, comes back
//	agent STATUS            the agent of this machine is there, and has this status; "gone": it is not
//	fleet FILE, quit        a manager comes, leaves
//	start NODE UNIT         another client starts a unit
//	timeup                  a time that was given to ctl is over
//	interrupt, closepipe    ctl is interrupted; nobody reads its output any more
func liveCmd(ts *testscript.TestScript, neg bool, args []string) { liveRun(ts, 0, args) }

// liveTerminalCmd is the same on a terminal: liveterminal WIDTH STEPS CODE ARGS…
func liveTerminalCmd(ts *testscript.TestScript, neg bool, args []string) {
	liveRun(ts, number(ts, args[0]), args[1:])
}

func liveRun(ts *testscript.TestScript, width int, args []string) {
	ctx, cancel := limit()
	defer cancel()
	running, interrupt := context.WithCancel(ctx)
	defer interrupt()
	out, errOut := newLive(), newLive()
	if m := worldOf(ts).manager; m != nil {
		m.ForgetCalls()
	}
	a := newApp(ts, running, width)
	a.out, a.errOut = out, errOut
	timeUp := make(chan struct{}, 16)
	a.deadline = func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		go func() {
			select {
			case <-timeUp:
				cancel(errGaveUp)
			case <-ctx.Done():
			}
		}()
		return ctx, func() { cancel(nil) }
	}
	ended := make(chan int, 1)
	go func() { ended <- a.run(args[2:]) }()
	var code int
	failed := ""
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		line = strings.TrimSpace(line)
		if line == "timeup" {
			timeUp <- struct{}{}
		} else if line != "" && failed == "" {
			failed = liveStep(ts, ctx, line, out, errOut, interrupt)
		}
	}
	if failed != "" {
		interrupt()
	}
	code = <-ended
	io.WriteString(ts.Stdout(), out.text())
	io.WriteString(ts.Stderr(), errOut.text())
	if failed != "" {
		ts.Fatalf("%s; exit code %d, output:\n%s\n%s", failed, code, out.text(), errOut.text())
	}
	wantCode(ts, code, number(ts, args[1]))
}

func liveStep(ts *testscript.TestScript, ctx context.Context, line string, out, errOut *live, interrupt func()) (failed string) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	w := worldOf(ts)
	step := strings.Fields(line)
	_, rest, _ := strings.Cut(line, " ")
	switch step[0] {
	case "await", "awaiterr":
		stream := map[string]*live{"await": out, "awaiterr": errOut}[step[0]]
		if !stream.await(ctx, regexp.MustCompile("(?m)"+rest)) {
			return "not seen: " + line
		}
	case "asked":
		if !w.manager.AwaitCall(ctx, rest) {
			return "never asked: " + rest
		}
	case "forget":
		w.manager.ForgetCalls()
	case "unit":
		props := make(map[string]string)
		for _, word := range step[5:] {
			name, value, _ := strings.Cut(word, "=")
			props[name] = strings.ReplaceAll(value, "_", " ")
		}
		w.manager.ChangeUnit(step[1], step[2], step[3], step[4], props)
	case "cut":
		ts.Check(w.manager.SetOffline(step[1], true, strings.Join(step[2:], " ")))
	case "heal":
		ts.Check(w.manager.SetOffline(step[1], false, ""))
	case "agent":
		ts.Check(w.setAgent(step[1]))
	case "fleet":
		fleetCmd(ts, false, step[1:])
	case "quit":
		w.manager.Stop()
	case "start":
		ts.Check(w.manager.Start(step[1], step[2]))
	case "interrupt":
		interrupt()
	case "closepipe":
		out.close()
	default:
		return "no such step: " + step[0]
	}
	return ""
}

// setAgent makes the agent of this machine say a status, or leave.
func (w *scriptWorld) setAgent(status string) (err error) {
	switch {
	case status == "gone":
		w.agent.Stop()
		w.agent = nil
	case w.agent == nil:
		w.agent, err = fakemanager.StartAgent(w.bus.Address, status)
	default:
		w.agent.SetStatus(status)
	}
	return err
}
