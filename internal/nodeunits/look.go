package nodeunits

import (
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// Look implements bundle.Systemd.
func (u *Units) Look(names, templates []string, done func(map[string]bundle.UnitFact, error)) {
	if len(templates) == 0 {
		u.facts(names, done)
		return
	}
	var patterns []string
	for _, t := range templates {
		prefix, _, kind := unit.Split(t)
		patterns = append(patterns, strings.ReplaceAll(prefix, `\`, `\\`)+"@?*."+kind)
	}
	body, err := peer.Encode([]string{}, patterns)
	if err != nil {
		done(nil, err)
		return
	}
	u.systemd.Call("ListUnitsFiltered", body, callTimeout, func(body wire.Raw, err error) {
		var rows []wire.UnitStatus
		if err == nil {
			err = peer.Decode(body, &rows)
		}
		if err != nil {
			done(nil, err)
			return
		}
		all := slices.Clone(names)
		for _, r := range rows {
			all = append(all, r.Name)
		}
		slices.Sort(all)
		u.facts(slices.Compact(all), done)
	})
}

// facts asks about every unit twice: its object, and its file, since what the object says
// of the file is as old as systemd's last reload.
func (u *Units) facts(names []string, done func(map[string]bundle.UnitFact, error)) {
	facts := make(map[string]bundle.UnitFact)
	left := 1
	var failed error
	// join runs on the loop's goroutine.
	join := func() {
		if left--; left > 0 {
			return
		}
		if failed != nil {
			facts = nil
		}
		done(maps.Clone(facts), failed)
	}
	answer := func(name string, take func(*bundle.UnitFact) error) {
		if !u.loop.Defer(func() {
			f := facts[name]
			if err := take(&f); err != nil && failed == nil {
				failed = err
			}
			facts[name] = f
			join()
		}) {
			return
		}
	}
	begun := u.loop.Defer(func() {
		for _, name := range names {
			left++
			u.systemd.Call("GetUnitFileState", wire.Strings(name), callTimeout, func(body wire.Raw, err error) {
				answer(name, func(f *bundle.UnitFact) error { return fileState(f, body, err) })
			})
			if unit.IsTemplate(name) {
				continue
			}
			left++
			u.systemd.Call("GetUnitProperties", wire.Strings(name, ""), callTimeout, func(body wire.Raw, err error) {
				answer(name, func(f *bundle.UnitFact) error { return properties(f, name, body, err) })
			})
		}
		join()
	})
	if !begun {
		done(nil, errors.New("the agent is shutting down"))
	}
}

// fileState takes the answer about a unit file. That there is none is no fault.
func fileState(f *bundle.UnitFact, body wire.Raw, err error) error {
	if errors.Is(err, wire.ErrDisconnected) || errors.Is(err, wire.ErrTimeout) || errors.Is(err, wire.ErrNoReply) {
		return err
	}
	if err != nil {
		return nil
	}
	return peer.Decode(body, &f.FileState)
}

// properties takes what systemd says of a unit.
func properties(f *bundle.UnitFact, name string, body wire.Raw, err error) error {
	var p map[string]wire.Value
	if err == nil {
		err = peer.Decode(body, &p)
	}
	if err != nil {
		return err
	}
	var invocation []byte
	var kind string
	var condition bool
	var conditionAt, exitAt uint64
	for key, into := range map[string]any{
		"LoadState": &f.Load, "ActiveState": &f.Active, "SubState": &f.Sub, "Result": &f.Result, "InvocationID": &invocation, "Triggers": &f.Triggers,
		"Type": &kind, "ConditionResult": &condition, "ConditionTimestampMonotonic": &conditionAt, "ExecMainExitTimestampMonotonic": &exitAt,
	} {
		if v, ok := p[key]; ok {
			if err := peer.DecodeValue(v, into); err != nil {
				return err
			}
		}
	}
	if len(invocation) > 0 {
		f.Invocation = hex.EncodeToString(invocation)
	}
	skipped := conditionAt > 0 && !condition
	ran := unit.TypeOf(name) == "service" && kind == "oneshot" && f.Result == "success" && exitAt > 0
	f.Done = f.Active == "inactive" && (skipped || ran)
	return nil
}
