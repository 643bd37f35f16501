package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// What runs inside a node: clients of that node's bus, as a script would be one. It takes one
// task after the other and answers each with what it took.

// task is one measurement inside a node.
type task struct {
	Kind string // one of the dialects, for What jobs and list
	What string // jobs, list, program, usage
	// Jobs: the nodes of the fleet asked for them in turn, the first target, how many for
	// each node, how many may be under way.
	Nodes       []string
	From, Count int
	Window      int
	// Program: what to run Count times. Usage: the units whose processes are looked at.
	Argv []string
}

// answer is what a task took.
type answer struct {
	Error string
	// Start and Stop are the nanoseconds of each job, of a list or of a program (Start).
	Start, Stop []int64
	// StartAll and StopAll are the nanoseconds of all jobs together.
	StartAll, StopAll int64
	Usage             []usage
	Size              int // bytes of the last list
}

// dialect is how one service is asked for jobs and lists.
type dialect struct {
	name  string // on the bus; "" without a bus
	iface string // with JobRemoved
	path  wire.ObjectPath
	node  func(node string) (wire.ObjectPath, string) // object and interface with StartUnit
}

func systemdNode(string) (wire.ObjectPath, string) {
	return wire.SystemdPath, wire.SystemdManagerInterface
}

func ctrlNode(node string) (wire.ObjectPath, string) {
	return wire.NodePath(node), wire.NodeInterface
}

const (
	viaCtrl    = "ctrl"    // the manager's API on the bus of its machine
	viaBus     = "bus"     // systemd's own API on the bus of the node
	viaPrivate = "private" // systemd's private socket, without a bus
)

var dialects = map[string]dialect{
	viaCtrl:    {wire.BusName, wire.ManagerInterface, wire.RootPath, ctrlNode},
	viaBus:     {wire.SystemdName, wire.SystemdManagerInterface, wire.SystemdPath, systemdNode},
	viaPrivate: {"", wire.SystemdManagerInterface, wire.SystemdPath, systemdNode},
}

// taskLimit bounds one task.
const taskLimit = time.Minute

func inside(in io.Reader, out io.Writer) error {
	tasks, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var t task
		if err := tasks.Decode(&t); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a, err := perform(t)
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func perform(t task) (a answer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), taskLimit)
	defer cancel()
	switch t.What {
	case "program":
		a.Start, err = runProgram(ctx, t)
		return a, err
	case "usage":
		a.Usage, err = readUsage(ctx, t.Argv)
		return a, err
	}
	c, err := connect(ctx, t.Kind, peer.SystemBusAddress())
	if err != nil {
		return a, err
	}
	defer func() { c.Close(errors.New("done")); <-c.Done() }()
	if t.What == "list" {
		a.Start, a.Size, err = c.lists(ctx, t)
		return a, err
	}
	began := time.Now()
	if a.Start, err = c.jobs(ctx, "StartUnit", t); err != nil {
		return a, err
	}
	middle := time.Now()
	a.Stop, err = c.jobs(ctx, "StopUnit", t)
	a.StartAll, a.StopAll = middle.Sub(began).Nanoseconds(), time.Since(middle).Nanoseconds()
	return a, err
}

// runProgram measures a program from its start to its end.
func runProgram(ctx context.Context, t task) ([]int64, error) {
	var took []int64
	for range t.Count {
		cmd := exec.CommandContext(ctx, t.Argv[0], t.Argv[1:]...)
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %w: %s", t.Argv, err, out)
		}
		took = append(took, time.Since(began).Nanoseconds())
	}
	return took, nil
}

type client struct {
	*peer.Conn
	dialect dialect
	batch   batch
}

// connect connects, subscribes and makes one call, after which nothing is new to anybody.
func connect(ctx context.Context, kind, bus string) (*client, error) {
	d, ok := dialects[kind]
	if !ok {
		return nil, fmt.Errorf("no way %q to ask for jobs", kind)
	}
	c := &client{dialect: d}
	opt := peer.Options{Handler: func(_ *peer.Conn, m *peer.Message) { c.signal(m) }, MaxMessage: peer.DefaultBusMaxMessage}
	var err error
	if d.name == "" {
		var nc net.Conn
		if nc, err = peer.DialAddress(ctx, "unix:path=/run/systemd/private"); err == nil {
			c.Conn, err = peer.Client(ctx, nc, opt)
		}
	} else if c.Conn, err = peer.DialBus(ctx, bus, opt); err == nil {
		err = c.AddMatch(ctx, "type='signal',member='JobRemoved',interface='"+d.iface+"'")
	}
	if err != nil {
		return nil, err
	}
	call := peer.Call{Destination: d.name, Path: d.path, Interface: d.iface, Member: "ListJobs"}
	if kind != viaCtrl {
		subscribe := call
		subscribe.Member = "Subscribe"
		if _, err = c.Call(ctx, subscribe); errors.Is(err, wire.ErrSystemdAlreadySubscribed) {
			err = nil
		}
	}
	if err == nil {
		_, err = c.Call(ctx, call)
	}
	return c, err
}

// lists asks for the units of one node where t names it, else of all.
func (c *client) lists(ctx context.Context, t task) (took []int64, size int, err error) {
	call := peer.Call{Destination: c.dialect.name, Path: c.dialect.path, Interface: c.dialect.iface, Member: "ListUnits"}
	if len(t.Nodes) == 1 {
		call.Path, call.Interface = c.dialect.node(t.Nodes[0])
	}
	for range t.Count {
		began := time.Now()
		m, err := c.Call(ctx, call)
		if err != nil {
			return nil, 0, err
		}
		took = append(took, time.Since(began).Nanoseconds())
		size = len(m.Body.Data)
	}
	return took, size, nil
}
