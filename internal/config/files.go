package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxFile is the largest configuration file, in bytes: a bound for what is none at all.
const maxFile = 16 << 20

// files lists the files that are there: the main ones, then the drop-ins of all folders by
// file name, where one below /etc takes the place of its namesake below /usr/lib.
func (l *loader) files() ([]string, error) {
	folders := []string{filepath.Join(l.opt.Root, "/usr/lib/ctrl"), filepath.Join(l.opt.Root, "/etc/ctrl")}
	if l.opt.User {
		home, err := l.home("XDG_CONFIG_HOME", ".config")
		if err != nil {
			return nil, err
		}
		folders = []string{filepath.Join(l.opt.Root, home, "ctrl")}
	}
	var out []string
	dropIns := make(map[string]string)
	for _, folder := range folders {
		main := filepath.Join(folder, l.main+".conf")
		if _, err := os.Lstat(main); err == nil {
			out = append(out, main)
		} else if !missing(err) {
			return nil, fmt.Errorf("cannot read configuration: %w", err)
		}
		entries, err := os.ReadDir(main + ".d")
		if err != nil && !missing(err) {
			return nil, fmt.Errorf("cannot read configuration: %w", err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".conf") && !strings.HasPrefix(e.Name(), ".") {
				dropIns[e.Name()] = filepath.Join(main+".d", e.Name())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		out = append(out, dropIns[name])
	}
	return out, nil
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// read reads a file. Those in the folders are files, or links to /dev/null, which take away
// what they are named like; -c may also name a pipe.
func read(name string, any bool) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	if mode := info.Mode(); !any && !mode.IsRegular() && mode.Type() != fs.ModeDevice|fs.ModeCharDevice {
		return nil, fmt.Errorf("cannot read configuration: %s is no file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read configuration: %w", err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("cannot read configuration: %s is larger than %d MiB, so it is something else", name, maxFile>>20)
	}
	return data, nil
}

// Places are where a daemon keeps things (file-hierarchy(7); with --user the XDG base
// directory specification).
type Places struct {
	ConfigDir  string
	StateDir   string
	RuntimeDir string
	Socket     string // the manager's unix socket
}

// places fills in c. The two daemons never share a folder: the manager's user must not own
// what the agent, as root, reads.
func (l *loader) places(c *Places) {
	*c = Places{ConfigDir: "/etc/ctrl", StateDir: "/var/lib/ctrl", RuntimeDir: "/run/ctrl"}
	if l.main == managerSection {
		c.StateDir = "/var/lib/ctrl-manager"
	}
	if l.opt.User {
		config, err := l.home("XDG_CONFIG_HOME", ".config")
		if err != nil {
			return // files has said so
		}
		state, err := l.home("XDG_STATE_HOME", ".local/state")
		if err != nil {
			l.fault(err)
			return
		}
		c.ConfigDir, c.StateDir, c.RuntimeDir = filepath.Join(config, "ctrl"), filepath.Join(state, "ctrl", l.main), filepath.Join(l.runtime(), "ctrl")
	}
	c.Socket = filepath.Join(c.RuntimeDir, "ctrl.sock")
}

// home is a folder of the XDG base directory specification. A relative path there is to be
// ignored.
func (l *loader) home(variable, below string) (string, error) {
	if dir := l.opt.getenv(variable); filepath.IsAbs(dir) {
		return dir, nil
	}
	if dir := l.opt.getenv("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, below), nil
	}
	return "", fmt.Errorf("neither %s nor HOME is set, so there is no place for the user's files", variable)
}

// runtime is where logind puts it, also for those whose environment does not say so, as after
// su.
func (l *loader) runtime() string {
	if dir := l.opt.getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
}
