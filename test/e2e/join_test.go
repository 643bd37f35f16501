package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/test/fleet"
)

// From nothing to a node: two commands and one paste, no file edited.
func TestJoin(t *testing.T) {
	f := up(t, fleet.Options{Joining: true, Bare: []string{"node1", "node2", "node3"}})
	n := f.Nodes["node1"]
	t.Run("two-commands", func(t *testing.T) {
		began := time.Now()
		line := fleet.JoinLine(must(t, f, 0, nil, "node", "add", "node1").Stdout)
		out := on(t, n, "sh", "-c", line)
		t.Logf("from nothing to a node in %v", time.Since(began).Round(time.Millisecond))
		if !strings.Contains(out, "node1 has joined") || !strings.Contains(out, "online") {
			t.Errorf("join says %s", out)
		}
		must(t, f, 0, []string{"node1", "online"}, "list-nodes")
		must(t, f, 0, nil, "start", "node1", "ok")
		if got := on(t, n, "systemctl", "is-enabled", "ctrl-agent"); got != "enabled" {
			t.Errorf("the agent is %s", got)
		}
		mode := on(t, n, "stat", "-c", "%U %a %n", "/var/lib/ctrl", "/var/lib/ctrl/pki", "/var/lib/ctrl/pki/node.pem", "/etc/ctrl/agent.conf.d/50-join.conf")
		want := "root 755 /var/lib/ctrl\nroot 700 /var/lib/ctrl/pki\nroot 600 /var/lib/ctrl/pki/node.pem\nroot 644 /etc/ctrl/agent.conf.d/50-join.conf"
		if mode != want {
			t.Errorf("files are\n%s", mode)
		}
		// A token is for one machine.
		refused, err := f.Nodes["node2"].Exec(within(t), "sh", "-c", line+" --name node1")
		if do(t, err); refused.Code == 0 || !strings.Contains(refused.Stderr, "ctl node add node1") {
			t.Errorf("used twice: %+v", refused)
		}
		another, err := f.Nodes["node2"].Exec(within(t), "sh", "-c", fleet.JoinLine(must(t, f, 0, nil, "node", "add", "node3").Stdout)+" --name node2")
		if do(t, err); another.Code == 0 || !strings.Contains(another.Stderr, "node3") {
			t.Errorf("for another name: %+v", another)
		}
	})
	t.Run("token-is-nowhere", func(t *testing.T) { // case 104
		line := fleet.JoinLine(must(t, f, 0, nil, "node", "add", "node2").Stdout)
		token := line[strings.LastIndex(line, " ")+1:]
		n := f.Nodes["node2"]
		do(t, n.WriteFile("/etc/ctrl/agent.conf", []byte("[agent]\nLogLevel=debug\n"), 0o644))
		do(t, n.WriteFile("/root/token", []byte(token+"\n"), 0o600))
		on(t, n, "ctrl-agent", "join", "--manager", fleet.Boss, "--token-file", "/root/token")
		do(t, n.WriteFile("/root/token", nil, 0o600))
		for _, m := range []string{"node2", fleet.Boss} {
			where := f.Nodes[m]
			if m == fleet.Boss {
				where = f.Boss
			}
			found, err := where.Exec(within(t), "sh", "-c", fmt.Sprintf("journalctl -o export | grep -c %s; grep -rl %s /etc /var/lib /run 2>/dev/null", token, token))
			if do(t, err); strings.TrimSpace(found.Stdout) != "0" {
				t.Errorf("the token is on %s: %s", m, found.Stdout)
			}
		}
	})
	t.Run("new-disk", func(t *testing.T) { // case 103
		on(t, n, "systemctl", "stop", "ctrl-agent")
		on(t, n, "sh", "-c", "cp -a /var/lib/ctrl/pki /root/old; rm -rf /var/lib/ctrl /etc/ctrl/agent.conf.d")
		do(t, f.Join(within(t), "node1"))
		must(t, f, 0, nil, "start", "node1", "fast")
		// The certificate of the old disk is dead.
		on(t, n, "sh", "-c", "systemctl stop ctrl-agent; cp -a /var/lib/ctrl/pki /root/new; rm -rf /var/lib/ctrl/pki; cp -a /root/old /var/lib/ctrl/pki; systemctl start ctrl-agent")
		until(t, "the agent says that it has to join again", func() bool {
			return strings.Contains(n.Journal(within(t), "ctrl-agent"), "ctl node add node1")
		})
		must(t, f, 6, []string{"node1"}, "start", "node1", "fast")
		on(t, n, "sh", "-c", "systemctl stop ctrl-agent; rm -rf /var/lib/ctrl/pki; cp -a /root/new /var/lib/ctrl/pki; systemctl start ctrl-agent")
		do(t, f.WaitOnline(within(t), "node1", true))
	})
	t.Run("removed", func(t *testing.T) {
		must(t, f, 0, nil, "node", "remove", "node2")
		must(t, f, 4, nil, "start", "node2", "ok")
		if out := must(t, f, 0, nil, "list-nodes").Stdout; strings.Contains(out, "node2") {
			t.Errorf("it is listed: %s", out)
		}
		must(t, f, 0, nil, "start", "node1", "ok")
	})
	t.Run("rotation", func(t *testing.T) {
		before := on(t, n, "sha256sum", "/var/lib/ctrl/pki/node.pem")
		must(t, f, 0, nil, "pki", "rotate")
		until(t, "the node renews its certificate", func() bool { return on(t, n, "sha256sum", "/var/lib/ctrl/pki/node.pem") != before })
		must(t, f, 0, nil, "pki", "show")
		on(t, n, "systemctl", "restart", "ctrl-agent")
		on(t, f.Boss, "systemctl", "restart", "ctrl-manager")
		do(t, f.WaitManager(within(t)))
		do(t, f.WaitOnline(within(t), "node1", true))
	})
	t.Run("damaged-state", func(t *testing.T) {
		on(t, n, "sh", "-c", "truncate -s 100 /var/lib/ctrl/pki/node.pem; systemctl restart ctrl-agent; true")
		until(t, "the agent names the damaged file and what to do", func() bool {
			said := n.Journal(within(t), "ctrl-agent")
			return strings.Contains(said, "/var/lib/ctrl/pki/node.pem") && strings.Contains(said, "ctl node add node1")
		})
		if size := on(t, n, "stat", "-c", "%s", "/var/lib/ctrl/pki/node.pem"); size != "100" {
			t.Errorf("the damaged file has %s bytes now", size)
		}
	})
}
