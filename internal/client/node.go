package client

import (
	"context"
	"errors"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// NodeAPI is the interface of one node. Its methods give wire.ErrNoSuchNode where the fleet
// has no such node, wire.ErrNodeOffline, wire.ErrTimeout, and what systemd says on the node.
type NodeAPI struct {
	c    *Client
	name string
}

// Node is the interface of a node; whether there is one shows when it is called.
func (c *Client) Node(name string) NodeAPI { return NodeAPI{c, name} }

func (n NodeAPI) read(ctx context.Context, member string, args ...any) ([]any, error) {
	body, err := n.c.read(ctx, node(n.name), member, args...)
	return body, n.failure(err)
}

func (n NodeAPI) change(ctx context.Context, member string, args ...any) ([]any, error) {
	body, err := n.c.change(ctx, node(n.name), member, args...)
	return body, n.failure(err)
}

// failure words an error in terms of nodes: an object that is not there is a node that is not.
func (n NodeAPI) failure(err error) error {
	if errors.Is(err, wire.ErrUnknownObject) {
		return wire.ErrNoSuchNode.With("node %s is not in the fleet", n.name)
	}
	return err
}

func (n NodeAPI) text(ctx context.Context, member string, args ...any) (string, error) {
	return only[string](n.read(ctx, member, args...))
}

// ListUnits lists units in one of the states whose name matches one of the patterns.
func (n NodeAPI) ListUnits(ctx context.Context, states, patterns []string) ([]wire.UnitStatus, error) {
	rows, err := only[[][]any](n.read(ctx, "ListUnitsFiltered", listOf(states), listOf(patterns)))
	if err != nil {
		return nil, err
	}
	return unitRows(rows)
}

// ListUnitFiles lists the node's unit files.
func (n NodeAPI) ListUnitFiles(ctx context.Context) ([]UnitFile, error) {
	body, err := n.read(ctx, "ListUnitFiles")
	if err != nil {
		return nil, err
	}
	var files []UnitFile
	return files, store(body, &files)
}

// UnitProperties reads a unit's properties: of one interface, or of all where it is "".
func (n NodeAPI) UnitProperties(ctx context.Context, unit, iface string) (map[string]Value, error) {
	props, err := only[map[string]dbus.Variant](n.read(ctx, "GetUnitProperties", unit, iface))
	if err != nil {
		return nil, err
	}
	return values(props), nil
}

// Process is one process of a unit.
type Process struct {
	ControlGroup string
	PID          uint32
	Command      string
}

// UnitProcesses lists the processes of a unit and of what is below it.
func (n NodeAPI) UnitProcesses(ctx context.Context, unit string) ([]Process, error) {
	body, err := n.read(ctx, "GetUnitProcesses", unit)
	if err != nil {
		return nil, err
	}
	var list []Process
	return list, store(body, &list)
}

// UnitText is one file of a unit.
type UnitText struct{ Path, Text string }

// ReadUnitFiles reads the unit file and the drop-ins of a unit.
func (n NodeAPI) ReadUnitFiles(ctx context.Context, unit string) ([]UnitText, error) {
	body, err := n.read(ctx, "ReadUnitFiles", unit)
	if err != nil {
		return nil, err
	}
	var files []UnitText
	return files, store(body, &files)
}

// UnitFileState says whether a unit file is enabled, in systemctl's words.
func (n NodeAPI) UnitFileState(ctx context.Context, file string) (string, error) {
	return n.text(ctx, "GetUnitFileState", file)
}

// DefaultTarget is the target that the node boots into.
func (n NodeAPI) DefaultTarget(ctx context.Context) (string, error) {
	return n.text(ctx, "GetDefaultTarget")
}

// Change is what a unit file operation did: a type (symlink, unlink, …), a link and what it
// points to.
type Change struct{ Type, File, Source string }

func changes(body []any, err error) ([]Change, error) {
	if err != nil {
		return nil, err
	}
	var list []Change
	return list, store(body, &list)
}

func carried(body []any, err error) (carries bool, list []Change, _ error) {
	if err != nil {
		return false, nil, err
	}
	return carries, list, store(body, &carries, &list)
}

// SetDefaultTarget sets the target that the node boots into.
func (n NodeAPI) SetDefaultTarget(ctx context.Context, target string, force bool) ([]Change, error) {
	return changes(n.change(ctx, "SetDefaultTarget", target, force))
}

// EnableUnitFiles enables unit files; carries says whether they have installation information.
func (n NodeAPI) EnableUnitFiles(ctx context.Context, files []string, runtime, force bool) (carries bool, _ []Change, _ error) {
	return carried(n.change(ctx, "EnableUnitFiles", listOf(files), runtime, force))
}

// PresetUnitFiles enables or disables unit files as the node's preset policy says.
func (n NodeAPI) PresetUnitFiles(ctx context.Context, files []string, runtime, force bool) (carries bool, _ []Change, _ error) {
	return carried(n.change(ctx, "PresetUnitFiles", listOf(files), runtime, force))
}

// DisableUnitFiles disables unit files.
func (n NodeAPI) DisableUnitFiles(ctx context.Context, files []string, runtime bool) ([]Change, error) {
	return changes(n.change(ctx, "DisableUnitFiles", listOf(files), runtime))
}

// MaskUnitFiles makes unit files impossible to start.
func (n NodeAPI) MaskUnitFiles(ctx context.Context, files []string, runtime, force bool) ([]Change, error) {
	return changes(n.change(ctx, "MaskUnitFiles", listOf(files), runtime, force))
}

// UnmaskUnitFiles ends MaskUnitFiles.
func (n NodeAPI) UnmaskUnitFiles(ctx context.Context, files []string, runtime bool) ([]Change, error) {
	return changes(n.change(ctx, "UnmaskUnitFiles", listOf(files), runtime))
}

// Reload makes systemd read its unit files again.
func (n NodeAPI) Reload(ctx context.Context) error { return second(n.change(ctx, "Reload")) }

func second(_ []any, err error) error { return err }

// KillUnit sends a signal to processes of a unit; who is all, main or control.
func (n NodeAPI) KillUnit(ctx context.Context, unit, who string, signal int32) error {
	return second(n.change(ctx, "KillUnit", unit, who, signal))
}

// FreezeUnit suspends the processes of a unit.
func (n NodeAPI) FreezeUnit(ctx context.Context, unit string) error {
	return second(n.change(ctx, "FreezeUnit", unit))
}

// ThawUnit ends FreezeUnit.
func (n NodeAPI) ThawUnit(ctx context.Context, unit string) error {
	return second(n.change(ctx, "ThawUnit", unit))
}

// ResetFailedUnit resets the failed state of a unit.
func (n NodeAPI) ResetFailedUnit(ctx context.Context, unit string) error {
	return second(n.change(ctx, "ResetFailedUnit", unit))
}

// ResetFailed resets the failed state of all units.
func (n NodeAPI) ResetFailed(ctx context.Context) error { return second(n.change(ctx, "ResetFailed")) }

// SetUnitProperties changes properties of a unit; runtime ones last until the next boot.
func (n NodeAPI) SetUnitProperties(ctx context.Context, unit string, runtime bool, props []Property) error {
	return second(n.change(ctx, "SetUnitProperties", unit, runtime, wireProperties(props)))
}

// Name is the node's name.
func (n NodeAPI) Name() string { return n.name }
