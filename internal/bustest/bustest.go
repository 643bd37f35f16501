// Package bustest runs a private D-Bus daemon for a test.
package bustest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Bus is one dbus-daemon, which ends with the test.
type Bus struct {
	// Address is the D-Bus address, the same after a restart.
	Address string

	t      testing.TB
	config string
	daemon *exec.Cmd
}

// config is a bus on which everyone may do everything.
const config = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>%s</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow send_type="signal"/>
    <allow receive_sender="*"/>
  </policy>
  %s
</busconfig>
`

// userLimits are those of a user's bus (session.conf of dbus-daemon) that a test can reach.
const userLimits = `<limit name="max_message_size">1000000000</limit>
  <limit name="max_incoming_bytes">1000000000</limit>
  <limit name="max_outgoing_bytes">1000000000</limit>
  <limit name="max_replies_per_connection">50000</limit>`

// Start runs a daemon with the limits of a user's bus.
func Start(t testing.TB) *Bus { return start(t, "session", userLimits) }

// StartSystem runs a daemon with the limits of the system bus, which are dbus-daemon's
// defaults.
func StartSystem(t testing.TB) *Bus { return start(t, "system", "") }

// StartDenying runs a daemon that lets nobody own this name.
func StartDenying(t testing.TB, name string) *Bus {
	return start(t, "session", fmt.Sprintf(`<policy context="mandatory"><deny own="%s"/></policy>`, name))
}

func start(t testing.TB, kind, extra string) *Bus {
	t.Helper()
	// Not t.TempDir: a socket's path has at most 107 bytes.
	dir, err := os.MkdirTemp("", "bus")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "bus")
	b := &Bus{t: t, Address: "unix:path=" + socket, config: filepath.Join(dir, "bus.conf")}
	if err := os.WriteFile(b.config, fmt.Appendf(nil, config, kind, socket, extra), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Stop()
		os.RemoveAll(dir)
	})
	b.Start()
	return b
}

// Start runs the daemon again after Stop, at the same address, and returns when it listens.
func (b *Bus) Start() {
	b.t.Helper()
	cmd := exec.Command("dbus-daemon", "--config-file="+b.config, "--nofork", "--nosyslog", "--print-address")
	var stderr bytes.Buffer // it always has something to say
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that crashes leaves nothing
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatalf("cannot run dbus-daemon: %v", err)
	}
	b.daemon = cmd
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		b.Stop()
		b.t.Fatalf("dbus-daemon does not say where it listens: %v: %s", err, &stderr)
	}
}

// Stop kills the daemon; all its connections end.
func (b *Bus) Stop() {
	if b.daemon != nil {
		b.daemon.Process.Kill()
		b.daemon.Wait()
		b.daemon = nil
	}
}
