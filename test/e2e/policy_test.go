package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.org/ctrl/internal/clustertest"
	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// nodeDenies runs ctl and wants a refusal of node1's own, with these parts.
func nodeDenies(t *testing.T, f *fleet.Fleet, part string, args ...string) {
	t.Helper()
	r := must(t, f, 5, []string{"node1 refuses to let the manager ", part}, args...)
	if strings.Contains(r.Stderr, "hint:") {
		t.Errorf("ctl %s: a hint that cannot help: %s", strings.Join(args, " "), r.Stderr)
	}
}

func setPolicy(t *testing.T, n *lab.Node, lines string) {
	t.Helper()
	do(t, n.WriteFile(fleet.PolicyFile, []byte("[policy]\n"+lines), 0o644))
	on(t, n, "systemctl", "reload", "ctrl-agent")
}

func TestPolicy(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}, Policy: "DenyUnits=guard.service, web@1.service\n"})
	n := f.Nodes["node1"]
	for alias, name := range map[string]string{"guard": "run", "me": "ctrl-agent"} {
		on(t, n, "ln", "-s", name+".service", "/etc/systemd/system/"+alias+".service")
	}
	on(t, n, "ln", "-s", "/etc/systemd/system/run.service", "/run/elsewhere.service")
	on(t, n, "systemctl", "daemon-reload")

	t.Run(clustertest.NodesLastWord, func(t *testing.T) {
		// The alias that is denied names run.service, which systemd has not loaded yet.
		nodeDenies(t, f, "DenyUnits= has guard.service", "start", "node1", "guard")
		nodeDenies(t, f, "DenyUnits= has guard.service", "start", "node1", "run")
		on(t, n, "systemctl", "start", "run")
		for _, args := range [][]string{
			{"stop", "node1", "run"}, {"restart", "node1", "guard"}, {"kill", "node1", "run"}, {"freeze", "node1", "run"},
			{"set-property", "--runtime", "node1", "run", "MemoryHigh=1G"}, {"reset-failed", "node1", "run"},
			{"mask", "--runtime", "node1", "guard"}, {"disable", "node1", "run"}, {"enable", "node1", "/run/elsewhere.service", "run"},
		} {
			nodeDenies(t, f, "DenyUnits=", args...)
		}
		nodeDenies(t, f, "isolate", "start", "--job-mode=isolate", "node1", "multi-user.target")
		nodeDenies(t, f, "AllowTransientUnits=no", "run", "node1", "--", "true")
		if got := active(t, n, "run.service"); got != "active" {
			t.Errorf("run.service is %s", got)
		}
		must(t, f, 0, nil, "start", "node1", "web@2", "ok")
		nodeDenies(t, f, "DenyUnits= has web@1.service", "mask", "node1", "web@.service")
		must(t, f, 0, []string{"sleep infinity"}, "status", "node1", "run")
		must(t, f, 0, nil, "start", "node2", "run")
	})
	t.Run("the agent's own unit", func(t *testing.T) {
		for _, args := range [][]string{
			{"stop", "node1", "ctrl-agent"}, {"stop", "node1", "me"}, {"kill", "node1", "me"}, {"freeze", "node1", "ctrl-agent"},
			{"mask", "node1", "me"}, {"disable", "node1", "ctrl-agent"}, {"preset", "node1", "ctrl-agent"},
			{"set-property", "node1", "ctrl-agent", "MemoryMax=1"}, {"stop", "node1", "system.slice"}, {"freeze", "node1", "system.slice"},
		} {
			nodeDenies(t, f, "cut the manager off", args...)
		}
		before := on(t, n, "systemctl", "show", "-P", "MainPID", "ctrl-agent")
		ctl(t, f, "restart", "node1", "ctrl-agent") // its job ends with the session
		do(t, f.WaitOnline(within(t), "node1", true))
		if on(t, n, "systemctl", "show", "-P", "MainPID", "ctrl-agent") == before {
			t.Error("the agent has not restarted")
		}
	})
	t.Run("reload", func(t *testing.T) {
		setPolicy(t, n, "AllowUnits=web@*, job-*\nAllowTransientUnits=yes\n")
		must(t, f, 0, nil, "restart", "node1", "web@2")
		nodeDenies(t, f, "add run.service to AllowUnits=", "stop", "node1", "guard")
		nodeDenies(t, f, "add c.service to AllowUnits=", "run", "--unit=c", "node1", "--", "true")
		must(t, f, 0, nil, "run", "--wait", "--unit=job-1", "node1", "--", "true")
		setPolicy(t, n, "ReadOnly=yes\n")
		for _, args := range [][]string{{"stop", "node1", "web@2"}, {"daemon-reload", "node1"}, {"reset-failed", "node1"}, {"shutdown", "node1"}, {"log-level", "node1", "debug"}} {
			nodeDenies(t, f, "ReadOnly=yes", args...)
		}
		must(t, f, 0, []string{"web@2.service"}, "list-units", "node1", "web@2")
		setPolicy(t, n, "")
		must(t, f, 0, nil, "stop", "node1", "web@2", "run")
	})
}

