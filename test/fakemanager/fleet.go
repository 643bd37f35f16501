// Package fakemanager is a manager for tests of its clients: the public API on a bus, over a
// fleet that exists in memory only and behaves as it is told.
package fakemanager

import (
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"example.org/ctrl/internal/wire"
)

// Fleet is what the manager pretends to manage.
type Fleet struct {
	Version string
	Metrics bool // are on
	Nodes   []*Node

	Enrolment Enrolment
	Workloads Workloads
}

// Node is one pretended node.
type Node struct {
	Name     string
	Offline  bool
	Optional bool
	Silent   bool // online, but answers no question within the time limit
	Address  string
	Agent    string // version
	Systemd  string // version
	Reason   string // of the last disconnect
	Since    uint64 // microseconds since 1970
	LastSeen uint64
	Default  string // target
	Units    []*Unit
	Files    []UnitFile // without a loaded unit
}

// UnitFile is a unit file and its state.
type UnitFile struct{ Path, State string }

// Unit is one pretended unit.
type Unit struct {
	Name        string
	Aliases     []string
	Description string
	Load        string // "loaded" where empty
	Active      string // "inactive" where empty
	Sub         string
	Followed    string // the unit that this one is another name of
	FileState   string
	// Properties are values as parseValue reads them, by name; a name may be "Service.Result"
	// to say of which interface it is, else it is of the Unit interface.
	Properties map[string]string
	Texts      []Text    // what ReadUnitFiles answers
	Processes  []Process // what GetUnitProcesses answers
	// Does says what a verb (systemctl's word, "run" for a transient unit) or any other method
	// (by its D-Bus name) does; by default a verb succeeds.
	Does map[string]*Behaviour
}

// Text is a file of a unit.
type Text struct{ Path, Text string }

// Process is a process of a unit.
type Process struct {
	Group   string
	PID     uint32
	Command string
}

// Behaviour is how a job, or another call, goes.
type Behaviour struct {
	Error  string // name of the error that refuses it
	Text   string // of the error
	Result string // of the job, "done" where empty
	Early  bool   // the job ends before the answer to its call
	Hang   bool   // the job does not end
	Cut    bool   // the node is lost once the job has begun
	Quit   bool   // the manager leaves the bus once the job has begun
	// Then is what happens to the unit after its job has ended.
	Then []Step
	// What the unit is like afterwards, where it changes.
	Active     string
	Sub        string
	Properties map[string]string
}

// Step is a state that a unit comes into.
type Step struct {
	Active     string
	Sub        string
	Properties map[string]string
	Removed    bool // systemd forgets the unit
	Cut        bool // its node is lost
}

// ParseFleet reads a fleet from YAML.
func ParseFleet(text []byte) (*Fleet, error) {
	var f Fleet
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	for _, n := range f.Nodes {
		for _, u := range n.Units {
			u.Load = orElse(u.Load, "loaded")
			u.Active = orElse(u.Active, "inactive")
			u.Sub = orElse(u.Sub, map[string]string{"active": "running", "failed": "failed"}[u.Active])
			u.Sub = orElse(u.Sub, "dead")
		}
	}
	return &f, nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (f *Fleet) node(name string) *Node {
	for _, n := range f.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (n *Node) status() string {
	if n.Offline {
		return wire.NodeOffline
	}
	return wire.NodeOnline
}

func (n *Node) unit(name string) *Unit {
	for _, u := range n.Units {
		if u.Name == name || slices.Contains(u.Aliases, name) {
			return u
		}
	}
	return nil
}

func (f *Fleet) status() string {
	online, expected := 0, 0
	for _, n := range f.Nodes {
		switch {
		case !n.Offline:
			online, expected = online+1, expected+1
		case !n.Optional:
			expected++
		}
	}
	switch {
	case online == 0:
		return wire.StatusDown
	case online < expected:
		return wire.StatusDegraded
	}
	return wire.StatusUp
}
