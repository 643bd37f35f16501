package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// usage is what a process has used so far.
type usage struct {
	Unit  string
	RSS   int64 // bytes
	CPU   int64 // nanoseconds of all threads that live
	Ticks int64 // user and system time, as proc(5) counts it
}

// mainPIDs are those that were asked for: asking anew each time would show in what is measured.
var mainPIDs = map[string]int{"systemd": 1}

// readUsage looks at the main processes of services; "systemd" is PID 1.
func readUsage(ctx context.Context, units []string) (all []usage, err error) {
	for _, unit := range units {
		if mainPIDs[unit] == 0 {
			out, err := exec.CommandContext(ctx, "systemctl", "show", "-P", "MainPID", unit).Output()
			if err != nil {
				return nil, err
			}
			if mainPIDs[unit], err = strconv.Atoi(strings.TrimSpace(string(out))); err != nil || mainPIDs[unit] == 0 {
				return nil, fmt.Errorf("%s has no main process", unit)
			}
		}
		u, err := usageOf(mainPIDs[unit])
		if err != nil {
			return nil, fmt.Errorf("cannot see what %s uses: %w", unit, err)
		}
		u.Unit = unit
		all = append(all, u)
	}
	return all, nil
}

func usageOf(pid int) (u usage, err error) {
	dir := fmt.Sprintf("/proc/%d", pid)
	statm, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		return u, err
	}
	if fields := strings.Fields(string(statm)); len(fields) > 1 {
		pages, _ := strconv.ParseInt(fields[1], 10, 64)
		u.RSS = pages * int64(os.Getpagesize())
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	// Behind the name in brackets utime and stime are the 12th and 13th field.
	if fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(fields) > 12 {
		user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
		system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
		u.Ticks = user + system
	}
	threads, err := filepath.Glob(filepath.Join(dir, "task/*/schedstat"))
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		ran, _, _ := strings.Cut(string(text), " ")
		ns, _ := strconv.ParseInt(ran, 10, 64)
		u.CPU += ns
	}
	return u, err
}
