package managerbus

import (
	"errors"
	"slices"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// What calls are about, for the check of rights.

// aboutUnits says which units on which node a call of a node's method names.
func aboutUnits(m *wire.NodeMethod) func(*busobject.Call) (busobject.About, error) {
	return func(c *busobject.Call) (about busobject.About, err error) {
		about.Node, _ = wire.ParseNodePath(c.Path)
		if namesUnits(m) {
			about.Units, _ = c.Args.FirstStrings()
		}
		if m.Name == "StartTransientUnit" {
			more, err := auxiliaryUnits(c)
			return busobject.About{Node: about.Node, Units: append(about.Units, more...)}, err
		}
		return about, nil
	}
}

// namesUnits reports that a method's first argument is a unit or a list of unit files.
func namesUnits(m *wire.NodeMethod) bool {
	return m.UnitArg || m.Name == "SetDefaultTarget" || ofFiles(m)
}

func ofFiles(m *wire.NodeMethod) bool {
	return m.Kind == wire.ChangeMethod && len(m.In) > 1 && m.In[:2] == "as"
}

// auxiliaryUnits are the units that StartTransientUnit makes besides the one it is named for.
func auxiliaryUnits(c *busobject.Call) ([]string, error) {
	_, aux, err := peer.SplitBody(c.Args, 3)
	var units []struct {
		Name       string
		Properties []struct {
			Name  string
			Value wire.Value
		}
	}
	if err == nil {
		err = peer.Decode(aux, &units)
	}
	var names []string
	for _, u := range units {
		names = append(names, u.Name)
	}
	return names, err
}

// findUnits is aboutUnits with each name replaced by the id of the unit that it means: an
// alias must not lead around a rule. What is done to unit files is done to the file of that
// name, so there both count.
func (b *Bus) findUnits(m *wire.NodeMethod) func(*busobject.Call, func(busobject.About, error)) {
	about := aboutUnits(m)
	return func(c *busobject.Call, done func(busobject.About, error)) {
		a, err := about(c)
		if err != nil {
			done(a, err)
			return
		}
		b.findIDs(a.Node, a.Units, func(ids []string, err error) {
			if ofFiles(m) {
				ids = append(slices.Clone(a.Units), ids...)
			}
			a.Units = unique(ids)
			done(a, gone(c, err, wire.ErrNoSuchNode))
		})
	}
}

// maxNames is how many units one call may name whose ids have to be looked up.
const maxNames = 256

// findIDs asks the node, for one name after the other. A name that means no unit stands for
// itself.
func (b *Bus) findIDs(node string, names []string, done func([]string, error)) {
	if len(names) > maxNames {
		done(nil, wire.ErrLimitsExceeded.With("%d units in one call are more than %d, whose rights can be checked at a time", len(names), maxNames))
		return
	}
	ids := make([]string, 0, len(names))
	var next func()
	next = func() {
		for len(ids) < len(names) && unit.CheckInstance(names[len(ids)]) != nil {
			ids = append(ids, names[len(ids)]) // a template, a path, or nothing that systemd would take
		}
		if len(ids) == len(names) {
			done(ids, nil)
			return
		}
		name := names[len(ids)]
		args, err := peer.Encode(name, wire.SystemdUnitInterface, "Id")
		if err != nil {
			done(nil, err)
			return
		}
		b.core.CallNode(node, "GetUnitProperty", args, func(body wire.Raw, err error) {
			id, err := unitID(name, body, err)
			if err != nil {
				done(nil, err)
				return
			}
			ids = append(ids, id)
			next()
		})
	}
	next()
}

func unitID(name string, body wire.Raw, err error) (string, error) {
	if errors.Is(err, wire.ErrSystemdNoSuchUnit) || errors.Is(err, wire.ErrUnknownObject) || errors.Is(err, wire.ErrInvalidArgs) {
		return name, nil
	}
	var v wire.Value
	var id string
	if err == nil {
		err = peer.Decode(body, &v)
	}
	if err == nil {
		err = peer.DecodeValue(v, &id)
	}
	return id, err
}

// unique drops what is there twice; a unit file's path and its name stay two.
func unique(names []string) []string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// aboutNamed is for methods whose first argument is a node, and the second, where there is
// one, a unit or several. Globs stay what they are.
func aboutNamed(c *busobject.Call) (about busobject.About, err error) {
	node, rest, err := peer.SplitBody(c.Args, 1)
	if err != nil {
		return about, err
	}
	about.Units, _ = rest.FirstStrings()
	return about, peer.Decode(node, &about.Node)
}

// aboutNodes is for methods whose first argument is a list of nodes, where none means all.
func aboutNodes(c *busobject.Call) (about busobject.About, err error) {
	about.Nodes, _ = c.Args.FirstStrings()
	return about, nil
}
