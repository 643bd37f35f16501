package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
)

// list compares the lists of both programs, of the same node, as programs read them.
func (d *differ) list(t *testing.T) {
	for _, args := range [][]string{
		{"list-units"}, {"list-units", "--all"}, {"list-units", "--failed"},
		{"list-units", "--state=running,failed"}, {"list-units", "--type=socket,timer"}, {"list-units", "--type=service", "--state=masked", "--all"},
		{"list-units", "o*_look.service"}, {"list-units", "--all", "gone*", "missing_look.service"},
		{"list-unit-files"}, {"list-unit-files", "--type=target"}, {"list-unit-files", "--state=enabled,static"}, {"list-unit-files", "*_look@.service"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			flags := slices.DeleteFunc(slices.Clone(args), func(s string) bool { return !strings.HasPrefix(s, "-") })
			patterns := slices.DeleteFunc(slices.Clone(args[1:]), func(s string) bool { return strings.HasPrefix(s, "-") })
			a := d.ctl(within(t), slices.Concat([]string{args[0], "-o", "json"}, flags, []string{"node1"}, patterns)...)
			b := systemctl(t, d.ours.node, slices.Concat([]string{args[0], "-o", "json"}, flags, patterns)...)
			if a.Code != b.Code {
				t.Errorf("exit code %d, systemctl has %d: %s%s", a.Code, b.Code, a.Stderr, b.Stderr)
			}
			ours := rowsOf(t, a, "unit", "load", "active", "sub", "description", "unit_file", "state")
			theirs := rowsOf(t, b, "unit", "load", "active", "sub", "description", "unit_file", "state")
			if len(theirs) == 0 && !strings.Contains(t.Name(), "masked") {
				t.Errorf("systemctl lists nothing: %s", b.Stdout)
			}
			for row := range ours {
				if !theirs[row] {
					t.Errorf("only ctl has %s", row)
				}
			}
			for row := range theirs {
				if !ours[row] {
					t.Errorf("only systemctl has %s", row)
				}
			}
		})
	}
}

// rowsOf are the rows of a list in JSON, by these columns.
func rowsOf(t *testing.T, r lab.Result, columns ...string) map[string]bool {
	t.Helper()
	var rows []map[string]any
	if err := json.Unmarshal([]byte(r.Stdout), &rows); err != nil {
		t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
	texts := make(map[string]bool)
	for _, row := range rows {
		var b strings.Builder
		for _, c := range columns {
			if v, ok := row[c]; ok {
				fmt.Fprintf(&b, "%s=%v ", c, v)
			}
		}
		texts[b.String()] = true
	}
	return texts
}
