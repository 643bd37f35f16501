package e2e

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// What callers may do who are not root, by Debian's polkit.

const (
	polkitRules = "/etc/polkit-1/rules.d/"
	// distribution is what some distributions ship for their administrators.
	distribution = `polkit.addRule(function (action, subject) {
    if (action.id.indexOf("org.freedesktop.systemd1.") === 0 && subject.isInGroup("wheel"))
        return polkit.Result.YES;
});
`
)

// people are users of the manager's machine: name, uid and group.
var people = []struct{ name, uid, group string }{
	{"olga", "2001", "ops"}, {"willy", "2002", "wheel"}, {"tom", "2003", "plain"}, {"big", "3000000000", "large"},
}

// withPeople brings up a fleet with users, units web-1, sshd and so on, and a rule for ops.
func withPeople(t *testing.T) *fleet.Fleet {
	t.Helper()
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}})
	var script strings.Builder
	for _, p := range people {
		gid := p.uid
		script.WriteString("echo " + p.group + ":x:" + gid + ": >>/etc/group\n" +
			"echo " + p.name + ":x:" + p.uid + ":" + gid + "::/:/bin/sh >>/etc/passwd\n")
	}
	on(t, f.Boss, "sh", "-ec", script.String())
	rule, err := os.ReadFile("../../docs/examples/50-ctrl-ops.rules")
	do(t, err)
	do(t, f.Boss.WriteFile(polkitRules+"50-ctrl-ops.rules", rule, 0o644))
	do(t, f.Boss.WriteFile(polkitRules+"40-distribution.rules", []byte(distribution), 0o644))
	for _, n := range f.Nodes {
		on(t, n, "sh", "-ec", `cd /etc/systemd/system
for u in web-1 web-2 guard; do
	printf '[Service]\nExecStart=/bin/sleep infinity\nEnvironment=TOKEN=opensesame COLOUR=red\nSetCredential=key:opensesame\n[Install]\nWantedBy=multi-user.target\n' >$u.service
done
ln -s guard.service web-alias.service
ln -s web-2.service other.service
chmod 0600 web-2.service
systemctl daemon-reload
systemctl start guard web-1`)
	}
	return f
}

// as makes a command that runs as one of the people.
func as(name string, argv ...string) []string {
	for _, p := range people {
		if p.name == name {
			return append([]string{"setpriv", "--reuid=" + p.uid, "--regid=" + p.uid, "--clear-groups", "--"}, argv...)
		}
	}
	panic("nobody is " + name)
}

// may runs ctl as one of the people and checks its exit code, and parts of its output.
func may(t *testing.T, f *fleet.Fleet, who string, code int, parts []string, args ...string) lab.Result {
	t.Helper()
	r, err := f.Boss.Exec(within(t), as(who, append([]string{"ctl"}, args...)...)...)
	do(t, err)
	if r.Code != code {
		t.Errorf("%s: ctl %s: exit code %d, want %d\n%s%s", who, strings.Join(args, " "), r.Code, code, r.Stdout, r.Stderr)
	}
	for _, part := range parts {
		if !strings.Contains(r.Stdout+r.Stderr, part) {
			t.Errorf("%s: ctl %s: %q is not in\n%s%s", who, strings.Join(args, " "), part, r.Stdout, r.Stderr)
		}
	}
	return r
}

const denied = 5

// state is what a call without rights must leave as it is.
func state(t *testing.T, n *lab.Node) string {
	t.Helper()
	return on(t, n, "sh", "-c", `for u in web-1 web-2 guard; do
	echo $u $(systemctl show -P ActiveState $u) $(systemctl show -P InvocationID $u) $(systemctl is-enabled $u)
done; systemctl get-default; ls /etc/systemd/system /run/systemd/transient 2>&1; systemctl is-active ctrl-agent`)
}

