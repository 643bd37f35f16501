package managerbus

import (
	"slices"
	"strings"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

// fleet is the state of the root object.
type fleet struct {
	manager.Snapshot
	logLevel, logTarget string
}

func (b *Bus) managerClass() *busobject.Class {
	b.managerIface = busobject.NewInterface(wire.ManagerInterface, map[string]busobject.Method{
		"ListUnits":         {Serve: b.listAll("ListUnits")},
		"ListUnitFiles":     {Serve: b.listAll("ListUnitFiles")},
		"ListUnitsFiltered": {Serve: b.listFiltered, About: aboutNodes},
		"ListNodes":         {Serve: b.listNodes},
		"GetNode":           {Serve: b.getNode, About: aboutNamed},
		"ListJobs":          {Serve: b.listJobs},
		"GetJob":            {Serve: b.getJob, Find: b.findJob},
		"CancelJob":         {Serve: b.cancelJob, Find: b.findJob},
		"CreateMonitor":     {Serve: b.createMonitor},
		"EnableMetrics":     {Serve: b.setMetrics(true)},
		"DisableMetrics":    {Serve: b.setMetrics(false)},
		"SetLogLevel":       {Serve: b.setLogLevel},
		"Shutdown":          {Serve: b.shutdown},
	}, map[string]busobject.Getter{
		"Status":    busobject.Property(func(f fleet) any { return f.Status }),
		"Nodes":     busobject.Property(nodeNames),
		"LogLevel":  busobject.Property(func(f fleet) any { return f.logLevel }),
		"LogTarget": busobject.Property(func(f fleet) any { return f.logTarget }),
		"Version":   busobject.Property(func(fleet) any { return b.version }),
	})
	return &busobject.Class{
		At:    func(p wire.ObjectPath) bool { return p == wire.RootPath },
		Fixed: wire.RootPath,
		Load: func(_ wire.ObjectPath, reply func(any, error)) {
			b.core.Snapshot(func(s manager.Snapshot) {
				reply(fleet{s, b.daemon.LogLevel(), b.daemon.LogTarget()}, nil)
			})
		},
		Interfaces: []*busobject.Interface{b.managerIface, b.enrolmentInterface(), b.workloadsInterface()},
	}
}

func nodeNames(f fleet) any {
	names := make([]string, len(f.Nodes))
	for i, n := range f.Nodes {
		names[i] = n.Name
	}
	return names
}

func (b *Bus) listNodes(c *busobject.Call) {
	b.core.Nodes(func(nodes []manager.NodeInfo) {
		rows := make([]wire.NodeRow, len(nodes))
		for i, n := range nodes {
			rows[i] = wire.NodeRow{Name: n.Name, Path: wire.NodePath(n.Name), Status: n.Status, Address: n.Address}
		}
		c.Reply(rows)
	})
}

func (b *Bus) getNode(c *busobject.Call) {
	var name string
	if err := c.Decode(&name); err != nil {
		c.Fail(err)
		return
	}
	b.core.Node(name, func(n manager.NodeInfo, err error) {
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply(wire.NodePath(n.Name))
	})
}

func (b *Bus) listJobs(c *busobject.Call) {
	b.core.Jobs(func(jobs []manager.JobInfo) {
		rows := make([]wire.JobRow, len(jobs))
		for i, j := range jobs {
			rows[i] = wire.JobRow{ID: j.ID, Node: j.Node, Unit: j.Unit, Type: j.Type, State: j.State, Path: wire.JobPath(j.ID)}
		}
		c.Reply(rows)
	})
}

func (b *Bus) getJob(c *busobject.Call) {
	b.withJobID(c, func(id uint32) {
		b.core.Job(id, func(j manager.JobInfo, err error) {
			if err != nil {
				c.Fail(err)
				return
			}
			c.Reply(wire.JobPath(j.ID))
		})
	})
}

func (b *Bus) withJobID(c *busobject.Call, use func(id uint32)) {
	var id uint32
	if err := c.Decode(&id); err != nil {
		c.Fail(err)
		return
	}
	use(id)
}

func (b *Bus) cancelJob(c *busobject.Call) {
	b.withJobID(c, func(id uint32) { b.cancel(c, id, answer(c)) })
}

// findJob says which unit on which node a cancellation is about.
func (b *Bus) findJob(c *busobject.Call, done func(busobject.About, error)) {
	var id uint32
	if err := c.Decode(&id); err != nil {
		done(busobject.About{}, err)
		return
	}
	b.aboutJob(id, done)
}

func (b *Bus) aboutJob(id uint32, done func(busobject.About, error)) {
	b.core.Job(id, func(j manager.JobInfo, err error) {
		if err != nil {
			done(busobject.About{}, err)
			return
		}
		b.findIDs(j.Node, []string{j.Unit}, func(ids []string, err error) { done(busobject.About{Node: j.Node, Units: ids}, err) })
	})
}

// answer ends a call that gives nothing back.
func answer(c *busobject.Call) func(error) {
	return func(err error) {
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply()
	}
}

var logLevels = []string{"DEBUG", "INFO", "WARN", "ERROR"}

func (b *Bus) setLogLevel(c *busobject.Call) {
	var word string
	if err := c.Decode(&word); err != nil {
		c.Fail(err)
		return
	}
	level := strings.ToUpper(word)
	if !slices.Contains(logLevels, level) {
		c.Fail(wire.ErrInvalidArgs.With("log level %.40q is not known; use one of debug, info, warn, error", word))
		return
	}
	b.inOrder(func() {
		b.daemon.SetLogLevel(level)
		c.Reply()
	})
}

func (b *Bus) shutdown(c *busobject.Call) {
	b.inOrder(func() {
		c.Reply()
		b.daemon.Shutdown()
	})
}

// inOrder runs fn on the core's goroutine after what was asked of the core before, so that
// calls which need no core do not overtake those that do.
func (b *Bus) inOrder(fn func()) { b.core.Monitors(func([]manager.MonitorInfo) { fn() }) }
