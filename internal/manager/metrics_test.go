package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/wire"
)

func (w *world) setMetrics(on bool) {
	w.m.SetMetrics(on, func(err error) { w.note("metrics %v %s", on, kind(err)) })
	synctest.Wait()
}

func variant(n byte) wire.Raw {
	return wire.Raw{Sig: "v", Data: []byte{1, 't', 0, 0, 0, 0, 0, 0, n, 0, 0, 0, 0, 0, 0, 0}}
}

func TestMetricsOfAStart(t *testing.T) {
	in(t, fleet, func(w *world) {
		l := online(w, "node1")
		w.start("before", ask(wire.Start, "a.service"))
		l.answer(1, nil)
		w.take()
		w.setMetrics(true)
		w.setMetrics(true)
		w.expect("node1< metrics true", "metrics changed true", "metrics true ok", "metrics true ok")
		l.done(1, "done") // begun before metrics were on: nobody knows how long it took
		w.expect("JobRemoved 1 a.service done")
		w.start("second", ask(wire.Start, "b.service"))
		l.answer(2, nil)
		w.take()
		time.Sleep(time.Second)
		l.hear()
		l.done(2, "done")
		w.expect("JobRemoved 2 b.service done",
			"node1< GetUnitProperty InactiveExitTimestampMonotonic", "node1< GetUnitProperty ActiveEnterTimestampMonotonic")
		l.reply("ActiveEnterTimestampMonotonic", variant(9), nil)
		w.expect()
		l.reply("InactiveExitTimestampMonotonic", variant(2), nil)
		w.expect("start metrics 2 b.service 1s 7µs")
		w.m.JobMetrics(l.session, "b.service", "StartUnit", 5*time.Millisecond)
		w.m.JobMetrics(l.session, "b.service", "Nonsense", 5*time.Millisecond)
		w.m.JobMetrics(l.session+1, "b.service", "StartUnit", 5*time.Millisecond)
		w.expect("agent metrics node1 b.service StartUnit 5ms")
		w.start("stop", JobRequest{Node: "node1", Unit: "b.service", Verb: wire.Stop, Mode: "replace"})
		l.answer(3, nil)
		w.take()
		l.done(3, "done")
		w.expect("JobRemoved 3 b.service done")
		w.setMetrics(false)
		w.m.JobMetrics(l.session, "b.service", "StartUnit", 5*time.Millisecond)
		w.expect("node1< metrics false", "metrics changed false", "metrics false ok")
	})
}

func TestMetricsReachAgentsThatComeLater(t *testing.T) {
	in(t, fleet, func(w *world) {
		w.setMetrics(true)
		if _, welcome := w.register(Registration{Node: "node1"}); !welcome.Metrics {
			t.Error("an agent that registers is not told that metrics are on")
		}
	})
}
