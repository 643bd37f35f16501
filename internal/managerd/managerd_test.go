package managerd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/agentlink"
	"example.org/ctrl/internal/config"
	"example.org/ctrl/internal/pki/pkitest"
)

// load reads a configuration from lines below [manager], as a user without other files.
func load(t *testing.T, lines string) *config.Manager {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "test.conf")
	if err := os.WriteFile(file, []byte("[manager]\n"+lines), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadManager(config.Options{File: file, User: true, Getenv: func(key string) string {
		return map[string]string{"HOME": dir, "XDG_RUNTIME_DIR": dir}[key]
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// changed are values for all keys that are not their defaults.
const changed = `AllowedNodeNames=node1
Port=1842
UseTCP=no
UseUDS=no
SocketGroup=root
AllowInsecureNetwork=yes
HeartbeatInterval=1s
NodeHeartbeatThreshold=5s
CallTimeout=7s
QueryTimeout=3s
TLS=no
CertFile=/a
KeyFile=/b
CAFile=/c
TCPKeepAliveTime=2s
TCPKeepAliveInterval=3s
TCPKeepAliveCount=4
IPReceiveErrors=no
LogLevel=debug
LogTarget=json
LogIsQuiet=yes
`

// TestEffective holds what a reload applies against the table of keys.
func TestEffective(t *testing.T) {
	now, next := load(t, ""), load(t, changed)
	applied, restart := now.Changed(next)
	var all []string
	for _, k := range config.Sections()[0].Keys {
		all = append(all, k.Name)
	}
	for _, key := range all {
		if !slices.Contains(applied, key) && !slices.Contains(restart, key) {
			t.Fatalf("the test changes no %s=", key)
		}
	}
	e := effective(now, next)
	if took, kept := now.Changed(e); !slices.Equal(took, applied) || len(kept) > 0 {
		t.Errorf("a reload takes %v, want %v; %v must wait for a restart", took, applied, kept)
	}
	if left, missed := e.Changed(next); len(left) > 0 || !slices.Equal(missed, restart) {
		t.Errorf("a reload leaves out %v; of %v only %v wait for a restart", left, restart, missed)
	}
}

func TestCoreConfig(t *testing.T) {
	c := coreConfig(load(t, changed+"[node node2]\nAllowed=yes\nOptional=yes\n[node node4]\nOptional=yes\n"), []string{"node4", "node1", "node3"})
	var nodes []string
	for _, n := range c.Nodes {
		nodes = append(nodes, fmt.Sprint(n.Name, " ", n.Optional))
	}
	if fmt.Sprint(nodes) != "[node1 false node2 true node3 false node4 true]" || c.HeartbeatInterval != time.Second ||
		c.HeartbeatThreshold != 5*time.Second || c.CallTimeout != 7*time.Second || c.QueryTimeout != 3*time.Second {
		t.Errorf("got %+v", c)
	}
}

func TestListen(t *testing.T) {
	tests := map[string]struct {
		lines string
		want  []string // host parts and the socket's name
		err   string
	}{
		"both":             {"Port=0\n", []string{"::", "ctrl.sock"}, ""},
		"without TLS":      {"Port=0\nTLS=no\nUseUDS=no\n", []string{"127.0.0.1", "::1"}, ""},
		"open without TLS": {"Port=0\nTLS=no\nAllowInsecureNetwork=yes\nUseUDS=no\n", []string{"::"}, ""},
		"socket only":      {"UseTCP=no\n", []string{"ctrl.sock"}, ""},
		"nothing":          {"UseTCP=no\nUseUDS=no\n", nil, "nothing to listen on"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := load(t, test.lines)
			s, err := listen(c)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			var got []string
			for _, l := range s.all {
				if a, ok := l.Addr().(*net.TCPAddr); ok {
					got = append(got, a.IP.String())
				} else {
					got = append(got, filepath.Base(l.Addr().String()))
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("listens on %v, want %v", got, test.want)
			}
		})
	}
}

// TestOnePort: where the kernel chooses the port, both families have the same.
func TestOnePort(t *testing.T) {
	s, err := listen(load(t, "Port=0\nTLS=no\nUseUDS=no\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if a, b := s.all[0].Addr().(*net.TCPAddr).Port, s.all[1].Addr().(*net.TCPAddr).Port; a != b {
		t.Errorf("ports %d and %d", a, b)
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	l, err := agentlink.ListenTCP("", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := load(t, "Port="+fmt.Sprint(l.Addr().(*net.TCPAddr).Port)+"\n")
	if _, err := listen(c); err == nil || !strings.Contains(err.Error(), "another program has it") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(c.Places.Socket); err == nil {
		t.Error("the unix socket is left")
	}
}

func TestCheck(t *testing.T) {
	ca, err := pkitest.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	lines := func(leaf pkitest.Leaf) string {
		f, err := ca.Write(t.TempDir(), "own", leaf)
		if err != nil {
			t.Fatal(err)
		}
		return "CertFile=" + f.Cert + "\nKeyFile=" + f.Key + "\nCAFile=" + f.CA + "\n"
	}
	expired := pkitest.ManagerLeaf()
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	tests := map[string]struct {
		lines           string
		start, thorough string
	}{
		"good":          {lines(pkitest.ManagerLeaf()), "", ""},
		"expired":       {lines(expired), "", "expired at"},
		"a node's":      {lines(pkitest.NodeLeaf("node1")), "cannot be a manager's", "cannot be a manager's"},
		"no such group": {"SocketGroup=no-such-group\nTLS=no\n", "SocketGroup=no-such-group", "SocketGroup=no-such-group"},
		"own authority": {"", "", ""},
		"no files":      {"CertFile=/nonexistent\nKeyFile=/nonexistent\nCAFile=/nonexistent\n", "does not exist", "does not exist"},
		"no TCP":        {"CertFile=/nonexistent\nKeyFile=/nonexistent\nCAFile=/nonexistent\nUseTCP=no\n", "", ""},
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
