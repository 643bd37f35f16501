package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/test/fakemanager"
)

// TestMain is ctl itself where a test runs it as a program.
func TestMain(m *testing.M) {
	if os.Getenv("CTL_TEST_RUN_MAIN") == "1" {
		main()
	}
	os.Exit(m.Run())
}

const fleet = `
nodes:
- name: node1
  units:
  - name: foo.service
    active: active
  - name: hang.service
    does: {start: {hang: true}}
`

func world(t *testing.T) (*fakemanager.Manager, func(args ...string) *exec.Cmd) {
	t.Helper()
	bus := bustest.Start(t)
	f, err := fakemanager.ParseFleet([]byte(fleet))
	if err != nil {
		t.Fatal(err)
	}
	m, err := fakemanager.Start(bus.Address, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return m, func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0], args...)
		cmd.Env = append(os.Environ(), "CTL_TEST_RUN_MAIN=1", "DBUS_SYSTEM_BUS_ADDRESS="+bus.Address)
		return cmd
	}
}

func TestExitCodeOfTheProcess(t *testing.T) {
	_, ctl := world(t)
	if out, err := ctl("is-active", "node1", "foo").CombinedOutput(); err != nil || string(out) != "active\n" {
		t.Errorf("is-active: %q, %v", out, err)
	}
	err := ctl("start", "node1", "none").Run()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 4 {
		t.Errorf("start of a unit that does not exist: %v", err)
	}
}

// TestCtrlC: the first ends the wait and says that the job goes on.
func TestCtrlC(t *testing.T) {
	m, ctl := world(t)
	cmd := ctl("start", "node1", "hang")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.AwaitJob("node1", "hang.service")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var failed *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &failed) || failed.ExitCode() != 130 {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(stderr.String(), "job 1 (start hang.service on node1) goes on") {
		t.Errorf("it said %q", stderr.String())
	}
}

// TestClosedPipe: whoever reads the output has left; that is no error to talk about, and the
// process ends as systemctl does.
func TestClosedPipe(t *testing.T) {
	_, ctl := world(t)
	cmd := ctl("list-units", "--all")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = write
	err = cmd.Run()
	_ = write.Close()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE || stderr.Len() > 0 {
		t.Errorf("it ended with %v and said %q", err, stderr.String())
	}
}

// TestFullDisk: what cannot be written is an error.
func TestFullDisk(t *testing.T) {
	_, ctl := world(t)
	cmd := ctl("list-units", "--all")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd.Stdout = full
	var failed *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &failed) || failed.ExitCode() != 1 || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("it ended with %v and said %q", err, stderr.String())
	}
}
