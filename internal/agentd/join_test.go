package agentd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/ctrl/internal/daemon"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/pki"
	"example.org/ctrl/internal/pki/pkitest"
	"example.org/ctrl/internal/wire"
)

// joinable is a manager that lets machines join.
type joinable struct {
	ca      *pkitest.CA
	address string
	asked   chan string // node and token of each call
}

// newJoinable answers Join with a certificate for the node that asks, or with refuse.
func newJoinable(t *testing.T, ca *pkitest.CA, refuse error) *joinable {
	t.Helper()
	cert, key, err := ca.Issue(pkitest.ManagerLeaf())
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair(append(cert, ca.PEM...), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	m := &joinable{ca: ca, address: l.Addr().String(), asked: make(chan string, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			m.serve(nc, refuse)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return m
}

func (m *joinable) serve(nc net.Conn, refuse error) {
	conn, err := peer.Server(context.Background(), nc, peer.Options{Handler: func(c *peer.Conn, call *peer.Message) {
		var node, token string
		var request []byte
		if err := peer.Decode(call.Body, &node, &token, &request); err != nil {
			c.ReplyError(call, err)
			return
		}
		m.asked <- node + " " + token
		if refuse != nil {
			c.ReplyError(call, refuse)
			return
		}
		block, _ := pem.Decode(request)
		csr, err := x509.ParseCertificateRequest(block.Bytes)
		if err == nil {
			var cert []byte
			if cert, err = m.ca.IssueFor(csr.PublicKey, pkitest.NodeLeaf(node)); err == nil {
				c.Reply(call, peer.MustEncode(cert, m.ca.PEM))
			}
		}
		if err != nil {
			c.ReplyError(call, err)
		}
	}})
	if err == nil {
		<-conn.Done()
	}
}

// joinAs runs the command for a user without anything, whose home is dir.
func joinAs(t *testing.T, dir, stdin string, args ...string) (code int, out, notices string) {
	t.Helper()
	in := filepath.Join(t.TempDir(), "stdin")
	if err := os.WriteFile(in, []byte(stdin), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := os.Stdin
	os.Stdin = f
	defer func() { os.Stdin = before }()
	var stdout, stderr bytes.Buffer
	code = Run(t.Context(), append([]string{"join", "--user", "--no-start"}, args...), []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir}, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func newFleetCA(t *testing.T) *pkitest.CA {
	t.Helper()
	ca, err := pkitest.New("fleet")
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestJoin(t *testing.T) {
	ca := newFleetCA(t)
	m := newJoinable(t, ca, nil)
	word := pki.NewToken(ca.Cert).String()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(word+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, way := range map[string]struct {
		stdin string
		args  []string
	}{
		"argument": {"", []string{"--token", word}},
		"file":     {"", []string{"--token-file", file}},
		"stdin":    {" " + strings.ToUpper(word) + "\n", nil},
		"dash":     {word, []string{"--token", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			code, out, notices := joinAs(t, dir, way.stdin, append(way.args, "--manager", m.address, "--name", "node1", "--allow", "run,apply")...)
			if code != daemon.ExitOK || !strings.Contains(out, "node1 has joined") || !strings.Contains(out, "systemctl --user enable --now ctrl-agent.service") {
				t.Fatalf("exit code %d: %s%s", code, out, notices)
			}
			if got := <-m.asked; got != "node1 "+word {
				t.Errorf("the manager was asked %q", got)
			}
			if strings.Contains(out+notices, word) {
				t.Error("the token is shown")
			}
			store, err := pki.Open(pki.NewNodeState(filepath.Join(dir, ".local/state/ctrl/agent")).Config("node1"), quiet)
			if err != nil || store.Name() != "node1" {
				t.Errorf("what was written: %v", err)
			}
			conf, err := os.ReadFile(filepath.Join(dir, ".config/ctrl/agent.conf.d/50-join.conf"))
			host, port, _ := net.SplitHostPort(m.address)
			want := "[agent]\nNodeName=node1\nManagerHost=" + host + "\nManagerPort=" + port + "\n\n[policy]\nAllowTransientUnits=yes\nAllowApply=yes\n"
			if err != nil || !strings.HasSuffix(string(conf), want) {
				t.Errorf("the configuration is %s, %v", conf, err)
			}
		})
	}
}

func TestJoinFails(t *testing.T) {
	ca := newFleetCA(t)
	good := newJoinable(t, ca, nil)
	refusing := newJoinable(t, ca, wire.ErrAccessDenied.With("the token is used up; run `ctl node add node1` on the manager"))
	other := newJoinable(t, newFleetCA(t), nil)
	word := pki.NewToken(ca.Cert).String()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	tests := map[string]struct {
		conf string
		args []string
		code int
		want string
	}{
		"no manager":       {"", []string{"--token", word}, daemon.ExitUsage, "--manager is missing"},
		"two tokens":       {"", []string{"--manager", "boss", "--token", word, "--token-file", "/x"}, daemon.ExitUsage, "exclude each other"},
		"no token":         {"", []string{"--manager", "boss"}, daemon.ExitUsage, "the token is empty"},
		"half a token":     {"", []string{"--manager", "boss", "--token", word[:40]}, daemon.ExitUsage, "copy it again"},
		"no such file":     {"", []string{"--manager", "boss", "--token-file", "/nowhere"}, daemon.ExitUsage, "/nowhere"},
		"bad port":         {"", []string{"--manager", "boss:http", "--token", word}, daemon.ExitUsage, "write it like boss"},
		"bad host":         {"", []string{"--manager", "[::1", "--token", word}, daemon.ExitUsage, "write it like boss"},
		"bad allowance":    {"", []string{"--manager", "boss", "--token", word, "--allow", "all"}, daemon.ExitUsage, "run and apply"},
		"bad name":         {"", []string{"--manager", "boss", "--token", word, "--name", "my node"}, daemon.ExitFailed, "my node"},
		"a stray argument": {"", []string{"--manager", "boss", word}, daemon.ExitUsage, "not understood"},
		"nobody there":     {"", []string{"--manager", closed.Addr().String(), "--token", word, "--name", "node1"}, daemon.ExitFailed, "is not reached"},
		"another fleet":    {"", []string{"--manager", other.address, "--token", word, "--name", "node1"}, daemon.ExitFailed, "does not come from the authority"},
		"refused":          {"", []string{"--manager", refusing.address, "--token", word, "--name", "node1"}, daemon.ExitFailed, "the token is used up"},
		"own certificates": {"CertFile=/a\nKeyFile=/b\nCAFile=/c\n", []string{"--manager", good.address, "--token", word}, daemon.ExitFailed, "certificates of its own"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.conf != "" {
				if err := os.MkdirAll(filepath.Join(dir, ".config/ctrl"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, ".config/ctrl/agent.conf"), []byte("[agent]\n"+tt.conf), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			code, out, notices := joinAs(t, dir, "", tt.args...)
			if code != tt.code || !strings.Contains(notices, tt.want) {
				t.Errorf("exit code %d: %s%s", code, out, notices)
			}
			if strings.Contains(out+notices, word[:40]) {
				t.Error("the token is shown")
			}
			for _, file := range []string{".config/ctrl/agent.conf.d/50-join.conf", ".local/state/ctrl/agent/pki/node.pem"} {
				if _, err := os.Stat(filepath.Join(dir, file)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s was written: %v", file, err)
				}
			}
		})
	}
	if len(other.asked) != 0 {
		t.Error("another fleet's manager was given the token")
	}
}

// A file that comes later in the order may not send the node elsewhere in silence.
func TestJoinThatIsOutdone(t *testing.T) {
	ca := newFleetCA(t)
	m := newJoinable(t, ca, nil)
	dir := t.TempDir()
	late := filepath.Join(dir, ".config/ctrl/agent.conf.d/60-late.conf")
	if err := os.MkdirAll(filepath.Dir(late), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(late, []byte("[agent]\nManagerHost=elsewhere\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, notices := joinAs(t, dir, "", "--manager", m.address, "--name", "node1", "--token", pki.NewToken(ca.Cert).String())
	if code != daemon.ExitFailed || !strings.Contains(notices, "outdoes") || !strings.Contains(notices, "elsewhere") {
		t.Errorf("exit code %d: %s", code, notices)
	}
}

func TestSplitManager(t *testing.T) {
	for in, want := range map[string]string{
		"boss": "boss 842", "boss:9": "boss 9", "192.0.2.1": "192.0.2.1 842", "2001:db8::1": "2001:db8::1 842",
		"[2001:db8::1]": "2001:db8::1 842", "[2001:db8::1]:9": "2001:db8::1 9", "": "", ":9": "", "a:b:c": "", "boss:0": "", "boss:70000": "", "a b": "", "https://boss": "",
	} {
		host, port, err := splitManager(in)
		if got := strings.TrimSpace(host + " " + port); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// A node renews when two thirds are over, keeps the old certificate while that fails, and
// says when it ends.
func TestRenewal(t *testing.T) {
	ca := newFleetCA(t)
	state := pki.NewNodeState(t.TempDir())
	leaf := pkitest.NodeLeaf("node1")
	leaf.NotBefore, leaf.NotAfter = time.Now().Add(-3*time.Hour), time.Now().Add(time.Hour)
	cert, key, err := ca.Issue(leaf)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := state.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Write(key, pki.Issued{Certificate: cert, CA: ca.PEM}); err != nil {
		t.Fatal(err)
	}
	unlock()
	store, err := pki.Open(state.Config("node1"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	r := newRenewal(state, store, quiet)
	r.backoff.Min, r.backoff.Max = time.Millisecond, time.Millisecond
	tries := 0
	renewed := make(chan struct{})
	r.ask = func(request []byte, reply func(certificate, authorities []byte, err error)) {
		switch tries++; tries {
		case 1:
			reply(nil, nil, wire.ErrDisconnected.With("there is no session"))
		case 2:
			reply(cert, ca.PEM, nil) // the certificate of another key
		default:
			block, _ := pem.Decode(request)
			csr, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				t.Error(err)
			}
			next, err := ca.IssueFor(csr.PublicKey, pkitest.NodeLeaf("node1"))
			reply(next, ca.PEM, err)
			close(renewed)
		}
	}
	component := daemon.Go(r.run)
	<-renewed
	component.End(t.Context())
	if tries != 3 || time.Until(store.Expires()) < 20*time.Hour {
		t.Errorf("after %d tries it ends at %v", tries, store.Expires())
	}
}
