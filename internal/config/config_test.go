package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// tree writes files below a root of its own.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func loadManager(t testing.TB, text string, flags ...Flag) (*Manager, error) {
	t.Helper()
	return LoadManager(Options{Root: tree(t, map[string]string{"etc/ctrl/manager.conf": text}), Flags: flags, Hostname: "host"})
}

func loadAgent(t testing.TB, text string, flags ...Flag) (*Agent, error) {
	t.Helper()
	return LoadAgent(Options{Root: tree(t, map[string]string{"etc/ctrl/agent.conf": text}), Flags: flags, Hostname: "host"})
}

// must is for configurations without a mistake.
func must[T any](t testing.TB) func(T, error) T {
	return func(c T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if key, value, _ := strings.Cut(p, "="); key == name {
				return value
			}
		}
		return ""
	}
}

func TestDefaults(t *testing.T) {
	m := must[*Manager](t)(LoadManager(Options{Root: t.TempDir()}))
	m.settings = nil
	if want := (&Manager{
		Common: Common{
			TLS: true, TCPKeepAliveTime: time.Second, TCPKeepAliveInterval: time.Second, TCPKeepAliveCount: 6, IPReceiveErrors: true,
			LogLevel: "info", LogTarget: "auto", Places: Places{"/etc/ctrl", "/var/lib/ctrl-manager", "/run/ctrl", "/run/ctrl/ctrl.sock"},
		},
		Port: 842, UseTCP: true, UseUDS: true, HeartbeatInterval: 2 * time.Second, NodeHeartbeatThreshold: 6 * time.Second,
		CallTimeout: 30 * time.Second, QueryTimeout: 2 * time.Second,
	}); !reflect.DeepEqual(m, want) {
		t.Errorf("manager:\ngot  %+v\nwant %+v", m, want)
	}
	a := must[*Agent](t)(LoadAgent(Options{Root: t.TempDir(), Hostname: "Lab_Pi3"}))
	a.settings = nil
	if want := (&Agent{
		Common: Common{
			TLS: true, TCPKeepAliveTime: time.Second, TCPKeepAliveInterval: time.Second, TCPKeepAliveCount: 6, IPReceiveErrors: true,
			LogLevel: "info", LogTarget: "auto", Places: Places{"/etc/ctrl", "/var/lib/ctrl", "/run/ctrl", "/run/ctrl/ctrl.sock"},
		},
		NodeName: "Lab_Pi3", ManagerHost: "127.0.0.1", ManagerPort: 842, HeartbeatInterval: 2 * time.Second, ManagerHeartbeatThreshold: 6 * time.Second,
		CallTimeout: 30 * time.Second, ReconnectMin: 100 * time.Millisecond, ReconnectMax: 10 * time.Second, ConnectionRetryCountUntilQuiet: 10,
		OnDisconnectUnitAfter: 30 * time.Second, ProxyStartTimeout: 90 * time.Second, Policy: Policy{AllowLogs: true},
	}); !reflect.DeepEqual(a, want) {
		t.Errorf("agent:\ngot  %+v\nwant %+v", a, want)
	}
}

// Each key gets a value that differs from its default, as its type has one, and must arrive in
// a field of its own.
func TestEveryKeyHasItsField(t *testing.T) {
	targets := map[string]func() any{
		managerSection: func() any { return &Manager{} }, agentSection: func() any { return &Agent{} },
		nodeSection: func() any { return &Node{} }, policySection: func() any { return &Policy{} },
	}
	for kind, target := range targets {
		fields := make(map[any]string)
		c := target()
		for _, k := range in(kind) {
			field := k.field(c)
			if field == nil || reflect.ValueOf(field).IsNil() {
				t.Fatalf("[%s] %s= has no field", kind, k.name)
			}
			if other := fields[field]; other != "" {
				t.Errorf("[%s] %s= and %s= share a field", kind, k.name, other)
			}
			fields[field] = k.name
			if k.def != "" {
				if err := k.set(field, k.def); err != nil || k.format(field) != k.def && k.format(field) != "1min 30s" {
					t.Errorf("[%s] the default of %s= is %q, which reads as %q, %v", kind, k.name, k.def, k.format(field), err)
				}
			}
			if k.example != "" {
				if err := k.set(field, k.example); err != nil {
					t.Errorf("[%s] the example of %s= is refused: %v", kind, k.name, err)
				}
			}
			if k.doc == "" || !strings.HasSuffix(k.doc, ".") {
				t.Errorf("[%s] %s= is not described: %q", kind, k.name, k.doc)
			}
			other := k.field(target())
			k.copy(other, field)
			if k.format(other) != k.format(field) {
				t.Errorf("[%s] %s= is not copied", kind, k.name)
			}
			k.clear(other)
			if zero := k.field(target()); k.format(zero) != k.format(other) {
				t.Errorf("[%s] %s= is not cleared", kind, k.name)
			}
		}
	}
}

