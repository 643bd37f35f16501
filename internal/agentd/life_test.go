package agentd_test

import (
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/pki/pkitest"
)

func TestStartOnAnotherMachine(t *testing.T) {
	f := newFleet(t, "d-start")
	f.startManager("node1,node2")
	node1 := f.agent("node1")
	f.run(node1, "systemctl", "start", "ctrl-agent")
	f.status("node1", "online")
	if got := f.startUnit("node1", "hello.service"); got != `o "/org/example/ctrl1/job/1"` {
		t.Errorf("StartUnit printed %s", got)
	}
	f.until(node1, "active", "systemctl", "is-active", "hello")
	f.until(f.boss, `StatusText=1 of 2 nodes online`, "systemctl", "show", "ctrl-manager", "-p", "StatusText")
	f.until(node1, "StatusText=Connected to the manager at tcp:host="+f.boss.Addr, "systemctl", "show", "ctrl-agent", "-p", "StatusText")

	f.sub("systemd executed again", func(t *testing.T) {
		f.run(node1, "systemctl", "daemon-reexec")
		f.run(node1, "systemctl", "stop", "hello")
		f.startUnit("node1", "hello.service")
		f.until(node1, "active", "systemctl", "is-active", "hello")
	})
	f.sub("D-Bus daemon restarted under the manager", func(t *testing.T) {
		f.run(f.boss, "systemctl", "restart", "dbus.service")
		f.status("node1", "online")
	})
	f.sub("manager killed with a job under way", func(t *testing.T) {
		f.startUnit("node1", "slow.service")
		f.run(f.boss, "systemctl", "kill", "-s", "KILL", "ctrl-manager")
		f.until(node1, "Not connected", "systemctl", "show", "ctrl-agent", "-p", "StatusText")
		f.until(f.boss, "failed", "systemctl", "is-active", "ctrl-manager")
		f.run(f.boss, "systemctl", "start", "ctrl-manager") // which finds the old socket
		f.status("node1", "online")
		f.until(node1, "activating", "systemctl", "is-active", "slow")
	})
	f.sub("manager stopped", func(t *testing.T) {
		f.run(f.boss, "systemctl", "stop", "ctrl-manager")
		f.until(f.boss, "Result=success", "systemctl", "show", "ctrl-manager", "-p", "Result")
		f.journal(node1, "ctrl-agent", "manager is shutting down")
		if res, err := f.boss.Exec(t.Context(), "ls", "/run/ctrl/ctrl.sock"); err == nil && res.Code == 0 {
			t.Error("the socket is still there")
		}
	})
}

// TestStopInEveryState: the agent ends in time whatever it is waiting for (cases.md, 15), and
// is ready before there is a manager. Its unit has TimeoutStopSec=5s.
func TestStopInEveryState(t *testing.T) {
	f := newFleet(t, "d-stop")
	f.startManager("node1")
	node1 := f.agent("node1")
	// Listens, and never says a word.
	f.write(node1, "/etc/systemd/system/mute.service", "[Service]\nType=exec\nExecStart=/usr/bin/python3 -c \"import socket,time; s=socket.create_server(('127.0.0.1',842)); time.sleep(600)\"\n", 0o644)
	f.run(node1, "systemctl", "start", "mute")
	f.until(node1, "LISTEN", "ss", "-ltn", "sport = :842")
	for name, test := range map[string]struct{ config, line string }{
		"resolving":    {"ManagerHost=boss.example.net\n", ""},
		"connecting":   {"ManagerAddress=tcp:host=10.88.250.250,port=842\n", ""},
		"unanswered":   {"ManagerHost=127.0.0.1\n", ""},
		"waiting":      {"ManagerHost=127.0.0.1\nManagerPort=1\n", "connection refused"},
		"not accepted": {"ManagerHost=" + f.boss.Addr + "\nManagerName=other\n", "ManagerName=other is none of its DNS names"},
		"online":       {"ManagerHost=" + f.boss.Addr + "\n", "connected to the manager"},
	} {
		f.sub(name, func(t *testing.T) {
			f.write(node1, "/etc/resolv.conf", "nameserver 10.88.250.251\n", 0o644)
			f.write(node1, "/etc/ctrl/agent.conf", "[agent]\nNodeName=node1\n"+files+test.config, 0o644)
			f.run(node1, "systemctl", "start", "ctrl-agent")
			if test.line != "" {
				f.journal(node1, "ctrl-agent", test.line)
			}
			f.run(node1, "systemctl", "stop", "ctrl-agent")
			f.until(node1, "Result=success", "systemctl", "show", "ctrl-agent", "-p", "Result")
		})
	}
}

