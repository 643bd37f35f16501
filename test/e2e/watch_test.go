package e2e

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

// talk is a program on a node that writes while it runs.
type talk struct {
	t    *testing.T
	n    *lab.Node
	cmd  *exec.Cmd
	done chan error

	mu    sync.Mutex
	out   bytes.Buffer
	seen  int           // what was waited for
	wrote chan struct{} // closed when there is more
}

func talking(t *testing.T, n *lab.Node, argv ...string) *talk {
	t.Helper()
	// The shell says which process it becomes: n.Command's own is one of this machine.
	argv = append([]string{"sh", "-c", `echo "process $$."; exec "$@"`, "sh"}, argv...)
	k := &talk{t: t, n: n, cmd: n.Command(within(t), argv...), done: make(chan error, 1), wrote: make(chan struct{})}
	k.cmd.Stdout, k.cmd.Stderr = k, k
	do(t, k.cmd.Start())
	go func() { k.done <- k.cmd.Wait() }()
	k.sees("process ", ".\n")
	return k
}

func (k *talk) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.out.Write(p)
	close(k.wrote)
	k.wrote = make(chan struct{})
	return len(p), nil
}

func (k *talk) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.out.String()
}

// sees waits for parts of the output, in their order, behind what was waited for before.
func (k *talk) sees(parts ...string) {
	k.t.Helper()
	late := time.After(limit)
	for _, part := range parts {
		for {
			k.mu.Lock()
			at, more := strings.Index(k.out.String()[k.seen:], part), k.wrote
			if at >= 0 {
				k.seen += at + len(part)
			}
			k.mu.Unlock()
			if at >= 0 {
				break
			}
			select {
			case <-more:
			case <-late:
				k.t.Fatalf("%q does not come, only\n%s", part, k.text())
			}
		}
	}
}

func (k *talk) ends(code int) {
	k.t.Helper()
	select {
	case <-k.done:
	case <-time.After(limit):
		k.t.Fatalf("it does not end:\n%s", k.text())
	}
	if got := k.cmd.ProcessState.ExitCode(); got != code {
		k.t.Errorf("exit code %d, want %d:\n%s", got, code, k.text())
	}
}

// signaled sends a signal and waits for the end; INT is Ctrl-C.
func (k *talk) signaled(signal string, code int) {
	k.t.Helper()
	pid, _, _ := strings.Cut(strings.TrimPrefix(k.text(), "process "), ".")
	on(k.t, k.n, "kill", "-"+signal, pid)
	k.ends(code)
}

// A service that is killed and restarted by systemd: what the monitor says about it.
func TestMonitorOfAKilledService(t *testing.T) {
	f := common(t)
	n := f.Nodes["node1"]
	do(t, n.WriteFile("/run/systemd/system/again.service", []byte("[Service]\nExecStart=/bin/sleep infinity\nRestart=always\nRestartSec=200ms\n"), 0o644))
	on(t, n, "systemctl", "daemon-reload")
	k := talking(t, f.Boss, "ctl", "monitor", "-o", "json", "node1", "again.service")
	must(t, f, 0, nil, "start", "node1", "again")
	k.sees(`"active":"active"`)
	pid := on(t, n, "systemctl", "show", "-P", "MainPID", "again.service")
	on(t, n, "systemctl", "kill", "-s", "KILL", "again.service")
	k.sees(`"active":"activating","sub":"auto-restart"`)
	k.sees(`"active":"active","sub":"running"`)
	for _, want := range []string{`"property":"Result","value":"signal"`, `"property":"NRestarts","value":"1"`, `"property":"ExecMainStatus","value":"9"`} {
		if !strings.Contains(k.text(), want) {
			k.sees(want)
		}
	}
	anew := on(t, n, "systemctl", "show", "-P", "MainPID", "again.service")
	if want := `"property":"MainPID","value":"` + anew + `"`; anew == pid || !strings.Contains(k.text(), want) {
		k.sees(want)
	}
	k.signaled("INT", 130)
	table := talking(t, f.Boss, "ctl", "monitor", "node1", "again")
	table.sees("again.service  new  virtual", "again.service  state  active (running)  virtual")
	must(t, f, 0, nil, "stop", "node1", "again")
	table.sees("again.service  state  inactive (dead)\n")
	table.signaled("INT", 130)
	on(t, n, "rm", "/run/systemd/system/again.service")
	on(t, n, "systemctl", "daemon-reload")
}

