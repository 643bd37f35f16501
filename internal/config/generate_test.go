package config

import (
	"flag"
	"os"
	"testing"
)

// go test ./internal/config -run Generated -update writes the files anew.
var update = flag.Bool("update", false, "write the generated files")

const referenceHead = `# Configuration

This page is made from the table of keys in internal/config; ` + "`make check`" + ` holds it against the code.

Both daemons read, later wins: the defaults; ` + "`/usr/lib/ctrl/manager.conf`, `/etc/ctrl/manager.conf`" + `; the drop-ins
` + "`manager.conf.d/*.conf`" + ` of both folders in the order of their file names, where one below /etc takes the place of its
namesake below /usr/lib; the environment (` + "`CTRL_LOG_LEVEL`, `CTRL_LOG_TARGET`, `CTRL_LOG_IS_QUIET`" + `); the file given with ` + "`-c`" + `;
options. For agents the files are ` + "`agent.conf`" + ` and ` + "`agent.conf.d`" + `. With ` + "`--user`" + ` the only folder is ` + "`$XDG_CONFIG_HOME/ctrl`" + `.

` + "`ctrl-manager --print-config`" + ` shows the effective values and where each comes from, ` + "`--check-config`" + ` only checks.

Rules: sections and keys are case-sensitive, and one that is not known is an error. A line that begins with # or ; is a
comment; elsewhere both characters are part of the value. An indented line continues the value before it; a final
backslash joins the next line with a blank. A key that is set twice in one file is an error, except lists: they add up over
lines and files, and an empty value resets them. An empty value of any other key is its default. Time spans are written as
in systemd.time(7): ` + "`500ms`, `2s`, `1min 30s`" + `.
`

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	for file, want := range map[string]string{
		"../../config/manager.conf":   Sample(ManagerFile),
		"../../config/agent.conf":     Sample(AgentFile),
		"../../docs/configuration.md": referenceHead + Reference(),
	} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what the table gives (%v); run: go test ./internal/config -run Generated -update", file, err)
		}
	}
}
