package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/clustertest"
	"example.org/ctrl/test/fleet"
)

// quick makes lost links show within a second.
const (
	quickManager = "HeartbeatInterval=300ms\nNodeHeartbeatThreshold=1s\n"
	quickAgent   = "HeartbeatInterval=300ms\nManagerHeartbeatThreshold=1s\nReconnectMax=500ms\n"
)

// started is a ctl that runs on in the background.
type started struct {
	cmd  *exec.Cmd
	out  *strings.Builder
	done chan error
}

func begin(t *testing.T, f *fleet.Fleet, args ...string) *started {
	t.Helper()
	s := &started{cmd: f.Boss.Command(within(t), append([]string{"ctl"}, args...)...), out: &strings.Builder{}, done: make(chan error, 1)}
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	return s
}

func (s *started) ends(t *testing.T, code int, parts ...string) {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(limit):
		t.Fatal("it does not end")
	}
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d: %s", got, code, s.out)
	}
	for _, part := range parts {
		if !strings.Contains(s.out.String(), part) {
			t.Errorf("%q is not in %s", part, s.out)
		}
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCutNode(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2", "node3"}, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node2"]
	t.Run(clustertest.CutWhileWaiting, func(t *testing.T) {
		waiting := begin(t, f, "start", "node2", "slow")
		await(t, n, "slow.service", "activating")
		do(t, n.Cut(within(t)))
		waiting.ends(t, 6, "node2", "offline")
	})
	t.Run(clustertest.CutIsNoticed, func(t *testing.T) {
		do(t, f.WaitOnline(within(t), "node2", false))
		must(t, f, 6, []string{"node2", "offline", "last seen"}, "start", "node2", "ok")
		r := must(t, f, 1, []string{"node2", "node1  dbus.socket"}, "list-units", "--all", "*", "dbus.socket")
		if strings.Contains(r.Stdout, "node2") {
			t.Error("units of a lost node are listed")
		}
		must(t, f, 3, []string{"degraded"}, "status")
		must(t, f, 0, nil, "start", "node1,node3", "ok")
	})
	t.Run(clustertest.HealReconnects, func(t *testing.T) {
		do(t, n.Heal(within(t)))
		do(t, f.WaitOnline(within(t), "node2", true))
		if got := active(t, n, "slow.service"); got != "activating" {
			t.Errorf("the cut has changed the unit: it is %s", got)
		}
		must(t, f, 0, nil, "stop", "node2", "slow")
		must(t, f, 0, nil, "start", "node2", "ok")
	})
}

// A list of the fleet answers within its deadline with everybody who can answer.
func TestSlowNode(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2", "node3"}})
	ctx := within(t)
	do(t, f.Nodes["node2"].Signal(ctx, "ctrl-agent", "SIGSTOP"))
	began := time.Now()
	r := must(t, f, 1, []string{"node2", "node1  dbus.socket", "node3  dbus.socket"}, "list-units", "*", "dbus.socket")
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the list took %v", took)
	}
	if !strings.Contains(r.Stderr, "node2") {
		t.Errorf("the missing node is not named: %q", r.Stderr)
	}
	must(t, f, 0, []string{"node1", "node2", "node3"}, "list-nodes")
	do(t, f.Nodes["node2"].Signal(ctx, "ctrl-agent", "SIGCONT"))
}

