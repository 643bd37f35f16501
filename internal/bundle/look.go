package bundle

import (
	"maps"
	"slices"

	"example.org/ctrl/internal/unit"
)

// look finds out what is on the node about some bundles of one workload.
func (e *Engine) look(name string, bundles []Bundle, done func(Facts, error)) {
	q, units, templates := e.queries(name, bundles)
	var facts Facts
	var failed error
	left := 2
	join := func(fill func(), err error) {
		e.loop.Defer(func() {
			if err != nil && failed == nil {
				failed = err
			} else if err == nil {
				fill()
			}
			if left--; left == 0 {
				done(facts, failed)
			}
		})
	}
	e.files.Look(q, func(f Facts, err error) {
		join(func() { facts.Paths, facts.Elsewhere, facts.Contents = f.Paths, f.Elsewhere, f.Contents }, err)
	})
	e.systemd.Look(units, templates, func(u map[string]UnitFact, err error) {
		join(func() { facts.Units = u }, err)
	})
}

// queries are what there is to ask about bundles.
func (e *Engine) queries(name string, bundles []Bundle) (q Query, units, templates []string) {
	texts, contents, ours := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	var files []File
	names, patterns := make(map[string]bool), make(map[string]bool)
	for _, b := range bundles {
		for _, t := range b.Render(e.cfg.Layout) {
			texts[t.Path] = true
		}
		for _, f := range b.Files {
			contents[f.ContentID()] = true
			if f.Write {
				files = append(files, f)
			}
		}
		for _, u := range b.Units {
			if unit.IsTemplate(u.Name) {
				patterns[u.Name] = true
			} else {
				names[u.Name] = true
			}
			if !u.Foreign {
				ours[u.Name] = true
			}
		}
		for _, n := range append(slices.Clone(b.Start), b.Enable...) {
			names[n] = true
		}
	}
	return Query{Workload: name, Texts: keys(texts), Files: files, Contents: keys(contents), Units: keys(ours)}, keys(names), keys(patterns)
}

func keys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }
