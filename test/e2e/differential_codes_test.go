package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
)

// difference is an exit code of ctl that differs from systemctl's on purpose. The first one
// that fits counts; where none fits the codes are equal.
type difference struct {
	verbs     string // with blanks between; "" is all
	kinds     string
	says      string // a regular expression for what systemctl says; "" is anything
	systemctl string // its exit codes; "" is any but 0
	ctl       []int
	why       string
}

const (
	startVerbs = "start restart try-restart reload-or-restart try-reload-or-restart"
	fileVerbs  = "enable disable mask unmask preset is-enabled"
	noUnit     = "missing noinstance dropinonly badname blank dangling bypath globmissing"
)

// differences are those that docs/compare.md tells.
var differences = []difference{
	{kinds: "longname", ctl: []int{2}, why: "a name that cannot be right is a usage error"},
	{says: "neither a valid invocation ID nor unit name|Invalid argument", ctl: []int{2}, why: "a name that cannot be right is a usage error"},
	{verbs: "set-property", kinds: "blank", ctl: []int{2}, why: "what is no NAME=VALUE is a usage error"},
	{verbs: fileVerbs, kinds: "glob globmissing", systemctl: "0 1", ctl: []int{2}, why: "globs of unit files are refused; systemctl escapes them with a warning, and masks what was not meant"},
	{verbs: "is-active is-failed", kinds: noUnit, systemctl: "1 3", ctl: []int{4}, why: "what does not exist is 4 with every verb, as systemctl has it since systemd 254"},
	{kinds: "globmissing", systemctl: "0", ctl: []int{4}, why: "a glob that matches nothing is an error"},
	{verbs: startVerbs + " stop reload kill freeze thaw reset-failed set-property is-active is-failed show status", kinds: "template defaultinstance", ctl: []int{2}, why: "a template without an instance is a usage error"},
	{verbs: startVerbs, kinds: "dies", systemctl: "0", ctl: []int{0, 1}, why: "a service that dies at once has failed, if it has done so by the time ctl looks; systemctl does not look"},
	{verbs: startVerbs, kinds: "restarting", systemctl: "0", ctl: []int{0, 1}, why: "likewise a service that waits for its automatic restart"},
	{verbs: "freeze thaw", kinds: "gone", ctl: []int{1}, why: "systemd freezes no unit without a file, and says so; systemctl asks first whether there is one"},
	{says: `not loaded|not found|does not exist\.|No such file or directory|No files found`, systemctl: "1 5", ctl: []int{4}, why: "what does not exist is 4 with every verb"},
	{says: "may be requested by dependency only", systemctl: "4", ctl: []int{5}, why: "what is not allowed is 5, since 4 is what does not exist"},
	{kinds: "jobtimeout", systemctl: "1", ctl: []int{7}, why: "what has timed out is 7"},
	{says: "is not applicable for unit", systemctl: "3", ctl: []int{1}, why: "3 is not active, and nothing else"},
}

// tellsDifferences holds docs/compare.md against the table above.
func tellsDifferences(t *testing.T) {
	page, err := os.ReadFile("../../docs/compare.md")
	do(t, err)
	for _, d := range differences {
		if !strings.Contains(string(page), "| "+d.why+" |") {
			t.Errorf("docs/compare.md does not say: %s", d.why)
		}
	}
}

func fits(list, word string) bool {
	return list == "" || slices.Contains(strings.Fields(list), word)
}

// checkCode holds an exit code against systemctl's.
func checkCode(t *testing.T, verb, kind string, ctl, systemctl lab.Result) {
	t.Helper()
	want, why := []int{systemctl.Code}, "as systemctl"
	said := systemctl.Stdout + systemctl.Stderr
	for _, d := range differences {
		code := fits(d.systemctl, fmt.Sprint(systemctl.Code)) && (d.systemctl != "" || systemctl.Code != 0)
		if code && fits(d.verbs, verb) && fits(d.kinds, kind) && regexp.MustCompile(d.says).MatchString(said) {
			want, why = d.ctl, d.why
			break
		}
	}
	if !slices.Contains(want, ctl.Code) {
		t.Errorf("%s of %s: exit code %d, want %d (%s); systemctl has %d\nctl: %s%ssystemctl: %s", verb, kind, ctl.Code, want, why, systemctl.Code,
			ctl.Stdout, ctl.Stderr, said)
	}
}
