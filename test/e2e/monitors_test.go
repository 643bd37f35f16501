package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/clustertest"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// flapCount is how many units change their state again and again. They are targets, which
// take no process.
const flapCount = 100

// 5,000 changes of state on one node, and clients that read fast, slowly, and not at all for
// a while: all end with the truth, and the fast one has missed nothing.
func TestMonitorsSeeLastState(t *testing.T) {
	f := common(t)
	n := f.Nodes["node1"]
	do(t, n.WriteFile("/run/systemd/system/flap@.target", []byte("[Unit]\nStartLimitIntervalSec=0\n"), 0o644))
	on(t, n, "systemctl", "daemon-reload")
	fast, slow, stopped, one := watch(t, f), watch(t, f), watch(t, f), watch(t, f)
	slow.slow(t, f)
	for _, w := range []*watcher{fast, slow, stopped} {
		w.subscribe(t, "*", "*")
	}
	one.subscribe(t, "node1", "flap@3.target", "flap@4.target")
	stopped.hears(t, "UnitStateChanged node1 *")
	stopped.setPause(true)
	const rounds = 5000 / flapCount / 2 // each changes each unit twice
	units := fmt.Sprintf("flap@{0..%d}.target", flapCount-1)
	for range rounds {
		on(t, n, "bash", "-c", "systemctl start "+units+" && systemctl stop "+units)
	}
	on(t, n, "systemctl", "start", "flap@1.target", "flap@3.target", "flap@5.target")
	t.Run(clustertest.MonitorsSeeLastState, func(t *testing.T) {
		fast.showsTruth(t, n, everyUnit)
		one.showsTruth(t, n, func(unit string) bool { return unit == "flap@3.target" || unit == "flap@4.target" })
		actives := 0
		for _, e := range fast.heard() {
			if strings.HasPrefix(e, "UnitStateChanged node1 flap@") && strings.Contains(e, " active ") {
				actives++
			}
		}
		if want := rounds*flapCount + 3; actives != want {
			t.Errorf("the fast client has heard of %d of %d starts", actives, want)
		}
		slow.showsTruth(t, n, everyUnit)
	})
	t.Run("slow-monitor-client-delays-nobody", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "ok")
		fast.hears(t, "UnitStateChanged node1 ok.service active exited real")
		must(t, f, 0, nil, "stop", "node1", "ok")
		stopped.setPause(false)
		stopped.showsTruth(t, n, everyUnit)
		if journal := f.Boss.Journal(within(t), "ctrl-manager"); strings.Contains(journal, "whether they read") {
			t.Errorf("the bus does not let the manager ask its clients:\n%s", journal)
		}
	})
	on(t, n, "systemctl", "stop", "flap@*")
}

// What appears on a node without a job of systemd's is shown as it is.
func TestMonitorsSeeWhatAppears(t *testing.T) {
	f := common(t)
	n := f.Nodes["node2"]
	w := watch(t, f)
	w.subscribe(t, "node2", "*")
	on(t, n, "mkdir", "-p", "/mnt/here")
	on(t, n, "mount", "-t", "tmpfs", "tmpfs", "/mnt/here")
	await(t, n, "mnt-here.mount", "active")
	w.showsTruth(t, n, everyUnit)
	on(t, n, "umount", "/mnt/here")
	on(t, n, "systemd-run", "--unit=brief", "/bin/true")
	on(t, n, "systemd-run", "--scope", "--unit=scoped", "/bin/true")
	w.showsTruth(t, n, everyUnit)
}

// Case 52: a service that is killed and restarted shows its new process and why.
func TestMonitorShowsProcesses(t *testing.T) {
	f := common(t)
	n := f.Nodes["node1"]
	do(t, n.WriteFile("/run/systemd/system/again.service", []byte("[Service]\nExecStart=/bin/sleep infinity\nRestart=always\nRestartSec=0\n"), 0o644))
	on(t, n, "systemctl", "daemon-reload")
	w := watch(t, f)
	w.subscribe(t, "node1", "again.service")
	must(t, f, 0, nil, "start", "node1", "again")
	w.hears(t, "UnitStateChanged node1 again.service active running real")
	on(t, n, "systemctl", "kill", "-s", "KILL", "again.service")
	w.hears(t, "UnitStateChanged node1 again.service activating auto-restart real", "UnitStateChanged node1 again.service active running real")
	must(t, f, 0, nil, "stop", "node1", "again")
	w.hears(t, "UnitStateChanged node1 again.service inactive dead real")
	service := ""
	for _, e := range w.heard() {
		if strings.HasPrefix(e, "UnitPropertiesChanged node1 again.service org.freedesktop.systemd1.Service ") {
			service += e
		}
	}
	for _, name := range []string{"MainPID", "NRestarts", "Result"} {
		if !strings.Contains(service, name) {
			t.Errorf("%s was not told: %s", name, service)
		}
	}
}

