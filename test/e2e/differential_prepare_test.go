package e2e

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// prepare brings the copies into their states on one node, in bulk.
func (p *pid1) prepare(t *testing.T, copies []copyOf) {
	t.Helper()
	var script strings.Builder
	files := map[string]string{
		"/usr/lib/systemd/system-generators/of-tests":    "#!/bin/sh\ncp /etc/generate/* \"$1\"/ 2>/dev/null\nexit 0\n",
		"/usr/lib/systemd/system-preset/00-tests.preset": "disable on*\ndisable enabled*\nenable *\n",
	}
	for _, c := range copies {
		for path, text := range c.written() {
			files[path] = text
		}
		if c.run != "" {
			script.WriteString(c.fill(c.run) + "\n")
		}
	}
	p.write(t, files)
	p.reload(t)
	on(t, p.node, "sh", "-c", "exec >/dev/null 2>&1 </dev/null\n"+script.String())
	up := make(map[string]string)
	var start []string
	for _, c := range copies {
		if c.state == "" {
			continue
		}
		up[c.unitName()] = c.state
		for _, name := range c.watched() {
			if c.run == "" && unit.TypeOf(name) == unit.TypeOf(c.unitName()) {
				start = append(start, name)
			}
		}
	}
	p.startAll(t, start)
	p.reach(t, up)
	p.disturb(t, copies)
}

// startAll queues start jobs without waiting for one answer before the next call, as many at
// a time as the bus allows.
func (p *pid1) startAll(t *testing.T, names []string) {
	t.Helper()
	systemd := p.bus.Object(wire.SystemdName, dbus.ObjectPath(wire.SystemdPath))
	for some := range slices.Chunk(names, 100) {
		answers := make(chan *dbus.Call, len(some))
		for _, name := range some {
			systemd.GoWithContext(within(t), wire.SystemdManagerInterface+".StartUnit", 0, answers, name, "replace")
		}
		for range some {
			if call := <-answers; call.Err != nil {
				t.Errorf("%s: start of %v: %v", p.node.Name, call.Args[0], call.Err)
			}
		}
	}
}

// disturb carries out what comes after the states were reached.
func (p *pid1) disturb(t *testing.T, copies []copyOf) {
	t.Helper()
	files := make(map[string]string)
	up := make(map[string]string)
	for _, c := range copies {
		if c.stop {
			do(t, p.call(within(t), "StopUnit", c.unitName(), "replace").Err)
		}
		if c.freeze {
			do(t, p.call(within(t), "FreezeUnit", c.unitName()).Err)
		}
		for path, text := range c.after {
			files[c.fill(path)] = c.fill(text)
		}
		if c.stateAt != "" {
			up[c.unitName()] = c.stateAt
		}
	}
	p.write(t, files)
	p.reload(t)
	p.reach(t, up)
}

func (p *pid1) reload(t *testing.T) {
	t.Helper()
	do(t, p.call(within(t), "Reload").Err)
}

// write writes files and links on the node, "" removes one.
func (p *pid1) write(t *testing.T, files map[string]string) {
	t.Helper()
	var script strings.Builder
	for path, text := range files {
		target, link := strings.CutPrefix(text, "-> ")
		switch {
		case text == "":
			script.WriteString("rm -f " + quoted(path) + "\n")
		case link:
			script.WriteString("mkdir -p " + quoted(path[:strings.LastIndexByte(path, '/')]) + " && ln -sfn " + quoted(target) + " " + quoted(path) + "\n")
		default:
			mode := fs.FileMode(0o644)
			if strings.HasPrefix(text, "#!") {
				mode = 0o755
			}
			do(t, p.node.WriteFile(path, []byte(text), mode))
		}
	}
	if script.Len() > 0 {
		r, err := p.node.ExecInput(within(t), script.String(), "sh", "-e")
		if do(t, err); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
