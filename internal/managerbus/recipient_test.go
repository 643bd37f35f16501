package managerbus

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// event reads "new a", "removed a", "state a active", "props a Unit K=v L=w"; a virtual "new"
// is "vnew".
func event(text string) *signal {
	f := strings.Fields(text)
	e := manager.UnitEvent{Node: "n", Unit: f[1], Reason: manager.ReasonReal}
	switch f[0] {
	case "vnew":
		e.Reason = manager.ReasonVirtual
		e.Kind = manager.UnitNew
	case "new":
		e.Kind = manager.UnitNew
	case "removed":
		e.Kind = manager.UnitRemoved
	case "state":
		e.Kind, e.Active = manager.UnitStateChanged, f[2]
	case "props":
		e.Kind, e.Interface, e.Reason = manager.UnitPropertiesChanged, f[2], ""
		all := make(map[string]wire.Value)
		for _, p := range f[3:] {
			name, value, _ := strings.Cut(p, "=")
			all[name] = peer.MustValue(value)
		}
		e.Properties = peer.MustEncode(all)
	}
	return &signal{event: e}
}

func text(t *testing.T, s *signal) string {
	t.Helper()
	e := s.event
	switch e.Kind {
	case manager.UnitStateChanged:
		return "state " + e.Unit + " " + e.Active
	case manager.UnitPropertiesChanged:
		body, err := s.encode(func() bool { return true })
		var node, unit, iface string
		var all map[string]string
		var values map[string]wire.Value
		if err == nil {
			err = peer.Decode(body, &node, &unit, &iface, &values)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = make(map[string]string)
		var words []string
		for k, v := range values {
			all[k], _ = v.AsString()
			words = append(words, k+"="+all[k])
		}
		slices.Sort(words)
		return fmt.Sprintf("props %s %s %s", unit, iface, strings.Join(words, " "))
	}
	word := map[manager.UnitEventKind]string{manager.UnitNew: "new", manager.UnitRemoved: "removed"}[e.Kind]
	if e.Reason == manager.ReasonVirtual {
		word = "v" + word
	}
	return word + " " + e.Unit
}

func TestLatestKeepsWhatLeadsToThePresent(t *testing.T) {
	for _, c := range []struct {
		name      string
		in, wants []string
	}{
		{"last state", []string{"state a active", "state a failed", "state a inactive"}, []string{"state a inactive"}},
		{"units in order of their first change", []string{"state b x", "state a x", "state b y"}, []string{"state b y", "state a x"}},
		{"last value of each property", []string{"props a Unit K=1 L=1", "props a Service K=7", "props a Unit K=2", "props a Unit K=3 M=1"},
			[]string{"props a Service K=7", "props a Unit K=3 L=1 M=1"}},
		{"state before properties", []string{"props a Unit K=1", "state a active"}, []string{"state a active", "props a Unit K=1"}},
		{"removed forgets what was before", []string{"state a active", "props a Unit K=1", "removed a"}, []string{"removed a"}},
		{"came and went: nothing", []string{"new a", "state a active", "removed a"}, nil},
		{"known already, and went", []string{"vnew a", "state a active", "removed a"}, []string{"removed a"}},
		{"went and came back", []string{"removed a", "new a", "state a active"}, []string{"removed a", "new a", "state a active"}},
		{"went, came, went", []string{"removed a", "new a", "state a active", "removed a"}, []string{"removed a"}},
		{"came, went, came", []string{"new a", "removed a", "new a", "state a active"}, []string{"new a", "state a active"}},
		{"lost and found", []string{"state a inactive", "removed a", "vnew a", "state a active"}, []string{"removed a", "vnew a", "state a active"}},
	} {
		l := newLatest()
		for _, e := range c.in {
			l.add(item{1, event(e)})
		}
		var got []string
		for all := l.take(); all != nil; all = l.take() {
			for _, i := range all {
				got = append(got, text(t, i.signal))
			}
		}
		if !slices.Equal(got, c.wants) {
			t.Errorf("%s: %q, want %q", c.name, got, c.wants)
		}
		if l.size != 0 || len(l.units) != 0 {
			t.Errorf("%s: %d bytes of %d units are left", c.name, l.size, len(l.units))
		}
	}
}

// Signals are shared: merging for one recipient changes nothing for others.
func TestMergedPropertiesAreTheRecipientsOwn(t *testing.T) {
	shared := event("props a Unit K=1")
	first, second := newLatest(), newLatest()
	for _, l := range []*latest{first, second} {
		l.add(item{1, shared})
	}
	first.add(item{1, event("props a Unit K=2")})
	first.add(item{1, event("props a Unit L=3")})
	if got := text(t, first.take()[0].signal); got != "props a Unit K=2 L=3" {
		t.Errorf("merged: %s", got)
	}
	if got := text(t, second.take()[0].signal); got != "props a Unit K=1" {
		t.Errorf("the other recipient gets %s", got)
	}
}

// Units that come and go leave nothing behind, whatever their number.
func TestLatestOfUnitsThatCameAndWent(t *testing.T) {
	l := newLatest()
	l.add(item{1, event("state stays active")})
	for i := range 20_000 {
		l.add(item{1, event(fmt.Sprintf("new run-%d", i))})
		l.add(item{1, event(fmt.Sprintf("removed run-%d", i))})
	}
	if len(l.units) != 1 || len(l.order) > 4096 {
		t.Errorf("%d units and %d places are left", len(l.units), len(l.order))
	}
	if got := l.take(); len(got) != 1 || l.take() != nil {
		t.Errorf("what comes out is %v", got)
	}
}

// few are the bounds of these tests.
var few = bounds{1 << 15, 16 << 20}

func takeAll(r *recipient) (n int) {
	for _, ok := r.take(); ok; _, ok = r.take() {
		n++
	}
	return n
}

func put(t *testing.T, r *recipient, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := r.put(item{1, event(fmt.Sprintf("state a %d", i))}, few); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWindowOfARecipient(t *testing.T) {
	var r recipient
	put(t, &r, 0, 10)
	if n := takeAll(&r); n != 10 || r.wantsAnswer() {
		t.Errorf("of a few events %d were sent; an answer is wanted: %v", n, r.wantsAnswer())
	}
	put(t, &r, 10, windowMessages/2)
	takeAll(&r)
	if !r.wantsAnswer() {
		t.Error("no answer is wanted at half of the window")
	}
	r.ask()
	put(t, &r, windowMessages/2, 1000)
	if n := takeAll(&r); n != windowMessages/2 || r.wantsAnswer() {
		t.Errorf("%d more were sent; another answer is wanted: %v", n, r.wantsAnswer())
	}
	r.answered() // of the first half
	if n := takeAll(&r); n != windowMessages/2 || !r.wantsAnswer() {
		t.Errorf("after the answer %d more were sent; another answer is wanted: %v", n, r.wantsAnswer())
	}
	r.ask()
	r.refused()
	if !r.wantsAnswer() || takeAll(&r) != 0 {
		t.Error("a question that was refused counts")
	}
	r.trust()
	if n := takeAll(&r); n != windowMessages {
		t.Errorf("of one who is trusted %d were sent", n)
	}
}

func TestWindowInBytes(t *testing.T) {
	var r recipient
	large := event("props a Unit K=" + strings.Repeat("x", windowBytes))
	for range 3 {
		if err := r.put(item{1, large}, few); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // one is always sent when nothing is under way
		if n := takeAll(&r); n != 1 || !r.wantsAnswer() {
			t.Fatalf("%d were sent", n)
		}
		r.ask()
		r.answered()
	}
}

// One that pauses gets everything, one that stops gets the latest, and then everything again.
func TestEverythingOrTheLatest(t *testing.T) {
	for _, c := range []struct{ events, wants int }{
		{windowMessages + inOrderEvents, windowMessages + inOrderEvents},
		{windowMessages + inOrderEvents + 1, windowMessages + 1},
		{1 << 17, windowMessages + 1},
	} {
		var r recipient
		last, n := "", 0
		read := func() {
			for i, ok := r.take(); ok; i, ok = r.take() {
				last = i.signal.event.Active
				n++
			}
		}
		for i := range c.events {
			put(t, &r, i, i+1)
			read()
		}
		for r.wantsAnswer() {
			r.ask()
			r.answered()
			read()
		}
		if n != c.wants || last != fmt.Sprint(c.events-1) {
			t.Errorf("of %d events %d came, the last was %s; want %d", c.events, n, last, c.wants)
		}
		put(t, &r, 0, 2)
		if n := takeAll(&r); n != 2 || r.held != nil || r.merged {
			t.Errorf("after that, %d of 2 events came", n)
		}
	}
}

// What is taken out of the latest of one unit comes before what happens to it meanwhile.
func TestOrderOfAUnitThroughTheLatest(t *testing.T) {
	r := recipient{held: newLatest()}
	for _, e := range []string{"removed a", "new a", "state a one"} {
		r.put(item{1, event(e)}, few)
	}
	i, _ := r.take()
	got := []string{text(t, i.signal)}
	r.put(item{1, event("state a two")}, few)
	for i, ok := r.take(); ok; i, ok = r.take() {
		got = append(got, text(t, i.signal))
	}
	if want := []string{"removed a", "new a", "state a one", "state a two"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRecipientsAreBounded(t *testing.T) {
	var r recipient
	var err error
	n := 0
	for ; err == nil && n < 1<<20; n++ {
		err = r.put(item{1, event(fmt.Sprintf("state u%d x", n))}, few)
	}
	if err == nil || n != few.units+1 {
		t.Errorf("after %d units: %v", n, err)
	}
	r = recipient{}
	for n = 0; n < 100; n++ {
		if err = r.put(item{1, event(fmt.Sprintf("props u%d Unit K=%s", n, strings.Repeat("x", 1<<20)))}, few); err != nil {
			break
		}
	}
	if n != few.bytes>>20-1 {
		t.Errorf("after %d MiB: %v", n, err)
	}
}

func TestMonitorsAreDroppedEverywhere(t *testing.T) {
	for _, held := range []bool{false, true} {
		var r recipient
		if held {
			r.held = newLatest()
		}
		for _, m := range []uint32{1, 2} {
			for _, e := range []string{"new a", "state a x"} {
				r.put(item{m, event(e)}, few)
			}
		}
		if held {
			r.take() // the rest of monitor 1 is on its way
		}
		r.drop(1)
		for i, ok := r.take(); ok; i, ok = r.take() {
			if i.monitor != 2 {
				t.Errorf("held %v: an event of a monitor that is closed", held)
			}
		}
		if r.size != 0 {
			t.Errorf("held %v: %d bytes are left", held, r.size)
		}
	}
}
