package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDocumentIsUpToDate(t *testing.T) {
	var stderr bytes.Buffer
	if code := run([]string{"-check", "-file", "../../docs/api.md"}, &stderr); code != 0 {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

func TestCheckFindsOldFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "api.md")
	var stderr bytes.Buffer
	if code := run([]string{"-check", "-file", file}, &stderr); code != 1 {
		t.Errorf("a missing file gave exit code %d", code)
	}
	if code := run([]string{"-file", file}, &stderr); code != 0 {
		t.Fatalf("writing gave exit code %d: %s", code, &stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `StartUnit` | `s` name, `s` mode | `o` job | `manage-units` |",
		"| `JobRemoved` | `u` id, `o` job, `s` node, `s` unit, `s` result |",
		"| `Status` | `s` | told, with the value |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the file lacks %s", want)
		}
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	stderr.Reset()
	if code := run([]string{"-check", "-file", file}, &stderr); code != 1 || !strings.Contains(stderr.String(), "go run ./api/apidoc") {
		t.Errorf("an old file gave exit code %d: %s", code, &stderr)
	}
	if code := run([]string{"-nonsense"}, &stderr); code != 2 {
		t.Errorf("a wrong flag gave exit code %d", code)
	}
}