func TestReload(t *testing.T) {
	f := newFleet(t, "d-reload")
	f.startManager("node1")
	node1 := f.agent("node1")
	f.run(node1, "systemctl", "start", "ctrl-agent")
	f.status("node1", "online")
	manager := func(text string) {
		f.write(f.boss, "/etc/ctrl/manager.conf", "[manager]\n"+files+text, 0o644)
		f.run(f.boss, "systemctl", "reload", "ctrl-manager")
	}
	nodes := func(want string) {
		t.Helper()
		f.until(f.boss, want, "busctl", "get-property", bus, "/org/example/ctrl1", bus+".Manager", "Nodes")
	}
	f.sub("fleet and level", func(t *testing.T) {
		manager("AllowedNodeNames=node1,node2\nLogLevel=debug\nPort=843\n")
		nodes(`as 2 "node1" "node2"`)
		f.journal(f.boss, "ctrl-manager", "a changed key takes effect at the next start only key=Port")
		f.until(f.boss, "DEBUG", "busctl", "get-property", bus, "/org/example/ctrl1", bus+".Manager", "LogLevel")
		f.status("node1", "online")
	})
	f.sub("mistake", func(t *testing.T) {
		manager("AllowedNodeNames=node1\nNoSuchKey=1\n")
		f.journal(f.boss, "ctrl-manager", "the one before stays in use")
		nodes(`as 2 "node1" "node2"`)
	})
	f.sub("node removed", func(t *testing.T) {
		manager("AllowedNodeNames=node2\n")
		f.journal(node1, "ctrl-agent", "removed from the configuration")
		nodes(`as 1 "node2"`)
		manager("AllowedNodeNames=node1\n")
		f.status("node1", "online")
	})
	f.sub("new certificates", func(t *testing.T) {
		ca, err := pkitest.New("next fleet")
		if err != nil {
			t.Fatal(err)
		}
		f.ca = ca
		f.certify(f.boss, pkitest.ManagerLeaf())
		f.certify(node1, pkitest.NodeLeaf("node1"))
		f.run(f.boss, "systemctl", "restart", "ctrl-manager")
		f.status("node1", "online")
	})
	f.sub("agent's name", func(t *testing.T) {
		f.write(node1, "/etc/ctrl/agent.conf", "[agent]\nNodeName=node3\nManagerHost="+f.boss.Addr+"\n"+files, 0o644)
		f.run(node1, "systemctl", "reload", "ctrl-agent")
		f.journal(node1, "ctrl-agent", "set NodeName=node1, or use the certificate of this node")
		f.certify(node1, pkitest.NodeLeaf("node3"))
		f.run(node1, "systemctl", "reload", "ctrl-agent")
		f.journal(f.boss, "ctrl-manager", "is not in the fleet")
		f.write(f.boss, "/etc/ctrl/manager.conf", "[manager]\nAllowedNodeNames=node3\n"+files, 0o644)
		f.run(f.boss, "systemctl", "reload", "ctrl-manager")
		f.status("node3", "online")
	})
}