// entry is what of a journal entry is ours.
type entry map[string]string

// entries reads the action log of a machine as journalctl gives it.
func entries(t *testing.T, n *lab.Node, matches ...string) (all []entry) {
	t.Helper()
	out := on(t, n, append([]string{"journalctl", "--no-pager", "-o", "json"}, matches...)...)
	for line := range strings.Lines(out) {
		var raw map[string]any
		do(t, json.Unmarshal([]byte(line), &raw))
		e := entry{}
		for k, v := range raw {
			e[k] = fmt.Sprint(v)
		}
		all = append(all, e)
	}
	return all
}

// awaitEntry waits for an entry with these fields, since daemons do not wait for the journal.
func awaitEntry(t *testing.T, n *lab.Node, want entry) entry {
	t.Helper()
	var matches []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		matches = append(matches, k+"="+want[k])
	}
	for ctx := within(t); ctx.Err() == nil; {
		if got := entries(t, n, matches...); len(got) > 0 {
			return got[len(got)-1]
		}
	}
	t.Fatalf("no entry on %s with %q; there are\n%s", n.Name, matches,
		on(t, n, "journalctl", "--no-pager", "-o", "cat", "MESSAGE_ID="+wire.MessageActed, "MESSAGE_ID="+wire.MessageRefused, "MESSAGE_ID="+wire.MessageJobEnded))
	return nil
}

