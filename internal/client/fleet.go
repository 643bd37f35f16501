package client

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// Node is one node of the fleet as the manager shows it.
type Node struct {
	Name             string
	Status           string // wire.NodeOnline or wire.NodeOffline
	Address          string // "" when offline, "unix" over the unix socket
	Optional         bool   // may be offline without the fleet being degraded
	LastSeen         time.Time
	StatusSince      time.Time
	DisconnectReason string
	Facts            map[string]Value
}

// Online reports whether the node's agent is registered.
func (n *Node) Online() bool { return n.Status == wire.NodeOnline }

// Fact is one of the node's facts that is text, "" where there is none.
func (n *Node) Fact(key string) string {
	s, _ := n.Facts[key].Data.(string)
	return s
}

// Fleet is what the manager knows at one moment.
type Fleet struct {
	Nodes []Node // by name
	Jobs  []wire.JobRow
}

// Info is what the manager says about itself.
type Info struct {
	Status    string // wire.StatusUp, StatusDegraded or StatusDown
	LogLevel  string
	LogTarget string
	Version   string
}

// Info reads the manager's own properties.
func (c *Client) Info(ctx context.Context) (Info, error) {
	props, err := c.properties(ctx, manager())
	if err != nil {
		return Info{}, err
	}
	return Info{Status: text(props["Status"]), LogLevel: text(props["LogLevel"]), LogTarget: text(props["LogTarget"]), Version: text(props["Version"])}, nil
}

func (c *Client) properties(ctx context.Context, t target) (map[string]dbus.Variant, error) {
	return only[map[string]dbus.Variant](c.read(ctx, t.properties(), "GetAll", t.iface))
}

// Fleet reads all nodes and jobs in one call.
func (c *Client) Fleet(ctx context.Context) (Fleet, error) {
	t := manager()
	t.iface = wire.ObjectManagerInterface
	objects, err := only[map[dbus.ObjectPath]map[string]map[string]dbus.Variant](c.read(ctx, t, "GetManagedObjects"))
	if err != nil {
		return Fleet{}, err
	}
	var f Fleet
	for path, interfaces := range objects {
		if props, ok := interfaces[wire.NodeInterface]; ok {
			f.Nodes = append(f.Nodes, nodeOf(props))
		}
		if props, ok := interfaces[wire.JobInterface]; ok {
			f.Jobs = append(f.Jobs, jobOf(path, props))
		}
	}
	slices.SortFunc(f.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Jobs, func(a, b wire.JobRow) int { return cmp.Compare(a.ID, b.ID) })
	return f, nil
}

func nodeOf(props map[string]dbus.Variant) Node {
	n := Node{
		Name: text(props["Name"]), Status: text(props["Status"]), Address: text(props["PeerIp"]),
		LastSeen: moment(props["LastSeenTimestamp"]), StatusSince: moment(props["StatusTimestamp"]),
		DisconnectReason: text(props["DisconnectReason"]),
	}
	n.Optional, _ = props["Optional"].Value().(bool)
	if facts, ok := props["Facts"].Value().(map[string]dbus.Variant); ok {
		n.Facts = values(facts)
	}
	return n
}

func jobOf(path dbus.ObjectPath, props map[string]dbus.Variant) wire.JobRow {
	id, _ := props["Id"].Value().(uint32)
	return wire.JobRow{ID: id, Node: text(props["Node"]), Unit: text(props["Unit"]), Type: text(props["JobType"]), State: text(props["State"]), Path: wire.ObjectPath(path)}
}

func text(v dbus.Variant) string {
	s, _ := v.Value().(string)
	return s
}

// moment reads a D-Bus timestamp in microseconds since 1970; 0 is no time.
func moment(v dbus.Variant) time.Time {
	us, _ := v.Value().(uint64)
	return Moment(us)
}

// Moment is the time of a timestamp in microseconds since 1970, the zero time for 0 and for
// what no clock shows.
func Moment(us uint64) time.Time {
	if us == 0 || us > 1<<62 {
		return time.Time{}
	}
	return time.UnixMicro(int64(us))
}

// Nodes lists all nodes of the fleet, in the order of the configuration.
func (c *Client) Nodes(ctx context.Context) ([]wire.NodeRow, error) {
	body, err := c.read(ctx, manager(), "ListNodes")
	if err != nil {
		return nil, err
	}
	var rows []wire.NodeRow
	return rows, store(body, &rows)
}

// Jobs lists all jobs that wait or run, by id.
func (c *Client) Jobs(ctx context.Context) ([]wire.JobRow, error) {
	body, err := c.read(ctx, manager(), "ListJobs")
	if err != nil {
		return nil, err
	}
	var rows []wire.JobRow
	return rows, store(body, &rows)
}

// CancelJob cancels a job. Errors: wire.ErrNoSuchJob, ErrNodeOffline, ErrTimeout.
func (c *Client) CancelJob(ctx context.Context, id uint32) error {
	_, err := c.change(ctx, manager(), "CancelJob", id)
	return err
}

// ListUnits lists units of all nodes that match one of the globs and answer in time, filtered
// there: units in one of the states whose name matches one of the patterns. An empty list
// chooses all. Errors: wire.ErrNoSuchNode where a glob matches no node.
func (c *Client) ListUnits(ctx context.Context, nodes, states, patterns []string) (map[string][]wire.UnitStatus, error) {
	all, err := only[map[string][][]any](c.read(ctx, manager(), "ListUnitsFiltered", listOf(nodes), listOf(states), listOf(patterns)))
	if err != nil {
		return nil, err
	}
	units := make(map[string][]wire.UnitStatus, len(all))
	for node, rows := range all {
		if units[node], err = unitRows(rows); err != nil {
			return nil, err
		}
	}
	return units, nil
}

// listOf keeps an absent list from being sent as something else than an empty array.
func listOf(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// unitRows reads rows of systemd's ListUnits. It spares reflection: a fleet has many.
func unitRows(rows [][]any) ([]wire.UnitStatus, error) {
	units := make([]wire.UnitStatus, len(rows))
	for i, r := range rows {
		if len(r) != 10 {
			return nil, badAnswer("a unit with other columns")
		}
		u := &units[i]
		ok := take(r[0], &u.Name) && take(r[1], &u.Description) && take(r[2], &u.LoadState) && take(r[3], &u.ActiveState) &&
			take(r[4], &u.SubState) && take(r[5], &u.Followed) && take(r[7], &u.JobID) && take(r[8], &u.JobType)
		path, isPath := r[6].(dbus.ObjectPath)
		job, isJob := r[9].(dbus.ObjectPath)
		if !ok || !isPath || !isJob {
			return nil, badAnswer("a unit with columns of other types")
		}
		u.Path, u.JobPath = wire.ObjectPath(path), wire.ObjectPath(job)
	}
	return units, nil
}

// UnitFile is a unit file and whether it is enabled.
type UnitFile struct{ Path, State string }

// ListUnitFiles lists the unit files of all nodes that answer in time.
func (c *Client) ListUnitFiles(ctx context.Context) (map[string][]UnitFile, error) {
	body, err := c.read(ctx, manager(), "ListUnitFiles")
	if err != nil {
		return nil, err
	}
	var files map[string][]UnitFile
	return files, store(body, &files)
}
