package authz

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/wire"
)

// subject is what one question is about: a unit on a node, a node, or "" and "", the fleet.
type subject struct{ node, unit string }

// maxName bounds a name in a question, in bytes: a path of a unit file (PATH_MAX).
const maxName = 4096

// subjects lists what a call is about, each unit on each node. A name that no node and no
// unit can have is refused here, so that rules need not expect one.
func subjects(a busobject.About) ([]subject, error) {
	nodes, units := a.Nodes, a.Units
	if len(nodes) == 0 {
		nodes = []string{a.Node}
	}
	if len(units) == 0 {
		units = []string{""}
	}
	if len(nodes) > MaxSubjects || len(units) > MaxSubjects || len(nodes)*len(units) > MaxSubjects {
		return nil, wire.ErrLimitsExceeded.With("%d units on %d nodes in one call are more than %d to judge; ask for less at a time, or as root",
			len(units), len(nodes), MaxSubjects)
	}
	out := make([]subject, 0, len(nodes)*len(units))
	for _, n := range nodes {
		for _, u := range units {
			if strange(n) || strange(u) {
				return nil, wire.ErrInvalidArgs.With("%.60q on %.60q can be the name of nothing", u, n)
			}
			out = append(out, subject{n, u})
		}
	}
	return out, nil
}

// strange reports a name that could show a person something else than it is.
func strange(name string) bool {
	return len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsPrint(r)
	})
}

func (s subject) String() string {
	switch {
	case s.unit != "" && s.node != "":
		return " " + s.unit + " on " + s.node
	case s.unit != "":
		return " " + s.unit
	case s.node != "":
		return " on " + s.node
	}
	return ""
}
