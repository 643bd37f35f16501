package e2e

import (
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/api"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fleet"
)

// unreached are errors that say that a call has not reached its method.
var unreached = []string{"UnknownMethod", "UnknownInterface", "UnknownObject", "AccessDenied", "NoReply", "ServiceUnknown", "Signature"}

// TestEveryMethodFromOutside calls every method of the XML with the XML's signature, through
// busctl and from Python, and hears every signal with the XML's signature in Python.
func TestEveryMethodFromOutside(t *testing.T) {
	f := up(t, fleet.Options{Nodes: []string{"node1", "node2"}})
	everyMethodHasAnEntry(t)
	for _, client := range []string{"busctl", "python"} {
		t.Run(client, func(t *testing.T) {
			var jobs []string
			for _, unit := range []string{"slow", "mute"} {
				path := strings.TrimSpace(must(t, f, 0, nil, "start", "--no-wait", "node1", unit).Stdout)
				jobs = append(jobs, path[strings.LastIndexByte(path, '/')+1:])
			}
			if client == "busctl" {
				callWithBusctl(t, f, jobs)
			} else {
				callFromPython(t, f, jobs)
			}
			on(t, f.Boss, "systemctl", "restart", "ctrl-manager")
			on(t, f.Nodes["node1"], "systemctl", "stop", "slow", "mute")
			on(t, f.Nodes["node1"], "systemctl", "restart", "ctrl-agent")
			do(t, f.WaitOnline(within(t), "node1", true))
		})
	}
}

func everyMethodHasAnEntry(t *testing.T) {
	t.Helper()
	for _, name := range api.Names() {
		for _, m := range api.Load(name).Methods {
			short := strings.TrimPrefix(name, busName+".") + "." + m.Name
			if !strings.HasPrefix(short, "internal.") && !slices.ContainsFunc(apiCalls, func(c apiCall) bool { return c.method == short }) {
				t.Errorf("%s is not called: give it a row in apiCalls", short)
			}
		}
	}
}

// target is where a call goes: the bus name, the object, and the signature that the XML says.
func (c apiCall) target(jobs []string) (service, path, iface, member string, in wire.Signature) {
	short, member, _ := strings.Cut(c.method, ".")
	iface = busName + "." + short
	xml := api.Load(iface)
	method, _ := xml.Method(member)
	service, path = busName, busRoot
	switch short {
	case "Node":
		path = node1
	case "Job":
		path = busRoot + "/job/" + jobs[1]
	case "Monitor":
		path = busRoot + "/monitor/1"
	case "Agent":
		service = wire.AgentBusName
	}
	return service, path, iface, member, api.Signature(method.In)
}

func fillIn(s, client string, jobs []string) string {
	return strings.NewReplacer("{job}", jobs[0], "{client}", client).Replace(s)
}

// judge says whether a call has ended as the table says.
func (c apiCall) judge(t *testing.T, client, refused, failure string) {
	t.Helper()
	has := func(part string) bool { return strings.Contains(failure, part) }
	switch {
	case refused == "" && failure != "",
		refused == anyError && slices.ContainsFunc(unreached, has),
		refused != "" && refused != anyError && !has(refused):
		t.Errorf("%s: %s: %q, want %q", client, c.method, failure, refused)
	}
}

func callWithBusctl(t *testing.T, f *fleet.Fleet, jobs []string) {
	for _, c := range apiCalls {
		service, path, iface, member, in := c.target(jobs)
		n := f.Boss
		if service == wire.AgentBusName {
			n = f.Nodes["node2"]
		}
		argv := []string{"busctl", "--timeout=30", "--json=short", "call", service, path, iface, member}
		if in != "" {
			argv = append(append(argv, string(in)), strings.Fields(fillIn(c.busctl, "busctl", jobs))...)
		}
		r, err := n.Exec(within(t), argv...)
		do(t, err)
		failure := ""
		if r.Code != 0 {
			failure = r.Stderr
		}
		if name, known := busctlWords[c.refused]; known && strings.Contains(failure, name) {
			failure = c.refused
		}
		c.judge(t, "busctl", c.refused, failure)
	}
}

// busctlWords are how busctl tells errors: by their texts.
var busctlWords = map[string]string{noMonitor: "no object", "BadUnitSetting": "bad unit file setting", "NoSuchUnit": "not found", "InvalidArgs": "address"}
