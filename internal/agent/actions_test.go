package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/actionlog"
	"example.org/ctrl/internal/policy"
	"example.org/ctrl/internal/wire"
)

// written are the lines of an action log: verb, unit, job, result.
func written(t *testing.T, text *bytes.Buffer) []string {
	t.Helper()
	var out []string
	for line := range bytes.Lines(text.Bytes()) {
		var e struct {
			Verb, Unit, Result, Caller, Node string
			Job                              int
		}
		if err := json.Unmarshal(line, &e); err != nil || e.Node != "node1" || e.Caller == "" {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, fmt.Sprintf("%s %s %d %s", e.Verb, e.Unit, e.Job, e.Result))
	}
	text.Reset()
	return out
}

func TestActsAreWrittenDown(t *testing.T) {
	cfg, text := with(t, policy.Settings{DenyUnits: []string{"sshd.service"}}), &bytes.Buffer{}
	cfg.Actions = actionlog.New(slog.New(slog.NewJSONHandler(text, nil)))
	cfg.OnDisconnectUnit, cfg.OnDisconnectUnitAfter = "safe.target", time.Minute
	in(t, cfg, func(w *world) {
		l := w.online()
		check := func(want ...string) {
			t.Helper()
			w.take()
			if got := written(t, text); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("written %q, want %q", got, want)
			}
		}
		w.start(l.session, 1, wire.Start, "a.service")
		check()
		w.answer("StartUnit a.service", 70, nil)
		w.a.SystemdJobRemoved(70, "a.service", "failed")
		check("start a.service 1 queued", "start a.service 1 failed")
		w.start(l.session, 2, wire.Stop, "sshd.service")
		w.start(l.session, 3, wire.Start, "none.service")
		w.answer("StartUnit none.service", nil, wire.ErrSystemdNoSuchUnit.With("Unit none.service not found."))
		check("stop sshd.service 2 refused", "start none.service 3 failed")
		w.call(l, "ListUnits", wire.Raw{})
		w.answer("ListUnits", wire.Raw{}, nil)
		w.call(l, "ReadUnitFiles", wire.Strings("a.service"))
		w.answer("ReadUnitFiles", nil, wire.ErrAccessDenied.With("not for everyone"))
		check() // to look is no act
		w.call(l, "Reload", wire.Raw{})
		w.answer("Reload", wire.Raw{}, nil)
		w.call(l, "FreezeUnit", wire.Strings(wire.AgentUnit))
		check("daemon-reload  0 done", "freeze ctrl-agent.service 0 refused")
		w.start(l.session, 4, wire.Start, "b.service")
		w.answer("StartUnit b.service", 71, nil)
		w.a.CancelJob(l.session, 4, func(error) {})
		synctest.Wait()
		w.answer("CancelJob 71", nil, nil)
		check("start b.service 4 queued", "cancel b.service 4 done")
		w.a.Closed(l.session, wire.ErrDisconnected.With("cut"))
		check("start b.service 4 unknown")
		time.Sleep(time.Minute)
		synctest.Wait()
		w.answer("StartUnit safe.target", 72, nil)
		check("start safe.target 0 queued")
	})
}
