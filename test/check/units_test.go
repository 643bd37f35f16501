package check

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/daemon"
)

const units = "../../units"

// need finds a program that a test cannot do without. Where it is missing the test is left
// out aloud, and in CI it fails.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is missing: install it, CI does not leave this test out", program)
	default:
		t.Skipf("LEFT OUT: %s is missing, so this is not tested here", program)
	}
	return ""
}

// limited is a context for steps that depend on other programs.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// copyUnits copies the units of a folder, with a program that is there in place of ours.
func copyUnits(t *testing.T, folder string) []string {
	t.Helper()
	var copies []string
	dir := t.TempDir()
	for _, pattern := range []string{"*.service", "*.socket"} {
		files, err := filepath.Glob(filepath.Join(units, folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(dir, instance(t, dir, filepath.Base(file)))
			ours := regexp.MustCompile(`/usr/bin/ctrl-(manager|agent)`)
			if err := os.WriteFile(to, ours.ReplaceAll(text, []byte("/bin/true")), 0o644); err != nil {
				t.Fatal(err)
			}
			copies = append(copies, to)
		}
	}
	if len(copies) == 0 {
		t.Fatalf("no units in %s", folder)
	}
	return copies
}

// instance names a copy of a dep unit after a target that is there: systemd-analyze looks at
// templates as instance "i", which is the name of no unit.
func instance(t *testing.T, dir, file string) string {
	target := map[string]string{"ctrl-dep@.service": "db", "ctrl-dep-unit@.service": "data.target"}[file]
	if target == "" {
		return file
	}
	for _, name := range []string{"db.service", "data.target"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("[Unit]\nDescription=A target\n"+map[bool]string{true: "[Service]\nExecStart=/bin/true\n"}[name == "db.service"]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Replace(file, "@", "@"+target, 1)
}

// TestUnits: systemd finds nothing to say about the units.
func TestUnits(t *testing.T) {
	analyze := need(t, "systemd-analyze")
	for folder, scope := range map[string]string{".": "--system", "user": "--user"} {
		args := append([]string{scope, "verify", "--man=no"}, copyUnits(t, folder)...)
		cmd := exec.CommandContext(limited(t), analyze, args...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir(), "HOME="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", folder, err, out)
		}
	}
}

// TestManagerIsConfined holds the figure that docs and design promise; the agent has to do
// what root does.
// TestCrashesAreRestarted: a Go program ends with 2 after a panic and after an abort.
func TestCrashesAreRestarted(t *testing.T) {
	for _, file := range []string{"ctrl-manager.service", "ctrl-agent.service", "user/ctrl-manager.service", "user/ctrl-agent.service"} {
		text, err := os.ReadFile(filepath.Join(units, file))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("\nRestartPreventExitStatus=%d %d\n", daemon.ExitUsage, daemon.ExitConfig); !strings.Contains(string(text), want) || daemon.ExitUsage == 2 {
			t.Errorf("%s has no line %q", file, strings.TrimSpace(want))
		}
	}
}

func TestManagerIsConfined(t *testing.T) {
	analyze := need(t, "systemd-analyze")
	const limit = 1.5
	for _, file := range copyUnits(t, ".") {
		if filepath.Base(file) != "ctrl-manager.service" {
			continue
		}
		out, err := exec.CommandContext(limited(t), analyze, "security", "--offline=yes", file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		figure := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if figure == nil {
			t.Fatalf("no figure in\n%s", out)
		}
		if got, err := strconv.ParseFloat(string(figure[1]), 64); err != nil || got > limit {
			t.Errorf("exposure is %s, more than %v\n%s", figure[1], limit, out)
		}
		return
	}
	t.Error("there is no ctrl-manager.service")
}

// policies are the D-Bus policy files.
func policies(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(units + "/*.conf")
	if err != nil || len(files) != 2 {
		t.Fatalf("%q, %v", files, err)
	}
	for i, f := range files {
		if files[i], err = filepath.Abs(f); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestPoliciesAreRead: a dbus-daemon takes the policy files, and refuses a broken one.
func TestPoliciesAreRead(t *testing.T) {
	daemon := need(t, "dbus-daemon")
	good := policies(t)
	broken := filepath.Join(t.TempDir(), "broken.conf")
	if err := os.WriteFile(broken, []byte("<busconfig><policy user=\"root\"><allow owns=\"x\"/></policy></busconfig>"), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := startBus(t, daemon, append(good, broken)); err == nil {
		t.Errorf("a broken policy is taken: %s", said)
	}
	if said, err := startBus(t, daemon, good); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// startBus starts a bus with policies and ends it once it has read them.
func startBus(t *testing.T, daemon string, policies []string) (said string, err error) {
	t.Helper()
	dir := t.TempDir()
	text := "<busconfig><listen>unix:dir=" + dir + "</listen><policy context=\"default\"><allow user=\"*\"/></policy>"
	for _, p := range policies {
		text += "<include>" + p + "</include>"
	}
	config := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(config, []byte(text+"</busconfig>"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(limited(t), daemon, "--config-file="+config, "--nofork", "--nopidfile", "--nosyslog", "--print-address")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = bufio.NewReader(stdout).ReadString('\n') // the address: it is up
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed, or it has ended with what stderr says
	return stderr.String(), err
}

// TestPoliciesSayWhoMay holds the policy files against what the design says. Manager: root
// and its user may own the name and send Ping to monitors' clients, and everybody may call,
// since polkit is asked. Agent: root may own and call, everybody may look.
func TestPoliciesSayWhoMay(t *testing.T) {
	type rule struct {
		Own         string `xml:"own,attr"`
		Destination string `xml:"send_destination,attr"`
		Interface   string `xml:"send_interface,attr"`
		Member      string `xml:"send_member,attr"`
	}
	type policy struct {
		User    string `xml:"user,attr"`
		Context string `xml:"context,attr"`
		Allow   []rule `xml:"allow"`
		Deny    []rule `xml:"deny"`
	}
	for _, file := range policies(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".conf")
		var doc struct {
			Policies []policy `xml:"policy"`
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(text, &doc); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var owners, callers, open, askers []string
		denied := false
		for _, p := range doc.Policies {
			who := p.User + p.Context
			for _, r := range p.Allow {
				switch {
				case r.Own != "" && r.Own == name:
					owners = append(owners, who)
				case r.Destination == name && r.Interface == "":
					callers = append(callers, who)
				case r.Destination == name && who == "default":
					open = append(open, strings.TrimPrefix(r.Interface+" "+r.Member, "org.freedesktop.DBus."))
				case r == rule{Interface: "org.freedesktop.DBus.Peer", Member: "Ping"}:
					askers = append(askers, who)
				default:
					t.Errorf("%s: %s has the unexpected rule %+v", name, who, r)
				}
			}
			for _, r := range p.Deny {
				denied = denied || who == "default" && r == rule{Destination: name}
			}
		}
		want := struct{ owners, callers, askers, open string }{"root ctrl", "default", "root ctrl", ""}
		agent := strings.HasSuffix(name, ".Agent")
		if agent {
			want.owners, want.callers, want.askers = "root", "root", ""
			want.open = "Introspectable , Peer , Properties Get, Properties GetAll, ObjectManager GetManagedObjects"
		}
		if got := strings.Join(owners, " "); got != want.owners {
			t.Errorf("%s may be owned by %q, want %q", name, got, want.owners)
		}
		if got := strings.Join(callers, " "); got != want.callers || denied != agent {
			t.Errorf("%s may be called by %q, want %q; denied to others: %v", name, got, want.callers, denied)
		}
		if got := strings.Join(askers, " "); got != want.askers {
			t.Errorf("as %s Ping may be sent by %q, want %q", name, got, want.askers)
		}
		if got := strings.Join(open, ", "); got != want.open {
			t.Errorf("of %s everybody may call %q, want %q", name, got, want.open)
		}
	}
}

// TestSysusers: systemd makes the manager's user from the file.
func TestSysusers(t *testing.T) {
	sysusers := need(t, "systemd-sysusers")
	root := t.TempDir()
	file, err := filepath.Abs(units + "/ctrl.sysusers")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(limited(t), sysusers, "--root="+root, "-")
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdin = io.Reader(in)
	if err := os.MkdirAll(root+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && os.Getuid() != 0 {
			t.Skipf("LEFT OUT: systemd-sysusers needs root: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(root + "/etc/passwd")
	if err != nil || !regexp.MustCompile(`(?m)^ctrl:[^:]*:[0-9]+:[0-9]+:ctrl manager:/var/lib/ctrl-manager:.*nologin$`).Match(text) {
		t.Errorf("/etc/passwd is %q, %v", text, err)
	}
}
