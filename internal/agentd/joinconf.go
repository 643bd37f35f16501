package agentd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/ctrl/internal/atomicfile"
)

// allowKeys are the keys of [policy] that --allow sets.
var allowKeys = map[string]string{"run": "AllowTransientUnits", "apply": "AllowApply"}

// joinFile is the drop-in that joining writes.
const joinFile = "50-join.conf"

// configure writes which manager this node has, and makes sure that nothing else outdoes it.
func (j *joining) configure() error {
	dir := filepath.Join(j.cfg.Places.ConfigDir, "agent.conf.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, joinFile)
	if err := atomicfile.Write(path, []byte(j.dropIn()), 0o644); err != nil {
		return err
	}
	now, err := j.load()
	if err != nil {
		return fmt.Errorf("%s is written, but the configuration cannot be used now: %w", path, err)
	}
	want := []string{"tcp:host=" + j.host + ",port=" + j.port}
	if got := now.Addresses(); !slices.Equal(got, want) || now.NodeName != j.cfg.NodeName {
		return fmt.Errorf("%s is written, but another file outdoes it: this node would be %s and dial %s; see ctrl-agent --print-config",
			path, now.NodeName, strings.Join(got, ";"))
	}
	return nil
}

func (j *joining) dropIn() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by ctrl-agent join, which replaces it.\n[agent]\nNodeName=%s\nManagerHost=%s\nManagerPort=%s\n", j.cfg.NodeName, j.host, j.port)
	if len(j.cfg.ManagerAddress) > 0 {
		b.WriteString("# The addresses of other files do not count any more.\nManagerAddress=\n")
	}
	if len(j.opt.allow) > 0 {
		b.WriteString("\n[policy]\n")
		for _, what := range j.opt.allow {
			fmt.Fprintf(&b, "%s=yes\n", allowKeys[what])
		}
	}
	return b.String()
}
