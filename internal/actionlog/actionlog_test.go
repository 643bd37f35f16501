package actionlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

// sink is a log whose lines can be read back.
type sink struct {
	text bytes.Buffer
	*Log
}

func newSink() *sink {
	s := &sink{}
	s.Log = New(slog.New(slog.NewJSONHandler(&s.text, nil)))
	return s
}

func (s *sink) take(t *testing.T) []map[string]any {
	t.Helper()
	s.mu.Lock() // under which entries are written
	defer s.mu.Unlock()
	var out []map[string]any
	for line := range bytes.Lines(s.text.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		delete(fields, "time")
		out = append(out, fields)
	}
	s.text.Reset()
	return out
}

func TestFields(t *testing.T) {
	s := newSink()
	s.Write(Entry{Node: "node1", Units: []string{"a.service", "b.service"}, Verb: "enable", Result: ResultDone, Caller: Caller{":1.7", 1000, true}})
	e := Entry{Node: "node1", Units: []string{"a.service"}, Verb: "start", Job: 7}
	e.Judge("StartUnit", wire.ErrAccessDenied.With("no"))
	s.Write(e)
	s.Write(Entry{Kind: JobEnded, Job: 8, Result: "failed"})
	want := []map[string]any{
		{"level": "INFO", "msg": "act", "message_id": MessageIDs[Acted], "node": "node1", "unit": "a.service b.service", "verb": "enable",
			"result": "done", "caller_uid": 1000.0, "caller": ":1.7"},
		{"level": "WARN", "msg": "act refused", "message_id": MessageIDs[Refused], "node": "node1", "unit": "a.service", "verb": "start",
			"job": 7.0, "result": "refused", "reason": "no"},
		{"level": "INFO", "msg": "job ended", "message_id": MessageIDs[JobEnded], "job": 8.0, "result": "failed"},
	}
	got := s.take(t)
	for i := range want {
		if i >= len(got) || !maps.Equal(got[i], want[i]) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	}
}

func TestMessageIDs(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range MessageIDs {
		if !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(id) || seen[id] {
			t.Errorf("%q", id)
		}
		seen[id] = true
	}
}

func TestJudge(t *testing.T) {
	secret := wire.ErrInvalidArgs.With("cannot set Environment=PASSWORD=x")
	for name, tt := range map[string]struct {
		method         string
		err            error
		kind           Kind
		result, reason string
	}{
		"done":               {"Reload", nil, Acted, "done", ""},
		"denied":             {"StopUnit", wire.ErrAccessDenied.With("DenyUnits="), Refused, "refused", "DenyUnits="},
		"needs a person":     {"StopUnit", wire.ErrInteractiveAuth.With("ask"), Refused, "refused", "ask"},
		"failed":             {"StopUnit", errors.New("gone"), Acted, "failed", "gone"},
		"transient, denied":  {"StartTransientUnit", wire.ErrAccessDenied.With("AllowTransientUnits=no"), Refused, "refused", "AllowTransientUnits=no"},
		"transient, failed":  {"StartTransientUnit", secret, Acted, "failed", secret.Name},
		"properties, failed": {"SetUnitProperties", secret, Acted, "failed", secret.Name},
	} {
		e := Entry{Job: 1}
		e.Judge(tt.method, tt.err)
		if e.Kind != tt.kind || e.Result != tt.result || e.Reason != tt.reason {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func refusal(uid uint32) Entry {
	return Entry{Kind: Refused, Node: "node1", Units: []string{"a.service"}, Verb: "stop", Result: ResultRefused, Caller: Caller{"x", uid, true}}
}

func TestAFloodIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		for range 1000 {
			s.Write(refusal(1000))
		}
		s.Write(refusal(1001))                                           // somebody else's
		s.Write(Entry{Result: ResultDone, Caller: refusal(1000).Caller}) // what is done is always written
		if got := s.take(t); len(got) != Burst+2 {
			t.Fatalf("%d lines", len(got))
		}
		time.Sleep(Window)
		synctest.Wait()
		got := s.take(t)
		if len(got) != 1 || got[0]["count"] != float64(1000-Burst) || got[0]["caller_uid"] != 1000.0 || got[0]["message_id"] != MessageIDs[Summarised] ||
			!strings.Contains(got[0]["reason"].(string), "980 more since") {
			t.Fatalf("got %v", got)
		}
		time.Sleep(10 * Window)
		synctest.Wait()
		if got := s.take(t); len(got) != 0 || len(s.callers) != 0 {
			t.Errorf("%v, %d callers", got, len(s.callers))
		}
		s.Write(refusal(1000))
		if got := s.take(t); len(got) != 1 || got[0]["count"] != nil {
			t.Errorf("a new window begins with %v", got)
		}
	})
}

func TestNothingIsLostAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		for range Burst + 3 {
			s.Write(refusal(5))
		}
		s.take(t)
		s.Close()
		s.Write(refusal(5))
		if got := s.take(t); len(got) != 2 || got[0]["count"] != 3.0 {
			t.Errorf("got %v", got)
		}
		time.Sleep(2 * Window)
		synctest.Wait()
		if got := s.take(t); len(got) != 0 {
			t.Errorf("after the end: %v", got)
		}
		(*Log)(nil).Write(refusal(1))
		(*Log)(nil).Close()
	})
}

func TestManyCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		for i := range uint32(10 * MaxCallers) {
			s.Write(refusal(i))
		}
		s.mu.Lock()
		callers := len(s.callers)
		s.mu.Unlock()
		if got := s.take(t); callers > MaxCallers+1 || len(got) > MaxCallers+Burst {
			t.Errorf("%d callers, %d lines", callers, len(got))
		}
		time.Sleep(Window)
		synctest.Wait()
		got := s.take(t)
		if len(got) != 1 || got[0]["caller"] != "others" || got[0]["count"] != float64(9*MaxCallers-Burst) {
			t.Errorf("got %v", got)
		}
	})
}

func TestLongTextIsCut(t *testing.T) {
	s := newSink()
	e := refusal(1)
	for i := range 10000 {
		e.Units = append(e.Units, fmt.Sprintf("é%d.service", i))
	}
	s.Write(e)
	if got := s.take(t); len(got[0]["unit"].(string)) > maxText+4 || strings.Contains(got[0]["unit"].(string), "\ufffd") {
		t.Errorf("%d bytes", len(got[0]["unit"].(string)))
	}
}
