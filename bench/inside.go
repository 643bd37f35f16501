package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// What runs inside a node: a client of that node's system bus, as a script would be one.

// service is who is asked for jobs.
type service struct {
	name      string
	path      wire.ObjectPath // of the object with StartUnit and ListUnits
	iface     string
	jobsIface string // of the signal JobRemoved
	listPath  wire.ObjectPath
	listIface string
}

var services = map[string]service{
	"ctrl": {wire.BusName, wire.NodePath("node1"), wire.NodeInterface, wire.ManagerInterface, wire.RootPath, wire.ManagerInterface},
	"systemd": {wire.SystemdName, wire.SystemdPath, wire.SystemdManagerInterface, wire.SystemdManagerInterface,
		wire.SystemdPath, wire.SystemdManagerInterface},
}

// task is what one run inside a node measures.
type task struct {
	Service string
	What    string // start, stop, list
	From    int    // first target
	Count   int
}

type client struct {
	*peer.Conn
	service service
	removed chan wire.ObjectPath
}

func inside(text string, out io.Writer) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := connect(ctx, services[t.Service])
	if err != nil {
		return err
	}
	defer c.Close(fmt.Errorf("done"))
	took := make([]int64, 0, t.Count)
	for i := range t.Count {
		began := time.Now()
		switch t.What {
		case "start":
			err = c.job(ctx, "StartUnit", target(t.From+i))
		case "stop":
			err = c.job(ctx, "StopUnit", target(t.From+i))
		case "list":
			_, err = c.Call(ctx, peer.Call{Destination: c.service.name, Path: c.service.listPath, Interface: c.service.listIface, Member: "ListUnits"})
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(began).Nanoseconds())
	}
	return json.NewEncoder(out).Encode(took)
}

func connect(ctx context.Context, s service) (*client, error) {
	c := &client{service: s, removed: make(chan wire.ObjectPath, 1024)}
	conn, err := peer.DialBus(ctx, peer.SystemBusAddress(), peer.Options{Handler: func(_ *peer.Conn, m *peer.Message) {
		var job struct {
			ID   uint32
			Path wire.ObjectPath
		}
		if m.Member != "JobRemoved" {
			return
		}
		if head, _, err := peer.SplitBody(m.Body, 2); err == nil && peer.Decode(head, &job.ID, &job.Path) == nil {
			c.removed <- job.Path
		}
	}})
	if err != nil {
		return nil, err
	}
	c.Conn = conn
	if err := conn.AddMatch(ctx, "type='signal',member='JobRemoved',interface='"+s.jobsIface+"'"); err != nil {
		return nil, err
	}
	if s.name == wire.SystemdName {
		_, err = conn.Call(ctx, peer.Call{Destination: s.name, Path: s.path, Interface: s.iface, Member: "Subscribe"})
	}
	return c, err
}

// job asks for a job and waits for its end.
func (c *client) job(ctx context.Context, member, unit string) error {
	m, err := c.Call(ctx, peer.Call{
		Destination: c.service.name, Path: c.service.path, Interface: c.service.iface, Member: member,
		Body: peer.MustEncode(unit, "replace"),
	})
	if err != nil {
		return err
	}
	var path wire.ObjectPath
	if err := peer.Decode(m.Body, &path); err != nil {
		return err
	}
	for {
		select {
		case removed := <-c.removed:
			if removed == path {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func target(i int) string { return fmt.Sprintf("bench-%d.target", i) }