// Case 54: a name that becomes an alias of another unit.
func TestMonitorFollowsAlias(t *testing.T) {
	f := common(t)
	n := f.Nodes["node3"]
	const sleeps = "[Service]\nExecStart=/bin/sleep infinity\n"
	do(t, n.WriteFile("/run/systemd/system/first.service", []byte(sleeps), 0o644))
	do(t, n.WriteFile("/run/systemd/system/other.service", []byte(sleeps), 0o644))
	on(t, n, "systemctl", "daemon-reload")
	must(t, f, 0, nil, "start", "node3", "first", "other")
	w := watch(t, f)
	w.subscribe(t, "node3", "first.service")
	w.hears(t, "UnitNew node3 first.service virtual", "UnitStateChanged node3 first.service active running virtual")
	must(t, f, 0, nil, "stop", "node3", "first")
	on(t, n, "rm", "/run/systemd/system/first.service")
	on(t, n, "ln", "-s", "other.service", "/run/systemd/system/first.service")
	on(t, n, "systemctl", "daemon-reload")
	w.hears(t, "UnitRemoved node3 first.service real", "UnitNew node3 other.service virtual", "UnitStateChanged node3 other.service active running virtual")
	must(t, f, 0, nil, "stop", "node3", "other")
	w.hears(t, "UnitStateChanged node3 other.service inactive dead real")
	on(t, n, "rm", "/run/systemd/system/first.service", "/run/systemd/system/other.service")
	on(t, n, "systemctl", "daemon-reload")
}

// Case 56: nobody hears of a monitor but its owner and the peers that it adds.
func TestMonitorIsForItsOwnerAndPeers(t *testing.T) {
	f := common(t)
	owner, peerClient, curious := watch(t, f), listen(t, f), listen(t, f)
	do(t, curious.conn.AddMatch(within(t), fmt.Sprintf("type='signal',interface='%s'", wire.MonitorInterface)))
	_, err := owner.call(t, "AddPeer", peerClient.conn.UniqueName())
	do(t, err)
	owner.subscribe(t, "node1", "ok.service")
	must(t, f, 0, nil, "start", "node1", "ok")
	must(t, f, 0, nil, "stop", "node1", "ok")
	for _, w := range []*watcher{owner, peerClient} {
		w.hears(t, "UnitStateChanged node1 ok.service active exited real", "UnitStateChanged node1 ok.service inactive dead real")
	}
	// A call to the bus and back: what was sent before has come.
	if _, err := curious.conn.NameOwner(within(t), wire.BusName); err != nil {
		t.Fatal(err)
	}
	if heard := curious.heard(); len(heard) > 0 {
		t.Errorf("a client that only listens has heard %q", heard)
	}
	_, err = owner.call(t, "Close")
	do(t, err)
	peerClient.hears(t, "PeerRemoved")
}

// Case 57: the agent's own bus says that its manager is away.
func TestAgentSaysThatTheManagerIsAway(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1"}, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	do(t, f.WaitAgent(within(t), "node1")) // the manager may know it before the agent says so
	bus, err := fleet.Bus(within(t), n)
	do(t, err)
	defer bus.Close()
	told := agentStatus(t, bus)
	on(t, f.Boss, "systemctl", "stop", "ctrl-manager")
	select {
	case status := <-told:
		if status != wire.NodeOffline {
			t.Errorf("the agent says %q", status)
		}
	case <-time.After(limit):
		t.Fatal("the agent says nothing")
	}
	when := on(t, n, "busctl", "get-property", wire.AgentBusName, string(wire.RootPath), wire.AgentInterface, "DisconnectTimestamp")
	if !strings.HasPrefix(when, "t ") || when == "t 0" {
		t.Errorf("DisconnectTimestamp is %q", when)
	}
}