func TestFleet(t *testing.T) {
	root := tree(t, map[string]string{
		"etc/ctrl/manager.conf": "[manager]\nAllowedNodeNames=b,\n  a ,, b\nAllowedNodeNames=x\n[node z]\nAllowed=yes\n" +
			"[node a]\nOptional=on\nAllowDependenciesOn=b, z\nReleaseAfter=1h\n[node nobody]\nOptional=1\n",
		"etc/ctrl/manager.conf.d/1.conf": "[manager]\nAllowedNodeNames=late\n[node y]\nAllowed=t\n[node   a]\nReleaseAfter=2h\n",
	})
	m := must[*Manager](t)(LoadManager(Options{Root: root}))
	file, dropIn := root+"/etc/ctrl/manager.conf:", root+"/etc/ctrl/manager.conf.d/1.conf:"
	want := []Node{
		{Name: "b", Allowed: true, Origin: file + "2"},
		{Name: "a", Allowed: true, Optional: true, AllowDependenciesOn: []string{"b", "z"}, ReleaseAfter: 2 * time.Hour, Origin: file + "2"},
		{Name: "x", Allowed: true, Origin: file + "4"},
		{Name: "late", Allowed: true, Origin: dropIn + "2"},
		{Name: "y", Allowed: true, Origin: dropIn + "4"},
		{Name: "z", Allowed: true, Origin: file + "6"},
	}
	if !reflect.DeepEqual(m.Nodes, want) {
		t.Errorf("got  %+v\nwant %+v", m.Nodes, want)
	}
	if list := []string{"b", "a", "x", "late"}; !reflect.DeepEqual(m.AllowedNodeNames, list) {
		t.Errorf("names are %q, want each once: %q", m.AllowedNodeNames, list)
	}
	if !strings.Contains(strings.Join(m.Notes, "\n"), "section [node nobody] has no effect") {
		t.Errorf("notes %q", m.Notes)
	}
	// A node that only the manager's state knows has what its section says, or the defaults.
	if n := m.Node("nobody"); n.Name != "nobody" || !n.Optional || n.Allowed {
		t.Errorf("nobody is %+v", n)
	}
	if n := m.Node("stranger"); !reflect.DeepEqual(n, Node{Name: "stranger"}) {
		t.Errorf("stranger is %+v", n)
	}
	if n := m.Node("a"); !reflect.DeepEqual(n, want[1]) {
		t.Errorf("a is %+v", n)
	}
	for _, text := range []string{"AllowedNodeNames=a,b\nAllowedNodeNames=\nAllowedNodeNames=c\n", "AllowedNodeNames=a\n[manager]\nAllowedNodeNames=\n[node c]\nAllowed=yes\n"} {
		if m := must[*Manager](t)(loadManager(t, "[manager]\n"+text)); len(m.Nodes) != 1 || m.Nodes[0].Name != "c" {
			t.Errorf("an empty value does not reset the list: %+v", m.Nodes)
		}
	}
}

func TestAgentKeys(t *testing.T) {
	a := must[*Agent](t)(loadAgent(t, `[agent]
Labels=zone=north, role = web
Labels=zone=south
OnDisconnectUnit=safe.target
OnDisconnectUnitAfter=0
ExitOnDisconnect=infinity
ProxyStartTimeout=infinity
OnNodeLoss=stop-after=30
ConnectionRetryCountUntilQuiet=-1
TCPKeepAliveCount=0
[policy]
AllowUnits=web-*.service, db.service
DenyUnits=sshd.service
AllowLogs=no
AllowFilePaths=/etc/web, /srv
ReadOnly=yes
`))
	if want := map[string]string{"zone": "south", "role": "web"}; !reflect.DeepEqual(a.LabelMap(), want) {
		t.Errorf("labels are %v", a.LabelMap())
	}
	if a.OnDisconnectUnit != "safe.target" || a.OnDisconnectUnitAfter != 0 || a.ExitOnDisconnect != 0 || a.ProxyStartTimeout != Forever ||
		a.OnNodeLoss != (NodeLoss{true, 30 * time.Second}) || a.ConnectionRetryCountUntilQuiet != -1 || a.TCPKeepAliveCount != 0 {
		t.Errorf("got %+v", a)
	}
	if want := (Policy{AllowUnits: []string{"web-*.service", "db.service"}, DenyUnits: []string{"sshd.service"}, AllowFilePaths: []string{"/etc/web", "/srv"}, ReadOnly: true}); !reflect.DeepEqual(a.Policy, want) {
		t.Errorf("policy is %+v", a.Policy)
	}
}

func TestPlacesOfAUser(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want Places
	}{
		{[]string{"HOME=/home/u", "XDG_RUNTIME_DIR=/run/user/7"},
			Places{"/home/u/.config/ctrl", "/home/u/.local/state/ctrl/agent", "/run/user/7/ctrl", "/run/user/7/ctrl/ctrl.sock"}},
		{[]string{"HOME=/home/u", "XDG_CONFIG_HOME=/c", "XDG_STATE_HOME=/s", "XDG_RUNTIME_DIR=/r"},
			Places{"/c/ctrl", "/s/ctrl/agent", "/r/ctrl", "/r/ctrl/ctrl.sock"}},
		{[]string{"HOME=/home/u", "XDG_CONFIG_HOME=relative", "XDG_RUNTIME_DIR=/r"},
			Places{"/home/u/.config/ctrl", "/home/u/.local/state/ctrl/agent", "/r/ctrl", "/r/ctrl/ctrl.sock"}},
	} {
		a := must[*Agent](t)(LoadAgent(Options{Root: t.TempDir(), User: true, Hostname: "h", Getenv: environment(c.env...)}))
		if a.Places != c.want {
			t.Errorf("%q:\ngot  %+v\nwant %+v", c.env, a.Places, c.want)
		}
	}
	m := must[*Manager](t)(LoadManager(Options{Root: t.TempDir(), User: true, Getenv: environment("HOME=/h")}))
	if m.Places.StateDir != "/h/.local/state/ctrl/manager" || !strings.HasPrefix(m.Places.Socket, "/run/user/") {
		t.Errorf("manager: %+v", m.Places)
	}
	if _, err := LoadManager(Options{User: true}); err == nil || !strings.Contains(err.Error(), "XDG_CONFIG_HOME nor HOME") {
		t.Errorf("without a home: %v", err)
	}
}
