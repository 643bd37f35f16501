package ctl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/wire"
)

func TestExitCode(t *testing.T) {
	at := func(err error) error { return &failure{doing: "cannot x", err: err} }
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("odd"), 1},
		{exit(42), 42},
		{usage("x"), 2},
		{fmt.Errorf("wrapped: %w", usage("x")), 2},
		{at(wire.ErrNoSuchNode.With("x")), 4},
		{at(wire.ErrNoSuchJob), 4},
		{at(wire.ErrSystemdNoSuchUnit.With("x")), 4},
		{at(&silentKind{wire.ErrNoSuchNode}), 4},
		{at(errNoFile), 4},
		{at(wire.ErrAccessDenied), 5},
		{at(wire.ErrInteractiveAuth), 5},
		{at(wire.ErrNodeOffline), 6},
		{at(wire.ErrTimeout), 7},
		{at(&gaveUp{}), 7},
		{at(wire.ErrInvalidArgs), 2},
		{at(wire.ErrSystemdUnitMasked), 1},
		{at(wire.ErrUnitBusy), 1},
		{client.ErrNoBus, 1},
		{client.ErrNotRunning, 1},
		{client.ErrManagerGone, 1},
		{join([]error{nil, nil}), 0},
		{join([]error{nil, at(wire.ErrNodeOffline)}), 6},
		{join([]error{at(wire.ErrNodeOffline), at(wire.ErrNodeOffline)}), 6},
		{join([]error{at(wire.ErrNodeOffline), at(wire.ErrNoSuchNode)}), 1},
		{join([]error{exit(3), exit(3)}), 3},
		{join([]error{join([]error{exit(3), at(wire.ErrNoSuchNode)}), nil}), 1},
	}
	for _, test := range tests {
		if got := exitCode(test.err); got != test.want {
			t.Errorf("%v: exit code %d, want %d", test.err, got, test.want)
		}
	}
}

func TestClosest(t *testing.T) {
	words := []string{"start", "stop", "status", "restart", "list-units", "list-nodes"}
	for typed, want := range map[string]string{
		"strat": "start", "stop": "", "sotp": "stop", "Start": "start", "list-unit": "list-units", "list": "list-units", "xyzzy": "", "lis": "list-units", "s": "",
		"listunits": "list-units", "stats": "status",
	} {
		if got := closest(typed, words); got != want {
			t.Errorf("%s: got %q, want %q", typed, got, want)
		}
	}
}