// A node that is offline when a monitor of it begins, comes, and goes.
func TestMonitorOfANodeThatComesAndGoes(t *testing.T) {
	f := common(t)
	n := f.Nodes["node3"]
	on(t, n, "systemctl", "start", "run.service")
	must(t, f, 0, []string{"the agent on node3 has ended", "systemctl start ctrl-agent"}, "shutdown", "node3")
	k := talking(t, f.Boss, "ctl", "monitor", "node3", "run.service,none.service")
	k.sees("node node3 is offline; waiting for it")
	on(t, n, "systemctl", "start", "ctrl-agent")
	k.sees("node3  run.service  new  virtual", "node3  run.service  state  active (running)  virtual")
	must(t, f, 0, nil, "shutdown", "node3")
	k.sees("node3  run.service  removed  virtual")
	k.signaled("INT", 130)
	if got := k.text(); strings.Count(got, "removed") != 1 || strings.Contains(got, "none.service") {
		t.Errorf("more was taken away than there was:\n%s", got)
	}
	if active(t, n, "run.service") != "active" || active(t, n, "ctrl-agent.service") != "inactive" {
		t.Error("shutdown of the agent has ended a unit, or has not ended the agent")
	}
	on(t, n, "systemctl", "start", "ctrl-agent")
	do(t, f.WaitOnline(within(t), "node3", true))
	must(t, f, 0, nil, "stop", "node3", "run")
}

func TestMetricsListen(t *testing.T) {
	f := common(t)
	must(t, f, 0, nil, "metrics", "enable")
	k := talking(t, f.Boss, "ctl", "metrics", "listen")
	// What it listens to has no answer: another start until one is seen.
	for deadline := time.Now().Add(limit); !strings.Contains(k.text(), "took"); {
		if time.Now().After(deadline) {
			t.Fatal("no metrics")
		}
		must(t, f, 0, nil, "restart", "node1", "ok")
	}
	must(t, f, 0, nil, "stop", "node1", "ok")
	must(t, f, 0, nil, "start", "node1", "ok")
	k.sees("node1  ok.service  manager  StartUnit took ", "ms, the unit ")
	k.signaled("INT", 130)
	must(t, f, 0, nil, "metrics", "disable")
	must(t, f, 0, nil, "stop", "node1", "ok")
}

func TestStatusWatch(t *testing.T) {
	f := common(t)
	k := talking(t, f.Boss, "ctl", "status", "--watch", "node2", "run")
	k.sees("Active: inactive (dead)")
	on(t, f.Nodes["node2"], "systemctl", "start", "run.service")
	k.sees("Active: active (running)")
	on(t, f.Nodes["node2"], "systemctl", "stop", "run.service")
	k.sees("Active: inactive (dead)")
	k.signaled("INT", 130)
}

