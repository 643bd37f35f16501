package managerbus

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// fakeLine is a bus on which some clients do not read.
type fakeLine struct {
	loop    *loop.Loop
	got     map[string][]string // what was sent, by client
	stopped map[string]bool
	refuse  error // of questions
	asked   []string
	unread  map[string][]func(error)
	most    int // questions that waited at a time
	waiting int
}

func (l *fakeLine) Signal(t busobject.Target, _ *busobject.Interface, signal string, args wire.Raw) {
	all, err := peer.BodyAny(args)
	if err != nil {
		panic(err)
	}
	l.got[t.To] = append(l.got[t.To], fmt.Sprint(t.Path, " ", signal, all))
}

func (l *fakeLine) Trusted(string) bool { return true }

func (l *fakeLine) Ping(to string, done func(error)) {
	l.asked = append(l.asked, to)
	l.waiting++
	l.most = max(l.most, l.waiting)
	answer := func(err error) { l.loop.Defer(func() { l.waiting--; done(err) }) }
	switch {
	case l.refuse != nil:
		answer(l.refuse)
	case l.stopped[to]:
		l.unread[to] = append(l.unread[to], answer)
	default:
		answer(nil)
	}
}

func (l *fakeLine) Dropped(_ *busobject.Interface, signal string, err error) { panic(err) }

// outletWorld is outlets before a fake bus.
type outletWorld struct {
	t    *testing.T
	loop *loop.Loop
	line *fakeLine
	o    outlets
	log  strings.Builder
	let  []string // go
}

func withOutlets(t *testing.T, scenario func(*outletWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &outletWorld{t: t, loop: loop.New(1)}
		w.o = outlets{
			after: w.loop.After, max: few, log: slog.New(slog.NewTextHandler(&w.log, nil)),
			letGo: func(name, reason string, done func()) {
				w.let = append(w.let, name)
				w.loop.Defer(done)
			},
		}
		go w.loop.Run(context.Background())
		w.line = w.newLine()
		scenario(w)
		w.loop.Stop()
		<-w.loop.Done()
	})
}

func (w *outletWorld) newLine() *fakeLine {
	return &fakeLine{loop: w.loop, got: make(map[string][]string), stopped: make(map[string]bool), unread: make(map[string][]func(error))}
}

func (w *outletWorld) do(fn func()) {
	w.loop.Defer(fn)
	synctest.Wait()
}

// happen tells n states of one unit to clients, each of which has the monitor of its number.
func (w *outletWorld) happen(n int, clients ...string) {
	var audience []manager.Audience
	for i, c := range clients {
		audience = append(audience, manager.Audience{Monitor: uint32(i + 1), To: []string{c}})
	}
	for i := 0; i < n; i += 50 {
		w.do(func() {
			w.o.use(w.line)
			for k := i; k < min(i+50, n); k++ {
				w.o.event(event(fmt.Sprintf("state a.service %d", k)), audience)
			}
		})
	}
}

func (w *outletWorld) resume(client string) {
	w.do(func() {
		w.line.stopped[client] = false
		for _, answer := range w.line.unread[client] {
			answer(nil)
		}
		w.line.unread[client] = nil
	})
}

func TestStoppedRecipientDelaysNobody(t *testing.T) {
	withOutlets(t, func(w *outletWorld) {
		w.line.stopped["stopped"] = true
		const n = 20_000
		w.happen(n, "fast", "stopped")
		if got := w.line.got["fast"]; len(got) != n || !slices.IsSortedFunc(got, byLength) {
			t.Errorf("the fast one has %d of %d events", len(got), n)
		}
		if got := w.line.got["stopped"]; len(got) != windowMessages || len(w.line.unread["stopped"]) != 1 {
			t.Errorf("the stopped one was sent %d events and %d questions", len(got), len(w.line.unread["stopped"]))
		}
		w.resume("stopped")
		got := w.line.got["stopped"]
		if want := fmt.Sprint(wire.MonitorPath(2), " UnitStateChanged[n a.service ", n-1, "  real]"); got[len(got)-1] != want {
			t.Errorf("the last it hears is %q, want %q", got[len(got)-1], want)
		}
		if len(got) != windowMessages+1 {
			t.Errorf("it heard %d events", len(got))
		}
	})
}

// byLength orders events by how many digits their number has: that is enough to see a jump.
func byLength(a, b string) int { return len(a) - len(b) }

