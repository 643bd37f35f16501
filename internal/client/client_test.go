package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fakemanager"
)

const fleet = `
version: 1.2.3
nodes:
- name: node1
  address: 10.0.0.1
  agent: 1.2.3
  systemd: "252"
  since: 1700000000000000
  lastseen: 1700000001000000
  default: multi-user.target
  units:
  - name: foo.service
    description: The Foo
    active: active
    properties:
      Service.MainPID: u 17
      Service.ExecStart: a(sasb) [["/bin/foo", ["/bin/foo", "-x"], false]]
      Conditions: a(sbbsi) [["ConditionPathExists", false, false, "/x", -1]]
      Invocation: ay [1, 255]
    texts: [{path: /etc/foo, text: "[Service]\n"}]
    processes: [{group: /system.slice/foo.service, pid: 17, command: /bin/foo -x}]
  - name: early.service
    does: {start: {early: true}}
  - name: bad.service
    does: {start: {result: failed}}
  - name: hang.service
    does: {start: {hang: true}}
  - name: cut.service
    does: {start: {cut: true}}
  - name: quit.service
    does: {start: {quit: true}}
  - name: masked.service
    load: masked
- name: node-2
  offline: true
  optional: true
  reason: cable
`

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func noEnv(string) string { return "" }

// world is a bus with a fake manager and a client.
func world(t *testing.T) (*fakemanager.Manager, *client.Client, string) {
	t.Helper()
	bus := bustest.Start(t)
	f, err := fakemanager.ParseFleet([]byte(fleet))
	if err != nil {
		t.Fatal(err)
	}
	m, err := fakemanager.Start(bus.Address, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	return m, dial(t, client.Options{Address: bus.Address, Getenv: noEnv}), bus.Address
}

func dial(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(limited(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestJobResults(t *testing.T) {
	_, c, _ := world(t)
	tests := []struct {
		unit   string
		result string
		err    error
	}{
		{"foo.service", wire.ResultDone, nil},
		{"early.service", wire.ResultDone, nil},
		{"bad.service", wire.ResultFailed, nil},
		{"none.service", "", wire.ErrSystemdNoSuchUnit},
		{"masked.service", "", wire.ErrSystemdUnitMasked},
		{"foo@.service", "", wire.ErrInvalidArgs},
		{"bad\xff.service", "", wire.ErrInvalidArgs},
		{"bad\x00.service", "", wire.ErrInvalidArgs},
	}
	for _, test := range tests {
		t.Run(test.unit, func(t *testing.T) {
			job, err := c.StartJob(limited(t), "node1", wire.Start, test.unit, "replace")
			if !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if err != nil {
				return
			}
			if result, err := job.Wait(limited(t)); result != test.result || err != nil {
				t.Errorf("result %q, %v; want %q", result, err, test.result)
			}
		})
	}
}

func TestManyJobsAtOnce(t *testing.T) {
	_, c, _ := world(t)
	results := make(chan error)
	const n = 200
	for i := range n {
		go func() {
			unit, want := "foo.service", wire.ResultDone
			if i%2 == 0 {
				unit, want = "bad.service", wire.ResultFailed
			}
			job, err := c.StartJob(limited(t), "node1", wire.Start, unit, "replace")
			if err == nil {
				var result string
				if result, err = job.Wait(limited(t)); err == nil && result != want {
					err = fmt.Errorf("%s ended as %s", unit, result)
				}
			}
			results <- err
		}()
	}
	for range n {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestJobOfLostNode(t *testing.T) {
	m, c, _ := world(t)
	hanging, err := c.StartJob(limited(t), "node1", wire.Start, "hang.service", "replace")
	if err != nil {
		t.Fatal(err)
	}
	lost, err := c.StartJob(limited(t), "node1", wire.Start, "cut.service", "replace")
	if err != nil {
		t.Fatal(err)
	}
	for name, job := range map[string]*client.Job{"waiting": hanging, "cut": lost} {
		if _, err := job.Wait(limited(t)); !errors.Is(err, wire.ErrNodeOffline) || !strings.Contains(err.Error(), "no sign of life for 6 s") {
			t.Errorf("%s: error %v, want that the node went offline, and why", name, err)
		}
	}
	if _, err := c.StartJob(limited(t), "node1", wire.Start, "foo.service", "replace"); !errors.Is(err, wire.ErrNodeOffline) {
		t.Errorf("a job on an offline node: %v", err)
	}
	if err := m.SetOffline("node1", false, ""); err != nil {
		t.Fatal(err)
	}
	job, err := c.StartJob(limited(t), "node1", wire.Start, "foo.service", "replace")
	if err != nil {
		t.Fatal(err)
	}
	if result, err := job.Wait(limited(t)); result != wire.ResultDone || err != nil {
		t.Errorf("after the node's return: %q, %v", result, err)
	}
}

func TestJobOfLostManager(t *testing.T) {
	_, c, address := world(t)
	job, err := c.StartJob(limited(t), "node1", wire.Start, "quit.service", "replace")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Wait(limited(t)); !errors.Is(err, client.ErrManagerGone) {
		t.Fatalf("error %v, want that the manager is gone", err)
	}
	if _, err := c.StartJob(limited(t), "node1", wire.Start, "foo.service", "replace"); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("without a manager: %v", err)
	}
	f, err := fakemanager.ParseFleet([]byte(fleet))
	if err != nil {
		t.Fatal(err)
	}
	second, err := fakemanager.Start(address, f)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	next, err := c.StartJob(limited(t), "node1", wire.Start, "bad.service", "replace")
	if err != nil {
		t.Fatal(err)
	}
	if next.ID != job.ID {
		t.Fatalf("the second manager's job is %d, the test wants the id of the first's, %d", next.ID, job.ID)
	}
	if result, err := next.Wait(limited(t)); result != wire.ResultFailed || err != nil {
		t.Errorf("job of the second manager: %q, %v", result, err)
	}
}

func TestWaitEnds(t *testing.T) {
	m, c, _ := world(t)
	job, err := c.StartJob(limited(t), "node1", wire.Start, "hang.service", "replace")
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, err := job.Wait(over); !errors.Is(err, wire.ErrTimeout) {
		t.Errorf("time is up: %v", err)
	}
	reason := errors.New("somebody pressed Ctrl-C")
	stopped, stop := context.WithCancelCause(t.Context())
	stop(reason)
	if _, err := job.Wait(stopped); !errors.Is(err, reason) {
		t.Errorf("stopped: %v", err)
	}
	if err := m.FinishJob("node1", "hang.service", "dependency"); err != nil {
		t.Fatal(err)
	}
	if result, err := job.Wait(limited(t)); result != "dependency" || err != nil {
		t.Errorf("the job itself: %q, %v", result, err)
	}
	if _, err := c.StartJob(stopped, "node1", wire.Start, "foo.service", "replace"); !errors.Is(err, reason) {
		t.Errorf("call with a context that has ended: %v", err)
	}
}

func TestCancelJob(t *testing.T) {
	_, c, _ := world(t)
	job, err := c.StartJob(limited(t), "node1", wire.Start, "hang.service", "replace")
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := c.Jobs(limited(t))
	if err != nil || len(jobs) != 1 || jobs[0].Unit != "hang.service" || jobs[0].ID != job.ID || jobs[0].Path != wire.JobPath(job.ID) {
		t.Fatalf("jobs %+v, %v", jobs, err)
	}
	if err := c.CancelJob(limited(t), job.ID); err != nil {
		t.Fatal(err)
	}
	if result, err := job.Wait(limited(t)); result != wire.ResultCanceled || err != nil {
		t.Errorf("canceled job: %q, %v", result, err)
	}
	if err := c.CancelJob(limited(t), job.ID); !errors.Is(err, wire.ErrNoSuchJob) {
		t.Errorf("cancel again: %v", err)
	}
}

func TestFleet(t *testing.T) {
	_, c, _ := world(t)
	f, err := c.Fleet(limited(t))
	if err != nil || len(f.Nodes) != 2 || len(f.Jobs) != 0 {
		t.Fatalf("fleet %+v, %v", f, err)
	}
	second, first := f.Nodes[0], f.Nodes[1] // by name
	if first.Name != "node1" || !first.Online() || first.Address != "10.0.0.1" || first.Optional || !first.StatusSince.Equal(time.Unix(1700000000, 0)) ||
		first.Fact(wire.FactSystemdVersion) != "252" || first.Fact(wire.FactFeatures) != "" {
		t.Errorf("node %+v", first)
	}
	if second.Name != "node-2" || second.Online() || !second.Optional || second.DisconnectReason != "cable" || !second.LastSeen.IsZero() {
		t.Errorf("node %+v", second)
	}
	info, err := c.Info(limited(t))
	if err != nil || info.Version != "1.2.3" || info.Status != wire.StatusUp {
		t.Errorf("info %+v, %v", info, err)
	}
	rows, err := c.Nodes(limited(t))
	if err != nil || len(rows) != 2 || rows[1] != (wire.NodeRow{Name: "node-2", Path: wire.NodePath("node-2"), Status: wire.NodeOffline}) {
		t.Errorf("nodes %+v, %v", rows, err)
	}
}

func TestUnits(t *testing.T) {
	_, c, _ := world(t)
	want := wire.UnitStatus{Name: "foo.service", Description: "The Foo", LoadState: "loaded", ActiveState: "active", SubState: "running",
		Path: wire.UnitPath("foo.service"), JobPath: "/"}
	all, err := c.ListUnits(limited(t), nil, []string{"active"}, nil)
	if err != nil || len(all) != 1 || len(all["node1"]) != 1 || all["node1"][0] != want {
		t.Errorf("units %+v, %v", all, err)
	}
	one, err := c.Node("node1").ListUnits(limited(t), nil, []string{"f*"})
	if err != nil || len(one) != 1 || one[0] != want {
		t.Errorf("units %+v, %v", one, err)
	}
	if _, err := c.ListUnits(limited(t), []string{"x*"}, nil, nil); !errors.Is(err, wire.ErrNoSuchNode) {
		t.Errorf("a glob without a node: %v", err)
	}
	if _, err := c.Node("nobody").DefaultTarget(limited(t)); !errors.Is(err, wire.ErrNoSuchNode) {
		t.Errorf("an unknown node: %v", err)
	}
	files, err := c.Node("node1").ReadUnitFiles(limited(t), "foo.service")
	if err != nil || len(files) != 1 || files[0] != (client.UnitText{Path: "/etc/foo", Text: "[Service]\n"}) {
		t.Errorf("files %+v, %v", files, err)
	}
	processes, err := c.Node("node1").UnitProcesses(limited(t), "foo.service")
	if err != nil || len(processes) != 1 || processes[0].PID != 17 || processes[0].Command != "/bin/foo -x" {
		t.Errorf("processes %+v, %v", processes, err)
	}
}

func TestPropertyValues(t *testing.T) {
	_, c, _ := world(t)
	props, err := c.Node("node1").UnitProperties(limited(t), "foo.service", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ActiveState": `client.Value{Signature:"s", Data:"active"}`,
		"MainPID":     `client.Value{Signature:"u", Data:0x11}`,
		"ExecStart":   `client.Value{Signature:"a(sasb)", Data:[][]interface {}{[]interface {}{"/bin/foo", []string{"/bin/foo", "-x"}, false}}}`,
		"Conditions":  `client.Value{Signature:"a(sbbsi)", Data:[][]interface {}{[]interface {}{"ConditionPathExists", false, false, "/x", -1}}}`,
		"Invocation":  `client.Value{Signature:"ay", Data:[]uint8{0x1, 0xff}}`,
	} {
		if got := fmt.Sprintf("%#v", props[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	service, err := c.Node("node1").UnitProperties(limited(t), "foo.service", wire.SystemdName+".Service")
	if err != nil || len(service) != 2 {
		t.Errorf("one interface: %v, %v", service, err)
	}
}

func TestSetProperties(t *testing.T) {
	m, c, _ := world(t)
	type command struct {
		Path string
		Argv []string
		Keep bool
	}
	props := []client.Property{{Name: "MemoryMax", Value: uint64(1 << 30)}, {Name: "ExecStart", Value: []command{{"/bin/x", []string{"x"}, true}}}}
	if err := c.Node("node1").SetUnitProperties(limited(t), "foo.service", true, props); err != nil {
		t.Fatal(err)
	}
	if id, err := c.QueueTransient(limited(t), "node1", "run-1.service", "fail", props[1:]); err != nil || id != 1 {
		t.Fatalf("transient unit: job %d, %v", id, err)
	}
	want := []string{
		`node1 SetUnitProperties foo.service true [["MemoryMax",1073741824],["ExecStart",[["/bin/x",["x"],true]]]]`,
		`node1 StartTransientUnit run-1.service fail [["ExecStart",[["/bin/x",["x"],true]]]] []`,
	}
	if got := m.Calls(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNoDaemon(t *testing.T) {
	bus := bustest.Start(t)
	c := dial(t, client.Options{Address: bus.Address, Getenv: noEnv})
	_, err := c.Nodes(limited(t))
	if !errors.Is(err, client.ErrNotRunning) || !strings.Contains(err.Error(), "the manager is not running") {
		t.Errorf("without a manager: %v", err)
	}
	_, err = c.Agent().Info(limited(t))
	if !errors.Is(err, client.ErrNotRunning) || !strings.Contains(err.Error(), "the agent is not running") {
		t.Errorf("without an agent: %v", err)
	}
	if _, err := c.StartJob(limited(t), "node1", wire.Start, "foo.service", "replace"); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("a job without a manager: %v", err)
	}
	bus.Stop()
	if _, err := c.Nodes(limited(t)); !errors.Is(err, client.ErrManagerGone) {
		t.Errorf("after the bus: %v", err)
	}
}

func TestNoBus(t *testing.T) {
	nowhere := "unix:path=" + filepath.Join(t.TempDir(), "bus")
	for _, address := range []string{nowhere, "unix:path=", "carrier-pigeon:", "x"} {
		if _, err := client.Dial(limited(t), client.Options{Address: address, Getenv: noEnv}); !errors.Is(err, client.ErrNoBus) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestUserBus: a wrong address in the environment does not hide the right one.
func TestUserBus(t *testing.T) {
	bus := bustest.Start(t)
	socket := strings.TrimPrefix(bus.Address, "unix:path=")
	runtime := filepath.Dir(socket) // the socket in it is called bus
	env := map[string]string{"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/of/root", "XDG_RUNTIME_DIR": runtime}
	c := dial(t, client.Options{User: true, UID: 1 << 30, Getenv: func(key string) string { return env[key] }})
	if _, err := c.Nodes(limited(t)); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("on the bus: %v", err)
	}
	env["XDG_RUNTIME_DIR"] = "/nonexistent"
	_, err := client.Dial(limited(t), client.Options{User: true, UID: 1 << 30, Getenv: func(key string) string { return env[key] }})
	if !errors.Is(err, client.ErrNoBus) || !strings.Contains(err.Error(), "/run/user/1073741824/bus") {
		t.Errorf("without a bus: %v", err)
	}
}

// TestHost reaches a bus through a program called ssh that runs a bridge here.
func TestHost(t *testing.T) {
	_, _, address := world(t)
	bin := t.TempDir()
	bridge := "#!/usr/bin/env python3\n" + `
import os, selectors, socket, sys
open(sys.argv[0] + ".args", "w").write(" ".join(sys.argv[1:]))
s = socket.socket(socket.AF_UNIX)
s.connect("` + strings.TrimPrefix(address, "unix:path=") + `")
sel = selectors.DefaultSelector()
sel.register(0, selectors.EVENT_READ)
sel.register(s, selectors.EVENT_READ)
while True:
    for key, _ in sel.select():
        data = os.read(0, 65536) if key.fileobj == 0 else s.recv(65536)
        if not data:
            sys.exit(0)
        if key.fileobj == 0:
            s.sendall(data)
        else:
            os.write(1, data)
`
	ssh := filepath.Join(bin, "ssh")
	if err := os.WriteFile(ssh, []byte(bridge), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	c := dial(t, client.Options{Host: "admin@[::1]:2222", Getenv: noEnv})
	if nodes, err := c.Nodes(limited(t)); err != nil || len(nodes) != 2 {
		t.Errorf("nodes %v, %v", nodes, err)
	}
	args, err := os.ReadFile(ssh + ".args")
	if err != nil || string(args) != "-xT -p 2222 -- admin@::1 systemd-stdio-bridge" {
		t.Errorf("ssh was run with %q, %v", args, err)
	}
}

func TestHostFails(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	tests := map[string]string{
		"echo 'Warning: added' >&2\necho 'root@node9: Permission denied (publickey).' >&2\nexit 255": "cannot reach the bus of node9: root@node9: Permission denied (publickey).",
		"echo 'bash: line 1: systemd-stdio-bridge: command not found' >&2\nexit 127":                 "command not found (systemd must be installed there)",
		"exit 3": "ssh ended with exit status 3",
	}
	for script, want := range tests {
		if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := client.Dial(limited(t), client.Options{Host: "node9", Getenv: noEnv})
		if !errors.Is(err, client.ErrNoBus) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestMonitor(t *testing.T) {
	m, c, _ := world(t)
	monitor, err := c.Monitor(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := monitor.Subscribe(limited(t), "node*", []string{"foo.service"}); err != nil {
		t.Fatal(err)
	}
	m.ChangeUnit("node1", "hang.service", "active", "running", nil) // nobody asked
	m.ChangeUnit("node1", "foo.service", "failed", "failed", map[string]string{"Service.Result": "s signal"})
	var got []string
	for len(got) < 4 {
		select {
		case e := <-monitor.Events():
			got = append(got, fmt.Sprintf("%d %s %s %s/%s %s", e.Kind, e.Node, e.Unit, e.Active, e.Sub, e.Reason))
			if e.Kind == client.UnitPropertiesChanged && e.Interface == wire.SystemdName+".Service" && e.Properties["Result"].Data != "signal" {
				t.Errorf("properties %v", e.Properties)
			}
		case <-limited(t).Done():
			t.Fatalf("only %v", got)
		}
	}
	want := []string{"0 node1 foo.service / virtual", "2 node1 foo.service active/running virtual", "2 node1 foo.service failed/failed real", "3 node1 foo.service / "}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if err := monitor.Subscribe(limited(t), "[", []string{"*"}); !errors.Is(err, wire.ErrInvalidArgs) {
		t.Errorf("a wrong pattern: %v", err)
	}
	m.Stop()
	<-monitor.Over()
	if err := monitor.Err(); !errors.Is(err, client.ErrManagerGone) {
		t.Errorf("after the manager: %v", err)
	}
}

func TestMonitorClose(t *testing.T) {
	_, c, _ := world(t)
	monitor, err := c.Monitor(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := monitor.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	if err := monitor.Subscribe(limited(t), "*", []string{"*"}); !errors.Is(err, wire.ErrNoSuchMonitor) {
		t.Errorf("after Close: %v", err)
	}
}
