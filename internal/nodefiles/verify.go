package nodefiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/bundle"
)

// verifyTime bounds one check.
const verifyTime = 60 * time.Second

// Verify implements bundle.Files: systemd-analyze(1) reads the texts as systemd would, with
// everything else that the node has. It is no check by itself, as it only warns of lines
// that systemd would leave out; those warnings are the answer.
func (f *Files) Verify(texts []bundle.Text, done func([]string, error)) {
	f.post(func() { done(f.verify(texts)) }, func() { done(nil, errEnded) })
}

func (f *Files) verify(texts []bundle.Text) ([]string, error) {
	if err := os.MkdirAll(f.opt.Scratch, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(f.opt.Scratch, "verify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var units []string
	for _, t := range texts {
		_, rel, err := f.root(t.Path)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, rel)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, rel), []byte(t.Text), 0o600)
		}
		if err != nil {
			return nil, err
		}
		units = append(units, t.Unit)
	}
	slices.Sort(units)
	units = slices.Compact(units)
	ctx, cancel := context.WithTimeout(context.Background(), verifyTime)
	defer cancel()
	said, err := f.opt.Analyze(ctx, dir, units)
	if err != nil {
		return nil, err
	}
	return faults(said, dir, units), nil
}

// analyze runs systemd-analyze over units of a directory.
func analyze(ctx context.Context, dir string, units []string) (string, error) {
	args := []string{"verify", "--man=no", "--"}
	for _, name := range units {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			name = filepath.Join(dir, name)
		}
		args = append(args, name)
	}
	cmd := exec.CommandContext(ctx, "systemd-analyze", args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":", "SYSTEMD_LOG_LEVEL=warning", "SYSTEMD_LOG_TARGET=console",
		"SYSTEMD_LOG_COLOR=0", "SYSTEMD_LOG_LOCATION=0", "SYSTEMD_LOG_TIME=0", "LC_ALL=C.UTF-8")
	cmd.WaitDelay = time.Second
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("systemd-analyze verify did not end in %s", verifyTime)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return string(said), nil // it fails for what is no fault of a text, such as a program that is not installed yet
	case err != nil:
		return "", fmt.Errorf("systemd-analyze verify: %w", err)
	}
	return string(said), nil
}

// faults are the lines about the texts that say that something is not taken, without the
// place where they were checked.
func faults(said, dir string, units []string) []string {
	var out []string
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		rest, ours := strings.CutPrefix(line, dir+"/")
		name, _, _ := strings.Cut(line, ": ")
		ours = ours || slices.Contains(units, name)
		lower := strings.ToLower(rest)
		if ours && slices.ContainsFunc([]string{"ignor", "refus", "invalid", "failed to parse", "bad "}, func(word string) bool { return strings.Contains(lower, word) }) {
			out = append(out, rest)
		}
	}
	return slices.Compact(out)
}
