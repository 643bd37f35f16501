package systemd

import (
	"maps"
	"sync"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Systemd forgets an inactive unit as soon as its last job has ended: when somebody asks how
// a oneshot service fared, the answer is about a unit that was loaded a moment ago and has
// never run. So the adapter remembers what systemd said about the units that it was asked to
// start, and completes such an answer.

// maxRemembered is how many units are remembered, the latest ones.
const maxRemembered = 256

// memory holds the last properties of units with jobs of ours. It is used by the reader
// goroutine and by callers.
type memory struct {
	mu    sync.Mutex
	units map[string]map[string]map[string]wire.Value // unit → interface → property
	order []string

	// jobs are systemd's jobs by the primary names of their units, which are those of signals.
	jobs map[uint32]string
}

// maxNamedJobs bounds memory.jobs. Of a unit whose job does not fit, nothing is remembered
// where it was asked for by an alias.
const maxNamedJobs = 4096

// jobNew notes whose a job is. Systemd says so before it answers who asked for the job, and
// tells nothing of what the job does before that.
func (m *memory) jobNew(job uint32, unit string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.jobs) >= maxNamedJobs {
		return
	}
	if m.jobs == nil {
		m.jobs = make(map[uint32]string)
	}
	m.jobs[job] = unit
}

func (m *memory) jobRemoved(job uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, job)
}

// forgetJobs is for a new connection: ends of jobs have been missed.
func (m *memory) forgetJobs() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs = nil
}

// answered begins to remember also the unit behind an alias, where the job of unit is that
// unit's.
func (m *memory) answered(unit string, job uint32) {
	m.mu.Lock()
	primary := m.jobs[job]
	m.mu.Unlock()
	if primary != "" && primary != unit {
		m.expect(primary)
	}
}

// expect begins to remember a unit, from nothing.
func (m *memory) expect(unit string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.units == nil {
		m.units = make(map[string]map[string]map[string]wire.Value)
	}
	if _, known := m.units[unit]; !known {
		if len(m.order) >= maxRemembered {
			delete(m.units, m.order[0])
			m.order = m.order[1:]
		}
		m.order = append(m.order, unit)
	}
	m.units[unit] = make(map[string]map[string]wire.Value)
}

func (m *memory) expects(unit string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.units[unit] != nil
}

func (m *memory) note(unit, iface string, changed map[string]wire.Value) {
	m.mu.Lock()
	defer m.mu.Unlock()
	interfaces := m.units[unit]
	if interfaces == nil {
		return
	}
	if interfaces[iface] == nil {
		interfaces[iface] = make(map[string]wire.Value, len(changed))
	}
	maps.Copy(interfaces[iface], changed)
}

// complete adds what is remembered to the properties of a unit that has been loaded anew:
// one that is inactive and, as far as systemd knows, never ran and was never checked.
func (m *memory) complete(unit, iface string, body wire.Raw) wire.Raw {
	if !m.expects(unit) {
		return body
	}
	var props map[string]wire.Value
	if peer.Decode(body, &props) != nil || !untouched(props) {
		return body
	}
	if id, ok := props["Id"].AsString(); ok {
		unit = id // signals come by that name
	}
	m.mu.Lock()
	for name, remembered := range m.units[unit] {
		if iface != "" && iface != name {
			continue
		}
		for property, value := range remembered {
			if _, has := props[property]; has {
				props[property] = value
			}
		}
	}
	m.mu.Unlock()
	completed, err := peer.Encode(props)
	if err != nil {
		return body
	}
	return completed
}

func untouched(props map[string]wire.Value) bool {
	active, _ := props["ActiveState"].AsString()
	return active == "inactive" && zero(props["InactiveExitTimestamp"]) && zero(props["ConditionTimestamp"])
}

func zero(v wire.Value) bool {
	var n uint64
	return v.Sig == "t" && peer.DecodeValue(v, &n) == nil && n == 0
}
