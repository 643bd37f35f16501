package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

// Cases that people who do this job with other tools have reported, told by what they type.

// gone ends a unit that does not want to.
func gone(t *testing.T, n *lab.Node, unit string) {
	t.Helper()
	on(t, n, "systemctl", "kill", "--signal=KILL", unit)
	await(t, n, unit, "inactive", "failed")
	on(t, n, "systemctl", "reset-failed")
}

func TestRestartOfAUnitThatTakesLongToStop(t *testing.T) {
	f := common(t)
	n := f.Nodes["node1"]
	must(t, f, 0, nil, "start", "node1", "stopper")
	must(t, f, 0, nil, "stop", "--no-wait", "node1", "stopper")
	await(t, n, "stopper.service", "deactivating")
	waiting := begin(t, f, "restart", "node1", "stopper")
	// The restart takes the place of the stop, in systemd too.
	id := 0
	until(t, "the restart is under way", func() bool {
		for _, j := range jobs(t, f) {
			if j.Type == "restart" {
				id = j.Job
			}
		}
		return id != 0
	})
	must(t, f, 0, nil, "cancel", strconv.Itoa(id))
	waiting.ends(t, 1, "cancel")
	if jobs := on(t, n, "systemctl", "list-jobs", "--no-legend"); strings.Contains(jobs, "stopper") {
		t.Errorf("a job is left: %s", jobs)
	}
	gone(t, n, "stopper.service")
}

func TestSignals(t *testing.T) {
	f := common(t)
	n := f.Nodes["node1"]
	do(t, n.WriteFile("/root/traps.sh", []byte(`trap 'echo USR1' USR1; trap 'echo RTMIN+3' 37; echo ready >/run/traps; while :; do sleep 0.1; done`+"\n"), 0o644))
	on(t, n, "systemd-run", "-q", "--unit=traps", "--property=StandardOutput=truncate:/run/traps.out", "bash", "/root/traps.sh")
	until(t, "the traps are set", func() bool {
		r, err := n.Exec(within(t), "test", "-s", "/run/traps")
		do(t, err)
		return r.Code == 0
	})
	said := func() string { b, _ := n.ReadFile("/run/traps.out"); return string(b) }
	for i, signal := range []string{"SIGUSR1", "USR1", "10", "RTMIN+3"} {
		must(t, f, 0, nil, "kill", "--kill-whom=main", "--signal", signal, "node1", "traps")
		until(t, signal+" arrives", func() bool { return strings.Count(said(), "\n") > i })
	}
	if got := said(); got != "USR1\nUSR1\nUSR1\nRTMIN+3\n" {
		t.Errorf("arrived: %q", got)
	}
	for _, signal := range []string{"0", "999", "SIGNONE", "RTMIN+99"} {
		must(t, f, 2, []string{"signal"}, "kill", "--signal", signal, "node1", "traps")
	}
	must(t, f, 0, nil, "stop", "node1", "traps")
	must(t, f, 0, nil, "start", "node1", "ok") // it is active without a process
	theirs := on(t, n, "sh", "-c", "systemctl kill --kill-whom=main ok.service 2>&1; true")
	reason := regexp.MustCompile(`[A-Z][a-z ]*main process[a-z ]*`).FindString(theirs)
	if reason == "" {
		t.Fatalf("systemctl says %q", theirs)
	}
	must(t, f, 1, []string{reason}, "kill", "--kill-whom", "main", "node1", "ok.service")
	must(t, f, 0, nil, "stop", "node1", "ok")
}

func TestUnitFileChangedOnDisk(t *testing.T) {
	f := common(t)
	n := f.Nodes["node2"]
	file := "/etc/systemd/system/edited.service"
	do(t, n.WriteFile(file, []byte("[Service]\nExecStart=/bin/sleep infinity\n"), 0o644))
	must(t, f, 0, nil, "daemon-reload", "node2")
	must(t, f, 0, nil, "start", "node2", "edited")
	on(t, n, "sh", "-c", "echo '# later' >>"+file+"; touch -d '+1 hour' "+file) // a time that systemd has not seen
	r := must(t, f, 0, nil, "restart", "node2", "edited")
	if !strings.Contains(r.Stderr, "ctl daemon-reload node2") || strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("restart says %q", r.Stderr)
	}
	must(t, f, 0, []string{"changed on disk", "ctl daemon-reload node2"}, "status", "node2", "edited")
	must(t, f, 0, nil, "stop", "node2", "edited")
	on(t, n, "rm", file)
	must(t, f, 0, nil, "daemon-reload", "node2")
}