func TestDaemonsThatDie(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	t.Run(clustertest.ManagerRestart, func(t *testing.T) {
		waiting := begin(t, f, "start", "node1", "slow")
		await(t, n, "slow.service", "activating")
		before := on(t, n, "systemctl", "show", "-P", "InvocationID", "slow.service")
		do(t, f.Boss.Signal(within(t), "ctrl-manager", "SIGKILL"))
		waiting.ends(t, 1)
		do(t, f.WaitManager(within(t)))
		do(t, f.WaitOnline(within(t), "node1", true))
		if after := on(t, n, "systemctl", "show", "-P", "InvocationID", "slow.service"); after != before {
			t.Error("the death of the manager has changed the unit")
		}
		must(t, f, 0, nil, "stop", "node1", "slow")
		must(t, f, 0, nil, "start", "node1", "fast")
	})
	t.Run(clustertest.AgentRestart, func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "run")
		before := on(t, n, "systemctl", "show", "-P", "InvocationID", "run.service")
		waiting := begin(t, f, "start", "node1", "mute")
		await(t, n, "mute.service", "activating")
		do(t, n.Signal(within(t), "ctrl-agent", "SIGKILL"))
		waiting.ends(t, 6, "node1")
		do(t, f.WaitOnline(within(t), "node1", true))
		if after := on(t, n, "systemctl", "show", "-P", "InvocationID", "run.service"); after != before {
			t.Error("the death of the agent has changed a unit")
		}
		must(t, f, 0, nil, "stop", "node1", "mute", "run")
	})
	// The watchdog aborts what hangs, and a panic ends with the same exit code.
	t.Run("aborted", func(t *testing.T) {
		do(t, n.Signal(within(t), "ctrl-agent", "SIGABRT"))
		do(t, f.WaitOnline(within(t), "node1", false))
		do(t, f.WaitOnline(within(t), "node1", true))
		do(t, f.Boss.Signal(within(t), "ctrl-manager", "SIGABRT"))
		await(t, f.Boss, "ctrl-manager.service", "activating")
		do(t, f.WaitManager(within(t)))
		do(t, f.WaitOnline(within(t), "node1", true))
		must(t, f, 0, nil, "start", "node1", "fast")
	})
	t.Run(clustertest.SystemdRestart, func(t *testing.T) {
		waiting := begin(t, f, "start", "node1", "slow")
		await(t, n, "slow.service", "activating")
		on(t, n, "systemctl", "daemon-reexec")
		must(t, f, 0, nil, "start", "node1", "fast")
		must(t, f, 0, nil, "stop", "node1", "slow")
		waiting.ends(t, 1, "cancel")
	})
	t.Run("bus-restart", func(t *testing.T) {
		on(t, f.Boss, "systemctl", "restart", "dbus.service")
		do(t, f.WaitManager(within(t)))
		must(t, f, 0, []string{"online"}, "list-nodes")
		must(t, f, 0, nil, "start", "node1", "fast")
		if restarts := on(t, f.Boss, "systemctl", "show", "-P", "NRestarts", "ctrl-manager"); restarts != "2" { // the kill and the abort above
			t.Errorf("the manager was restarted %s times", restarts)
		}
	})
	t.Run(clustertest.GhostTakeOver, func(t *testing.T) {
		do(t, n.Kill(within(t)))
		do(t, n.Boot(within(t)))
		on(t, n, "systemctl", "start", "ctrl-agent")
		// The manager may still hold the dead connection for the living one, so it is the agent
		// that knows when it was let in.
		do(t, f.WaitAgent(within(t), "node1"))
		must(t, f, 0, nil, "start", "node1", "fast")
	})
	t.Run(clustertest.ManagerShutdown, func(t *testing.T) {
		waiting := begin(t, f, "start", "node1", "slow")
		await(t, n, "slow.service", "activating")
		began := time.Now()
		on(t, f.Boss, "systemctl", "stop", "ctrl-manager")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the manager took %v to stop", took)
		}
		waiting.ends(t, 1)
		began = time.Now()
		on(t, n, "systemctl", "stop", "ctrl-agent")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the agent took %v to stop without a manager", took)
		}
		if got := active(t, n, "slow.service"); got != "activating" {
			t.Errorf("after both have stopped the unit is %s", got)
		}
		must(t, f, 1, []string{"ctrl-manager", "systemctl start"}, "list-nodes")
	})
}

