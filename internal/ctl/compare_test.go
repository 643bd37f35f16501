package ctl

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestComparePageTellsOfEveryCommand holds docs/compare.md against the commands: each is in
// the first column of one row, and nothing else is.
func TestComparePageTellsOfEveryCommand(t *testing.T) {
	page, err := os.ReadFile("../../docs/compare.md")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile("`([a-z-]+)`")
	var told []string
	text, _, _ := strings.Cut(string(page), "## Exit codes")
	for line := range strings.Lines(text) {
		column, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !row || !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, m := range word.FindAllStringSubmatch(column, -1) {
			told = append(told, m[1])
		}
	}
	var have []string
	for _, c := range newRoot(&app{}).Commands() {
		have = append(have, c.Name())
		if !slices.Contains(told, c.Name()) {
			t.Errorf("docs/compare.md has no row for %s: what are systemctl's and BlueChi's words for it?", c.Name())
		}
	}
	for _, name := range told {
		if !slices.Contains(have, name) {
			t.Errorf("docs/compare.md tells of %s, which is no command", name)
		}
	}
}
