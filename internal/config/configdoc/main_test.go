package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/ctrl/internal/config"
)

func TestFilesAreUpToDate(t *testing.T) {
	var stderr bytes.Buffer
	if code := run([]string{"-check", "-root", "../../.."}, &stderr); code != 0 {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

func TestCheckFindsOldFiles(t *testing.T) {
	root := t.TempDir()
	var stderr bytes.Buffer
	if code := run([]string{"-check", "-root", root}, &stderr); code != 1 {
		t.Errorf("missing files gave exit code %d", code)
	}
	if code := run([]string{"-root", root}, &stderr); code != 0 {
		t.Fatalf("writing gave exit code %d: %s", code, &stderr)
	}
	file := filepath.Join(root, "config/agent.conf")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	stderr.Reset()
	if code := run([]string{"-check", "-root", root}, &stderr); code != 1 || !strings.Contains(stderr.String(), "config/agent.conf") ||
		!strings.Contains(stderr.String(), "go generate ./internal/config") || strings.Contains(stderr.String(), "manager") {
		t.Errorf("an old file gave exit code %d: %s", code, &stderr)
	}
	if code := run([]string{"-nonsense"}, &stderr); code != 2 {
		t.Errorf("a wrong flag gave exit code %d", code)
	}
}

// install puts a sample below a root, as it is or with every key switched on.
func install(t *testing.T, file string, on bool) string {
	t.Helper()
	text := sample(file)
	if on {
		var lines []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "# ") {
				line = strings.TrimPrefix(line, "#")
			}
			lines = append(lines, strings.Replace(line, "[node NAME]", "[node node9]", 1))
		}
		text = strings.Join(lines, "")
	}
	root := t.TempDir()
	path := filepath.Join(root, "etc/ctrl", file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestSamplesChangeNothingAndCanBeSwitchedOn(t *testing.T) {
	bare := config.Options{Root: t.TempDir(), Hostname: "node1"}
	manager, err := config.LoadManager(bare)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := config.LoadAgent(bare)
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{false, true} {
		m, err := config.LoadManager(config.Options{Root: install(t, "manager.conf", on), Hostname: "node1"})
		if err != nil {
			t.Fatal(err)
		}
		a, err := config.LoadAgent(config.Options{Root: install(t, "agent.conf", on), Hostname: "node1"})
		if err != nil {
			t.Fatal(err)
		}
		m1, m2 := manager.Changed(m)
		a1, a2 := agent.Changed(a)
		changed := strings.Join(append(append(m1, m2...), append(a1, a2...)...), " ")
		want := ""
		if on { // those that have an example
			want = "AllowedNodeNames CertFile KeyFile CAFile [node node9] AllowDependenciesOn SocketGroup " +
				"ManagerAddress ManagerName OnDisconnectUnit Labels CertFile KeyFile CAFile " +
				"[policy] AllowUnits [policy] DenyUnits [policy] AllowHostPaths [policy] AllowFilePaths"
		}
		if changed != want {
			t.Errorf("switched on: %v; changed\n%s, want\n%s", on, changed, want)
		}
	}
}

func TestManualPageEscapesWhatRoffWouldTake(t *testing.T) {
	for s, want := range map[string]string{
		`a\b-c 'd`: `a\eb\-c \(aqd`, ".conf": `\&.conf`,
	} {
		if got := roff(s); got != want {
			t.Errorf("roff(%q) = %q, want %q", s, got, want)
		}
	}
	for line := range strings.Lines(man("agent")) {
		if strings.HasPrefix(line, "'") || strings.Contains(line, "`") {
			t.Errorf("line %q", line)
		}
	}
}
