package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// tree writes files below a root of its own.
func tree(t *testing.T, files map[string]string) string {
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

func loadManager(t *testing.T, files map[string]string, flags ...Flag) (*Manager, error) {
	t.Helper()
	return LoadManager(Options{Root: tree(t, files), Flags: flags, Hostname: "host"})
}

func TestDefaults(t *testing.T) {
	m, err := loadManager(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Port != 842 || !m.TLS || !m.UseTCP || m.HeartbeatInterval != 2*time.Second || m.NodeHeartbeatThreshold != 6*time.Second ||
		m.QueryTimeout != 2*time.Second || m.LogLevel != "info" || m.LogTarget != "auto" || len(m.Nodes) != 0 {
		t.Errorf("got %+v", m)
	}
	a, err := LoadAgent(Options{Root: t.TempDir(), Hostname: "Lab_Pi3"})
	if err != nil {
		t.Fatal(err)
	}
	if a.NodeName != "Lab_Pi3" || !reflect.DeepEqual(a.Addresses(), []string{"tcp:host=127.0.0.1,port=842"}) || a.ReconnectMax != 10*time.Second {
		t.Errorf("got %+v", a)
	}
}

func TestSourcesInOrder(t *testing.T) {
	root := tree(t, map[string]string{
		"usr/lib/ctrl/manager.conf":                "[manager]\nLogLevel=error\nPort=1\n",
		"usr/lib/ctrl/manager.conf.d/50-site.conf": "[manager]\nLogLevel=warn\nCallTimeout=1\n",
		"etc/ctrl/manager.conf":                    "[manager]\nPort=2\n",
		"etc/ctrl/manager.conf.d/10-site.conf":     "[manager]\nLogLevel=debug\nPort=3\n",
		"etc/ctrl/manager.conf.d/ignored.conf.bak": "[manager]\nnonsense\n",
		"own.conf": "[manager]\nQueryTimeout=7\nCallTimeout=8\n",
	})
	env := map[string]string{"CTRL_LOG_TARGET": "json", "CTRL_LOG_LEVEL": ""}
	opt := Options{Root: root, File: root + "/own.conf", Getenv: func(k string) string { return env[k] }, Flags: []Flag{{"--port", "Port", "9"}}}
	m, err := LoadManager(opt)
	if err != nil {
		t.Fatal(err)
	}
	if m.LogLevel != "warn" || m.Port != 9 || m.CallTimeout != 8*time.Second || m.QueryTimeout != 7*time.Second || m.LogTarget != "json" {
		t.Errorf("got %+v", m)
	}
	var out bytes.Buffer
	if err := m.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# --port\nPort=9\n", "# CTRL_LOG_TARGET\nLogTarget=json\n", "# default\nTLS=yes\n",
		"# " + root + "/usr/lib/ctrl/manager.conf.d/50-site.conf:2\nLogLevel=warn\n", "# " + root + "/own.conf:2\nQueryTimeout=7s\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	// A namesake below /etc takes the place of the package's drop-in.
	if err := os.WriteFile(root+"/etc/ctrl/manager.conf.d/50-site.conf", []byte("[manager]\nLogLevel=info\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if m, err = LoadManager(opt); err != nil || m.LogLevel != "info" {
		t.Errorf("namesake: %v, %v", m, err)
	}
	if _, err := LoadManager(Options{Root: root, File: root + "/none.conf"}); err == nil || !strings.Contains(err.Error(), "none.conf") {
		t.Errorf("a missing -c file: %v", err)
	}
}

func TestPrintedConfigurationGivesTheSameAgain(t *testing.T) {
	m, err := loadManager(t, map[string]string{"etc/ctrl/manager.conf": "[manager]\nAllowedNodeNames=b, a\nHeartbeatInterval=1500\n[node c]\nAllowed=yes\nOptional=yes\n"})
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	m.Print(&first)
	again, err := loadManager(t, map[string]string{"etc/ctrl/manager.conf": first.String()})
	if err != nil {
		t.Fatal(err)
	}
	again.Print(&second)
	strip := func(b bytes.Buffer) string {
		var out []string
		for line := range strings.Lines(b.String()) {
			if !strings.HasPrefix(line, "#") {
				out = append(out, line)
			}
		}
		return strings.Join(out, "")
	}
	if strip(first) != strip(second) {
		t.Errorf("got\n%s\nwant\n%s", strip(second), strip(first))
	}
	if !strings.Contains(first.String(), "HeartbeatInterval=1s 500ms") {
		t.Errorf("a bare number is not in milliseconds:\n%s", first.String())
	}
}

func TestFleet(t *testing.T) {
	m, err := loadManager(t, map[string]string{
		"etc/ctrl/manager.conf":          "[manager]\nAllowedNodeNames=b,\n  a ,, b\nAllowedNodeNames=x\n[node z]\nAllowed=yes\n[node a]\nOptional=on\n[node nobody]\nOptional=1\n",
		"etc/ctrl/manager.conf.d/1.conf": "[manager]\nAllowedNodeNames=late\n[node y]\nAllowed=t\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{{"b", true, false}, {"a", true, true}, {"x", true, false}, {"late", true, false}, {"z", true, false}, {"y", true, false}}
	if !reflect.DeepEqual(m.Nodes, want) {
		t.Errorf("got %+v", m.Nodes)
	}
	if len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "nobody") {
		t.Errorf("notes %q", m.Notes)
	}
	m, err = loadManager(t, map[string]string{
		"etc/ctrl/manager.conf":          "[manager]\nAllowedNodeNames=a,b\n",
		"etc/ctrl/manager.conf.d/1.conf": "[manager]\nAllowedNodeNames=\nAllowedNodeNames=c\n",
	})
	if err != nil || len(m.Nodes) != 1 || m.Nodes[0].Name != "c" {
		t.Errorf("an empty value does not reset the list: %+v, %v", m, err)
	}
}

// Values that other parsers cut, and continuation lines (cases 62 to 64).
func TestWholeValues(t *testing.T) {
	long := strings.Repeat("x", 5000)
	a, err := LoadAgent(Options{Hostname: "h", Root: tree(t, map[string]string{"etc/ctrl/agent.conf": "\xef\xbb\xbf# " + long[:2046] + "LogLevel=debug\n[agent]\n" +
		"ManagerAddress=tcp:host=a,port=842;tcp:host=b,port=842\nCertFile=/etc/ctrl/a#b.pem\nKeyFile=/etc/ctrl/a ;b.pem\nManagerName=" + long + "\r\nCAFile=\n"})})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a.Addresses(), []string{"tcp:host=a,port=842", "tcp:host=b,port=842"}) ||
		a.CertFile != "/etc/ctrl/a#b.pem" || a.KeyFile != "/etc/ctrl/a ;b.pem" || a.ManagerName != long || a.LogLevel != "info" {
		t.Errorf("got %+v", a)
	}
	m, err := loadManager(t, map[string]string{"etc/ctrl/manager.conf": "[manager]\nAllowedNodeNames=a,\\\n# between\n  b,\\\nc\nSocketGroup=one\n two\n"})
	if err != nil || len(m.Nodes) != 3 || m.SocketGroup != "onetwo" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	tests := []struct{ text, want string }{
		{"[manager]\nLogLevl=debug\n", ":2: key LogLevl= is not known in [manager]; did you mean LogLevel=?"},
		{"[manager]\nloglevel=debug\n", "did you mean LogLevel=?"},
		{"[manager]\nqqqqqqqqqqqq=1\n", ":2: key qqqqqqqqqqqq= is not known in [manager]"},
		{"[manager]\nPort=842O\n", `:2: Port=: "842O" is no number from 0 to 65535`},
		{"[manager]\nPort=65538\n", "is no number"},
		{"[manager]\nPort=1\nPort=2\n", ":3: Port= is set twice in this file, in line 2"},
		{"[manager]\nUseTCP=maybe\n", "neither yes nor no"},
		{"[manager]\nLogLevel=loud\n", "none of debug, info, warn, error"},
		{"[manager]\nHeartbeatInterval=soon\n", "no time span"},
		{"[manager]\nHeartbeatInterval=-1s\n", "no time span"},
		{"[manager]\nHeartbeatInterval=5 parsecs\n", "no time span"},
		{"[manager]\nCertFile=here.pem\n", "no absolute path"},
		{"[manager]\nAllowedNodeNames=a,b/c\n", `"b/c" is not valid`},
		{"[node my node]\nAllowed=yes\n", "node name"},
		{"[agent]\nNodeName=a\n", ":2: section [agent] is not known here"},
		{"[managers]\nPort=1\n", "section [managers] is not known"},
		{"Port=1\n", ":1: Port= stands before the first [section]"},
		{"[manager\nPort=1\n", ":1: expected [section]"},
		{"[manager]\nPort\n", ":2: expected KEY=VALUE"},
		{"[manager]\n=1\n", "no key before the ="},
		{"[manager]\n  Port=1\n", ":2: is indented"},
		{"[manager]\nSocketGroup=odd\\\nLogLevel=debug\n", ":3: the line before ends in a backslash, so LogLevel= would become part"},
		{"[manager]\nSocketGroup=odd\\\n", "nothing follows it"},
		{"[manager]\nSocketGroup=\xff\n", ":2: contains bytes"},
		{"[manager]\nHeartbeatInterval=0\n", "NodeHeartbeatThreshold=6s has no effect while HeartbeatInterval=0"},
		{"[manager]\nNodeHeartbeatThreshold=2500\n", ":2: NodeHeartbeatThreshold=2s 500ms is less than one and a half times HeartbeatInterval=2s"},
	}
	for _, tt := range tests {
		_, err := loadManager(t, map[string]string{"etc/ctrl/manager.conf": tt.text})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
	agent := func(text string) error {
		_, err := LoadAgent(Options{Hostname: "h", Root: tree(t, map[string]string{"etc/ctrl/agent.conf": text})})
		return err
	}
	for text, want := range map[string]string{
		"[agent]\nControllerHost=a\n":        "key ControllerHost= is not known; here it is called ManagerHost=",
		"[agent]\nManagerAddress=boss:842\n": "no D-Bus address",
		"[agent]\nNodeName=my node\n":        "is not valid",
		"[agent]\nReconnectMax=1ms\n":        "ReconnectMin= (100ms) must be",
		"[node a]\nAllowed=yes\n":            "the agent has [agent]",
	} {
		if err := agent(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
	if _, err := LoadAgent(Options{Root: t.TempDir(), Hostname: "-bad"}); err == nil || !strings.Contains(err.Error(), "set NodeName=") {
		t.Errorf("bad host name: %v", err)
	}
	if _, err := loadManager(t, nil, Flag{"--port", "Port", "x"}); err == nil || !strings.HasPrefix(err.Error(), "--port: ") {
		t.Errorf("bad flag: %v", err)
	}
}

func TestCheckStart(t *testing.T) {
	m, _ := loadManager(t, nil)
	if err := m.CheckStart(); err == nil || !strings.Contains(err.Error(), "CAFile=, CertFile= and KeyFile= are not set") || !strings.Contains(err.Error(), "TLS=no") {
		t.Errorf("without files: %v", err)
	}
	m.CertFile, m.KeyFile, m.CAFile = "/a", "/b", "/c"
	if err := m.CheckStart(); err != nil {
		t.Errorf("with files: %v", err)
	}
	m, _ = loadManager(t, map[string]string{"etc/ctrl/manager.conf": "[manager]\nTLS=no\n"})
	if err := m.CheckStart(); err != nil || !m.LoopbackOnly() {
		t.Errorf("TLS=no: %v, loopback only %v", err, m.LoopbackOnly())
	}
	a, _ := LoadAgent(Options{Hostname: "h", Root: t.TempDir(), Flags: []Flag{{"-a", "ManagerAddress", "unix:path=/run/ctrl/ctrl.sock"}}})
	if err := a.CheckStart(); err != nil {
		t.Errorf("over the unix socket: %v", err)
	}
}

func TestChanged(t *testing.T) {
	before, _ := loadManager(t, nil)
	after, err := loadManager(t, map[string]string{"etc/ctrl/manager.conf": "[manager]\nLogLevel=debug\nPort=1\n"})
	if err != nil {
		t.Fatal(err)
	}
	applied, restart := before.Changed(after)
	if !reflect.DeepEqual(applied, []string{"LogLevel"}) || !reflect.DeepEqual(restart, []string{"Port"}) {
		t.Errorf("applied %q, restart %q", applied, restart)
	}
	if a, r := before.Changed(before); a != nil || r != nil {
		t.Errorf("no change: %q %q", a, r)
	}
}

func TestSpans(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0": 0, "1min 30s": 90 * time.Second, "1min30s": 90 * time.Second, "1.5h": 90 * time.Minute,
		"2d": 48 * time.Hour, "20us": 20 * time.Microsecond, "1 hour": time.Hour,
	} {
		if got, err := parseSpan(text, time.Second); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, d := range []time.Duration{0, time.Second, 90 * time.Second, 49*time.Hour + 3*time.Millisecond} {
		if got, err := parseSpan(formatSpan(d), time.Second); err != nil || got != d {
			t.Errorf("%v is written %q, which reads as %v", d, formatSpan(d), got)
		}
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte("[manager]\nA=b\\\n c\n d\n; x\nPort=1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		assignments, err := scan("f", data)
		if err != nil {
			return
		}
		for _, a := range assignments {
			if a.key == "" || a.section == "" || a.line < 1 || strings.ContainsAny(a.value, "\n\x00") || strings.TrimSpace(a.value) != a.value {
				t.Fatalf("%+v", a)
			}
		}
	})
}
