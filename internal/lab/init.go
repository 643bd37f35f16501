package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A program that uses labs starts itself again for two tasks: as the guard of a lab, and as
// the first process of a node. Nothing else can be run at that place: a node's first process
// must make its mounts from inside its namespaces and then become systemd, and 40 calls of
// mount(8) and the like cost more than systemd's whole boot.
func init() {
	if name := os.Getenv(guardVariable); name != "" {
		guard(name)
		os.Exit(0)
	}
	if text := os.Getenv(bootVariable); text != "" {
		var m machine
		err := json.Unmarshal([]byte(text), &m)
		if err == nil {
			err = m.boot()
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bootVariable makes a copy of this program boot the machine that it describes.
const bootVariable = "CTRL_LAB_BOOT"

// machine is what a node's first process needs to know. It was started in new pid, mount, uts
// and ipc namespaces, inside the node's cgroup.
type machine struct {
	Dir      string // the node's folder on the lab's tmpfs
	Names    string // the folder with the names of all nodes
	Lower    string // lower layers of its root, uppermost first
	HostName string
	NetSpace string
	BootID   string
	Sysusers bool
}

// boot makes the machine and becomes its systemd. It runs during initialization, that is, on
// the main thread, which is the one that unshare and setns change and that execve keeps.
func (m *machine) boot() error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"enter the network namespace", m.enterNet},
		// Moved into its cgroup first, by clone3: so that one becomes the root of what it sees.
		{"unshare the cgroup namespace", func() error { return unix.Unshare(unix.CLONE_NEWCGROUP) }},
		{"set the host name", func() error { return unix.Sethostname([]byte(m.HostName)) }},
		{"mount", m.mount},
		{"make devices", m.makeDevices},
		{"set the boot id", m.setBootID},
		{"change the root", m.pivot},
		{"make users", m.makeUsers},
		{"drop capabilities", dropCapabilities},
		{"become systemd", becomeSystemd},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("cannot %s: %w", s.what, err)
		}
	}
	return nil
}

func (m *machine) enterNet() error {
	fd, err := unix.Open(m.NetSpace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

const (
	plain  = unix.MS_NOSUID | unix.MS_NODEV
	strict = plain | unix.MS_NOEXEC
)

// at is a place below the new root.
func (m *machine) at(path string) string { return filepath.Join(m.Dir, "root", path) }

func (m *machine) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", m.Lower, m.Dir, m.Dir)
	for _, mount := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"overlay", "/", "overlay", 0, layers},
		{"proc", "/proc", "proc", strict, ""},
		{m.at("/proc/sys"), "/proc/sys", "", unix.MS_BIND, ""},
		{"sysfs", "/sys", "sysfs", strict | unix.MS_RDONLY, ""},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", strict, ""}, // a fresh one: its root is this cgroup
		{"tmpfs", "/run", "tmpfs", plain, "mode=755"},
		{"tmpfs", "/tmp", "tmpfs", plain, "mode=1777"},
		{"tmpfs", "/dev", "tmpfs", unix.MS_NOSUID, "mode=755"},
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"},
		{"tmpfs", "/dev/shm", "tmpfs", plain, "mode=1777"},
		{"mqueue", "/dev/mqueue", "mqueue", strict, ""},
		{filepath.Join(m.Dir, "notify"), notifyFolder, "", unix.MS_BIND, ""},
		{m.Names, namesFolder, "", unix.MS_BIND, ""},
	} {
		if err := os.MkdirAll(m.at(mount.target), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(mount.source, m.at(mount.target), mount.kind, mount.flags, mount.data); err != nil {
			return fmt.Errorf("%s on %s: %w", mount.source, mount.target, err)
		}
	}
	return nil
}

const (
	notifyFolder = "/run/host/lab"
	namesFolder  = "/run/host/names"
)

func (m *machine) makeDevices() error {
	for _, d := range []struct {
		name         string
		mode         uint32
		major, minor uint32
	}{
		{"null", 0o666, 1, 3}, {"zero", 0o666, 1, 5}, {"full", 0o666, 1, 7}, {"random", 0o666, 1, 8},
		{"urandom", 0o666, 1, 9}, {"tty", 0o666, 5, 0},
		{"console", 0o600, 1, 3}, // what is said on it is said to nobody
	} {
		path := m.at("/dev/" + d.name)
		if err := unix.Mknod(path, unix.S_IFCHR, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if err := os.Chmod(path, os.FileMode(d.mode)); err != nil {
			return err
		}
	}
	return errors.Join(
		os.Symlink("/proc/self/fd", m.at("/dev/fd")),
		os.Symlink("fd/0", m.at("/dev/stdin")),
		os.Symlink("fd/1", m.at("/dev/stdout")),
		os.Symlink("fd/2", m.at("/dev/stderr")),
		os.Symlink("pts/ptmx", m.at("/dev/ptmx")),
	)
}

// setBootID gives this boot an id of its own; the kernel's is the same for all nodes and all
// their boots. Then /proc/sys is closed: most of it would change the whole machine.
func (m *machine) setBootID() error {
	file := filepath.Join(m.Dir, "boot_id")
	if err := os.WriteFile(file, []byte(m.BootID+"\n"), 0o444); err != nil {
		return err
	}
	if err := unix.Mount("", m.at("/proc/sys"), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|strict, ""); err != nil {
		return err
	}
	return unix.Mount(file, m.at("/proc/sys/kernel/random/boot_id"), "", unix.MS_BIND, "")
}

func (m *machine) pivot() error {
	if err := os.Chdir(m.at("/")); err != nil {
		return err
	}
	// With the old root on top of the new one it needs no folder of its own: pivot_root(2).
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Chdir("/")
}

const nodePath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// makeUsers makes the users that an installed layer declares, before its units start.
func (m *machine) makeUsers() error {
	if !m.Sysusers {
		return nil
	}
	cmd := exec.Command("/usr/bin/systemd-sysusers")
	cmd.Env = []string{nodePath}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// dropCapabilities takes away what would change the whole machine.
func dropCapabilities() error {
	for _, c := range []uintptr{unix.CAP_SYS_TIME, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

func becomeSystemd() error {
	return unix.Exec(initProgram, []string{initProgram, "--log-target=journal-or-kmsg", "--show-status=false"},
		[]string{"container=lab", nodePath, "NOTIFY_SOCKET=" + notifyFolder + "/ready"})
}
