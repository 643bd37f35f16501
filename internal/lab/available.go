package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// Unavailable says in one line why labs cannot run on this machine, or "" where they can.
// A test program that leaves tests out for it says so, and fails where CI=true is set.
func Unavailable() string {
	if available.Load() {
		return ""
	}
	for _, check := range []func() error{checkRoot, checkPrograms, checkCgroup, checkNamespaces} {
		if err := check(); err != nil {
			return strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
	available.Store(true)
	return ""
}

// available spares later questions; a "no" may change, when a program is installed.
var available atomic.Bool

func checkRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("labs need root")
	}
	return nil
}

const initProgram = "/lib/systemd/systemd"

func checkPrograms() error {
	for _, tool := range []string{"ip", "nsenter", "unshare", "dbus-daemon", "systemctl", "journalctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("labs need the program %s (packages systemd, dbus, iproute2, util-linux)", tool)
		}
	}
	if _, err := os.Stat(initProgram); err != nil {
		return fmt.Errorf("labs need systemd installed: %w", err)
	}
	return nil
}

func checkCgroup() error {
	group, err := cgroup2()
	if err != nil {
		return err
	}
	probe := filepath.Join(group, fmt.Sprintf("%s.probe-%d", prefix, os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil {
		return fmt.Errorf("labs need a cgroup2 hierarchy that may be written to: %w", err)
	}
	return os.Remove(probe)
}

// checkNamespaces makes for a moment what every node needs. A container's root has often the
// name of root only, so it is tried, not asked.
func checkNamespaces() error {
	const script = `mount -t tmpfs tmpfs /mnt && mkdir /mnt/base /mnt/upper /mnt/work /mnt/root &&
		mount -t overlay overlay -o lowerdir=/mnt/base:/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root`
	out, err := exec.Command("unshare", "--mount", "--pid", "--fork", "--net", "--uts", "--ipc", "--cgroup", "sh", "-c", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("labs need namespaces and overlayfs: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// cgroup2 finds where the host has its cgroup2 hierarchy.
func cgroup2() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("labs need a cgroup2 mount on this machine")
}
