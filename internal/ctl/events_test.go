package ctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// journal FILE: a shell script in the place of journalctl, which notes its arguments in the
// file asked.
func journalCmd(ts *testscript.TestScript, _ bool, args []string) {
	path := filepath.Join(ts.Getenv("WORK"), "journalctl")
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\" >" + filepath.Join(ts.Getenv("WORK"), "asked") + "\n" + ts.ReadFile(args[0])
	ts.Check(os.WriteFile(path, []byte(script), 0o755))
	worldOf(ts).journalctl = path
}

func TestJournalText(t *testing.T) {
	for raw, want := range map[string]string{
		`"a"`: "a", `[97,255]`: "a\xff", `["x","y"]`: "x", `[[98],"y"]`: "b", `null`: "", `[]`: "", `7`: "", `{}`: "", `[300]`: "",
	} {
		if got := journalText(json.RawMessage(raw)); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}
