package e2e

import (
	"os"
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