func TestParseSpan(t *testing.T) {
	for s, want := range map[string]uint64{
		"5": 5_000_000, "1.5": 1_500_000, "20ms": 20_000, "5min 20s": 320_000_000, "1h30min": 5_400_000_000, "2 d": 172_800_000_000,
		"infinity": math.MaxUint64, "0": 0, " 3s ": 3_000_000, "1w": 604_800_000_000, "1 month": 2_629_800_000_000,
	} {
		if got, err := parseSpan(s, second); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", " ", "x", "5x", "-5s", "5s-", "1..5s", "99999999999y", "5 5 s x", "sec"} {
		if got, err := parseSpan(s, second); err == nil {
			t.Errorf("%q was read as %d", s, got)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for s, want := range map[string]int32{"SIGUSR1": 10, "USR1": 10, "usr1": 10, "10": 10, "RTMIN": 34, "RTMIN+3": 37, "SIGRTMAX-1": 63, "SIGRTMAX": 64, "64": 64, "KILL": 9} {
		if got, err := parseSignal(s); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "SIG", "0", "-1", "65", "999", "NOPE", "RTMIN-1", "RTMIN+31", "RTMAX+1", "RTMIN+", "RTMIN+x"} {
		if got, err := parseSignal(s); exitCode(err) != exitUsage {
			t.Errorf("%q: %d, %v; want a usage error", s, got, err)
		}
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1.0K", 1536: "1.5K", 1 << 20: "1.0M", 5<<30 + 1<<29: "5.5G", math.MaxUint64: "15.9E"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestDecideStart(t *testing.T) {
	value := func(v any) client.Value { return client.Value{Data: v} }
	skipped := props{
		"ActiveState": value("inactive"), "ConditionResult": value(false), "ConditionTimestampMonotonic": value(uint64(5)),
		"Conditions": value([][]any{{"ConditionHost", true, false, "a", int32(-1)}, {"ConditionPathExists", false, false, "/x", int32(1)}}),
	}
	tests := []struct {
		name   string
		props  props
		verb   wire.Verb
		result string
		note   string
		failed string
	}{
		{"runs", props{"ActiveState": value("active")}, wire.Start, "", "", ""},
		{"oneshot that is over", props{"ActiveState": value("inactive"), "ConditionResult": value(true), "ConditionTimestampMonotonic": value(uint64(5))}, wire.Start, "", "", ""},
		{"never started", props{"ActiveState": value("inactive")}, wire.TryRestart, "", "", ""},
		{"condition", skipped, wire.Start, resultNotStarted, "not started: condition ConditionHost=|a failed", ""},
		{"condition, restart", skipped, wire.Restart, resultNotStarted, "not started: condition ConditionHost=|a failed", ""},
		{"condition of long ago", skipped, wire.TryRestart, "", "", ""},
		{"condition, reload", skipped, wire.Reload, "", "", ""},
		{"failed", props{"ActiveState": value("failed")}, wire.Start, wire.ResultFailed, "", "its job is done, but the unit has failed"},
		{"failed, reload", props{"ActiveState": value("failed")}, wire.Reload, wire.ResultFailed, "", "its job is done, but the unit has failed"},
		{"will be restarted", props{"ActiveState": value("activating"), "SubState": value("auto-restart")}, wire.Start, wire.ResultFailed, "", "its job is done, but the unit has failed and will be restarted"},
		{"nothing known", props{}, wire.Start, "", "", ""},
		{"other types", props{"ActiveState": value(7), "Conditions": value("x")}, wire.Start, "", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := decideStart(test.props, test.verb)
			failed := ""
			if v.failed != nil {
				failed = v.failed.Error()
			}
			if v.result != test.result || v.note != test.note || failed != test.failed {
				t.Errorf("got %q, note %q, failed %q", v.result, v.note, failed)
			}
		})
	}
}

func TestWhyFailed(t *testing.T) {
	value := func(v any) client.Value { return client.Value{Data: v} }
	command := func(path string, ignore bool, code, status int32) client.Value {
		return value([][]any{{path, []string{path}, ignore, uint64(1), uint64(1), uint64(2), uint64(2), uint32(7), code, status}})
	}
	tests := []struct {
		props map[string]client.Value
		want  string
	}{
		{nil, ""},
		{map[string]client.Value{"Result": value("success")}, ""},
		{map[string]client.Value{"Result": value("timeout")}, ": Result=timeout (it took too long)"},
		{map[string]client.Value{"Result": value("exit-code"), "ExecMainCode": value(int32(1)), "ExecMainStatus": value(int32(203))},
			": Result=exit-code, main process exited with status 203/EXEC"},
		{map[string]client.Value{"Result": value("signal"), "ExecStart": command("/bin/x", false, 2, 11)}, ": Result=signal, ExecStart=/bin/x was killed by SIGSEGV"},
		{map[string]client.Value{"Result": value("core-dump"), "ExecStartPre": command("/bin/p", true, 1, 1), "ExecStart": command("/bin/x", false, 3, 6)},
			": Result=core-dump, ExecStart=/bin/x dumped core on SIGABRT"},
	}
	for _, test := range tests {
		if got := whyFailed(test.props); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestWatched(t *testing.T) {
	state := func(active, sub, reason string) client.Event {
		return client.Event{Kind: client.UnitStateChanged, Node: "node1", Active: active, Sub: sub, Reason: reason}
	}
	var w watched
	steps := []struct {
		event        client.Event
		began, ended bool
	}{
		{state("failed", "failed", "virtual"), false, false}, // of an earlier unit of that name
		{state("inactive", "dead", "virtual"), false, false},
		{state("activating", "start", "real"), true, false},
		{state("active", "running", "real"), true, false},
		{state("inactive", "dead", "real"), true, true},
	}
	for i, s := range steps {
		if err := w.take(s.event); err != nil || w.began != s.began || w.ended != s.ended {
			t.Errorf("step %d: began %v, ended %v, %v", i, w.began, w.ended, err)
		}
	}
	if err := w.take(client.Event{Kind: client.UnitPropertiesChanged, Properties: map[string]client.Value{
		"Result": {Data: "exit-code"}, "ExecMainCode": {Data: int32(1)}, "ExecMainStatus": {Data: int32(9)},
	}}); err != nil || w.code != 1 || w.status != 9 || w.result != "exit-code" {
		t.Errorf("%+v, %v", w, err)
	}
	for _, e := range []client.Event{state("inactive", "agent-offline", "virtual"), {Kind: client.UnitRemoved, Reason: "virtual"}} {
		if err := w.take(e); !errors.Is(err, wire.ErrNodeOffline) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}

func TestEachIsBounded(t *testing.T) {
	running := make(chan struct{}, 3)
	done := make([]bool, 50)
	each(make([]int, 50), 3, func(i, _ int) {
		select {
		case running <- struct{}{}:
		default:
			t.Error("more than three at a time")
		}
		done[i] = true
		<-running
	})
	for i := range done {
		if !done[i] {
			t.Errorf("item %d was left out", i)
		}
	}
}

func TestDeniedHintNamesTheRight(t *testing.T) {
	a := &app{ctx: context.Background()}
	for text, want := range map[string]string{
		"not allowed: " + wire.ActionManageUnits + " is needed": "let a polkit rule grant " + wire.ActionManageUnits,
		"interactive authentication required":                   "run it as root: sudo ctl",
	} {
		if got := a.hint(wire.ErrInteractiveAuth.With("%s", text)); !strings.Contains(got, want) {
			t.Errorf("%s: hint %q", text, got)
		}
	}
}
