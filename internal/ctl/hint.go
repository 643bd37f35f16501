package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// hint says what to do about an error, "" where there is nothing. It is the one place that
// knows: everything below only gives kinds.
func (a *app) hint(err error) string {
	var (
		bad *usageError
		at  *failure
	)
	if errors.As(err, &bad) {
		return bad.hint
	}
	if !errors.As(err, &at) {
		at = &failure{}
	}
	switch {
	case errors.Is(err, client.ErrNoBus):
		return a.noBusHint()
	case errors.Is(err, client.ErrNotRunning):
		return "start it: " + a.systemctl() + " start ctrl-manager; on another machine: ctl -H root@HOST …"
	case errors.Is(err, client.ErrManagerGone):
		return "jobs on nodes go on; see " + a.systemctl() + " status ctrl-manager"
	case errors.Is(err, errJournalDenied):
		return "run it as root (sudo ctl events …), or let an administrator add you to the group systemd-journal or adm"
	case errors.Is(err, wire.ErrAccessDenied) && strings.Contains(err.Error(), wire.NodeRefuses):
		return "" // the node has said what to change, and no right of the caller's is missing
	case errors.Is(err, wire.ErrAccessDenied), errors.Is(err, wire.ErrInteractiveAuth):
		return deniedHint(err)
	case errors.Is(err, wire.ErrNoSuchNode):
		return a.nodeHint(at.node)
	case errors.Is(err, wire.ErrNodeOffline) && at.node != "":
		return "see: ctl status " + at.node
	case errors.Is(err, errGaveUp):
		return "see: ctl list-jobs " + at.node
	case at.log:
		return a.logHint(at.node, at.unit)
	}
	return unitHint(err, at)
}

func unitHint(err error, at *failure) string {
	if at.unit == "" {
		return ""
	}
	switch {
	case errors.Is(err, wire.ErrSystemdUnitMasked):
		return fmt.Sprintf("to allow it again: ctl unmask %s %s", at.node, at.unit)
	case errors.Is(err, wire.ErrSystemdNoSuchUnit) && unit.Valid(at.unit):
		prefix, _, kind := unit.Split(at.unit)
		return fmt.Sprintf("see what there is: ctl list-unit-files %s '%s*.%s'", at.node, prefix[:min(len(prefix), 3)], kind)
	case errors.Is(err, errUnitLinked) && at.alias != "":
		return fmt.Sprintf("%s is an alias; use %s", at.unit, at.alias)
	case errors.Is(err, errUnitGenerated):
		return fmt.Sprintf("%s is generated; a quadlet is enabled by an [Install] section in its own file, then: ctl daemon-reload %s", at.unit, at.node)
	case errors.Is(err, wire.ErrUnitBusy):
		return "see: ctl list-jobs " + at.node
	}
	return ""
}

// What systemd says about unit files that are not what they seem (bus-common-errors.h).
var (
	errUnitLinked    = &wire.Error{Name: wire.SystemdName + ".UnitLinked"}
	errUnitGenerated = &wire.Error{Name: wire.SystemdName + ".UnitGenerated"}
)

func (a *app) systemctl() string {
	if a.opt.user {
		return "systemctl --user"
	}
	return "systemctl"
}

func (a *app) noBusHint() string {
	switch {
	case a.opt.host != "":
		return "try: ssh " + a.opt.host + " systemctl status dbus"
	case a.opt.address != "":
		return "give a D-Bus address such as unix:path=/run/dbus/system_bus_socket"
	case a.opt.user:
		return "a user has a bus while logged in (machinectl shell USER@, ssh USER@localhost; su and sudo are no login), or always after: loginctl enable-linger USER"
	}
	return "see: systemctl status dbus"
}

// deniedHint names the right that is missing, which the daemon's text holds.
func deniedHint(err error) string {
	right := ""
	for word := range strings.FieldsFuncSeq(err.Error(), func(r rune) bool { return strings.ContainsRune(" \"'(),;:", r) }) {
		if word = strings.TrimSuffix(word, "."); wire.IsAction(word) {
			right = word
		}
	}
	if right == "" || right == wire.ActionRoot {
		return "run it as root: sudo ctl …"
	}
	return "run it as root (sudo ctl …), or let a polkit rule grant " + right + " (pkaction --verbose --action-id " + right + ")"
}

// logHint is the line that shows why a unit failed.
func (a *app) logHint(node, unit string) string {
	if c, _, err := a.root.Find([]string{"logs"}); err == nil && c != a.root {
		return fmt.Sprintf("its log: ctl logs %s %s", node, unit)
	}
	return fmt.Sprintf("its log, on %s: journalctl -e -u %s", node, unit)
}

// nodeHint looks for nodes with a name like the one that does not exist.
func (a *app) nodeHint(typed string) string {
	const list = "see: ctl list-nodes"
	if unit.TypeOf(typed) != "" {
		return "the node comes first: ctl COMMAND NODE UNIT…; " + list
	}
	if a.bus == nil || typed == "" || unit.HasGlob(typed) {
		return list
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	nodes, err := a.bus.Nodes(ctx)
	if err != nil {
		return list
	}
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	if len(names) == 0 {
		return "the fleet has no nodes; ctl node add NODE adds one"
	}
	if near := closest(typed, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return list
}

// closest finds the word that somebody may have meant, "" where none is near.
func closest(typed string, words []string) string {
	best, limit := "", 1+len(typed)/4
	for _, w := range slices.Sorted(slices.Values(words)) {
		if d := distance(strings.ToLower(typed), strings.ToLower(w)); d < limit+1 && w != typed {
			best, limit = w, d-1
		}
	}
	if best == "" && len(typed) >= 3 {
		for _, w := range words {
			if strings.HasPrefix(w, typed) && w != typed {
				return w
			}
		}
	}
	return best
}

// distance is how many letters must be changed, added, dropped or swapped with their
// neighbour to make b of a.
func distance(a, b string) int {
	last2, last, row := []int(nil), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], last2[j-2]+1)
			}
		}
		last2, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
