package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// world is a Journal before a fake journalctl.
type world struct {
	t    *testing.T
	j    *Journal
	file string
	last int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, file: filepath.Join(t.TempDir(), "journal")}
	t.Setenv(fakeEnv, w.file)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w.j = New(Options{Program: self, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w.j.Close(ctx)
		if ctx.Err() != nil {
			t.Error("a journalctl did not end")
		}
	})
	return w
}

const patience = 20 * time.Second

func (w *world) write(messages ...string) {
	w.t.Helper()
	f, err := os.OpenFile(w.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	for _, m := range messages {
		w.last++
		fmt.Fprintf(f, "c%d %d %s\n", w.last, time.Now().UnixMicro(), m)
	}
}

// forget deletes all but the last n entries.
func (w *world) forget(n int) {
	w.t.Helper()
	text, err := os.ReadFile(w.file)
	lines := strings.SplitAfter(strings.TrimSpace(string(text))+"\n", "\n")
	if err == nil {
		err = os.WriteFile(w.file, []byte(strings.Join(lines[len(lines)-1-n:], "")), 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

type got struct {
	Entries   []wire.LogEntry
	Position  string
	Idle, End bool
}

func (w *world) ask(name string, q wire.LogQuery, at string, bytes uint32) (got, error) {
	w.t.Helper()
	text, err := json.Marshal(q)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.askText(name, string(text), at, bytes)
}

func (w *world) askText(name, query, at string, bytes uint32) (got, error) {
	w.t.Helper()
	var g got
	done := make(chan error, 1)
	w.j.Call(wire.MemberReadLog, peer.MustEncode(name, query, at, uint64(patience/time.Microsecond), bytes), func(body wire.Raw, err error) {
		if err == nil {
			err = peer.Decode(body, &g.Entries, &g.Position, &g.Idle, &g.End)
		}
		done <- err
	})
	select {
	case err := <-done:
		return g, err
	case <-time.After(2 * patience):
		w.t.Fatal("no answer")
	}
	return g, nil
}

// collect asks until there are n entries or the end, and gives their messages.
func (w *world) collect(name string, q wire.LogQuery, at *string, n int) []string {
	w.t.Helper()
	var all []string
	for len(all) < n {
		g, err := w.ask(name, q, *at, 1<<20)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range g.Entries {
			all = append(all, message(e))
		}
		*at = g.Position
		if g.End {
			break
		}
	}
	return all
}

func message(e wire.LogEntry) string {
	var text string
	for _, name := range []string{wire.LogFieldNote, "MESSAGE"} {
		if v, ok := e.Fields[name]; ok && peer.DecodeValue(v, &text) == nil {
			return text
		}
	}
	return "?"
}

func numbers(from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprint("line ", i))
	}
	return out
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %.300q, want %.300q", got, want)
	}
}

func TestAllThereIs(t *testing.T) {
	w := newWorld(t)
	w.write(numbers(1, 5000)...)
	at := ""
	same(t, w.collect("a", wire.LogQuery{}, &at, 1<<30), numbers(1, 5000))
	at = ""
	same(t, w.collect("b", wire.LogQuery{Limited: true, Lines: 3}, &at, 1<<30), numbers(4998, 5000))
	at = ""
	same(t, w.collect("c", wire.LogQuery{Limited: true, Lines: 3, Grep: "x"}, &at, 1<<30), numbers(4998, 5000))
	at = ""
	same(t, w.collect("d", wire.LogQuery{Limited: true}, &at, 1<<30), nil)
}

// TestFollow: what is there, then what comes, nothing twice and nothing lost, also for a
// reader that begins anew at its last position with another journalctl.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	q := wire.LogQuery{Follow: true}
	w.write(numbers(1, 10)...)
	at := ""
	same(t, w.collect("a", q, &at, 10), numbers(1, 10))
	w.write(numbers(11, 20)...)
	same(t, w.collect("a", q, &at, 10), numbers(11, 20))
	w.j.SessionEnded()
	w.write(numbers(21, 500)...)
	same(t, w.collect("b", q, &at, 480), numbers(21, 500))
	w.write(numbers(501, 510)...)
	same(t, w.collect("b", q, &at, 10), numbers(501, 510))
}

// TestFollowFromNothing: the position of a reader that has seen no entry is a place as well.
func TestFollowFromNothing(t *testing.T) {
	w := newWorld(t)
	w.write(numbers(1, 10)...)
	q := wire.LogQuery{Follow: true, Limited: true}
	g, err := w.ask("a", q, "", 1<<20)
	if err != nil || len(g.Entries) > 0 || !g.Idle || g.End || !strings.HasPrefix(g.Position, positionMark) {
		t.Fatalf("%+v, %v", g, err)
	}
	w.j.SessionEnded()
	w.write(numbers(11, 20)...)
	same(t, w.collect("b", q, &g.Position, 10), numbers(11, 20))
}

// TestDeleted: one line says that entries may be missing.
func TestDeleted(t *testing.T) {
	w := newWorld(t)
	q := wire.LogQuery{Follow: true}
	w.write(numbers(1, 10)...)
	at := ""
	same(t, w.collect("a", q, &at, 10), numbers(1, 10))
	w.j.SessionEnded()
	w.write(numbers(11, 30)...)
	w.forget(5)
	all := w.collect("a", q, &at, 6)
	if len(all) != 6 || !strings.Contains(all[0], "may have been deleted") {
		t.Fatal(all)
	}
	same(t, all[1:], numbers(26, 30))
}

