package authz

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

// prompted begins a check that waits for a person.
func (b *polkitBus) prompted(sender string) (asked, <-chan error) {
	result := b.check(restart(sender, true, "a.service"))
	(<-b.asked).reply(challenge)
	return <-b.asked, result
}

// TestNobodyAnswersThePrompt: the question is called off, and the caller is told.
func TestNobodyAnswersThePrompt(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		start := time.Now()
		q, result := b.prompted(":1.1")
		b.denied(<-result, "nobody gave", "1m40s")
		if waited := time.Since(start); waited != promptTimeout {
			t.Errorf("it took %s", waited)
		}
		if id := <-b.cancelled; id != q.id {
			t.Errorf("%q was called off, not %q", id, q.id)
		}
	})
}

// TestCallerLeavesDuringThePrompt: nobody is asked for who has left, whether it is the caller
// or the daemon that goes.
func TestCallerLeavesDuringThePrompt(t *testing.T) {
	for _, who := range []string{":1.1", ""} {
		t.Run(who, func(t *testing.T) {
			in(t, func(t *testing.T, b *polkitBus) {
				q, result := b.prompted(":1.1")
				other, others := b.prompted(":1.2")
				b.polkit.Left(b.conn, who)
				if who == "" {
					b.conn.CloseWhenSent(errors.New("the daemon ends"))
				}
				if err := <-result; err == nil {
					t.Error("it was allowed")
				}
				ids := map[string]bool{q.id: true, other.id: who == ""}
				for ids[q.id] || ids[other.id] {
					id := <-b.cancelled
					if !ids[id] {
						t.Errorf("%q was called off", id)
					}
					ids[id] = false
				}
				if who == "" {
					<-others
					return
				}
				other.reply(yes)
				if err := <-others; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestPolkitDies: in the middle of a question or of a prompt the answer is no, with a reason,
// and the next polkit is used.
func TestPolkitDies(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		died := wire.ErrNoReply.With("Message recipient disconnected from message bus without replying")
		result := b.check(restart(":1.1", true, "a.service"))
		(<-b.asked).fail(died)
		b.denied(<-result, "polkit", "without replying", "try again")
		q, result := b.prompted(":1.1")
		q.fail(died)
		b.denied(<-result, "without replying")
		result = b.check(restart(":1.1", true, "a.service"))
		(<-b.asked).reply(yes)
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

// TestNoPolkit: only uid 0 may do anything; that is logged once, and a polkit that comes
// later is used.
func TestNoPolkit(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		for range 3 {
			result := b.check(restart(":1.1", true, "a.service"))
			(<-b.asked).fail(wire.ErrServiceUnknown.With("not provided by any .service files"))
			b.denied(<-result, "only uid 0 has", "no polkit on the bus")
		}
		if err := <-b.check(restart(":1.0", true, "a.service")); err != nil {
			t.Error(err)
		}
		if n := strings.Count(b.log.String(), "level=WARN"); n != 1 {
			t.Errorf("it was logged %d times: %s", n, b.log)
		}
		result := b.check(restart(":1.1", true, "a.service"))
		(<-b.asked).reply(yes)
		if err := <-result; err != nil || !strings.Contains(b.log.String(), "decides about callers") {
			t.Errorf("%v, log: %s", err, b.log)
		}
	})
}

// TestPolkitIsSilent: a question has a deadline, and each caller waits for its own only.
func TestPolkitIsSilent(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		first := b.check(restart(":1.1", false, "a.service"))
		<-b.asked
		second := b.check(restart(":1.1", false, "b.service"))
		synctest.Wait()
		if len(b.asked) > 0 {
			t.Error("one caller has two questions open")
		}
		other := b.check(restart(":1.2", false, "c.service"))
		(<-b.asked).reply(yes)
		if err := <-other; err != nil {
			t.Error(err)
		}
		b.denied(<-first, "gave no answer")
		b.denied(<-second, "gave no answer")
	})
}

// TestPromptsAreBounded: a user cannot make polkit ask without end, and others are not kept
// from being asked by it.
func TestPromptsAreBounded(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		var open []<-chan error
		for i := range MaxPromptsPerUser {
			_, result := b.prompted([]string{":1.1", ":1.3", ":1.4", ":1.5"}[i])
			open = append(open, result)
		}
		result := b.check(restart(":1.6", true, "a.service"))
		(<-b.asked).reply(challenge)
		b.denied(<-result, fmt.Sprint(MaxPromptsPerUser), "this user")
		q, result := b.prompted(":1.2")
		q.reply(yes)
		if err := <-result; err != nil {
			t.Error(err)
		}
		b.polkit.Left(b.conn, ":1.3")
		<-open[1]
		_, open[1] = b.prompted(":1.6")
	})
}

// TestChecksAreBounded: what cannot even wait is refused at once.
func TestChecksAreBounded(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		first := b.check(restart(":1.1", false))
		q := <-b.asked
		for range MaxChecks - 1 {
			b.check(restart(":1.1", false))
		}
		if err := <-b.check(restart(":1.2", false)); !errors.Is(err, wire.ErrLimitsExceeded) {
			t.Error(err)
		}
		q.reply(yes)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// TestAnswerOfAnotherType: what is no answer is no permission.
func TestAnswerOfAnotherType(t *testing.T) {
	in(t, func(t *testing.T, b *polkitBus) {
		result := b.check(restart(":1.1", true, "a.service"))
		(<-b.asked).fail(wire.ErrPolkitCancelled.With("cancelled"))
		b.denied(<-result, "cancelled")
		b.conn.Close(errors.New("the bus is gone"))
		if err := <-b.check(restart(":1.1", false)); !errors.Is(err, wire.ErrAccessDenied) {
			t.Error(err)
		}
	})
}