func TestEnablingAnAlias(t *testing.T) {
	f := common(t)
	n := f.Nodes["node2"]
	do(t, n.WriteFile("/etc/systemd/system/store.service", []byte("[Service]\nExecStart=/bin/sleep infinity\n[Install]\nAlias=db.service\nWantedBy=multi-user.target\n"), 0o644))
	must(t, f, 0, nil, "daemon-reload", "node2")
	must(t, f, 0, nil, "enable", "--now", "node2", "store")
	must(t, f, 0, []string{"active"}, "is-active", "node2", "db")
	theirs := on(t, n, "sh", "-c", "systemctl enable db.service 2>&1; true")
	r := must(t, f, 1, []string{"db.service", "store.service"}, "enable", "node2", "db")
	if i := strings.LastIndex(theirs, ": "); i < 0 || !strings.Contains(r.Stderr, strings.TrimSpace(theirs[i+2:])) {
		t.Errorf("systemctl says %q, ctl %q", theirs, r.Stderr)
	}
	must(t, f, 0, nil, "disable", "--now", "node2", "store")
	on(t, n, "rm", "/etc/systemd/system/store.service")
	must(t, f, 0, nil, "daemon-reload", "node2")
}

func TestReloadOfAUnitThatStarts(t *testing.T) {
	f := common(t)
	n := f.Nodes["node3"]
	do(t, n.WriteFile("/run/systemd/system/long.service", []byte("[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'until [ -e /run/go ]; do sleep 0.1; done'\nExecReload=/bin/touch /run/reloaded\n"), 0o644))
	must(t, f, 0, nil, "daemon-reload", "node3")
	must(t, f, 0, nil, "start", "--no-wait", "node3", "long")
	await(t, n, "long.service", "activating")
	reload := begin(t, f, "reload", "node3", "long")
	until(t, "the reload waits behind the start", func() bool { return len(jobs(t, f)) > 1 })
	on(t, n, "touch", "/run/go")
	reload.ends(t, 0)
	on(t, n, "test", "-e", "/run/reloaded")
	must(t, f, 0, nil, "stop", "node3", "long")
}

