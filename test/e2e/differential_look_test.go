package e2e

import (
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
)

// looks are the verbs that change nothing. Both programs look at the same node, and what they
// say is compared, too.
var looks = []struct {
	word  string
	flags []string // of systemctl
	same  func(t *testing.T, what string, ctl, systemctl lab.Result)
}{
	{"is-active", nil, sameText}, {"is-failed", nil, sameText}, {"is-enabled", nil, sameText},
	{"cat", nil, sameText}, {"show", nil, sameProperties}, {"status", []string{"--lines=0"}, sameStatus},
}

// lookCopies are the units that are looked at: of all kinds.
func lookCopies() []copyOf {
	files := slices.DeleteFunc(copiesFor(lookVerb, false, true), func(c copyOf) bool { return !c.noRun })
	return append(copiesFor(lookVerb, false, false), files...)
}

func (d *differ) look(t *testing.T) {
	copies := lookCopies()
	for _, v := range looks {
		t.Run(v.word, func(t *testing.T) {
			eachOf(copies, func(_ int, c copyOf) {
				names := strings.Fields(c.arg())
				a := d.ctl(within(t), append([]string{v.word, "--", "node1"}, names...)...)
				b := systemctl(t, d.ours.node, slices.Concat([]string{v.word}, v.flags, []string{"--"}, names)...)
				checkCode(t, v.word, c.name, a, b)
				if a.Code == 0 || b.Code == a.Code {
					v.same(t, v.word+" of "+c.name, a, b)
				}
			})
		})
	}
}

// lookVerb is in the names of the units that are looked at.
const lookVerb = "look"

func sameText(t *testing.T, what string, ctl, systemctl lab.Result) {
	t.Helper()
	if ctl.Stdout != systemctl.Stdout {
		t.Errorf("%s: ctl says\n%s%ssystemctl says\n%s%s", what, ctl.Stdout, ctl.Stderr, systemctl.Stdout, systemctl.Stderr)
	}
}

// volatile are properties that change from one look to the next, or of which systemctl says
// less, each with the reason.
var volatile = map[string]string{
	"CPUUsageNSec": "time goes on",
	"Conditions":   "systemctl cannot print it",
	"Asserts":      "systemctl cannot print it",
}

// sets are properties whose order is not one: systemd keeps them in hash tables.
var sets = strings.Fields("After Before Requires RequiredBy Wants WantedBy BindsTo BoundBy Conflicts ConflictedBy " +
	"Triggers TriggeredBy Names References ReferencedBy WantsMountsFor RequiresMountsFor SliceOf Upholds UpheldBy")

func sameProperties(t *testing.T, what string, ctl, systemctl lab.Result) {
	t.Helper()
	ours, theirs := propertyLines(ctl.Stdout), propertyLines(systemctl.Stdout)
	for name := range theirs {
		if _, has := ours[name]; !has {
			ours[name] = ""
		}
	}
	for name, value := range ours {
		if value != theirs[name] && volatile[name] == "" {
			t.Errorf("%s: %s is %q, systemctl says %q", what, name, value, theirs[name])
		}
	}
}

// propertyLines are the lines NAME=VALUE; those of one name are joined.
func propertyLines(text string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if slices.Contains(sets, name) {
			words := strings.Fields(value)
			slices.Sort(words)
			value = strings.Join(words, " ")
		}
		if ok {
			all[name] += value + "\n"
		}
	}
	return all
}

// sameStatus compares what status says of units, but for the node and for what time changes.
func sameStatus(t *testing.T, what string, ctl, systemctl lab.Result) {
	t.Helper()
	ours, theirs := statusLines(strings.ReplaceAll(ctl.Stdout, "node1 ", "")), statusLines(systemctl.Stdout)
	if !slices.Equal(ours, theirs) {
		t.Errorf("%s: ctl says\n%s\nsystemctl says\n%s", what, strings.Join(ours, "\n"), strings.Join(theirs, "\n"))
	}
}

// marks are drawn in ASCII where the locale is not known, as in this process.
var marks = strings.NewReplacer("●", "", "○", "", "×", "", "└─", "`-", "├─", "|-", "* ", "", "x ", "", "Triggers:  ", "Triggers: ")

func statusLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(marks.Replace(marks.Replace(line))), ";") // behind it: how long ago
		label, _, _ := strings.Cut(line, ":")
		if label != "CPU" && label != "Trigger" {
			lines = append(lines, line)
		}
	}
	return lines
}
