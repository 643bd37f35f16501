package ctl

import (
	"context"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/wire"
)

func (o *onlooker) ask(ctx context.Context) ([]onlineRow, error) {
	c, err := o.a.client()
	if err != nil {
		return nil, err
	}
	if o.w == nil {
		if o.w, err = c.Watch(ctx); err != nil {
			return nil, err
		}
		o.pause = 0
	}
	// Counted before it is asked: what happens in between is seen by the next look.
	o.lapses = o.lapsed()
	switch o.q.of {
	case "agent":
		info, err := c.Agent().Info(ctx)
		return []onlineRow{{Name: "agent", Status: info.Status, up: info.Status == wire.NodeOnline}}, err
	case "manager":
		_, err := c.Info(ctx)
		return []onlineRow{{Name: "manager", Status: wire.NodeOnline, up: true}}, err
	case "system":
		return askSystem(ctx, c)
	}
	fleet, err := c.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := pickNodes(fleet, []string{o.q.pattern})
	rows := make([]onlineRow, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		rows[i] = onlineRow{Name: n.Name, Status: n.Status, up: n.Online()}
		if !n.Online() {
			rows[i].Reason = n.DisconnectReason
		}
	}
	return rows, err
}

func askSystem(ctx context.Context, c *client.Client) ([]onlineRow, error) {
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	fleet, err := c.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	row := onlineRow{Name: "system", Status: info.Status, up: info.Status == wire.StatusUp}
	if !row.up {
		var missing []string
		for i := range fleet.Nodes {
			if n := &fleet.Nodes[i]; !n.Online() && !n.Optional {
				missing = append(missing, n.Name)
			}
		}
		row.Reason = "offline: " + joined(missing)
		if len(missing) == 0 {
			row.Reason = "it has no nodes"
		}
	}
	return []onlineRow{row}, nil
}