func jobs(t *testing.T, f *fleet.Fleet) (list []struct {
	Job               int
	Unit, Type, State string
}) {
	t.Helper()
	if err := json.Unmarshal([]byte(ctl(t, f, "list-jobs", "-o", "json").Stdout), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// However busy the node is, what ran is there when ctl run has come back.
func TestRunAndChangeAtOnce(t *testing.T) {
	f := common(t)
	n := f.Nodes["node2"]
	on(t, n, "systemd-run", "-q", "--unit=busy", "sh", "-c", "while :; do systemctl daemon-reload; done")
	for i := range 20 {
		unit := fmt.Sprintf("x%d", i)
		must(t, f, 0, nil, "run", "--unit", unit, "node2", "--", "sleep", "60")
		must(t, f, 0, nil, "set-property", "--runtime", "node2", unit, "MemoryMax=1G")
	}
	on(t, n, "systemctl", "stop", "busy")
	must(t, f, 0, nil, "stop", "node2", "x*")
}

// What is typed after -- arrives as it is, and the unit is still right after a reload.
func TestRunPassesArgumentsAsTheyAre(t *testing.T) {
	f := common(t)
	n := f.Nodes["node1"]
	args := []string{"$HOME", "${PATH}", "$$", "a b", "%h%%", `back\slash`, `"quoted"`, "tab\there", "", "$", "end$"}
	must(t, f, 0, nil, append([]string{"run", "--wait", "--unit=args", "-p", "StandardOutput=truncate:/run/args.out", "node1", "--", "/usr/bin/printf", `%s\n`}, args...)...)
	got, err := n.ReadFile("/run/args.out")
	if do(t, err); string(got) != strings.Join(args, "\n")+"\n" {
		t.Errorf("arrived: %q", got)
	}
	must(t, f, 0, nil, "run", "--unit=kept", "node1", "--", "/bin/sh", "-c", "exec sleep $((3*100))")
	must(t, f, 0, nil, "daemon-reload", "node1")
	if got := on(t, n, "systemctl", "show", "-P", "LoadState", "kept"); got != "loaded" {
		t.Errorf("after a reload it is %s", got)
	}
	must(t, f, 0, nil, "stop", "node1", "kept")
	must(t, f, 0, nil, "run", "--unit=again", "node1", "--", "/bin/sh", "-c", "exec sleep '300'")
	must(t, f, 0, nil, "daemon-reload", "node1")
	must(t, f, 0, nil, "restart", "node1", "again")
	must(t, f, 0, nil, "stop", "node1", "again")
}

// Names that ctl makes up do not repeat, whatever was restarted in between.
func TestNamesOfTransientUnits(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1"}, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	seen := map[string]bool{}
	for _, between := range [][]string{nil, {"agent"}, {"manager"}, {"systemd"}} {
		switch {
		case between == nil:
		case between[0] == "agent":
			do(t, n.Signal(within(t), "ctrl-agent", "SIGKILL"))
			do(t, f.WaitOnline(within(t), "node1", false)) // the session of the killed one is over
			do(t, f.WaitOnline(within(t), "node1", true))
		case between[0] == "manager":
			do(t, f.Boss.Signal(within(t), "ctrl-manager", "SIGKILL"))
			do(t, f.WaitManager(within(t)))
			do(t, f.WaitOnline(within(t), "node1", true))
		default:
			on(t, n, "systemctl", "daemon-reexec")
		}
		r := must(t, f, 0, nil, "run", "node1", "--", "sleep", "600")
		name := regexp.MustCompile(`[a-z0-9-]+\.service`).FindString(r.Stdout + r.Stderr)
		if name == "" || seen[name] {
			t.Errorf("after %v the name is %q, seen before: %v", between, name, seen)
		}
		seen[name] = true
	}
	for name := range seen {
		if got := active(t, n, name); got != "active" {
			t.Errorf("%s is %s", name, got)
		}
	}
}

func TestRunThatIsGivenUp(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1"}, Manager: quickManager, Agent: quickAgent})
	n := f.Nodes["node1"]
	t.Run("interrupt", func(t *testing.T) {
		waiting := begin(t, f, "run", "--wait", "--unit=a", "node1", "--", "sleep", "600")
		await(t, n, "a.service", "active")
		on(t, f.Boss, "pkill", "-INT", "-x", "ctl")
		waiting.ends(t, 130, "a.service")
		if got := active(t, n, "a.service"); got != "active" {
			t.Errorf("it is %s", got)
		}
	})
	t.Run("hangup", func(t *testing.T) {
		waiting := begin(t, f, "run", "--wait", "--unit=b", "node1", "--", "sleep", "600")
		await(t, n, "b.service", "active")
		on(t, f.Boss, "pkill", "-HUP", "-x", "ctl")
		select {
		case <-waiting.done:
		case <-within(t).Done():
			t.Fatal("it does not end")
		}
		if got := active(t, n, "b.service"); got != "active" || !strings.Contains(waiting.out.String(), "b.service") {
			t.Errorf("it is %s; said before: %s", got, waiting.out)
		}
	})
	t.Run("cancel-on-interrupt", func(t *testing.T) {
		waiting := begin(t, f, "run", "--wait", "--cancel-on-interrupt", "--unit=c", "node1", "--", "sleep", "600")
		await(t, n, "c.service", "active")
		on(t, f.Boss, "pkill", "-INT", "-x", "ctl")
		waiting.ends(t, 130)
		await(t, n, "c.service", "inactive", "failed")
	})
	t.Run("cut", func(t *testing.T) {
		waiting := begin(t, f, "run", "--wait", "--unit=d", "node1", "--", "sleep", "600")
		await(t, n, "d.service", "active")
		do(t, n.Cut(within(t)))
		waiting.ends(t, 6, "d.service", "node1")
		do(t, n.Heal(within(t)))
		if got := active(t, n, "d.service"); got != "active" {
			t.Errorf("it is %s", got)
		}
	})
}
