package e2e

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"

	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// Polkit itself: when it goes, and when a person must be asked.

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
