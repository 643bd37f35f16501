package managerbus

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
)

// listener is a client that notes the states it hears of. Its connection answers Ping when it
// comes to it, as libraries do.
type listener struct {
	conn   *peer.Conn
	states []string // of the reader goroutine until last was heard
	last   chan []string
	many   chan int      // after every 1000
	read   chan struct{} // closed: it reads
	until  string
}

func (w *world) listener(until string) *listener {
	l := &listener{last: make(chan []string, 1), many: make(chan int, 100), read: make(chan struct{}), until: until}
	conn, err := peer.DialBus(w.t.Context(), w.bus.Address, peer.Options{Handler: l.handle})
	if err != nil {
		w.t.Fatal(err)
	}
	l.conn = conn
	w.t.Cleanup(func() {
		conn.Close(nil)
		<-conn.Done()
	})
	return l
}

func (l *listener) handle(conn *peer.Conn, m *peer.Message) {
	select {
	case <-l.read:
	case <-conn.Closing():
	}
	if m.Member == "UnitStateChanged" {
		args, _ := peer.BodyAny(m.Body)
		l.states = append(l.states, fmt.Sprint(args[1], " ", args[2]))
		if n := len(l.states); n%1000 == 0 {
			l.many <- n
		}
		if l.states[len(l.states)-1] == l.until {
			l.last <- l.states
		}
	}
}

// TestSlowRecipientOnABus: of real clients of a bus with the system bus's limits one reads
// and gets everything in order, another does not for a while and gets the truth, and a third
// leaves without having read anything.
func TestSlowRecipientOnABus(t *testing.T) {
	const events, units = 60_000, 20
	w := &world{t: t, bus: bustest.StartSystem(t), core: newFakeCore()}
	w.serve(authz.NewByUID(uint32(os.Getuid())))
	end := fmt.Sprint("end.service ", events)
	reads, pauses, leaves := w.listener(end), w.listener(end), w.listener(end)
	close(reads.read)
	var audience []manager.Audience
	for i, l := range []*listener{reads, pauses, leaves} {
		audience = append(audience, manager.Audience{Monitor: uint32(i + 1), To: []string{l.conn.UniqueName()}})
	}
	state := func(unit string, i int) {
		w.core.events.UnitEvent(manager.UnitEvent{
			Kind: manager.UnitStateChanged, Node: "node1", Unit: unit, Active: fmt.Sprint(i), Sub: "running", Reason: manager.ReasonReal,
		}, audience)
	}
	var want []string
	for i := 0; i < events; i += 1000 {
		w.do(func() {
			for k := i; k < i+1000; k++ {
				state(fmt.Sprintf("u%d.service", k%units), k)
				want = append(want, fmt.Sprintf("u%d.service %d", k%units, k))
			}
		})
		wait(t, reads.many)
	}
	w.do(func() { state("end.service", events) })
	if got := wait(t, reads.last); !slices.Equal(got, append(slices.Clone(want), end)) {
		t.Errorf("one who reads heard %d of %d events, or not in order", len(got), events+1)
	}
	leaves.conn.Close(nil)
	close(pauses.read)
	got := wait(t, pauses.last)
	if len(got) > windowMessages+units+1 || !slices.Equal(got[:windowMessages], want[:windowMessages]) {
		t.Errorf("one who paused heard %d events", len(got))
	}
	last := make(map[string]string)
	for _, s := range got {
		unit, n, _ := strings.Cut(s, " ")
		last[unit] = n
	}
	for _, s := range want[events-units:] {
		if unit, n, _ := strings.Cut(s, " "); last[unit] != n {
			t.Errorf("%s ends as %s instead of %s", unit, last[unit], n)
		}
	}
}