// As many as may be asked at a time do not read. Further ones are sent everything, those who
// answer at the pace at which they read.
func TestManyStoppedRecipients(t *testing.T) {
	withOutlets(t, func(w *outletWorld) {
		var clients []string
		for i := range maxQuestions + 5 {
			clients = append(clients, fmt.Sprint("client", i))
			w.line.stopped[clients[i]] = true
		}
		w.happen(windowMessages+100, clients...)
		if w.line.most != maxQuestions {
			t.Errorf("%d questions at a time", w.line.most)
		}
		last := clients[maxQuestions+4]
		if n := len(w.line.got[last]); n != windowMessages {
			t.Errorf("one who waits for its question has %d events", n)
		}
		w.do(func() {}) // the loop goes on after what was read here: time alone orders nothing for -race
		time.Sleep(patienceForQuestion)
		synctest.Wait()
		if n := len(w.line.got[last]); n != windowMessages+100 {
			t.Errorf("one who cannot be asked has %d events", n)
		}
		if n := len(w.line.got[clients[0]]); n != windowMessages {
			t.Errorf("one who does not answer has %d events", n)
		}
		if n := strings.Count(w.log.String(), "too many recipients"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
		w.happen(windowMessages, last)
		w.resume(clients[0]) // whose place the next one gets
		if asked := w.line.asked[len(w.line.asked)-1]; asked != last && w.line.asked[len(w.line.asked)-2] != last {
			t.Errorf("the last questions are to %q", w.line.asked[len(w.line.asked)-2:])
		}
	})
}

func TestBusThatRefusesQuestions(t *testing.T) {
	withOutlets(t, func(w *outletWorld) {
		w.line.refuse = wire.ErrAccessDenied.With("policy")
		w.happen(2000, "a", "b")
		if len(w.line.got["a"]) != 2000 || strings.Count(w.log.String(), "D-Bus policy") != 1 {
			t.Errorf("%d events, log %s", len(w.line.got["a"]), &w.log)
		}
	})
	withOutlets(t, func(w *outletWorld) {
		w.line.refuse = wire.ErrLimitsExceeded.With("too many replies")
		w.happen(2000, "a")
		if n := len(w.line.got["a"]); n != windowMessages || len(w.line.asked) != 1 {
			t.Errorf("%d events and %d questions", n, len(w.line.asked))
		}
		w.do(func() { w.line.refuse = nil })
		time.Sleep(pauseAfterRefusal)
		synctest.Wait()
		if n := len(w.line.got["a"]); n != 2000 {
			t.Errorf("after a pause it has %d events", n)
		}
	})
}

func TestNextBusKnowsNobody(t *testing.T) {
	withOutlets(t, func(w *outletWorld) {
		w.line.stopped["a"] = true
		w.happen(1000, "a")
		old := w.line
		w.line = w.newLine()
		w.happen(1, "a")
		if n := len(w.line.got["a"]); n != 1 {
			t.Errorf("on the new bus %d events", n)
		}
		for _, answer := range old.unread["a"] {
			w.do(func() { answer(wire.ErrDisconnected) })
		}
		if len(w.line.got["a"]) != 1 || w.o.questions != 0 {
			t.Errorf("an answer of the old bus counts: %d events, %d questions", len(w.line.got["a"]), w.o.questions)
		}
	})
}

func TestRecipientThatHoldsTooMuchIsLetGo(t *testing.T) {
	withOutlets(t, func(w *outletWorld) {
		w.line.stopped["a"] = true
		for i := range windowMessages + few.units + 1 {
			w.loop.Defer(func() {
				w.o.use(w.line)
				w.o.event(event(fmt.Sprintf("new u%d.service", i)), []manager.Audience{{Monitor: 1, To: []string{"a", "b"}}})
			})
			if i%windowMessages == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if !slices.Equal(w.let, []string{"a"}) {
			t.Errorf("let go: %q", w.let)
		}
		if w.o.all["a"] != nil || !strings.Contains(w.log.String(), "client=a") {
			t.Errorf("it is still known, or the log does not name it: %s", &w.log)
		}
		w.happen(1, "a") // a new monitor of the same client
		if n := len(w.line.got["a"]); n != windowMessages+1 {
			t.Errorf("its new monitor told %d events", n-windowMessages)
		}
	})
}
