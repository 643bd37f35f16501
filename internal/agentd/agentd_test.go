package agentd

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/pki/pkitest"
	"example.org/ctrl/internal/wire"
)

// load reads a configuration from lines below [agent], as a user without other files.
func load(t *testing.T, lines string) *config.Agent {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "test.conf")
	if err := os.WriteFile(file, []byte("[agent]\n"+lines), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadAgent(config.Options{File: file, User: true, Hostname: "host1", Getenv: func(key string) string {
		return map[string]string{"HOME": dir, "XDG_RUNTIME_DIR": dir}[key]
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func issue(t *testing.T, leaf pkitest.Leaf) string {
	t.Helper()
	ca, err := pkitest.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	f, err := ca.Write(t.TempDir(), "own", leaf)
	if err != nil {
		t.Fatal(err)
	}
	return "CertFile=" + f.Cert + "\nKeyFile=" + f.Key + "\nCAFile=" + f.CA + "\n"
}

var quiet = slog.New(slog.DiscardHandler)

func TestCheck(t *testing.T) {
	expired := pkitest.NodeLeaf("host1")
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	tests := map[string]struct{ lines, start, thorough string }{
		"good":            {issue(t, pkitest.NodeLeaf("host1")), "", ""},
		"expired":         {issue(t, expired), "", "expired at"},
		"another node's":  {issue(t, pkitest.NodeLeaf("node1")), "is for node \"node1\"", "is for node \"node1\""},
		"named so":        {issue(t, pkitest.NodeLeaf("node1")) + "NodeName=node1\n", "", ""},
		"a manager's":     {issue(t, pkitest.ManagerLeaf()), "it is a manager's", "it is a manager's"},
		"socket, nothing": {"ManagerAddress=unix:path=/run/ctrl/ctrl.sock\n", "", ""},
		"socket, wrong":   {"ManagerAddress=unix:path=/s\n" + issue(t, pkitest.ManagerLeaf()), "it is a manager's", "it is a manager's"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := load(t, test.lines)
			for thorough, want := range map[bool]string{false: test.start, true: test.thorough} {
				err := check(c, nil, thorough)
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("thorough %v: got %v, want %q", thorough, err, want)
				}
			}
		})
	}
}

func TestCheckAddress(t *testing.T) {
	for address, ok := range map[string]bool{
		"tcp:host=a,port=842": true, "tcp:host=a,port=842;unix:path=/s": true, "tcp:host=a,port=842,family=ipv6": true,
		"": false, "tcp:host=a": false, "tcp:host=a,port=0": false, "unix:": false, "unix:path=/a,abstract=b": false,
		"unixexec:path=/bin/sh": false, "tcp:host=a,port=1;launchd:env=X": false,
	} {
		if err := checkAddress(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func newService(t *testing.T, c *config.Agent) *service {
	t.Helper()
	s := &service{env: &daemon.Env{Shutdown: func() {}}, log: slog.New(slog.DiscardHandler), cfg: c}
	if err := s.secure(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNoTLSByAccident: an agent that needed no certificates for its unix socket still speaks
// to no other manager without TLS.
func TestNoTLSByAccident(t *testing.T) {
	s := newService(t, load(t, "ManagerAddress=unix:path=/run/ctrl/ctrl.sock\n"))
	set := s.linkSettings()
	if set.Secure == nil {
		t.Fatal("TCP would go without TLS")
	}
	_, err := set.Secure(t.Context(), nil)
	if !errors.Is(err, wire.ErrAccessDenied) || !strings.Contains(err.Error(), "CertFile=") {
		t.Errorf("got %v", err)
	}
	if s := newService(t, load(t, "TLS=no\n")); s.linkSettings().Secure != nil {
		t.Error("TLS=no has no effect")
	}
	if s := newService(t, load(t, issue(t, pkitest.NodeLeaf("host1")))); s.linkSettings().Secure == nil || s.store == nil {
		t.Error("certificates are not used")
	}
}

func TestCoreConfig(t *testing.T) {
	s := newService(t, load(t, "TLS=no\nManagerHost=::1\nHeartbeatInterval=1s\nManagerHeartbeatThreshold=5s\nCallTimeout=7s\nReconnectMin=1s\nReconnectMax=2s\nConnectionRetryCountUntilQuiet=3\n"))
	c := s.coreConfig()
	if c.Node != "host1" || !slices.Equal(c.Addresses, []string{"tcp:host=%3a%3a1,port=842"}) || c.HeartbeatInterval != time.Second ||
		c.HeartbeatThreshold != 5*time.Second || c.CallTimeout != 7*time.Second || c.ReconnectMin != time.Second ||
		c.ReconnectMax != 2*time.Second || c.QuietAfter != 3 || c.Facts[wire.FactAgentVersion].Sig != "s" {
		t.Errorf("got %+v", c)
	}
}

func TestStatusLine(t *testing.T) {
	for want, i := range map[string]agent.Info{
		"Connected to the manager at x":              {Status: wire.NodeOnline, ManagerAddress: "x"},
		"Not connected; the manager is awaited at x": {Status: wire.NodeOffline, ManagerAddress: "x"},
	} {
		if got := statusLine(i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
