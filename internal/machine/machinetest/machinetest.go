// Package machinetest holds the drawings of docs/states.md against the tables in the code.
// Only tests import it.
package machinetest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/machine"
)

// arrow is one line of a Mermaid state diagram: "from --> to: why".
var arrow = regexp.MustCompile(`^\s*(\S+) --> (\S+?)(?:: (.*))?$`)

// drawn reads the diagram below a heading of a page. A final "[*]" is how Mermaid draws an
// end; it is no state.
func drawn(t *testing.T, page, heading string) []machine.Move[string] {
	t.Helper()
	_, section, found := strings.Cut(page, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the page has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var moves []machine.Move[string]
	for line := range strings.Lines(section) {
		m := arrow.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil || m[2] == "[*]" {
			continue
		}
		if m[1] == "[*]" {
			m[1] = machine.New
		}
		moves = append(moves, machine.Move[string]{From: m[1], To: m[2], Why: m[3]})
	}
	return moves
}

// Check fails the test for every arrow or label that only the page or only the code has,
// and for every state that nothing leads to.
func Check(t *testing.T, pageFile string, tables []machine.Drawing) {
	t.Helper()
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		drawing := drawn(t, string(page), table.Name)
		for _, m := range table.Moves {
			if !slices.Contains(drawing, m) {
				t.Errorf("%s: the drawing lacks %s --> %s: %s", table.Name, m.From, m.To, m.Why)
			}
		}
		for _, m := range drawing {
			if strings.ContainsAny(m.Why, ":;") {
				t.Errorf("%s: Mermaid does not draw a label with a colon or semicolon: %s", table.Name, m.Why)
			}
			if !slices.Contains(table.Moves, m) {
				t.Errorf("%s: only the drawing has %s --> %s: %s", table.Name, m.From, m.To, m.Why)
			}
		}
		checkReached(t, table)
	}
}

func checkReached(t *testing.T, table machine.Drawing) {
	t.Helper()
	reached := []string{machine.New}
	for range table.Moves {
		for _, m := range table.Moves {
			if slices.Contains(reached, m.From) && !slices.Contains(reached, m.To) {
				reached = append(reached, m.To)
			}
		}
	}
	for _, m := range table.Moves {
		if !slices.Contains(reached, m.From) {
			t.Errorf("%s: nothing leads to %s", table.Name, m.From)
		}
	}
}
