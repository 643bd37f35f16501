package agentlink

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestListenTCPBothFamilies(t *testing.T) {
	l, err := ListenTCP("", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Error(err)
			continue
		}
		c.Close()
	}
}

func TestListenTCPPortInUse(t *testing.T) {
	l, err := ListenTCP("", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = ListenTCP("", uint16(port))
	if err == nil {
		t.Fatal("listens twice")
	}
	for _, want := range []string{"port " + strconv.Itoa(port), "another program", "ss -ltnp", "Port="} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
	}
}

func TestListenUnix(t *testing.T) {
	mode := func(path string) fs.FileMode {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	path := filepath.Join(t.TempDir(), "sub", "ctrl.sock")
	l, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if m := mode(path); m.Perm() != 0o666 {
		t.Errorf("mode %v", m)
	}
	if _, err := ListenUnix(path); err == nil || !strings.Contains(err.Error(), "another manager is running") {
		t.Errorf("a live socket gave %v", err)
	}
	l.SetUnlinkOnClose(false) // as after kill -9
	l.Close()
	if l, err = ListenUnix(path); err != nil {
		t.Fatalf("a stale socket gave %v", err)
	}
	l.Close()
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there after Close")
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file gave %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if _, err := ListenUnix("/" + strings.Repeat("x", 120)); err == nil || !strings.Contains(err.Error(), "at most 107") {
		t.Errorf("a long path gave %v", err)
	}
}

func TestPeerCredentials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	c, err := peerCredentials(near)
	if err != nil || c.uid != os.Getuid() || !slices.Contains(c.groups, os.Getgid()) {
		t.Errorf("got %+v, %v", c, err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if !slices.Contains(c.groups, g) {
			t.Errorf("group %d of %v is missing in %v", g, groups, c.groups)
		}
	}
}

func TestCheckPeer(t *testing.T) {
	tests := []struct {
		name  string
		peer  credentials
		user  int
		group int
		want  string
	}{
		{"root", credentials{uid: 0}, 990, NoGroup, ""},
		{"own user", credentials{uid: 990}, 990, NoGroup, ""},
		{"stranger", credentials{uid: 1000, groups: []int{0, 27}}, 990, NoGroup, "only root; SocketGroup="},
		{"member", credentials{uid: 1000, groups: []int{27, 50}}, 990, 50, ""},
		{"no member", credentials{uid: 1000, groups: []int{27}}, 990, 50, "(group 50)"},
	}
	for _, test := range tests {
		err := checkPeer(test.peer, test.user, test.group)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}
