package config

import (
	"bytes"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
)

// values is what a configuration prints without the places.
func values(t *testing.T, c interface{ Print(io.Writer) error }) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// again loads what a configuration prints and compares.
func again[C interface{ Print(io.Writer) error }](t *testing.T, c C, load func(Options) (C, error), opt Options) {
	t.Helper()
	want := values(t, c)
	if err := os.WriteFile(opt.File, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := load(opt)
	if err != nil {
		t.Fatalf("printed configuration is refused: %v\n%s", err, want)
	}
	if got := values(t, next); got != want {
		t.Fatalf("printed configuration gives\n%s\ninstead of\n%s", got, want)
	}
}

func TestPrintedConfigurationGivesTheSameAgain(t *testing.T) {
	file := t.TempDir() + "/c.conf"
	opt := Options{Root: t.TempDir(), File: file, Hostname: "h"}
	if err := os.WriteFile(file, []byte("[manager]\nAllowedNodeNames=b, a\nAllowedNodeNames=d\nHeartbeatInterval=1500\n[node c]\nAllowed=yes\nOptional=yes\n[node e]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := must[*Manager](t)(LoadManager(opt))
	if text := values(t, m); !strings.Contains(text, "\nHeartbeatInterval=1s 500ms\n") || !strings.Contains(text, "AllowedNodeNames=b,a\nAllowedNodeNames=d\n") ||
		!strings.Contains(text, "\n[node c]\nAllowed=yes\nOptional=yes\n") || !strings.Contains(text, "\n[node e]\nAllowed=no\n") {
		t.Errorf("printed\n%s", text)
	}
	again(t, m, LoadManager, opt)
	if err := os.WriteFile(file, []byte("[agent]\nManagerAddress=unix:path=/a;unix:path=/b\nProxyStartTimeout=infinity\nOnNodeLoss=stop-after=90\n[policy]\nDenyUnits=a.service\nDenyUnits=b.service\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := must[*Agent](t)(LoadAgent(opt))
	if text := values(t, a); !strings.Contains(text, "\nManagerAddress=unix:path=/a;unix:path=/b\n") || !strings.Contains(text, "\nOnNodeLoss=stop-after=1min 30s\n") {
		t.Errorf("printed\n%s", text)
	}
	again(t, a, LoadAgent, opt)
}

func TestReload(t *testing.T) {
	before := must[*Manager](t)(loadManager(t, "[manager]\nTLS=no\n[node a]\nAllowed=yes\n[node b]\nOptional=yes\n"))
	after := must[*Manager](t)(loadManager(t, "[manager]\nLogLevel=debug\nPort=1\n[node a]\nAllowed=yes\nOptional=yes\n[node c]\nAllowed=yes\n"))
	applied, restart := before.Changed(after)
	if want := []string{"LogLevel", "[node a] Optional", "[node b] Optional", "[node c] Allowed"}; !reflect.DeepEqual(applied, want) {
		t.Errorf("applied %q, want %q", applied, want)
	}
	if want := []string{"Port", "TLS"}; !reflect.DeepEqual(restart, want) {
		t.Errorf("restart %q, want %q", restart, want)
	}
	after.KeepUntilRestart(before)
	if after.Port != 842 || after.TLS || after.LogLevel != "debug" || len(after.Nodes) != 2 {
		t.Errorf("in effect is %+v", after)
	}
	if a, r := before.Changed(before); a != nil || r != nil {
		t.Errorf("no change: %q %q", a, r)
	}

	agent := must[*Agent](t)(loadAgent(t, ""))
	next := must[*Agent](t)(loadAgent(t, "[agent]\nManagerHost=b\nLabels=a=b\nLogTarget=json\n[policy]\nReadOnly=yes\n"))
	applied, restart = agent.Changed(next)
	if !reflect.DeepEqual(applied, []string{"ManagerHost", "Labels", "[policy] ReadOnly"}) || !reflect.DeepEqual(restart, []string{"LogTarget"}) {
		t.Errorf("agent: applied %q, restart %q", applied, restart)
	}
	next.KeepUntilRestart(agent)
	if next.LogTarget != "auto" || next.ManagerHost != "b" {
		t.Errorf("in effect is %+v", next)
	}
}

func TestCheckStart(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"CAFile=/c", "CertFile= and KeyFile= are not set in [manager]"},
		{"CAFile=/c", "TLS=no on both sides, with AllowInsecureNetwork=yes"},
		{"CertFile=/a\nKeyFile=/b", "CAFile= is not set"},
		{"CertFile=/a\nKeyFile=/b\nCAFile=/c", ""},
		{"TLS=no", ""},
		{"UseTCP=no", ""},
	} {
		m := must[*Manager](t)(loadManager(t, "[manager]\n"+c.text+"\n"))
		if err := m.CheckStart(); err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"TLS=no", ""},
		{"ManagerAddress=unix:path=/run/ctrl/ctrl.sock", ""},
		{"ManagerAddress=unix:path=/run/ctrl/ctrl.sock;tcp:host=b,port=1\nCAFile=/c", "CertFile= and KeyFile= are not set in [agent]"},
		{"TLS=no\n[policy]\nReadOnly=yes", ""},
		{"TLS=no\n[policy]", ""},
	} {
		a := must[*Agent](t)(loadAgent(t, "[agent]\n"+c.text+"\n"))
		if err := a.CheckStart(); err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestInsecure(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "TLS=no": false, "TLS=no\nManagerHost=::1": false, "TLS=no\nManagerHost=localhost": false, "TLS=no\nManagerHost=boss": true,
		"ManagerHost=boss": false, "TLS=no\nManagerAddress=unix:path=/x": false, "TLS=no\nManagerAddress=unix:path=/x;tcp:host=10.0.0.1,port=1": true,
	} {
		a := must[*Agent](t)(loadAgent(t, "[agent]\n"+text+"\n"))
		if a.Insecure() != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	for text, want := range map[string]bool{"": false, "TLS=no": true, "TLS=no\nAllowInsecureNetwork=yes": false} {
		m := must[*Manager](t)(loadManager(t, "[manager]\n"+text+"\n"))
		if m.LoopbackOnly() != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

func TestNotes(t *testing.T) {
	m := must[*Manager](t)(loadManager(t, "[manager]\nAllowInsecureNetwork=yes\nAllowedNodeNames=a\n"))
	if len(m.Notes) != 1 || !strings.HasPrefix(m.Notes[0], "AllowInsecureNetwork=yes (") {
		t.Errorf("notes %q", m.Notes)
	}
	a := must[*Agent](t)(loadAgent(t, "[agent]\nTLS=no\nCAFile=/a\nOnDisconnectUnitAfter=1\nLabels=a=b\n"))
	if text := strings.Join(a.Notes, "\n"); !strings.Contains(text, "CAFile=/a (") || !strings.Contains(text, "without OnDisconnectUnit=") || !strings.Contains(text, "Labels= (") {
		t.Errorf("notes %q", a.Notes)
	}
}
