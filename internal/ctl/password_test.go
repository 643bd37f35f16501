package ctl

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// asking: somebody is there to be asked for a password. The agent is a shell script that says
// in the file agent how it was started, when it could be asked, and how it ended.
func askingCmd(ts *testscript.TestScript, _ bool, _ []string) {
	path := filepath.Join(ts.Getenv("WORK"), "pkttyagent")
	script := fmt.Sprintf(`#!/bin/sh
trap 'echo ended >>%[1]s; exit' TERM
echo "$@" >>%[1]s
exec 3>&-
while :; do sleep 0.1; done
`, filepath.Join(ts.Getenv("WORK"), "agent"))
	ts.Check(os.WriteFile(path, []byte(script), 0o755))
	worldOf(ts).passwordAgent = path
}
