package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// Both metrics signals of one start, over the whole road, and the object that comes and goes.
func TestMetrics(t *testing.T) {
	f := common(t)
	bus, err := fleet.Bus(within(t), f.Boss)
	do(t, err)
	defer bus.Close()
	signals := make(chan *dbus.Signal, 64)
	bus.Signal(signals)
	do(t, bus.AddMatchSignal(dbus.WithMatchInterface(wire.MetricsInterface)))
	busctl(t, f, "call", busName, busRoot, busName+".Manager", "EnableMetrics")
	busctl(t, f, "call", busName, busRoot, busName+".Manager", "EnableMetrics")
	busctl(t, f, "introspect", busName, busRoot+"/metrics")
	must(t, f, 0, nil, "start", "node1", "ok")
	seen := make(map[string][]any)
	for len(seen) < 2 {
		select {
		case s := <-signals:
			if name, ok := strings.CutPrefix(s.Name, wire.MetricsInterface+"."); ok {
				seen[name] = s.Body
			}
		case <-time.After(limit):
			t.Fatalf("seen only %v", seen)
		}
	}
	if b := seen["StartUnitJobMetrics"]; len(b) != 5 || b[0] != "node1" || b[2] != "ok.service" || b[3].(uint64) == 0 || b[4].(uint64) == 0 || b[3].(uint64) < b[4].(uint64) {
		t.Errorf("StartUnitJobMetrics is %v", b)
	}
	if b := seen["AgentJobMetrics"]; len(b) != 4 || b[0] != "node1" || b[1] != "ok.service" || b[2] != "StartUnit" || b[3].(uint64) == 0 {
		t.Errorf("AgentJobMetrics is %v", b)
	}
	busctl(t, f, "call", busName, busRoot, busName+".Manager", "DisableMetrics")
	if r, err := f.Boss.Exec(within(t), "busctl", "introspect", busName, busRoot+"/metrics"); err != nil || r.Code == 0 {
		t.Errorf("the object is there while metrics are off: %+v, %v", r, err)
	}
	must(t, f, 0, nil, "stop", "node1", "ok")
}