// TestRefusesToStart: each reason has its text and its exit code.
func TestRefusesToStart(t *testing.T) {
	f := newFleet(t, "d-refuse")
	f.startManager("node1")
	f.run(f.boss, "systemctl", "stop", "ctrl-manager")
	const good = "[manager]\nAllowedNodeNames=node1\n" + files
	for _, test := range []struct {
		name, before, config, after, want, code string
	}{
		{"no certificate", "true", "[manager]\nCAFile=/etc/ctrl/pki/ca.crt\n", "true", "Two ways lead on", "78"},
		{"damaged state", "install -d -o ctrl -g ctrl -m 0700 /var/lib/ctrl-manager/pki && echo x > /var/lib/ctrl-manager/pki/fleet && chown ctrl /var/lib/ctrl-manager/pki/fleet && chmod 0600 /var/lib/ctrl-manager/pki/fleet",
			"[manager]\n", "rm -r /var/lib/ctrl-manager/pki", "cannot use /var/lib/ctrl-manager/pki/fleet: it is damaged", "78"},
		{"wrong key", "true", "[manager]\nPrt=842\n", "true", "/etc/ctrl/manager.conf:2: key Prt= is not known in [manager]; did you mean Port=?", "78"},
		{"no such group", "true", good + "SocketGroup=nobodies\n", "true", "SocketGroup=nobodies: there is no such group", "78"},
		{"key for everybody", "chmod 0644 /etc/ctrl/pki/own.key", good, "chmod 0600 /etc/ctrl/pki/own.key", "and mode 0644: a private key must be out of reach", "78"},
		{"nothing to listen on", "true", good + "UseTCP=no\nUseUDS=no\n", "true", "nothing to listen on", "1"},
		{"port in use", "systemd-run -q --unit blocker -p Type=exec nc -l -p 842 || systemd-run -q --unit blocker -p Type=exec python3 -m http.server 842", good, "systemctl stop blocker", "TCP port 842: another program has it", "1"},
	} {
		f.sub(test.name, func(t *testing.T) {
			f.run(f.boss, "sh", "-c", test.before)
			if strings.Contains(test.before, "blocker") {
				f.until(f.boss, "LISTEN", "ss", "-ltn", "sport = :842")
			}
			f.write(f.boss, "/etc/ctrl/manager.conf", test.config, 0o644)
			if res, err := f.boss.Exec(t.Context(), "systemctl", "start", "ctrl-manager"); err != nil || res.Code == 0 {
				t.Errorf("started: %+v, %v", res, err)
			}
			f.until(f.boss, "ExecMainStatus="+test.code, "systemctl", "show", "ctrl-manager", "-p", "ExecMainStatus")
			f.journal(f.boss, "ctrl-manager", test.want)
			f.run(f.boss, "sh", "-c", test.after)
		})
	}
	f.sub("no D-Bus daemon", func(t *testing.T) {
		f.run(f.boss, "systemctl", "stop", "dbus.socket", "dbus.service")
		f.run(f.boss, "chown", "root:", "/etc/ctrl/pki/own.key") // by hand, as root
		res, err := f.boss.Exec(t.Context(), "ctrl-manager")
		if err != nil || res.Code != 1 || !strings.Contains(res.Stderr, "cannot reach the D-Bus daemon") {
			t.Errorf("got %+v, %v", res, err)
		}
		f.run(f.boss, "systemctl", "start", "dbus.socket")
	})
}

// TestIdentities: who is refused hears why, on both sides.
func TestIdentities(t *testing.T) {
	f := newFleet(t, "d-ident")
	f.startManager("node1,node2")
	node1 := f.agent("node1")
	start := func() { f.run(node1, "systemctl", "restart", "ctrl-agent") }
	f.sub("expired", func(t *testing.T) {
		leaf := pkitest.NodeLeaf("node1")
		leaf.NotBefore, leaf.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
		f.certify(node1, leaf)
		start()
		f.journal(node1, "ctrl-agent", "expired at")
		f.until(node1, "active", "systemctl", "is-active", "ctrl-agent")
		res, err := node1.Exec(t.Context(), "ctrl-agent", "--check-config")
		if err != nil || res.Code != 78 || !strings.Contains(res.Stderr, "expired at") {
			t.Errorf("--check-config: %+v, %v", res, err)
		}
	})
	f.sub("other authority", func(t *testing.T) {
		good := f.ca
		other, err := pkitest.New("another fleet")
		if err != nil {
			t.Fatal(err)
		}
		f.ca = other
		f.certify(node1, pkitest.NodeLeaf("node1"))
		f.ca = good
		start()
		f.journal(node1, "ctrl-agent", "the manager's certificate is not accepted: no authority in CAFile=")
		f.journal(f.boss, "ctrl-manager", "the peer does not accept this manager's certificate")
	})
	f.sub("files are followed", func(t *testing.T) {
		f.certify(node1, pkitest.NodeLeaf("node1")) // the next try takes them, without a restart
		f.status("node1", "online")
		// Half a pair on the manager changes nothing.
		next, err := pkitest.New("next fleet")
		if err != nil {
			t.Fatal(err)
		}
		cert, key, err := next.Issue(pkitest.ManagerLeaf())
		if err != nil {
			t.Fatal(err)
		}
		f.write(f.boss, "/etc/ctrl/pki/own.crt", string(cert), 0o644)
		start()
		f.journal(f.boss, "ctrl-manager", "the ones before stay in use")
		f.status("node1", "online")
		f.key(f.boss, key)
		f.write(f.boss, "/etc/ctrl/pki/ca.crt", string(next.PEM), 0o644)
		f.ca = next
		f.certify(node1, pkitest.NodeLeaf("node1"))
		// Another spelling of the address is a switch, so a new handshake.
		f.run(node1, "busctl", "call", bus+".Agent", "/org/example/ctrl1", bus+".Agent", "SwitchManager", "s", "tcp:host="+f.boss.Addr+",port=842,family=ipv4")
		f.until(node1, "family=ipv4", "systemctl", "show", "ctrl-agent", "-p", "StatusText")
		f.until(node1, "Connected", "systemctl", "show", "ctrl-agent", "-p", "StatusText")
		f.status("node1", "online")
	})
	f.sub("without TLS", func(t *testing.T) {
		f.write(node1, "/etc/ctrl/agent.conf", "[agent]\nNodeName=node1\nTLS=no\nManagerHost="+f.boss.Addr+"\n", 0o644)
		start()
		f.journal(node1, "ctrl-agent", "the manager wants TLS, and this agent has TLS=no")
		f.journal(f.boss, "ctrl-manager", "the peer speaks without TLS")
		f.write(f.boss, "/etc/ctrl/manager.conf", "[manager]\nAllowedNodeNames=node1\nTLS=no\n", 0o644)
		f.run(f.boss, "systemctl", "restart", "ctrl-manager")
		f.journal(f.boss, "ctrl-manager", "TLS=no: whoever reaches the port")
		f.until(f.boss, "127.0.0.1:842", "ss", "-ltnH", "sport = :842")
		if out := f.run(f.boss, "ss", "-ltnH", "sport = :842"); strings.Contains(out, "*:842") || strings.Contains(out, "0.0.0.0:842") {
			t.Errorf("listens on the network: %s", out)
		}
		f.write(f.boss, "/etc/ctrl/manager.conf", "[manager]\nAllowedNodeNames=node1\nTLS=no\nAllowInsecureNetwork=yes\n", 0o644)
		f.run(f.boss, "systemctl", "restart", "ctrl-manager")
		f.status("node1", "online")
	})
}