func TestJobsThatMeet(t *testing.T) {
	f := common(t)
	n := f.Nodes["node3"]
	t.Run(clustertest.EqualJobsShared, func(t *testing.T) {
		first := begin(t, f, "start", "node3", "slow")
		await(t, n, "slow.service", "activating")
		second := begin(t, f, "start", "node3", "slow")
		jobs := must(t, f, 0, []string{"slow.service", "start", "running"}, "list-jobs", "--no-legend")
		if lines := strings.Count(jobs.Stdout, "\n"); lines != 1 {
			t.Errorf("%d jobs for two equal starts:\n%s", lines, jobs.Stdout)
		}
		must(t, f, 0, nil, "stop", "node3", "slow")
		first.ends(t, 1, "cancel")
		second.ends(t, 1, "cancel")
	})
	t.Run(clustertest.CancelJob, func(t *testing.T) {
		waiting := begin(t, f, "start", "node3", "slow")
		await(t, n, "slow.service", "activating")
		var jobs []struct{ Job int }
		if err := json.Unmarshal([]byte(ctl(t, f, "list-jobs", "-o", "json").Stdout), &jobs); err != nil || len(jobs) != 1 || jobs[0].Job == 0 {
			t.Fatalf("jobs %v, %v", jobs, err)
		}
		id := strconv.Itoa(jobs[0].Job)
		must(t, f, 0, nil, "cancel", id)
		waiting.ends(t, 1, "cancel")
		must(t, f, 4, []string{"no job " + id}, "cancel", id)
		must(t, f, 0, nil, "stop", "node3", "slow")
	})
	t.Run("timeout-ends-the-wait-not-the-job", func(t *testing.T) {
		must(t, f, 7, []string{"slow.service"}, "start", "--timeout", "300ms", "node3", "slow")
		if got := active(t, n, "slow.service"); got != "activating" {
			t.Errorf("it is %s", got)
		}
	})
	t.Run("interrupt-ends-the-wait-not-the-job", func(t *testing.T) {
		waiting := begin(t, f, "start", "node3", "mute")
		await(t, n, "mute.service", "activating")
		on(t, f.Boss, "pkill", "-INT", "-x", "ctl")
		waiting.ends(t, 130)
		if got := active(t, n, "mute.service"); got != "activating" {
			t.Errorf("it is %s", got)
		}
		must(t, f, 0, nil, "stop", "node3", "mute", "slow")
	})
	t.Run(clustertest.FailModeIsBusy, func(t *testing.T) {
		waiting := begin(t, f, "start", "node3", "slow")
		await(t, n, "slow.service", "activating")
		must(t, f, 1, []string{"slow.service"}, "stop", "--job-mode=fail", "node3", "slow")
		must(t, f, 2, []string{"job mode"}, "stop", "--job-mode=sideways", "node3", "slow")
		must(t, f, 0, nil, "stop", "node3", "slow")
		waiting.ends(t, 1)
	})
	t.Run("no-wait", func(t *testing.T) {
		must(t, f, 0, []string{"/org/example/ctrl1/job/"}, "start", "--no-wait", "node3", "slow")
		must(t, f, 0, nil, "stop", "node3", "slow")
	})
}

func TestUnitThatVanishes(t *testing.T) {
	f := common(t)
	n := f.Nodes["node2"]
	do(t, n.WriteFile("/etc/systemd/system/gone.service", []byte("[Service]\nExecStart=/bin/sleep infinity\n"), 0o644))
	on(t, n, "systemctl", "daemon-reload")
	must(t, f, 0, nil, "start", "node2", "gone")
	on(t, n, "rm", "/etc/systemd/system/gone.service")
	on(t, n, "systemctl", "daemon-reload")
	must(t, f, 0, []string{"not-found", "active"}, "list-units", "node2", "gone.service")
	must(t, f, 0, nil, "stop", "node2", "gone")
}

func TestAlias(t *testing.T) {
	f := common(t)
	n := f.Nodes["node2"]
	on(t, n, "systemctl", "enable", "ok.service")
	must(t, f, 0, nil, "start", "node2", "also")
	must(t, f, 0, []string{"ok.service"}, "status", "node2", "also")
	must(t, f, 0, nil, "stop", "node2", "also")
	if got := active(t, n, "ok.service"); got != "inactive" {
		t.Errorf("it is %s", got)
	}
	on(t, n, "systemctl", "disable", "ok.service")
}

