package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const units = "usr/lib/systemd/system"

// hidden are the folders of this machine that a node does not see: what the machine would
// start, what it has written, and its administrator's files.
var hidden = []string{
	"etc/systemd/system", "etc/init.d", "etc/systemd/system-generators",
	"usr/lib/systemd/system-generators", "usr/lib/systemd/system-environment-generators",
	"var/log", "var/lib/systemd", "root", "etc/systemd/network",
	"etc/ctrl", "usr/lib/ctrl", "var/lib/ctrl", "var/lib/ctrl-manager",
}

// started is what a node starts, below the folder of its wants.
var started = map[string][]string{
	"sysinit.target.wants": {"systemd-journald.service", "systemd-tmpfiles-setup.service"},
	"sockets.target.wants": {"systemd-journald.socket", "systemd-journald-dev-log.socket", "dbus.socket"},
}

const journalConfig = "[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\nRateLimitBurst=0\n"

// makeBase makes the layer that turns the live root file system into a bare node.
func makeBase(dir string) error {
	wants, err := vendorWants()
	if err != nil {
		return err
	}
	for _, path := range append(wants, hidden...) {
		if err := opaque(filepath.Join(dir, path)); err != nil {
			return err
		}
	}
	for folder, names := range started {
		if err := os.MkdirAll(filepath.Join(dir, units, folder), 0o755); err != nil {
			return err
		}
		for _, name := range names {
			if err := os.Symlink("../"+name, filepath.Join(dir, units, folder, name)); err != nil {
				return err
			}
		}
	}
	conf := filepath.Join(dir, "etc/systemd/journald.conf.d")
	return errors.Join(
		os.Symlink("/lib/systemd/system/multi-user.target", filepath.Join(dir, "etc/systemd/system/default.target")),
		os.MkdirAll(conf, 0o755),
		os.WriteFile(filepath.Join(conf, "50-lab.conf"), []byte(journalConfig), 0o644),
		os.Chmod(filepath.Join(dir, "root"), 0o700),
		os.Symlink(namesFolder+"/hosts", filepath.Join(dir, "etc/hosts")),
	)
}

// vendorWants lists the folders by which units of this machine's packages start at boot.
func vendorWants() ([]string, error) {
	entries, err := os.ReadDir("/" + units)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".wants") {
			out = append(out, filepath.Join(units, e.Name()))
		}
	}
	return out, nil
}

// opaque makes a folder that hides what lower layers have at its place.
func opaque(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return unix.Setxattr(dir, "trusted.overlay.opaque", []byte("y"), 0)
}