// TestKilled: a journalctl that is killed is replaced, and nothing is lost.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	q := wire.LogQuery{Follow: true}
	w.write(numbers(1, 10)...)
	at := ""
	same(t, w.collect("a", q, &at, 10), numbers(1, 10))
	if g, err := w.ask("a", q, at, 1<<20); err != nil || !g.Idle {
		t.Fatal(g, err)
	}
	w.j.mu.Lock()
	w.j.readers["a"].child.cancel()
	w.j.mu.Unlock()
	w.write(numbers(11, 20)...)
	same(t, w.collect("a", q, &at, 10), numbers(11, 20))
}

// TestLargeEntries: an answer is no larger than asked for, and says what was cut.
func TestLargeEntries(t *testing.T) {
	w := newWorld(t)
	w.write("binary:3000000", strings.Repeat("x", 100_000), "line 3")
	g, err := w.ask("a", wire.LogQuery{}, "", 1<<20)
	if err != nil || len(g.Entries) != 1 {
		t.Fatal(len(g.Entries), err)
	}
	var raw []byte
	var cut []string
	fields := g.Entries[0].Fields
	if peer.DecodeValue(fields["MESSAGE"], &raw) != nil || len(raw) > 1<<20 || len(raw) < 1<<19 {
		t.Errorf("the message has type %q and %d bytes", fields["MESSAGE"].Sig, len(raw))
	}
	if peer.DecodeValue(fields[wire.LogFieldCut], &cut) != nil || len(cut) != 1 || cut[0] != "MESSAGE" {
		t.Errorf("cut are %q", cut)
	}
	g, err = w.ask("a", wire.LogQuery{}, g.Position, 50_000)
	if err != nil || len(g.Entries) != 1 || len(message(g.Entries[0])) > 50_000 || len(message(g.Entries[0])) < 40_000 {
		t.Errorf("%d entries, %v", len(g.Entries), err)
	}
	same(t, w.collect("a", wire.LogQuery{}, &g.Position, 1), []string{"line 3"})
}

// TestSlowReaders: readers past the bound, one after the other, get everything all the same.
func TestSlowReaders(t *testing.T) {
	w := newWorld(t)
	w.j.most = 2
	w.write(numbers(1, 40)...)
	at := make([]string, 3)
	seen := make([][]string, 3)
	for range 100 {
		for i := range at {
			g, err := w.ask(fmt.Sprint("r", i), wire.LogQuery{}, at[i], 1024)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range g.Entries {
				seen[i] = append(seen[i], message(e))
			}
			at[i] = g.Position
		}
		if len(seen[2]) == 40 {
			break
		}
	}
	for i := range seen {
		same(t, seen[i], numbers(1, 40))
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t)
	w.write("line 1")
	q := wire.LogQuery{Follow: true}
	at := ""
	w.collect("a", q, &at, 1)
	if g, err := w.ask("a", q, at, 1<<20); err != nil || !g.Idle {
		t.Fatal(g, err)
	}
	done := make(chan error, 1)
	go func() { _, err := w.ask("a", q, at, 1<<20); done <- err }()
	for busy := false; !busy; {
		w.j.mu.Lock()
		busy = w.j.readers["a"].busy
		w.j.mu.Unlock()
	}
	if _, err := w.ask("a", q, at, 1<<20); !errors.Is(err, wire.ErrLimitsExceeded) {
		t.Errorf("reading twice at a time gave %v", err)
	}
	w.j.Call(wire.MemberCloseLog, peer.MustEncode("a"), func(_ wire.Raw, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	if err := <-done; !errors.Is(err, wire.ErrFailed) {
		t.Errorf("a closed reader gave %v", err)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	w.write("line 1")
	for _, test := range []struct {
		query, at string
		want      *wire.Error
	}{
		{`{"grep":"("}`, "", wire.ErrFailed},
		{`{"grep":"(","limited":true,"lines":3}`, "", wire.ErrFailed},
		{`{"priority":"loud"}`, "", wire.ErrInvalidArgs},
		{`{"priority":"err..loud"}`, "", wire.ErrInvalidArgs},
		{`{"boot":"--vacuum-size=1"}`, "", wire.ErrInvalidArgs},
		{`{"boot":"all"}`, "", wire.ErrInvalidArgs},
		{`{"invocation":"abc"}`, "", wire.ErrInvalidArgs},
		{`{"since":18446744073709551615}`, "", wire.ErrInvalidArgs},
		{`{"since":2000000,"until":1000000}`, "", wire.ErrInvalidArgs},
		{`{"units":["a b.service"]}`, "", wire.ErrInvalidArgs},
		{`{"units":["web"]}`, "", wire.ErrInvalidArgs},
		{`{"units":["[.service"]}`, "", wire.ErrInvalidArgs},
		{`{`, "", wire.ErrInvalidArgs},
		{`{}`, "c1 --user", wire.ErrInvalidArgs},
		{`{}`, "@x", wire.ErrInvalidArgs},
	} {
		if _, err := w.askText("r", test.query, test.at, 1<<20); !errors.Is(err, test.want) {
			t.Errorf("%s at %q gave %v", test.query, test.at, err)
		}
	}
}
