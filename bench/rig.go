package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// rig is a real manager on a D-Bus daemon of its own, without any machine around it.
type rig struct {
	dir          string
	bus, manager *exec.Cmd
	address      string // of the bus
	quiet        bool   // its warnings are not shown
	port         string // on which the manager awaits agents, once it was started
}

// busConfig has the limits of the system bus.
const busConfig = `<busconfig><type>system</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow send_type="signal"/><allow receive_sender="*"/></policy>
<limit name="max_connections_per_user">4096</limit></busconfig>
`

func (r *rig) startBus(ctx context.Context) (err error) {
	if r.dir, err = os.MkdirTemp("", "ctrl-bench"); err != nil {
		return err
	}
	socket, file := filepath.Join(r.dir, "bus"), filepath.Join(r.dir, "bus.conf")
	r.address = "unix:path=" + socket
	if err := os.WriteFile(file, fmt.Appendf(nil, busConfig, socket), 0o600); err != nil {
		return err
	}
	r.bus = exec.CommandContext(ctx, "dbus-daemon", "--config-file="+file, "--nofork", "--nosyslog", "--print-address")
	out, err := r.bus.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.bus.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

// profiles is the folder for profiles of managers, "" for none.
var profiles string

// profile names the files of the next manager.
func profile(env []string) []string {
	if profiles == "" {
		return env
	}
	number := 0
	for ; ; number++ {
		if _, err := os.Stat(filepath.Join(profiles, fmt.Sprintf("cpu.%d", number))); err != nil {
			break
		}
	}
	return append(env, fmt.Sprintf("CPU_PROFILE=%s/cpu.%d", profiles, number), fmt.Sprintf("HEAP_PROFILE=%s/heap.%d", profiles, number))
}

// buildManager makes the program, with the flags of the Makefile, in a folder that the caller
// removes.
func buildManager(ctx context.Context, dir string) (string, error) {
	program, source := filepath.Join(dir, "ctrl-manager"), "./cmd/manager"
	if profiles != "" {
		source = "./bench/profiled"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the manager: %w\n%s", err, out)
	}
	return program, nil
}

// freePort finds one below those that the kernel gives to connections: thousands of these
// would make it likely that one of them takes the port while the manager is away.
func freePort() (string, error) {
	const first, last = 20000, 30000
	var err error
	for range 20 {
		port := strconv.Itoa(first + rand.IntN(last-first))
		var l net.Listener
		if l, err = net.Listen("tcp", ":"+port); err == nil {
			return port, l.Close()
		}
	}
	return "", err
}

// startManager starts it with lines below [manager], on a port that is free, or on the one
// that it had before. It returns when agents are awaited.
func (r *rig) startManager(ctx context.Context, program, lines string) error {
	if r.port == "" {
		var err error
		if r.port, err = freePort(); err != nil {
			return err
		}
	}
	file := filepath.Join(r.dir, "manager.conf")
	text := "[manager]\nUseUDS=no\nLogTarget=stderr\nPort=" + r.port + "\n" + lines
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	r.manager = exec.CommandContext(ctx, program, "-c", file)
	r.manager.Env = profile(append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS="+r.address))
	logs, err := r.manager.StderrPipe()
	if err != nil {
		return err
	}
	if err := r.manager.Start(); err != nil {
		return err
	}
	return awaitLine(logs, "waiting for agents", r.quiet)
}

// awaitLine reads a log until a line holds text, and reads on.
func awaitLine(from interface{ Read([]byte) (int, error) }, text string, quiet bool) error {
	lines := bufio.NewScanner(from)
	var all strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&all, lines.Text())
		if strings.Contains(lines.Text(), text) {
			go func() {
				for lines.Scan() {
					if text := lines.Text(); strings.Contains(text, "ERR") || !quiet && strings.Contains(text, "WRN") {
						fmt.Fprintln(os.Stderr, text)
					}
				}
			}()
			return nil
		}
	}
	return fmt.Errorf("the manager has ended:\n%s", &all)
}

// peak is the most memory that the manager has had, in bytes.
func (r *rig) peak() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.manager.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the kernel does not tell VmHWM")
}

// kill ends the manager as a crash does.
func (r *rig) kill() {
	if r.manager != nil && r.manager.Process != nil {
		if profiles != "" {
			r.manager.Process.Signal(os.Interrupt) // profiles are written at an orderly end
		} else {
			r.manager.Process.Kill()
		}
		r.manager.Wait()
	}
}

func (r *rig) close() {
	r.kill()
	if r.bus != nil && r.bus.Process != nil {
		r.bus.Process.Kill()
		r.bus.Wait()
	}
	os.RemoveAll(r.dir)
}
