// Package systemdtest is a service manager in memory, for tests of everything above
// agent.Systemd: units whose jobs take as long and end as the test says, queued and merged
// by systemd's rules, with its signals in its order.
//
// It works in a testing/synctest bubble and has no goroutines but those that call Run:
//
//	sd := systemdtest.New()
//	sd.AddUnit("web.service", systemdtest.Spec{Start: systemdtest.Run{Takes: time.Second}})
//	core := agent.New(cfg, sd, dialer, events, log)
//	go sd.Run(ctx, core)
//
// What it does not have: dependencies between units, so a job never makes others.
package systemdtest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Spec is what a unit is and does. The zero value is a service that starts, stops and
// reloads at once and runs until it is stopped.
type Spec struct {
	Description string
	Aliases     []string
	// Load is the unit's load state if it is not "loaded": "masked", "error", "bad-setting".
	Load string
	// Oneshot units are inactive again when their start has ended, or with Remain active
	// (exited).
	Oneshot, Remain bool
	// ConditionFails makes a start end as done without a change of state.
	ConditionFails bool
	// NoReload refuses reloads as a unit without ExecReload= does.
	NoReload bool
	// Enabled is the state of the unit file; enabled units are active after Reboot.
	Enabled bool
	// Text is what ReadUnitFiles shows.
	Text string

	Start, Stop, Reload Run
}

// Run is how one kind of job goes.
type Run struct {
	Takes time.Duration
	// Ends is the job's result, "" for done, or Hangs. A start that ends as failed or
	// timeout leaves the unit failed; with any other result it was never begun. A stop that
	// ends as failed is done for systemd too, and leaves the unit failed.
	Ends string
}

// Hangs is the end of a job that does not end by itself.
const Hangs = "hangs"

// State is what systemd says about a unit.
type State struct{ Load, Active, Sub string }

// Systemd is the service manager of one node. All methods are safe from any goroutine.
type Systemd struct {
	mu       sync.Mutex
	facts    map[string]wire.Value
	units    map[string]*unitState // by primary name
	names    map[string]*unitState // by primary name and alias
	target   string
	jobs     map[uint32]*job
	lastJob  uint32
	requests []string
	boots    int

	session *session // of the core that Run serves; nil while there is none
	away    bool
	held    bool
	waiting []func() // asked while held
	changed chan struct{}
	wanted  func(string) bool
}

var _ agent.Systemd = (*Systemd)(nil)

var machines atomic.Uint32

// New makes a service manager without units, of a machine of its own.
func New() *Systemd {
	s := &Systemd{
		units: make(map[string]*unitState), names: make(map[string]*unitState), jobs: make(map[uint32]*job),
		target: "multi-user.target", changed: make(chan struct{}),
	}
	s.facts = map[string]wire.Value{
		wire.FactSystemdVersion: peer.MustValue("252"),
		wire.FactArchitecture:   peer.MustValue("x86-64"),
		wire.FactMachineID:      peer.MustValue(fmt.Sprintf("%032x", machines.Add(1))),
	}
	s.newBoot()
	return s
}

func (s *Systemd) newBoot() {
	s.boots++
	s.facts = maps.Clone(s.facts)
	s.facts[wire.FactBootID] = peer.MustValue(fmt.Sprintf("%032x", s.boots))
}

// AddUnit puts a unit file in place, or replaces it; a present unit keeps its state.
func (s *Systemd) AddUnit(name string, spec Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.units[name]
	if u == nil {
		u = &unitState{systemd: s, name: name, active: "inactive", sub: "dead"}
		s.units[name] = u
	}
	u.spec = spec
	maps.DeleteFunc(s.names, func(_ string, o *unitState) bool { return o == u })
	for _, n := range append([]string{name}, spec.Aliases...) {
		s.names[n] = u
	}
}

// RemoveUnit takes a unit's file away. A unit that is active goes on, with the load state
// not-found; others are gone.
func (s *Systemd) RemoveUnit(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.units[name]; u != nil {
		u.spec.Load = "not-found"
		u.collect()
	}
}

// State tells what a unit is like, under any of its names.
func (s *Systemd) State(name string) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.names[name]; u != nil {
		return State{u.load(), u.active, u.sub}
	}
	return State{"not-found", "inactive", "dead"}
}

// Exit ends the main process of an active unit without a job.
func (s *Systemd) Exit(name string, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.names[name]; u != nil && u.active != "inactive" {
		u.abort()
		u.end(failed)
		u.collect()
	}
}

// QueuedJobs is how many jobs are in the queue.
func (s *Systemd) QueuedJobs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

// Requests lists what was asked since New, each as the method, the unit or job if there is
// one, and the mode of a job: "StartUnit web.service replace", "CancelJob 7", "ListUnits".
func (s *Systemd) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Reboot switches the machine off and on: the connection is lost, jobs and processes are
// gone, and only enabled units are active afterwards.
func (s *Systemd) Reboot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked()
	s.away = false
	s.newBoot()
	clear(s.jobs)
	for _, u := range s.units {
		u.abort()
		u.job, u.loaded = nil, false
		u.active, u.sub = "inactive", "dead"
		if u.spec.Enabled {
			u.loaded = true
			u.active, u.sub = "active", u.activeSub()
		}
	}
	maps.DeleteFunc(s.units, func(_ string, u *unitState) bool { return u.transient })
	maps.DeleteFunc(s.names, func(_ string, u *unitState) bool { return u.transient })
}
