package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// monitored is a real manager on a bus daemon of its own, with nodes whose agents are played
// here, and clients in a process of their own.
type monitored struct {
	dir          string
	bus, manager *exec.Cmd
	nodes        []*player
	clients      *clients
	sent         int
}

// busConfig has the limits of the system bus.
const busConfig = `<busconfig><type>system</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow send_type="signal"/><allow receive_sender="*"/></policy>
<limit name="max_connections_per_user">4096</limit></busconfig>
`

func startMonitored(ctx context.Context, program string, reading, stopped int) (*monitored, error) {
	f := &monitored{}
	if err := f.start(ctx, program, reading, stopped); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *monitored) start(ctx context.Context, program string, reading, stopped int) (err error) {
	if f.dir, err = os.MkdirTemp("", "ctrl-bench"); err != nil {
		return err
	}
	address := "unix:path=" + filepath.Join(f.dir, "bus")
	if err := f.startBus(ctx); err != nil {
		return err
	}
	port, err := f.startManager(ctx, program, address)
	if err != nil {
		return err
	}
	for i := range monitorNodes {
		p, err := play(ctx, port, fmt.Sprint("node", i))
		if err != nil {
			return err
		}
		f.nodes = append(f.nodes, p)
	}
	f.clients, err = startClients(ctx, address, reading, stopped)
	return err
}

func (f *monitored) startBus(ctx context.Context) error {
	file := filepath.Join(f.dir, "bus.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, busConfig, filepath.Join(f.dir, "bus")), 0o600); err != nil {
		return err
	}
	f.bus = exec.CommandContext(ctx, "dbus-daemon", "--config-file="+file, "--nofork", "--nosyslog", "--print-address")
	out, err := f.bus.StdoutPipe()
	if err != nil {
		return err
	}
	if err := f.bus.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

// buildManager makes the program, in a folder that the caller removes.
func buildManager(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "ctrl-manager")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/manager").CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the manager: %w\n%s", err, out)
	}
	return program, nil
}

func (f *monitored) startManager(ctx context.Context, program, address string) (port string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, _ = net.SplitHostPort(l.Addr().String())
	l.Close()
	var names []string
	for i := range monitorNodes {
		names = append(names, fmt.Sprint("node", i))
	}
	file := filepath.Join(f.dir, "manager.conf")
	text := "[manager]\nTLS=no\nUseUDS=no\nLogTarget=stderr\nPort=" + port + "\nAllowedNodeNames=" + strings.Join(names, ",") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	f.manager = exec.CommandContext(ctx, program, "-c", file)
	f.manager.Env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS="+address)
	logs, err := f.manager.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := f.manager.Start(); err != nil {
		return "", err
	}
	return port, awaitLine(logs, "waiting for agents")
}

// awaitLine reads a log until a line holds text, and reads on.
func awaitLine(from interface{ Read([]byte) (int, error) }, text string) error {
	lines := bufio.NewScanner(from)
	var all strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&all, lines.Text())
		if strings.Contains(lines.Text(), text) {
			go func() {
				for lines.Scan() {
					if strings.Contains(lines.Text(), "ERR") || strings.Contains(lines.Text(), "WRN") {
						fmt.Fprintln(os.Stderr, lines.Text())
					}
				}
			}()
			return nil
		}
	}
	return fmt.Errorf("the manager has ended:\n%s", &all)
}

func (f *monitored) close() {
	for _, n := range f.nodes {
		n.conn.Close(nil)
	}
	if f.clients != nil {
		f.clients.close()
	}
	for _, cmd := range []*exec.Cmd{f.manager, f.bus} {
		if cmd != nil && cmd.Process != nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
	os.RemoveAll(f.dir)
}

// usage is the processor time of manager, bus daemon and clients, in nanoseconds.
func (f *monitored) usage() (all [3]int64, err error) {
	for i, pid := range []int{f.manager.Process.Pid, f.bus.Process.Pid, f.clients.cmd.Process.Pid} {
		u, err := usageOf(pid)
		if err != nil {
			return all, err
		}
		all[i] = u.Ticks * int64(10*time.Millisecond) // USER_HZ is 100 wherever Linux shows it (time(7))
	}
	return all, nil
}

// peak is the most memory that the manager has had, in bytes.
func (f *monitored) peak() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.manager.Process.Pid))
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

// change changes the state of n units, in turn over nodes and units. The sub state tells
// clients which change of its unit it is, and when it was.
func (f *monitored) change(n int) error {
	for range n {
		p := f.nodes[f.sent%len(f.nodes)]
		unit := f.sent / len(f.nodes) % monitorUnits
		f.sent++
		if err := p.change(unit, ""); err != nil {
			return err
		}
	}
	return nil
}

// end changes all units for the last time and says what the clients have seen.
func (f *monitored) end() (seen, error) {
	for _, p := range f.nodes {
		for unit := range monitorUnits {
			if err := p.change(unit, lastState); err != nil {
				return seen{}, err
			}
		}
	}
	return f.clients.end()
}
