package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
)

func TestMain(m *testing.M) {
	if why := lab.Unavailable(); why != "" {
		fmt.Println("left out: tests of labctl:", why)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestByHand goes through a lab as a person does, each command a process of its own.
func TestByHand(t *testing.T) {
	const name = "labctl-test"
	t.Cleanup(func() { lab.Remove(name) })
	const reach = "timeout 1 bash -c '</dev/tcp/b/1' 2>&1 | grep -o refused | tail -1 | grep ."
	for _, step := range []struct {
		args string
		want string // of the output, a regular expression
		code int    // -1: an error of labctl's own, -2: its usage
	}{
		{"check", `^$`, 0},
		{"create labctl-test a b", `^$`, 0},
		{"list", `(?m)^labctl-test  a  10\.88\.0\.3  pid \d+\nlabctl-test  b  10\.88\.0\.4  pid \d+$`, 0},
		{"exec labctl-test a hostname", `^a\n$`, 0},
		{"exec labctl-test a false", `^$`, 1},
		{"exec labctl-test a sh -c " + reach, `^refused\n$`, 0},
		{"cut labctl-test b", `^$`, 0},
		{"exec labctl-test a sh -c " + reach, `^$`, 1},
		{"heal labctl-test b", `^$`, 0},
		{"part labctl-test a b", `^$`, 0},
		{"exec labctl-test a sh -c " + reach, `^$`, 1},
		{"rejoin labctl-test b a", `^$`, 0},
		{"exec labctl-test a sh -c " + reach, `^refused\n$`, 0},
		{"pause labctl-test b", `^$`, 0},
		{"resume labctl-test b", `^$`, 0},
		{"kill labctl-test b", `^$`, 0},
		{"list", `(?m)^labctl-test  b  10\.88\.0\.4  off$`, 0},
		{"exec labctl-test b true", `^$`, -1},
		{"boot labctl-test b c", `^$`, 0},
		{"exec labctl-test c hostname", `^c\n$`, 0},
		{"cut labctl-test d", `^$`, -1},
		{"cut labctl-test", `^$`, -2},
		{"fly labctl-test a", `^$`, -2},
		{"shape labctl-test a colour=red", `^$`, -2},
		{"shape labctl-test a delay=soon", `^$`, -1},
		{"destroy labctl-test", `^$`, 0},
		{"destroy labctl-test", `^$`, -1},
		{"exec labctl-test a true", `^$`, -1},
	} {
		args := strings.Fields(step.args)
		if command, script, found := strings.Cut(step.args, " sh -c "); found {
			args = append(strings.Fields(command), "sh", "-c", script)
		}
		var out strings.Builder
		err := run(t.Context(), &out, args)
		code := 0
		var exit *exec.ExitError
		switch {
		case errors.Is(err, errUsage):
			code = -2
		case errors.As(err, &exit):
			code = exit.ExitCode()
		case err != nil:
			code = -1
		}
		if code != step.code || !regexp.MustCompile(step.want).MatchString(out.String()) {
			t.Fatalf("labctl %s: %d %v, want %d; it printed %q, want %s", step.args, code, err, step.code, &out, step.want)
		}
	}
}
