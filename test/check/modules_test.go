// Package check holds what `make check` asks of files that no compiler reads.
package check

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestModulesHaveReasons: what the code imports of other modules has its line in
// docs/go-modules.md, and nothing else has one.
func TestModulesHaveReasons(t *testing.T) {
	page, err := os.ReadFile("../../docs/go-modules.md")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.Contains(cells[1], ".") {
			for name := range strings.SplitSeq(cells[1], ",") {
				told = append(told, strings.TrimSpace(name))
			}
		}
	}
	imports := imported(t)
	for _, path := range imports {
		if !slices.ContainsFunc(told, func(module string) bool { return within(path, module) }) {
			t.Errorf("docs/go-modules.md does not say why %s is used", path)
		}
	}
	for _, module := range told {
		if !slices.ContainsFunc(imports, func(path string) bool { return within(path, module) }) {
			t.Errorf("docs/go-modules.md names %s, which nothing imports", module)
		}
	}
}

func within(path, module string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}

// imported lists the packages of other modules that ours and their tests import, and the
// tools of go.mod.
func imported(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, args := range [][]string{
		{"list", "-f", `{{join .Imports "\n"}}{{"\n"}}{{join .TestImports "\n"}}{{"\n"}}{{join .XTestImports "\n"}}`, "../../..."},
		{"list", "tool"},
	} {
		cmd := exec.CommandContext(limited(t), "go", args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for path := range strings.Lines(string(out)) {
			path = strings.TrimSpace(path)
			host, _, _ := strings.Cut(path, "/")
			if strings.Contains(host, ".") && !within(path, "example.org/ctrl") {
				all = append(all, path)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
