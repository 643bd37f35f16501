package sdnotify

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// child runs this test binary as systemd would, with files from number 3 on, and returns what
// Listeners found there.
func child(t *testing.T, names string, files ...*os.File) string {
	t.Helper()
	// LISTEN_PID is the id that the shell keeps when it becomes the child.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `LISTEN_PID=$$ exec "$0" -test.run='^TestListenersChild$'`, os.Args[0])
	cmd.Env = append(os.Environ(), "CTRL_TEST_CHILD=1", fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+names)
	cmd.ExtraFiles = files
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, _, _ := strings.Cut(string(out), "PASS")
	return strings.TrimSpace(text)
}

func TestListenersChild(t *testing.T) {
	if os.Getenv("CTRL_TEST_CHILD") == "" {
		return // only as a child of the tests below
	}
	list, err := Listeners()
	if err != nil {
		fmt.Println("error:", err)
	}
	for _, l := range list {
		fmt.Println(l.Name, l.Addr().Network(), l.Addr())
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, key := range []string{"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"} {
		if v, set := os.LookupEnv(key); set {
			t.Errorf("%s=%s is left", key, v)
		}
	}
	if again, err := Listeners(); err != nil || len(again) != 0 {
		t.Errorf("a second call gave %v, %v", again, err)
	}
}

func fileOf(t *testing.T, l interface{ File() (*os.File, error) }) *os.File {
	t.Helper()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestListeners(t *testing.T) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	path := filepath.Join(t.TempDir(), "s")
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()

	if got, want := child(t, "agents:local", fileOf(t, tcp), fileOf(t, unix)), fmt.Sprintf("agents tcp %s\nlocal unix %s", tcp.Addr(), path); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the daemon has removed systemd's socket: %v", err)
	}
	if got := child(t, ""); got != "" {
		t.Errorf("without sockets: %q", got)
	}
	for name, f := range map[string]*os.File{"udp": fileOf(t, udp), "plain": plain} {
		if got := child(t, "agents:"+name, fileOf(t, tcp), f); !strings.HasPrefix(got, `error: socket "`+name+`"`) || strings.Contains(got, "agents tcp") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestSocketsForAnotherProcess(t *testing.T) {
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "1")
	if got, err := Listeners(); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
