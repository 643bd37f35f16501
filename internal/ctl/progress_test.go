package ctl

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

// lockedText is a terminal that several goroutines write to.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedText
		a := &app{ctx: t.Context(), errOut: &out, errIs: screen{terminal: true, width: 60}, now: time.Now, asks: func() bool { return false }}
		var p progress
		p.start(a, "start")
		p.add("node1", "a.service")
		p.add("node2", "b\x1b.service")
		time.Sleep(progressAfter - time.Millisecond)
		synctest.Wait()
		if out.String() != "" {
			t.Errorf("a short wait was shown: %q", out.String())
		}
		time.Sleep(progressEvery)
		synctest.Wait()
		p.done("node1", "a.service")
		time.Sleep(progressEvery)
		synctest.Wait()
		p.stop()
		want := "\rwaiting for 2 of 2 jobs, a.service on node1 … (2s)\x1b[K" +
			"\rwaiting for 1 of 2 jobs, b\\x1b.service on node2 … (3s)\x1b[K" +
			"\r\x1b[K"
		if out.String() != want {
			t.Errorf("got  %q\nwant %q", out.String(), want)
		}
	})
}

// TestProgressWaitsForThePassword: nothing is written where somebody may be typing.
func TestProgressWaitsForThePassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedText
		a := &app{ctx: t.Context(), errOut: &out, errIs: screen{terminal: true, width: 60}, now: time.Now, asks: func() bool { return true }}
		var p progress
		p.start(a, "start")
		p.add("node1", "a.service")
		p.add("node2", "b.service")
		p.answered()
		time.Sleep(time.Minute)
		synctest.Wait()
		if out.String() != "" {
			t.Errorf("it writes %q into the password", out.String())
		}
		p.answered()
		time.Sleep(progressEvery)
		synctest.Wait()
		if out.String() == "" {
			t.Error("the wait is not shown afterwards")
		}
		p.stop()
	})
}

func TestProgressIsForTerminals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, a := range map[string]*app{
			"no terminal": {ctx: t.Context(), now: time.Now},
			"quiet":       {ctx: t.Context(), now: time.Now, errIs: screen{terminal: true}, opt: globals{quiet: true}},
		} {
			var out lockedText
			a.errOut = &out
			var p progress
			p.start(a, "start")
			time.Sleep(time.Minute)
			p.stop()
			if out.String() != "" {
				t.Errorf("%s: %q", name, out.String())
			}
		}
	})
}

func TestBehind(t *testing.T) {
	running := wire.JobRow{ID: 3, Node: "node1", Unit: "a.service", Type: "start", State: wire.JobRunning}
	waiting := wire.JobRow{ID: 4, Node: "node1", Unit: "a.service", Type: "reload", State: wire.JobWaiting}
	other := wire.JobRow{ID: 5, Node: "node2", Unit: "a.service", Type: "stop", State: wire.JobRunning}
	for _, test := range []struct {
		jobs []wire.JobRow
		want string
	}{
		{nil, ""},
		{[]wire.JobRow{running}, ""},
		{[]wire.JobRow{waiting, other}, ""},
		{[]wire.JobRow{other, running, waiting}, ", behind job 3 (start)"},
	} {
		if got := behindText(test.jobs, "node1", "a.service", "reload"); got != test.want {
			t.Errorf("%+v: got %q, want %q", test.jobs, got, test.want)
		}
	}
}
