package e2e

import (
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

// A fleet of a user: manager, agent and units below a user manager, without root.
func TestUserMode(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1"}})
	n := f.Nodes["node1"]
	on(t, n, "useradd", "-m", "-u", "2001", "-s", "/bin/bash", "alice")
	on(t, n, "useradd", "-m", "-u", "2002", "-s", "/bin/bash", "bob")
	write := func(name, text string) {
		t.Helper()
		r, err := n.ExecInput(within(t), text, "runuser", "-u", "alice", "--", "sh", "-c", "mkdir -p $(dirname "+name+") && cat >"+name)
		if err != nil || r.Code != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	write("/home/alice/.config/ctrl/manager.conf", "[manager]\nUseTCP=no\nUseUDS=yes\nAllowedNodeNames=home\n")
	write("/home/alice/.config/ctrl/agent.conf", "[agent]\nNodeName=home\nManagerAddress=unix:path=/run/user/2001/ctrl/ctrl.sock\n[policy]\n"+transientUnits)
	write("/home/alice/.config/systemd/user/mine.service", "[Service]\nExecStart=/bin/sleep infinity\n")
	on(t, n, "loginctl", "enable-linger", "alice")
	await(t, n, "user@2001.service", "active")
	// Case 97: the bus is found through /run/user/UID, whatever su and sudo leave in the environment.
	as := func(argv ...string) lab.Result {
		t.Helper()
		r, err := n.Exec(within(t), append([]string{"runuser", "-u", "alice", "--"}, argv...)...)
		do(t, err)
		return r
	}
	begin := as("env", "XDG_RUNTIME_DIR=/run/user/2001", "systemctl", "--user", "start", "ctrl-manager", "ctrl-agent")
	if begin.Code != 0 {
		t.Fatalf("%+v", begin)
	}
	t.Run("lists-and-jobs", func(t *testing.T) {
		// The agent may be on its way still.
		if r := as("ctl", "--user", "start", "home", "mine"); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
		if r := as("ctl", "--user", "list-units", "home", "mine.service"); r.Code != 0 || !strings.Contains(r.Stdout, "home  mine.service") {
			t.Errorf("%+v", r)
		}
		if r := as("env", "XDG_RUNTIME_DIR=/run/user/2001", "systemctl", "--user", "is-active", "mine"); strings.TrimSpace(r.Stdout) != "active" {
			t.Errorf("%+v", r)
		}
		if r := as("ctl", "--user", "status", "home", "mine"); r.Code != 0 || !strings.Contains(r.Stdout, "sleep infinity") {
			t.Errorf("%+v", r)
		}
		if got := active(t, n, "mine.service"); got == "active" {
			t.Error("it runs in the system's manager")
		}
		if r := as("ctl", "--user", "run", "--wait", "home", "--", "/bin/sh", "-c", "exit 3"); r.Code != 3 {
			t.Errorf("run: %+v", r)
		}
	})
	for name, prefix := range map[string][]string{
		"su":                  {"su", "alice", "-c"},
		"sudo":                {"setpriv", "--reuid=2001", "--regid=2001", "--init-groups", "env", "HOME=/home/alice", "XDG_RUNTIME_DIR=/run/user/0", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus", "sh", "-c"},
		"no-XDG_RUNTIME_DIR":  {"setpriv", "--reuid=2001", "--regid=2001", "--init-groups", "env", "-u", "XDG_RUNTIME_DIR", "-u", "DBUS_SESSION_BUS_ADDRESS", "sh", "-c"},
		"with-its-own-values": {"runuser", "-u", "alice", "--", "env", "XDG_RUNTIME_DIR=/run/user/2001", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/2001/bus", "sh", "-c"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := n.Exec(within(t), append(prefix, "ctl --user list-units home mine.service")...)
			if do(t, err); r.Code != 0 || !strings.Contains(r.Stdout, "mine.service") {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("no-bus", func(t *testing.T) { // nothing lingers for bob
		r, err := n.Exec(within(t), "runuser", "-u", "bob", "--", "ctl", "--user", "list-units")
		if do(t, err); r.Code != 1 || r.Stdout != "" || !strings.Contains(r.Stderr, "the user bus") || !strings.Contains(r.Stderr, "loginctl enable-linger") || strings.Count(r.Stderr, "error:") != 1 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("others-may-not", func(t *testing.T) {
		r, err := n.Exec(within(t), "runuser", "-u", "bob", "--", "ctl", "--address", "unix:path=/run/user/2001/bus", "list-nodes")
		if do(t, err); r.Code == 0 || r.Stdout != "" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("daemons-end", func(t *testing.T) {
		if r := as("env", "XDG_RUNTIME_DIR=/run/user/2001", "systemctl", "--user", "stop", "ctrl-manager", "ctrl-agent"); r.Code != 0 {
			t.Errorf("%+v", r)
		}
		if r := as("env", "XDG_RUNTIME_DIR=/run/user/2001", "systemctl", "--user", "is-active", "mine"); strings.TrimSpace(r.Stdout) != "active" {
			t.Errorf("the unit has ended with its agent: %+v", r)
		}
	})
}