// TestUnixSocket: an agent beside the manager needs no certificate, and only root may connect.
func TestUnixSocket(t *testing.T) {
	f := newFleet(t, "d-unix")
	f.write(f.boss, "/etc/ctrl/manager.conf", "[manager]\nAllowedNodeNames=boss,node2\nUseTCP=no\n", 0o644)
	f.write(f.boss, "/etc/ctrl/agent.conf", "[agent]\nManagerAddress=unix:path=/run/ctrl/ctrl.sock\n", 0o644)
	f.run(f.boss, "systemctl", "start", "ctrl-agent", "ctrl-manager") // in any order
	f.status("boss", "online")
	f.startUnit("boss", "hello.service")
	f.until(f.boss, "active", "systemctl", "is-active", "hello")
	register := []string{"busctl", "--address=unix:path=/run/ctrl/ctrl.sock", "call", bus, "/org/example/ctrl1/internal",
		bus + ".internal.Manager", "Register", "sa{sv}", "node2", "0"}
	if out := f.run(f.boss, register...); !strings.Contains(out, `"Session" t`) {
		t.Errorf("busctl registered as %s", out)
	}
	res, err := f.boss.Exec(t.Context(), append([]string{"setpriv", "--reuid=nobody", "--clear-groups"}, register...)...)
	if err != nil || res.Code == 0 {
		t.Errorf("nobody could register: %+v, %v", res, err)
	}
	f.journal(f.boss, "ctrl-manager", "uid 65534 may not connect, only root; SocketGroup= could let a group in")
}

// TestSocketActivation: systemd's sockets take the place of the manager's own.
func TestSocketActivation(t *testing.T) {
	f := newFleet(t, "d-activate")
	f.certify(f.boss, pkitest.ManagerLeaf())
	f.write(f.boss, "/etc/ctrl/manager.conf", "[manager]\nAllowedNodeNames=node1,boss\n"+files, 0o644)
	f.write(f.boss, "/etc/systemd/system/ctrl-manager.socket", "[Socket]\nListenStream=842\nListenStream=/run/ctrl/ctrl.sock\nListenStream=8420\n", 0o644)
	// Or the end of the service would take the socket's folder away.
	f.write(f.boss, "/etc/systemd/system/ctrl-manager.service.d/50-socket.conf", "[Service]\nRuntimeDirectoryPreserve=yes\n", 0o644)
	f.run(f.boss, "systemctl", "daemon-reload")
	f.run(f.boss, "systemctl", "start", "ctrl-manager.socket")
	node1 := f.agent("node1")
	f.run(node1, "systemctl", "start", "ctrl-agent") // which starts the manager
	f.status("node1", "online")
	f.write(f.boss, "/etc/ctrl/agent.conf", "[agent]\nManagerAddress=unix:path=/run/ctrl/ctrl.sock\n", 0o644)
	f.run(f.boss, "systemctl", "start", "ctrl-agent")
	f.status("boss", "online")
	f.write(node1, "/etc/ctrl/agent.conf", "[agent]\nNodeName=node1\nManagerHost="+f.boss.Addr+"\nManagerPort=8420\n"+files, 0o644)
	f.run(node1, "systemctl", "restart", "ctrl-agent")
	f.status("node1", "online")
	f.run(f.boss, "systemctl", "stop", "ctrl-manager.service", "ctrl-agent.service")
	f.until(f.boss, "ctrl.sock", "ls", "/run/ctrl") // it is systemd's
}

