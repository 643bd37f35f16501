package peer

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// need finds a program that a test cannot do without. Where it is missing the test is left
// out aloud, and in CI it fails.
func need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	missing(t, program)
	return ""
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing: install it, CI does not leave this test out", what)
	}
	t.Skipf("LEFT OUT: %s is missing, so this is not tested here", what)
}

// limited is a context for steps that depend on other programs.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// startBus runs a bus of the test's own and returns its address and a way to end it early.
func startBus(t testing.TB) (address string, stop func()) {
	t.Helper()
	cmd := exec.Command(need(t, "dbus-daemon"), "--session", "--print-address", "--nofork", "--nopidfile",
		"--address=unix:path="+filepath.Join(t.TempDir(), "bus"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	t.Cleanup(stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("dbus-daemon gave no address: %v", err)
	}
	return strings.TrimSpace(line), stop
}

// busClient is a client of a bus that ends with the test.
func busClient(t testing.TB, address string, opt Options) *Conn {
	t.Helper()
	c, err := DialBus(limited(t), address, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(nil); <-c.Done() })
	return c
}

// serve accepts connections on a unix socket until the test ends, and returns its D-Bus
// address.
func serve(t testing.TB, opt Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var conns []*Conn
		for {
			nc, err := l.Accept()
			if err != nil {
				break
			}
			if c, err := Server(context.Background(), nc, opt); err == nil {
				conns = append(conns, c)
			}
		}
		for _, c := range conns {
			c.Close(nil)
			<-c.Done()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return "unix:path=" + EscapeAddress(path)
}