// Nodes, agents and managers that come and go, for whoever waits for them.
func TestIsOnline(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Offline: []string{"node2"}, Manager: quickManager, Agent: quickAgent})
	n1, n2 := f.Nodes["node1"], f.Nodes["node2"]
	must(t, f, 0, []string{"online"}, "is-online", "node1")
	must(t, f, 6, []string{"degraded", "offline: node2"}, "is-online")
	must(t, f, 4, []string{"nodeX"}, "is-online", "nodeX", "--wait", "1h")

	// A machine boots.
	boots := talking(t, f.Boss, "ctl", "is-online", "node2", "--wait", "1min")
	boots.sees("waiting")
	do(t, n2.Boot(within(t)))
	on(t, n2, "systemctl", "start", "ctrl-agent")
	boots.ends(0)
	must(t, f, 0, []string{"up"}, "is-online", "system")

	// Its power fails.
	stays := talking(t, f.Boss, "ctl", "is-online", "node2", "--monitor")
	stays.sees("online\n")
	do(t, n2.Kill(within(t)))
	stays.ends(6)
	stays.sees("offline")

	// The agent is restarted: within the time, and killed without one.
	stays = talking(t, n1, "ctl", "is-online", "agent", "--monitor", "--switch-timeout", "30s")
	stays.sees("online\n")
	on(t, n1, "systemctl", "restart", "ctrl-agent")
	stays.sees("online again")
	strict := talking(t, n1, "ctl", "is-online", "agent", "--monitor")
	strict.sees("online\n")
	on(t, n1, "systemctl", "kill", "-s", "KILL", "ctrl-agent")
	strict.ends(6)
	stays.sees("online again")
	stays.signaled("TERM", 0)

	// A unit that is active while the agent is registered, as docs/connection.md has it.
	do(t, n1.WriteFile("/run/systemd/system/manager-online.service", []byte("[Service]\nExecStartPre=ctl is-online agent --quiet --wait 1min\n"+
		"ExecStart=ctl is-online agent --quiet --wait 5s --monitor --switch-timeout 5s\nSuccessExitStatus=130\nRestart=always\n"), 0o644))
	do(t, n1.WriteFile("/run/systemd/system/bound.service", []byte("[Unit]\nBindsTo=manager-online.service\nAfter=manager-online.service\n[Service]\nExecStart=/bin/sleep infinity\n"), 0o644))
	on(t, n1, "systemctl", "daemon-reload")
	on(t, n1, "systemctl", "start", "bound")
	on(t, n1, "systemctl", "restart", "ctrl-agent")
	on(t, n1, "ctl", "is-online", "agent", "--wait", "30s")
	if active(t, n1, "bound.service") != "active" {
		t.Error("a restart of the agent has stopped a unit that may wait for it")
	}
	on(t, n1, "systemctl", "stop", "ctrl-agent")
	await(t, n1, "bound.service", "inactive")
	on(t, n1, "systemctl", "start", "ctrl-agent", "bound")
	on(t, n1, "systemctl", "stop", "manager-online")
	if got := on(t, n1, "systemctl", "show", "-P", "Result", "manager-online"); got != "success" {
		t.Errorf("stopped, its result is %s", got)
	}
	do(t, f.WaitOnline(within(t), "node1", true))

	// The manager ends, and whoever waits for it goes on when it is back.
	on(t, n1, "systemctl", "start", "run.service")
	monitor := talking(t, f.Boss, "ctl", "monitor", "node1", "run")
	monitor.sees("run.service")
	must(t, f, 0, []string{"the manager has ended", "systemctl start ctrl-manager"}, "shutdown")
	monitor.ends(1)
	monitor.sees("error: the monitor has ended: the manager left the bus")
	must(t, f, 6, []string{"offline", "is not running"}, "is-online", "manager")
	waits := talking(t, f.Boss, "ctl", "start", "node1", "ok", "--wait-online", "1min")
	waits.sees("waiting")
	on(t, f.Boss, "systemctl", "start", "ctrl-manager")
	waits.ends(0)
	if active(t, n1, "ok.service") != "active" {
		t.Error("the unit was not started")
	}
}

// A node goes to another manager, and back.
func TestSwitchManager(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Manager: quickManager, Agent: quickAgent})
	other := f.Nodes["node2"]
	for _, file := range []string{"/etc/ctrl/manager.conf", "/etc/ctrl/pki/manager.crt", "/etc/ctrl/pki/manager.key"} {
		data, err := f.Boss.ReadFile(file)
		do(t, err)
		do(t, other.WriteFile(file, data, 0o644))
	}
	on(t, other, "sh", "-c", "chown ctrl:ctrl /etc/ctrl/pki/manager.key && chmod 600 /etc/ctrl/pki/manager.key")
	on(t, other, "systemctl", "start", "ctrl-manager")
	on(t, f.Nodes["node1"], "systemctl", "start", "run.service")
	follows := talking(t, f.Nodes["node1"], "ctl", "is-online", "agent", "--monitor", "--switch-timeout", "30s")
	follows.sees("online\n")

	must(t, f, 0, []string{"node1 leaves this manager", "restart ctrl-agent"}, "switch-manager", "node1", "tcp:host=node2,port=842")
	on(t, other, "ctl", "is-online", "node1", "--wait", "30s")
	on(t, other, "ctl", "is-active", "node1", "run")
	must(t, f, 6, []string{"offline"}, "is-online", "node1")
	follows.sees("online again")

	on(t, other, "ctl", "switch-manager", "node1", "tcp:host=boss,port=842")
	must(t, f, 0, []string{"online"}, "is-online", "node1", "--wait", "30s")
	must(t, f, 0, []string{"active"}, "is-active", "node1", "run")
	follows.sees("online again")
	follows.signaled("INT", 0)

	must(t, f, 2, []string{"an address is like"}, "switch-manager", "node1", "boss")
	must(t, f, 0, nil, "log-level", "node1", "debug")
	must(t, f, 0, []string{"info"}, "log-level")
	must(t, f, 0, nil, "log-level", "debug")
	must(t, f, 0, []string{"debug"}, "log-level")
}