func TestOddNodesAndRoads(t *testing.T) {
	long := strings.Repeat("n", 64)
	f := up(t, fleet.Options{Nodes: []string{"Node-1", "a.b_C", long}, Insecure: true, Manager: "[node Node-1]\nOptional=yes\n"})
	for _, name := range []string{"Node-1", "a.b_C", long} {
		t.Run(name, func(t *testing.T) {
			must(t, f, 0, nil, "start", name, "ok")
			must(t, f, 0, []string{name + "  ok.service"}, "list-units", name, "ok.service")
		})
	}
	t.Run(clustertest.OptionalNode, func(t *testing.T) {
		do(t, f.Nodes["Node-1"].Kill(within(t)))
		do(t, f.WaitOnline(within(t), "Node-1", false))
		must(t, f, 0, []string{"up"}, "status")
		must(t, f, 0, nil, "list-units", "*", "ok.service")
	})
	t.Run("ipv6", func(t *testing.T) { moveAgent(t, f, "a.b_C", "ManagerHost="+fleet.Boss+"-v6\n") })
	t.Run("address-list", func(t *testing.T) {
		moveAgent(t, f, "a.b_C", "ManagerAddress=tcp:host="+fleet.Boss+",port=1;tcp:host="+strings.ReplaceAll(f.Boss.Addr6, ":", "%3a")+",port=842\n")
	})
	t.Run("unix-socket", func(t *testing.T) {
		on(t, f.Nodes["a.b_C"], "systemctl", "stop", "ctrl-agent")
		do(t, f.Boss.WriteFile("/etc/ctrl/agent.conf", []byte("[agent]\nNodeName=a.b_C\nManagerAddress=unix:path=/run/ctrl/ctrl.sock\n"), 0o644))
		on(t, f.Boss, "systemctl", "start", "ctrl-agent")
		do(t, f.WaitOnline(within(t), "a.b_C", true))
		must(t, f, 0, []string{"unix"}, "list-nodes")
		must(t, f, 0, nil, "start", "a.b_C", "ok")
	})
}

// moveAgent gives an agent another road to the manager and sees it come.
func moveAgent(t *testing.T, f *fleet.Fleet, name, line string) {
	n := f.Nodes[name]
	do(t, n.WriteFile("/etc/ctrl/agent.conf", []byte("[agent]\nNodeName="+name+"\nTLS=no\n"+line), 0o644))
	on(t, n, "systemctl", "restart", "ctrl-agent")
	do(t, f.WaitOnline(within(t), name, true))
	must(t, f, 0, nil, "restart", name, "ok")
}

// 1,000 idle connections, garbage and huge claims on the manager's port keep no node out.
func TestHostilePort(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Insecure: true})
	attack := `import socket, sys
host = sys.argv[1]
idle = []
for i in range(1000):
    s = socket.socket(); s.settimeout(5)
    try:
        s.connect((host, 842)); idle.append(s)
    except OSError: pass
for payload in (b"GET / HTTP/1.0\r\n\r\n", b"\x00" * 5000, b"\x00AUTH EXTERNAL\r\n" * 50,
                b"\x00AUTH ANONYMOUS\r\nBEGIN\r\nl\x01\x00\x01\xff\xff\xff\x7f\x01\x00\x00\x00\xff\xff\xff\x7f"):
    s = socket.socket(); s.settimeout(5)
    try:
        s.connect((host, 842)); s.sendall(payload); s.recv(100)
    except OSError: pass
print("attacked with", len(idle), flush=True)
sys.stdin.read()
`
	do(t, f.Nodes["node2"].WriteFile("/root/attack.py", []byte(attack), 0o644))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := f.Nodes["node2"].Command(ctx, "/usr/bin/python3", "/root/attack.py", fleet.Boss)
	in, err := cmd.StdinPipe()
	do(t, err)
	out, err := cmd.StdoutPipe()
	do(t, err)
	do(t, cmd.Start())
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), "attacked") {
		t.Fatalf("the attack did not run: %q, %v", line[:n], err)
	}
	must(t, f, 0, nil, "start", "node1", "ok")
	on(t, f.Nodes["node1"], "systemctl", "restart", "ctrl-agent")
	do(t, f.WaitOnline(within(t), "node1", true))
	must(t, f, 0, nil, "restart", "node1", "ok")
	memory := on(t, f.Boss, "sh", "-c", "grep VmHWM /proc/$(systemctl show -P MainPID ctrl-manager)/status")
	if fields := strings.Fields(memory); len(fields) != 3 || len(fields[1]) > 5 || fields[1] > "80000" && len(fields[1]) == 5 {
		t.Errorf("the manager's memory went up to %s", memory)
	}
	in.Close()
	cmd.Wait()
}