func TestRights(t *testing.T) {
	f := withPeople(t)
	one, two := f.Nodes["node1"], f.Nodes["node2"]
	t.Run("group ops may restart and enable web-* on node1", func(t *testing.T) {
		before := on(t, one, "systemctl", "show", "-P", "InvocationID", "web-1")
		may(t, f, "olga", 0, nil, "restart", "node1", "web-1")
		if after := on(t, one, "systemctl", "show", "-P", "InvocationID", "web-1"); after == before {
			t.Error("web-1 was not restarted")
		}
		may(t, f, "olga", 0, nil, "enable", "node1", "web-1", "web-2")
		if got := on(t, one, "systemctl", "is-enabled", "web-1", "web-2"); got != "enabled\nenabled" {
			t.Errorf("the units are %q", got)
		}
		may(t, f, "olga", 0, nil, "restart", "node1", "other") // which is web-2
		await(t, one, "web-2.service", "active")
		may(t, f, "olga", denied, []string{"cannot restart web-1.service on node2"}, "restart", "node1,node2", "web-1")
	})
	t.Run("and nothing else", func(t *testing.T) {
		states := []string{state(t, one), state(t, two)}
		for _, args := range [][]string{
			{"restart", "node1", "guard"}, {"restart", "node2", "web-1"}, {"restart", "node2", "guard"},
			{"restart", "node1", "web-alias"}, {"restart", "node1", "no-such"},
			{"start", "node1", "web-1"}, {"stop", "node1", "web-1"}, {"kill", "node1", "web-1"}, {"freeze", "node1", "web-1"},
			{"enable", "node1", "guard"}, {"enable", "node2", "web-2"}, {"enable", "node1", "web-1", "guard"},
			{"enable", "node1", "/etc/systemd/system/web-1.service"}, {"enable", "node1", "/tmp/web-1.service"},
			{"enable", "node1", "web-alias"}, {"disable", "node1", "web-1"}, {"mask", "node1", "web-1"},
			{"daemon-reload", "node2"}, {"run", "node1", "--", "true"}, {"set-property", "node1", "web-1", "CPUWeight=7"},
		} {
			r, err := f.Boss.Exec(within(t), as("olga", append([]string{"ctl"}, args...)...)...)
			do(t, err)
			if r.Code == 0 || !strings.Contains(r.Stderr, "needs the right org.example.ctrl1.") {
				t.Errorf("ctl %v: exit code %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
			}
			if strings.Contains(r.Stderr, "Interactive") {
				t.Errorf("ctl %v: %s", args, r.Stderr)
			}
		}
		for i, n := range []*lab.Node{one, two} {
			if got := state(t, n); got != states[i] {
				t.Errorf("on %s was\n%s\nand now is\n%s", n.Name, states[i], got)
			}
		}
	})
	t.Run("without rights", func(t *testing.T) { withoutRights(t, f) })
	t.Run("polkit that goes", func(t *testing.T) { polkitGoes(t, f) })
	t.Run("prompt", func(t *testing.T) { prompt(t, f) })
	t.Run("every method", func(t *testing.T) { everyMethod(t, f) })
	t.Run("every method of the agent", func(t *testing.T) { localMethods(t, f) })
	t.Run("secrets", func(t *testing.T) { secrets(t, f) })
	t.Run("port of systemd", func(t *testing.T) { portOfSystemd(t, f) })
}

// withoutRights: no rule about something else helps, whatever the uid, and the text says
// which right is missing and how to get it.
func withoutRights(t *testing.T, f *fleet.Fleet) {
	one := f.Nodes["node1"]
	before := state(t, one)
	right := []string{"cannot stop web-1.service on node1", wire.ActionManageUnits, "no polkit agent", "hint:", "sudo ctl", "pkaction --verbose --action-id " + wire.ActionManageUnits}
	for _, who := range []string{"willy", "tom", "big"} {
		may(t, f, who, denied, right, "stop", "node1", "web-1")
		may(t, f, who, 0, []string{"web-1.service"}, "list-units", "node1")
		may(t, f, who, 0, []string{"node1", "node2"}, "list-nodes")
	}
	if got := state(t, one); got != before {
		t.Errorf("it was\n%s\nand now is\n%s", before, got)
	}
}

// watchPolkit tells of calls of polkit's methods as the bus sees them.
type watchPolkit struct {
	t     *testing.T
	lines *bufio.Reader
}

func newWatch(t *testing.T, f *fleet.Fleet) *watchPolkit {
	t.Helper()
	cmd := f.Boss.Command(within(t), "busctl", "monitor", "--json=short", "--match=type='method_call',interface='org.freedesktop.PolicyKit1.Authority'")
	out, err := cmd.StdoutPipe()
	do(t, err)
	notes, err := cmd.StderrPipe()
	do(t, err)
	do(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := bufio.NewReader(notes).ReadString('\n'); err != nil || !strings.Contains(line, "Monitoring") {
		t.Fatalf("busctl monitor says %q, %v", line, err)
	}
	return &watchPolkit{t, bufio.NewReader(out)}
}

// sees waits for a call that has all these words.
func (w *watchPolkit) sees(words ...string) {
	w.t.Helper()
	for {
		line, err := w.lines.ReadString('\n')
		if err != nil {
			w.t.Fatalf("no call with %q: %v", words, err)
		}
		found := true
		for _, word := range words {
			found = found && strings.Contains(line, word)
		}
		if found {
			return
		}
	}
}

// polkitGoes: killed in the middle of a check, and not on the bus at all.
func polkitGoes(t *testing.T, f *fleet.Fleet) {
	boss, before := f.Boss, state(t, f.Nodes["node1"])
	for who, member := range map[string]string{"big": "StopUnit", "olga": "RestartUnit"} {
		w := newWatch(t, f)
		do(t, boss.Signal(within(t), "polkit.service", "SIGSTOP"))
		run := beginAs(t, f, who, dbusSend(node1, busName+".Node", member, "string:web-1.service", "string:replace")...)
		w.sees("CheckAuthorization", "manage-units")
		do(t, boss.Signal(within(t), "polkit.service", "SIGKILL"))
		run.ends(t, 1, "AccessDenied", wire.ActionManageUnits, "polkit", "try again")
		on(t, boss, "systemctl", "start", "polkit.service")
	}
	on(t, boss, "systemctl", "mask", "--now", "polkit.service")
	may(t, f, "olga", denied, []string{"only uid 0 has", "no polkit on the bus"}, "restart", "node1", "web-1")
	may(t, f, "tom", denied, []string{"no polkit on the bus"}, "list-units", "node1")
	if got := state(t, f.Nodes["node1"]); got != before {
		t.Errorf("it was\n%s\nand now is\n%s", before, got)
	}
	must(t, f, 0, nil, "restart", "node1", "web-1")
	on(t, boss, "systemctl", "unmask", "polkit.service")
	may(t, f, "olga", 0, nil, "restart", "node1", "web-1")
	if n := strings.Count(boss.Journal(within(t), "ctrl-manager"), "polkit is not on the bus"); n != 1 {
		t.Errorf("that there is no polkit was logged %d times", n)
	}
}

// prompt: ctl has polkit's agent ask on the terminal. Nobody answers and ctl is ended; then
// somebody does.
func prompt(t *testing.T, f *fleet.Fleet) {
	const password = "correct horse"
	on(t, f.Boss, "sh", "-ec", "echo 'root:"+password+"' | chpasswd")
	before := state(t, f.Nodes["node1"])
	w := newWatch(t, f)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	// The terminal outlives ctl, so that polkit's agent does not end the question.
	leaving := `sh -c 'echo $$ >/tmp/asking; exec ctl stop node1 web-1'; read _`
	first := askedOnTerminal(t, f.Boss.Command(ctx, as("tom", "script", "-qec", leaving, "/dev/null")...))
	if !strings.Contains(first.text, "Authentication is required to stop web-1.service on node1.") {
		t.Errorf("the person is asked %q", first.text)
	}
	w.sees("CheckAuthorization", "ctrl-")
	on(t, f.Boss, "sh", "-c", "kill -KILL $(cat /tmp/asking)")
	w.sees("CancelCheckAuthorization", "ctrl-")
	leave()
	first.cmd.Wait()
	if got := state(t, f.Nodes["node1"]); got != before {
		t.Errorf("it was\n%s\nand now is\n%s", before, got)
	}
	second := askedOnTerminal(t, f.Boss.Command(within(t), as("tom", "script", "-qec", "tty >/tmp/terminal; exec ctl stop node1 web-1", "/dev/null")...))
	// What is typed before the terminal stops to show it is thrown away.
	on(t, f.Boss, "sh", "-c", `until stty -a -F "$(cat /tmp/terminal)" | grep -q -e ' -echo '; do :; done`)
	_, err := io.WriteString(second.in, password+"\n")
	do(t, err)
	rest, _ := io.ReadAll(second.out) // until the terminal is closed
	if err := second.cmd.Wait(); err != nil {
		t.Errorf("with the password: %v: %s", err, rest)
	}
	await(t, f.Nodes["node1"], "web-1.service", "inactive")
	must(t, f, 0, nil, "start", "node1", "web-1")
}

// onTerminal is a program that has asked for a password.
type onTerminal struct {
	cmd  *exec.Cmd
	in   io.Writer
	out  io.Reader
	text string // up to the question
}

func askedOnTerminal(t *testing.T, cmd *exec.Cmd) onTerminal {
	t.Helper()
	in, err := cmd.StdinPipe()
	do(t, err)
	out, err := cmd.StdoutPipe()
	do(t, err)
	do(t, cmd.Start())
	return onTerminal{cmd, in, out, readUntil(t, out, "Password:")}
}

func readUntil(t *testing.T, from io.Reader, want string) string {
	t.Helper()
	var text strings.Builder
	buf := make([]byte, 256)
	for !strings.Contains(text.String(), want) {
		n, err := from.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			t.Fatalf("%q does not come after %q: %v", want, text.String(), err)
		}
	}
	return text.String()
}

// secrets are for root, by all roads.
func secrets(t *testing.T, f *fleet.Fleet) {
	const secret, coded = "opensesame", "111 112 101 110"
	for _, args := range [][]string{
		{"show", "node1", "web-1"}, {"show", "-p", "Environment", "node1", "web-1"}, {"status", "node1", "web-1"},
	} {
		r := may(t, f, "tom", 0, nil, args...)
		if strings.Contains(r.Stdout, secret) {
			t.Errorf("ctl %v shows a secret: %s", args, r.Stdout)
		}
	}
	may(t, f, "tom", 0, []string{"TOKEN=[hidden]", "COLOUR=[hidden]"}, "show", "-p", "Environment", "node1", "web-1")
	must(t, f, 0, []string{"TOKEN=" + secret}, "show", "-p", "Environment", "node1", "web-1")
	for _, name := range []string{"Environment", "SetCredential"} {
		argv := []string{"busctl", "call", busName, node1, busName + ".Node", "GetUnitProperty", "sss", "web-1.service", "Service", name}
		if out := on(t, f.Boss, as("tom", argv...)...); strings.Contains(out, secret) || strings.Contains(out, coded) {
			t.Errorf("%s is shown: %s", name, out)
		}
		if out := on(t, f.Boss, argv...); !strings.Contains(out, secret) && !strings.Contains(out, coded) {
			t.Errorf("%s is not shown to root: %s", name, out)
		}
	}
	r := may(t, f, "tom", 1, []string{"not everyone on the node may read it"}, "cat", "node1", "web-2")
	if strings.Contains(r.Stdout+r.Stderr, secret) {
		t.Errorf("ctl cat shows a secret: %s", r.Stdout)
	}
}

// beginAs runs a command in the background as one of the people.
func beginAs(t *testing.T, f *fleet.Fleet, who string, argv ...string) *started {
	t.Helper()
	s := &started{
		cmd: f.Boss.Command(within(t), as(who, argv...)...),
		out: &strings.Builder{}, done: make(chan error, 1),
	}
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	do(t, s.cmd.Start())
	go func() { s.done <- s.cmd.Wait() }()
	return s
}

// dbusSend is a call without ctl. Unlike busctl, dbus-send shows the text of a refusal.
func dbusSend(path, iface, member string, args ...string) []string {
	return append([]string{"dbus-send", "--system", "--print-reply", "--dest=" + busName, path, iface + "." + member}, args...)
}
