package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Remove ends and removes the lab of that name, whoever made it. What is not there is not
// missed, so it also cleans up after a lab that was made in part.
func Remove(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	killGroup(ctx, name)
	dropSpaces(ctx, name, "")
	dir := filepath.Join(root, name)
	unix.Unmount(dir, unix.MNT_DETACH)
	os.Remove(dir)
}

// killGroup ends every process in the lab's cgroups, and removes those.
func killGroup(ctx context.Context, name string) {
	mount, err := cgroup2()
	if err != nil {
		return
	}
	group := filepath.Join(mount, "ctrl-lab-"+name)
	for ctx.Err() == nil {
		if _, err := os.Stat(group); err != nil {
			return
		}
		left := 0
		for _, pid := range processes(group) {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				left++
			}
		}
		removeTree(group)
		if left > 0 {
			// The kernel empties a cgroup some moments after the kill; there is nothing to
			// wait for but that.
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

func processes(group string) []int {
	var pids []int
	filepath.WalkDir(group, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.Name() != "cgroup.procs" {
			return nil
		}
		text, _ := os.ReadFile(path)
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// removeTree removes cgroup folders, innermost first; those in use stay.
func removeTree(group string) {
	entries, err := os.ReadDir(group)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(group, e.Name()))
		}
	}
	os.Remove(group)
}

// dropSpaces removes the network namespaces of one node, or with node "" of the whole lab.
func dropSpaces(ctx context.Context, lab, node string) {
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		return
	}
	for _, e := range entries {
		mine := node == "" && (e.Name() == bridgeSpace(lab) || strings.HasPrefix(e.Name(), bridgeSpace(lab)+"+"))
		if mine || node != "" && e.Name() == nodeSpace(lab, node) {
			exec.CommandContext(ctx, "ip", "netns", "del", e.Name()).Run()
		}
	}
}