// TestWatchdog: a manager that hangs is ended by systemd.
func TestWatchdog(t *testing.T) {
	f := newFleet(t, "d-watchdog")
	f.write(f.boss, "/etc/systemd/system/ctrl-manager.service.d/60-watchdog.conf", "[Service]\nWatchdogSec=500ms\nTimeoutAbortSec=100ms\n", 0o644)
	f.run(f.boss, "systemctl", "daemon-reload")
	f.startManager("node1")
	f.until(f.boss, "active", "systemctl", "is-active", "ctrl-manager")
	if err := f.boss.Signal(t.Context(), "ctrl-manager", "SIGSTOP"); err != nil {
		t.Fatal(err)
	}
	f.until(f.boss, "Result=watchdog", "systemctl", "show", "ctrl-manager", "-p", "Result")
}

// TestUserMode: manager and agent of one user, on that user's bus and systemd.
func TestUserMode(t *testing.T) {
	f := newFleet(t, "d-user")
	f.run(f.boss, "systemctl", "start", "user@0.service")
	f.write(f.boss, "/root/.config/ctrl/manager.conf", "[manager]\nAllowedNodeNames=boss\nUseTCP=no\n", 0o644)
	f.write(f.boss, "/root/.config/ctrl/agent.conf", "[agent]\nManagerAddress=unix:path=/run/user/0/ctrl/ctrl.sock\n", 0o644)
	f.write(f.boss, "/root/.config/systemd/user/own.service", "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n", 0o644)
	user := func(argv ...string) []string {
		return append([]string{"env", "HOME=/root", "XDG_RUNTIME_DIR=/run/user/0"}, argv...)
	}
	f.run(f.boss, user("systemctl", "--user", "daemon-reload")...)
	f.run(f.boss, user("systemctl", "--user", "start", "ctrl-manager", "ctrl-agent")...)
	f.until(f.boss, `"online"`, user("busctl", "--user", "get-property", bus, nodePath+"boss", bus+".Node", "Status")...)
	f.run(f.boss, user("busctl", "--user", "call", bus, nodePath+"boss", bus+".Node", "StartUnit", "ss", "own.service", "replace")...)
	f.until(f.boss, "active", user("systemctl", "--user", "is-active", "own")...)
	f.run(f.boss, user("systemctl", "--user", "stop", "ctrl-manager", "ctrl-agent")...)
}

// TestCrowd: a thousand connections that say nothing or nonsense keep no agent out, not even
// one of the same machine, end no session and do not fill the log.
func TestCrowd(t *testing.T) {
	f := newFleet(t, "d-crowd")
	f.startManager("node1,node2")
	node1, node2 := f.agent("node1"), f.agent("node2")
	f.run(node1, "systemctl", "start", "ctrl-agent")
	f.status("node1", "online")
	f.write(node2, "/root/crowd.py", `import socket, time
open_ones, nonsense = [], [b"", b"\x16\x03\x01\xff\xff", b"\x00AUTH EXTERNAL\r\n", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256))]
for i in range(1000):
    s = socket.create_connection(("`+f.boss.Addr+`", 842))
    try:
        s.sendall(nonsense[i % len(nonsense)])
    except OSError:
        pass
    open_ones.append(s)
open("/run/crowd", "w").close()
time.sleep(600)
`, 0o644)
	f.run(node2, "systemd-run", "-q", "--unit=crowd", "python3", "/root/crowd.py")
	f.until(node2, "/run/crowd", "ls", "/run/crowd")
	f.run(node2, "systemctl", "start", "ctrl-agent")
	f.status("node2", "online")
	f.status("node1", "online")
	f.startUnit("node1", "hello.service")
	log := f.run(f.boss, "journalctl", "--no-pager", "-o", "cat", "-u", "ctrl-manager")
	if n := strings.Count(log, "address="+node2.Addr); n > 8 {
		t.Errorf("%d lines about one address:\n%s", n, log)
	}
	if n := strings.Count(log, "node is offline node=node1"); n > 0 {
		t.Errorf("node1 lost its session:\n%s", log)
	}
}