func TestActionLog(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1"}, Policy: "DenyUnits=run.service\nAllowTransientUnits=yes\n", Manager: "LogLevel=error\n", Agent: "LogLevel=error\n"})
	boss, n := f.Boss, f.Nodes["node1"]
	as := func(user []string, argv ...string) lab.Result {
		t.Helper()
		r, err := boss.Exec(within(t), append(append([]string{"setpriv"}, user...), argv...)...)
		do(t, err)
		return r
	}
	nobody := []string{"--reuid=65534", "--regid=65534", "--clear-groups"}
	reader := []string{"--reuid=65534", "--regid=65534", "--groups=" + strings.Split(on(t, boss, "getent", "group", "systemd-journal"), ":")[2]}

	t.Run("acts", func(t *testing.T) {
		must(t, f, 0, nil, "start", "node1", "ok")
		queued := awaitEntry(t, boss, entry{"MESSAGE_ID": wire.MessageActed, "CTRL_UNIT": "ok.service", "CTRL_NODE": "node1", "CTRL_VERB": "start", "CTRL_RESULT": "queued", "CTRL_CALLER_UID": "0"})
		job := queued["CTRL_JOB"]
		if id, err := strconv.Atoi(job); err != nil || id == 0 || !strings.HasPrefix(queued["CTRL_CALLER"], ":") || queued["_SYSTEMD_UNIT"] != "ctrl-manager.service" {
			t.Errorf("the manager wrote %v", queued)
		}
		awaitEntry(t, boss, entry{"MESSAGE_ID": wire.MessageJobEnded, "CTRL_JOB": job, "CTRL_RESULT": "done", "CTRL_CALLER_UID": "0"})
		awaitEntry(t, n, entry{"MESSAGE_ID": wire.MessageActed, "CTRL_JOB": job, "CTRL_UNIT": "ok.service", "CTRL_VERB": "start", "CTRL_NODE": "node1"})
		awaitEntry(t, n, entry{"MESSAGE_ID": wire.MessageJobEnded, "CTRL_JOB": job, "CTRL_RESULT": "done"})
		must(t, f, 1, nil, "start", "node1", "bad")
		awaitEntry(t, boss, entry{"MESSAGE_ID": wire.MessageJobEnded, "CTRL_UNIT": "bad.service", "CTRL_RESULT": "failed"})
		must(t, f, 0, nil, "mask", "--runtime", "node1", "fast", "slow")
		awaitEntry(t, n, entry{"CTRL_VERB": "mask", "CTRL_UNIT": "fast.service slow.service", "CTRL_RESULT": "done"})
	})
	t.Run("refusals", func(t *testing.T) {
		must(t, f, 5, nil, "stop", "node1", "run")
		for _, m := range []*lab.Node{boss, n} {
			e := awaitEntry(t, m, entry{"MESSAGE_ID": wire.MessageRefused, "CTRL_UNIT": "run.service", "CTRL_VERB": "stop", "CTRL_RESULT": "refused"})
			if !strings.Contains(e["CTRL_REASON"], "DenyUnits= has run.service") || e["PRIORITY"] != "4" {
				t.Errorf("%s wrote %v", m.Name, e)
			}
		}
		if r := as(nobody, "ctl", "start", "node1", "ok"); r.Code != 5 {
			t.Errorf("%+v", r)
		}
		awaitEntry(t, boss, entry{"MESSAGE_ID": wire.MessageRefused, "CTRL_CALLER_UID": "65534", "CTRL_VERB": "start", "CTRL_UNIT": "ok.service", "CTRL_NODE": "node1"})
	})
	t.Run("no secrets", func(t *testing.T) {
		must(t, f, 0, nil, "run", "--wait", "-p", "Environment=PASSWORD=hunter2", "node1", "--", "/bin/true", "hunter2")
		ctl(t, f, "run", "--unit=broken", "-p", "Environment=hunter2", "node1", "--", "/bin/true")
		awaitEntry(t, n, entry{"CTRL_VERB": "run", "CTRL_RESULT": "queued"})
		awaitEntry(t, n, entry{"CTRL_UNIT": "broken.service"})
		for _, m := range []*lab.Node{boss, n} {
			for _, e := range entries(t, m, "MESSAGE_ID="+wire.MessageActed, "MESSAGE_ID="+wire.MessageRefused, "MESSAGE_ID="+wire.MessageJobEnded) {
				if strings.Contains(fmt.Sprint(e), "hunter2") {
					t.Errorf("%s wrote %v", m.Name, e)
				}
			}
		}
	})
	t.Run("ctl events", func(t *testing.T) {
		must(t, f, 0, []string{"node1  ok.service  start queued  job 1 by uid 0", "run.service  stop refused  by uid 0: node1 refuses", "start refused  by uid 65534: "}, "events")
		r := must(t, f, 0, nil, "events", "-o", "json", "node1")
		last := map[string]any{}
		for line := range strings.Lines(r.Stdout) {
			do(t, json.Unmarshal([]byte(line), &last))
		}
		if last["node"] != "node1" || last["source"] != "manager" {
			t.Errorf("the last row is %v", last)
		}
		must(t, f, 0, []string{"no events"}, "events", "node9")
		must(t, f, 1, []string{"Failed to parse timestamp"}, "events", "--since", "whenever")
		// A forged entry: anybody may write one.
		do(t, boss.WriteFile("/run/forged", []byte("MESSAGE=x\nMESSAGE_ID="+wire.MessageActed+"\nCTRL_NODE=node1\nCTRL_UNIT=forged.service\nCTRL_VERB=stop\n"), 0o644))
		if r := as(nobody, "logger", "--journald=/run/forged"); r.Code != 0 {
			t.Errorf("%+v", r)
		}
		awaitEntry(t, boss, entry{"CTRL_UNIT": "forged.service"})
		if r := must(t, f, 0, nil, "events"); strings.Contains(r.Stdout, "forged") {
			t.Error("a forged entry is shown")
		}
		if r := as(nobody, "ctl", "events"); r.Code != 5 || r.Stdout != "" || !strings.Contains(r.Stderr, "systemd-journal") {
			t.Errorf("a user without rights: %+v", r)
		}
		if r := as(reader, "ctl", "events", "node1"); r.Code != 0 || !strings.Contains(r.Stdout, "ok.service") {
			t.Errorf("a user of the group: %+v", r)
		}
		out, err := n.Run(within(t), "ctl", "events")
		if err != nil || !strings.Contains(out, "run.service  stop refused  job ") || !strings.Contains(out, " by manager tcp:") {
			t.Errorf("on the node: %v\n%s", err, out)
		}
	})
	t.Run("a flood is counted", func(t *testing.T) {
		as(nobody, "sh", "-c", "for i in $(seq 40); do busctl call org.example.ctrl1 /org/example/ctrl1 org.example.ctrl1.Manager SetLogLevel s debug; done")
		on(t, boss, "systemctl", "stop", "ctrl-manager")
		e := awaitEntry(t, boss, entry{"MESSAGE_ID": wire.MessageSummarised, "CTRL_CALLER_UID": "65534"})
		written := len(entries(t, boss, "MESSAGE_ID="+wire.MessageRefused, "CTRL_CALLER_UID=65534", "CTRL_VERB=log-level"))
		if count, err := strconv.Atoi(e["CTRL_COUNT"]); err != nil || count+written != 40 || written > 20 {
			t.Errorf("%d were written and %v", written, e)
		}
	})
}
