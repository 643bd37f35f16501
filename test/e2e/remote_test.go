package e2e

import (
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/test/fleet"
)

const sshPort = "2222"

// sshdConfig is a server for root with a key, that says in the journal whom it let in.
const sshdConfig = `Port 22
Port ` + sshPort + `
HostKey /root/host_key
AuthorizedKeysFile /root/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
`

// Everybody is ready to be asked over ssh, and node1's root has the key for boss.
func overSSH(t *testing.T) (*fleet.Fleet, *lab.Node) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2", "node3"}})
	from := f.Nodes["node1"]
	on(t, f.Boss, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/host_key")
	on(t, from, "mkdir", "-p", "-m", "700", "/root/.ssh")
	on(t, from, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/.ssh/id_ed25519")
	public, err := from.ReadFile("/root/.ssh/id_ed25519.pub")
	do(t, err)
	host, err := f.Boss.ReadFile("/root/host_key.pub")
	do(t, err)
	do(t, f.Boss.WriteFile("/root/authorized_keys", public, 0o600))
	do(t, f.Boss.WriteFile("/root/sshd_config", []byte(sshdConfig), 0o600))
	known := ""
	for _, name := range []string{fleet.Boss, f.Boss.Addr6, "[" + fleet.Boss + "]:" + sshPort, "[" + f.Boss.Addr6 + "]:" + sshPort} {
		known += name + " " + string(host)
	}
	do(t, from.WriteFile("/root/.ssh/known_hosts", []byte(known), 0o600))
	on(t, f.Boss, "systemd-run", "--unit=sshd-test", "--service-type=notify", "--property=RuntimeDirectory=sshd", "/usr/sbin/sshd", "-D", "-e", "-f", "/root/sshd_config")
	return f, from
}

// remote runs ctl on a node, with a home, and a terminal if it is to be looked at.
func remote(t *testing.T, n *lab.Node, argv ...string) lab.Result {
	t.Helper()
	r, err := n.Exec(within(t), append([]string{"env", "HOME=/root", "ctl"}, argv...)...)
	do(t, err)
	return r
}

func TestAnotherMachineOverSSH(t *testing.T) {
	f, from := overSSH(t)
	t.Run("works", func(t *testing.T) {
		for _, host := range []string{fleet.Boss, "root@" + fleet.Boss, "root@" + fleet.Boss + ":" + sshPort, "root@[" + f.Boss.Addr6 + "]", "root@[" + f.Boss.Addr6 + "]:" + sshPort} {
			if r := remote(t, from, "-H", host, "list-nodes"); r.Code != 0 || !strings.Contains(r.Stdout, "node3") || r.Stderr != "" {
				t.Errorf("%s: %+v", host, r)
			}
		}
		if r := remote(t, from, "-H", fleet.Boss, "start", "node2", "run"); r.Code != 0 || active(t, f.Nodes["node2"], "run.service") != "active" {
			t.Errorf("start: %+v", r)
		}
		if r := remote(t, from, "-H", fleet.Boss, "stop", "node2", "run"); r.Code != 0 || active(t, f.Nodes["node2"], "run.service") != "inactive" {
			t.Errorf("stop: %+v", r)
		}
		if r := remote(t, from, "-H", fleet.Boss, "start", "node2", "none"); r.Code != 4 {
			t.Errorf("the exit code of a unit that is not there: %+v", r)
		}
	})
	t.Run("one-clear-error", func(t *testing.T) {
		tests := []struct{ name, host, want string }{
			{"no-manager", "root@node2", "not running"},
			{"no-key", "nobody@" + fleet.Boss, "Permission denied"},
			{"unknown-host", "root@nowhere.invalid", "nowhere.invalid"},
			{"nothing-at-port", "root@" + fleet.Boss + ":2223", "refused"},
			{"unknown-key", "root@" + f.Boss.Addr, "verification failed"},
			{"option", "-oProxyCommand=true", "no host"},
			{"port", "root@boss:99999", "65535"},
		}
		sameServer(t, f, f.Nodes["node2"], from)
		for _, tt := range tests {
			r := remote(t, from, "--host="+tt.host, "list-nodes")
			if r.Code == 0 || r.Stdout != "" || !strings.Contains(r.Stderr, tt.want) || strings.Count(r.Stderr, "error:") != 1 {
				t.Errorf("%s: %+v", tt.name, r)
			}
		}
	})
	t.Run("no-bus-there", func(t *testing.T) {
		on(t, f.Nodes["node2"], "systemctl", "stop", "dbus.socket", "dbus.service")
		r := remote(t, from, "-H", "root@node2", "list-nodes")
		on(t, f.Nodes["node2"], "systemctl", "start", "dbus.socket")
		if r.Code == 0 || !strings.Contains(r.Stderr, "cannot reach the bus of root@node2") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("terminal-is-left-sane", func(t *testing.T) {
		for _, host := range []string{fleet.Boss, "nobody@" + fleet.Boss} {
			out := on(t, from, "env", "HOME=/root", "script", "-qec", "stty -g; ctl -H "+host+" version >/dev/null 2>&1; stty -g", "/dev/null")
			if before, after, ok := strings.Cut(strings.ReplaceAll(out, "\r", ""), "\n"); !ok || before != after {
				t.Errorf("%s: the terminal was %q and is %q", host, before, after)
			}
		}
	})
	t.Run("one-connection-of-the-user", func(t *testing.T) { // whose configuration counts
		log := func() int {
			on(t, f.Boss, "journalctl", "--sync")
			return strings.Count(on(t, f.Boss, "journalctl", "-u", "sshd-test", "-o", "cat"), "Accepted publickey")
		}
		do(t, from.WriteFile("/root/.ssh/config", []byte("Host boss\n ControlMaster auto\n ControlPath /root/.ssh/master\n ControlPersist 60\n"), 0o600))
		before := log()
		for range 5 {
			if r := remote(t, from, "-H", fleet.Boss, "list-nodes"); r.Code != 0 {
				t.Fatalf("%+v", r)
			}
		}
		on(t, from, "env", "HOME=/root", "ssh", "-O", "exit", fleet.Boss)
		if n := log() - before; n != 1 {
			t.Errorf("%d log-ins for five calls", n)
		}
	})
}

// sameServer gives another node the host key and the users of boss.
func sameServer(t *testing.T, f *fleet.Fleet, n, from *lab.Node) {
	for _, name := range []string{"/root/host_key", "/root/authorized_keys", "/root/sshd_config"} {
		data, err := f.Boss.ReadFile(name)
		do(t, err)
		do(t, n.WriteFile(name, data, 0o600))
	}
	host, err := f.Boss.ReadFile("/root/host_key.pub")
	do(t, err)
	known, err := from.ReadFile("/root/.ssh/known_hosts")
	do(t, err)
	do(t, from.WriteFile("/root/.ssh/known_hosts", append(known, []byte(n.Name+" "+string(host))...), 0o600))
	on(t, n, "systemd-run", "--unit=sshd-test", "--service-type=notify", "--property=RuntimeDirectory=sshd", "/usr/sbin/sshd", "-D", "-e", "-f", "/root/sshd_config")
}
