package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// arguments are what strangers call methods with, by signature, as Python writes it.
var arguments = map[wire.Signature]string{
	"": "", "s": "'web-1.service'", "u": "1", "b": "True", "as": "['web-1.service']",
	"ss": "'web-1.service','replace'", "sss": "'web-1.service','','Id'", "ssi": "'web-1.service','all',15",
	"sb": "'rescue.target',True", "us": "1,'enough'", "sas": "'node1',['web-1.service']",
	"asb": "['web-1.service'],True", "asbb": "['web-1.service'],True,True", "asas": "[],[]", "asasas": "[],[],[]",
	"sba(sv)":          "'web-1.service',True,[('CPUWeight',dbus.UInt64(7))]",
	"ssa(sv)a(sa(sv))": "'stranger.service','fail',[('Description','x')],[]",
	"sayasa{ss}a{sv}":  "'web',b'x',['node1'],{},{}", "sasa{sv}": "'web',['node1'],{}", "sasta{sv}": "'web',['node1'],1,{}",
	"sassa{sv}": "'web',['node1'],'stop',{}", "sst": "'node1','web',1",
	"st": "'node1',0", "sut": "'node*',7,0",
}

const pythonCalls = `import dbus
bus = dbus.SystemBus()
def call(path, interface, member, signature, *args):
    try:
        bus.call_blocking("org.example.ctrl1", path, interface, member, signature, args)
        print(interface + "." + member, "allowed")
    except dbus.DBusException as e:
        print(interface + "." + member, e.get_dbus_name(), e.get_dbus_message())
`

// strangersCalls is a program that calls every method of the manager's API.
func strangersCalls(t *testing.T, job string) (program string, actions map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(pythonCalls)
	actions = make(map[string]string)
	paths := map[string]string{
		wire.ManagerInterface: busRoot, wire.NodeInterface: node1, wire.MonitorInterface: busRoot + "/monitor/1",
		wire.JobInterface: busRoot + "/job/" + job, wire.EnrolmentInterface: busRoot, wire.WorkloadsInterface: busRoot,
	}
	for _, name := range api.Names() {
		if strings.Contains(name, ".internal.") || name == wire.AgentInterface {
			continue
		}
		for _, m := range api.Load(name).Methods {
			path, known := paths[name]
			in := api.Signature(m.In)
			args, sampled := arguments[in]
			switch {
			case in == "u":
				args = job
			case in == "s" && name != wire.NodeInterface:
				args = "'node1'"
			}
			if !known || !sampled {
				t.Fatalf("%s.%s is not tried: give a path for its interface and arguments of type %q", name, m.Name, in)
			}
			fmt.Fprintf(&b, "call(%q, %q, %q, %q, %s)\n", path, name, m.Name, in, args)
			actions[name+"."+m.Name] = m.Action
		}
	}
	return b.String(), actions
}

// everyMethod: a user without rights calls every method that the XML has, on the real bus, and
// nothing has changed afterwards.
func everyMethod(t *testing.T, f *fleet.Fleet) {
	must(t, f, 0, nil, "start", "--no-wait", "node1", "slow")
	jobs := must(t, f, 0, nil, "list-jobs").Stdout
	await(t, f.Nodes["node1"], "slow.service", "activating")
	queue := regexp.MustCompile(`node1 +(\d+) +slow.service +start`)
	job := queue.FindStringSubmatch(jobs)
	if job == nil {
		t.Fatalf("the job is not in\n%s", jobs)
	}
	world := func() string {
		return state(t, f.Nodes["node1"]) + state(t, f.Nodes["node2"]) +
			fmt.Sprint(queue.FindAllString(must(t, f, 0, nil, "list-jobs").Stdout, -1)) + on(t, f.Boss, "busctl", "get-property", busName, busRoot, busName+".Manager", "LogLevel", "Nodes", "Status")
	}
	program, actions := strangersCalls(t, job[1])
	do(t, f.Boss.WriteFile("/tmp/calls.py", []byte(program), 0o644))
	do(t, f.Boss.WriteFile(polkitRules+"30-blind.rules", []byte(`polkit.addRule(function (action, subject) {
    if (action.id === "org.example.ctrl1.inspect" && subject.isInGroup("large"))
        return polkit.Result.NO;
});
`), 0o644))
	before := world()
	for _, who := range []string{"tom", "big"} {
		out := on(t, f.Boss, as(who, "/usr/bin/python3", "/tmp/calls.py")...)
		answers := strings.Split(out, "\n")
		if len(answers) != len(actions) {
			t.Errorf("%d methods gave %d answers: %s", len(actions), len(answers), out)
		}
		for _, line := range answers {
			method, answer, _ := strings.Cut(line, " ")
			action := actions[method]
			if action == wire.ActionInspect && who == "tom" {
				continue // which everyone has
			}
			if !strings.HasPrefix(answer, wire.ErrAccessDenied.Name+" ") || !strings.Contains(answer, "needs the right "+action) {
				t.Errorf("%s called %s (%s): %s", who, method, action, answer)
			}
		}
	}
	if after := world(); after != before {
		t.Errorf("it was\n%s\nand now is\n%s", before, after)
	}
	must(t, f, 0, nil, "stop", "node1", "slow")
	on(t, f.Boss, "rm", "/etc/polkit-1/rules.d/30-blind.rules")
}

// localMethods: the agent's own API is for root only, by the policy of the node's bus.
func localMethods(t *testing.T, f *fleet.Fleet) {
	n := f.Nodes["node1"]
	before := state(t, n)
	for _, m := range api.Load(wire.AgentInterface).Methods {
		args := strings.Fields(map[wire.Signature]string{"s": "string:x", "sss": "string:a.service string:node2 string:b.service"}[api.Signature(m.In)])
		if len(args) != len(m.In) {
			t.Errorf("%s is not tried: give arguments of type %q", m.Name, api.Signature(m.In))
		}
		argv := append([]string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "dbus-send", "--system", "--print-reply",
			"--dest=" + wire.AgentBusName, busRoot, wire.AgentInterface + "." + m.Name}, args...)
		r, err := n.Exec(within(t), argv...)
		do(t, err)
		if r.Code == 0 || !strings.Contains(r.Stderr, wire.ErrAccessDenied.Name) {
			t.Errorf("%s: exit code %d, %s%s", m.Name, r.Code, r.Stdout, r.Stderr)
		}
	}
	if after := state(t, n); after != before {
		t.Errorf("it was\n%s\nand now is\n%s", before, after)
	}
}
