package e2e

import (
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/clustertest"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// After a cut of 1 or 5 s, with the default thresholds, the node is online again after at
// most one retransmission of TCP (3.2 s, when the cut took 5), and monitors show the truth.
func TestMonitorsAfterCut(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}})
	n := f.Nodes["node1"]
	all, one := watch(t, f), watch(t, f)
	all.subscribe(t, "*", "*")
	one.subscribe(t, "node1", "run.service", "ok.service")
	these := func(unit string) bool { return unit == "run.service" || unit == "ok.service" }
	all.showsTruth(t, n, everyUnit)
	for i, cut := range []time.Duration{time.Second, 5 * time.Second} {
		t.Run(clustertest.MonitorsAfterCut+"-"+cut.String(), func(t *testing.T) {
			do(t, n.Cut(within(t)))
			over := time.After(cut)
			on(t, n, "systemctl", []string{"start", "stop"}[i], "run.service", "ok.service", "web@"+cut.String()+".service")
			<-over
			do(t, n.Heal(within(t)))
			healed := time.Now()
			answers(t, f)
			took := time.Since(healed)
			t.Logf("after a cut of %v the node answered within %v", cut, took)
			if took > 5*time.Second { // 3.2 s, and what a busy machine takes
				t.Errorf("after a cut of %v the node was online again after %v", cut, took)
			}
			all.showsTruth(t, n, everyUnit)
			one.showsTruth(t, n, these)
			all.showsTruth(t, f.Nodes["node2"], everyUnit)
		})
	}
}

// answers waits until node1 answers a question. One that is under way when the old session
// ends is not answered.
func answers(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	for tries := range 20 {
		do(t, f.WaitOnline(within(t), "node1", true))
		if r := ctl(t, f, "list-units", "node1", "dbus.socket"); r.Code == 0 {
			return
		} else if tries > 0 {
			t.Logf("no answer: %s", r.Stderr)
		}
	}
	t.Fatal("the node does not answer")
}

// agentStatus follows the Status of the agent on a node's bus.
func agentStatus(t *testing.T, bus *dbus.Conn) <-chan string {
	t.Helper()
	signals, told := make(chan *dbus.Signal, 64), make(chan string, 64)
	bus.Signal(signals)
	do(t, bus.AddMatchSignal(dbus.WithMatchInterface(wire.PropertiesInterface), dbus.WithMatchSender(wire.AgentBusName)))
	go func() {
		for s := range signals {
			if len(s.Body) < 2 {
				continue
			}
			changed, _ := s.Body[1].(map[string]dbus.Variant)
			if status, ok := changed["Status"].Value().(string); ok {
				told <- status
			}
		}
	}()
	return told
}
