package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// nodeFlags are the flags of commands that work on several nodes.
type nodeFlags struct {
	allNodes    bool
	maxParallel int
	serial      bool
}

func (f *nodeFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.allNodes, "all-nodes", false, "every node, in the place of NODE")
}

func (f *nodeFlags) addParallel(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().IntVar(&f.maxParallel, "max-parallel", 0, "at most `N` nodes at a time (0: no limit)")
	cmd.Flags().BoolVar(&f.serial, "serial", false, "one node after the other, until one fails")
}

// limit is how many nodes may be worked on at a time.
func (f *nodeFlags) limit() int {
	switch {
	case f.serial:
		return 1
	case f.maxParallel > 0:
		return f.maxParallel
	}
	return maxNodesAtOnce
}

// maxNodesAtOnce bounds the work on a large fleet.
const maxNodesAtOnce = 64

// needs is the usage error of a command whose arguments are too few.
func needs(cmd *cobra.Command, what string) error {
	first, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	return &usageError{text: cmd.Name() + " needs " + what, hint: "for example: " + strings.TrimSpace(first)}
}

// split takes the node pattern off a command's arguments. With --all-nodes there is none.
func (f *nodeFlags) split(cmd *cobra.Command, args []string) (pattern string, rest []string, err error) {
	if f.maxParallel < 0 {
		return "", nil, usage("--max-parallel=%d is less than 0", f.maxParallel)
	}
	if f.allNodes {
		return "*", args, nil
	}
	if len(args) == 0 {
		return "", nil, needs(cmd, "a NODE")
	}
	return args[0], args[1:], nil
}

// nodePatterns takes "node1,web-*" apart and checks each part.
func nodePatterns(pattern string) ([]string, error) {
	var parts []string
	for part := range strings.SplitSeq(pattern, ",") {
		switch {
		case unit.HasGlob(part):
			if _, err := unit.CompileGlob(part); err != nil {
				return nil, usage("node %v", err)
			}
		case !wire.ValidNodeName(part):
			return nil, usage("%q is no node: %s", part, wire.NodeNameRule)
		}
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// nodes finds the nodes that a pattern means. Plain names are not looked up: whether there is
// such a node shows when it is called.
func (a *app) nodes(ctx context.Context, pattern string) ([]string, error) {
	parts, err := nodePatterns(pattern)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(parts, unit.HasGlob) {
		return parts, nil
	}
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	rows, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, part := range parts {
		before := len(found)
		if !unit.HasGlob(part) {
			found = append(found, part)
			continue
		}
		glob, err := unit.CompileGlob(part)
		if err != nil {
			return nil, usage("node %v", err)
		}
		for _, r := range rows {
			if glob.Match(r.Name) {
				found = append(found, r.Name)
			}
		}
		if len(found) == before {
			return nil, &failure{doing: fmt.Sprintf("no node matches %q", part), node: part, err: &silentKind{wire.ErrNoSuchNode}}
		}
	}
	return unique(found), nil
}

func unique(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		if seen[s] {
			return true
		}
		seen[s] = true
		return false
	})
}

// unitNames completes and checks the units that somebody typed. Globs stay.
func (a *app) unitNames(typed []string) ([]string, error) {
	return a.unitNamesOr(typed, unit.CheckInstance)
}

// unitNamesOr is unitNames with another check of a name.
func (a *app) unitNamesOr(typed []string, check func(string) error) ([]string, error) {
	var names []string
	for _, t := range typed {
		if t == "" {
			return nil, usage("a unit name is empty")
		}
		name := unit.Mangle(t, true)
		if unit.HasGlob(name) {
			if _, err := unit.CompileGlob(name); err != nil {
				return nil, usage("unit %v", err)
			}
		} else if err := check(name); err != nil {
			return nil, usage("%v", err)
		}
		if name != t && name != unit.WithSuffix(t) && !strings.HasPrefix(t, "/") && !unit.HasGlob(name) {
			a.note("%q is no unit name; %s is meant (see systemd-escape(1))", t, name)
		}
		names = append(names, name)
	}
	return unique(names), nil
}

// expand resolves the globs among units on a node, against the units that are loaded there,
// as systemctl does. A glob that matches nothing there is in unmatched.
func (a *app) expand(ctx context.Context, node string, units []string) (found, unmatched []string, err error) {
	var globs []string
	for _, u := range units {
		if unit.HasGlob(u) {
			globs = append(globs, u)
		}
	}
	if len(globs) == 0 {
		return units, nil, nil
	}
	c, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	rows, err := c.Node(node).ListUnits(ctx, nil, globs)
	if err != nil {
		return nil, nil, err
	}
	for _, u := range units {
		if !unit.HasGlob(u) {
			found = append(found, u)
			continue
		}
		glob, err := unit.CompileGlob(u)
		if err != nil {
			return nil, nil, err
		}
		matched := false
		for _, r := range rows {
			// What only others refer to has nothing that a command could act on.
			if glob.Match(r.Name) && (r.LoadState != "not-found" || r.ActiveState != "inactive") {
				found, matched = append(found, r.Name), true
			}
		}
		if !matched {
			unmatched = append(unmatched, u)
		}
	}
	return unique(found), unmatched, nil
}

// unmatched counts, for globs, on how many nodes they matched nothing.
type unmatched struct {
	mu     sync.Mutex
	counts map[string]int
}

func (u *unmatched) add(globs []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts == nil {
		u.counts = make(map[string]int)
	}
	for _, glob := range globs {
		u.counts[glob]++
	}
}

// each runs fn for every item, at most limit at a time, and waits for all.
func each[T any](items []T, limit int, fn func(int, T)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(1, limit))
	for i, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			fn(i, item)
		})
	}
	wg.Wait()
}

// noMatches makes the errors of globs that matched nothing on any of the nodes.
func noMatches(nodes []string, unmatched map[string]int) []error {
	var list []error
	for pattern, n := range unmatched {
		if n == len(nodes) {
			where := nodes[0]
			if len(nodes) > 1 {
				where = fmt.Sprintf("any of %d nodes", len(nodes))
			}
			list = append(list, &failure{doing: fmt.Sprintf("no loaded unit on %s matches %q", where, pattern), err: errNoMatch})
		}
	}
	slices.SortFunc(list, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return list
}

var errNoMatch = &silentKind{wire.ErrSystemdNoSuchUnit}

// silentKind is a kind of error whose text was said already.
type silentKind struct{ kind *wire.Error }

func (s *silentKind) Error() string        { return "" }
func (s *silentKind) Is(target error) bool { return s.kind.Is(target) }
