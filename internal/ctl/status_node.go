package ctl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// nodeStatusRow is one node as programs see it.
type nodeStatusRow struct {
	Node         string    `col:"NODE"`
	Status       string    `col:"STATUS"`
	Address      string    `col:"ADDRESS"`
	Since        time.Time `col:"SINCE"`
	LastSeen     time.Time `col:"LAST-SEEN"`
	Optional     bool      `col:"OPTIONAL"`
	Reason       string    `col:"REASON"`
	Version      string    `col:"VERSION"`
	Systemd      string    `col:"SYSTEMD"`
	MachineID    string    `col:"MACHINE-ID"`
	BootID       string    `col:"BOOT-ID"`
	Architecture string    `col:"ARCHITECTURE"`
	Features     []string  `col:"FEATURES"`
	Units        uint32    `col:"UNITS"`
	Failed       []string  `col:"FAILED"`
	Jobs         uint32    `col:"JOBS"`
}

func (a *app) nodePicture(pattern string) (picture, error) {
	c, err := a.client()
	if err != nil {
		return picture{}, err
	}
	fleet, err := c.Fleet(a.ctx)
	if err != nil {
		return picture{}, err
	}
	nodes, err := pickNodes(fleet, []string{pattern})
	if err != nil {
		return picture{}, err
	}
	rows := make([]nodeStatusRow, len(nodes))
	errs := make([]error, len(nodes))
	each(nodes, maxNodesAtOnce, func(i int, n client.Node) {
		rows[i], errs[i] = a.nodeStatusOf(c, &n, fleet.Jobs)
	})
	p := picture{errs: errs, write: func() error {
		if a.opt.format != render.Table {
			return render.Write(a.out, rows, a.options())
		}
		return a.showNodes(rows)
	}}
	for i, r := range rows {
		same := r
		same.LastSeen = time.Time{}
		p.add(r.Node, same, r)
		if n := &nodes[i]; !n.Online() && (!n.Optional || pattern == n.Name) {
			p.errs = append(p.errs, exit(exitOffline))
		}
	}
	return p, nil
}

func (a *app) nodeStatusOf(c *client.Client, n *client.Node, jobs []wire.JobRow) (nodeStatusRow, error) {
	features, _ := n.Facts[wire.FactFeatures].Data.([]string)
	row := nodeStatusRow{
		Node: n.Name, Status: n.Status, Address: n.Address, Since: n.StatusSince, LastSeen: n.LastSeen, Optional: n.Optional,
		Reason: n.DisconnectReason, Version: n.Fact(wire.FactAgentVersion), Systemd: n.Fact(wire.FactSystemdVersion),
		MachineID: n.Fact(wire.FactMachineID), BootID: n.Fact(wire.FactBootID), Architecture: n.Fact(wire.FactArchitecture), Features: features,
	}
	for _, j := range jobs {
		if j.Node == n.Name {
			row.Jobs++
		}
	}
	if !n.Online() {
		return row, nil
	}
	units, err := c.Node(n.Name).ListUnits(a.ctx, nil, nil)
	if errors.Is(err, wire.ErrNodeOffline) {
		row.Status = wire.NodeOffline
		return row, exit(exitOffline)
	}
	if err != nil {
		return row, &failure{doing: "cannot list the units of " + n.Name, node: n.Name, err: err}
	}
	row.Units = uint32(len(units))
	for _, u := range units {
		if u.ActiveState == "failed" {
			row.Failed = append(row.Failed, u.Name)
		}
	}
	slices.SortFunc(row.Failed, compareUnits)
	return row, nil
}

func (a *app) showNodes(rows []nodeStatusRow) error {
	for i, r := range rows {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		if err := a.showNode(r); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showNode(r nodeStatusRow) error {
	d := a.details()
	mark, style := render.Mark{UTF8: "●", ASCII: "*", Style: render.Good}, render.Good
	switch {
	case r.Status != wire.NodeOnline:
		mark, style = render.Mark{UTF8: "×", ASCII: "x", Style: render.Bad}, render.Bad
	case len(r.Failed) > 0:
		mark.Style = render.Bad
	}
	d.head(mark, r.Node)
	d.line("Status", "%s%s", a.options().Paint(style, r.Status), a.since(r.Since))
	if r.Reason != "" {
		d.line("Reason", "%s", render.Clean(r.Reason))
	}
	if r.Optional {
		d.line("Optional", "yes")
	}
	d.optional("Address", r.Address)
	d.optional("Last seen", render.Ago(r.LastSeen, a.now()))
	d.optional("Agent", r.Version)
	d.optional("Systemd", r.Systemd)
	d.optional("Machine", strings.TrimSpace(r.MachineID+" "+r.Architecture))
	d.optional("Boot", r.BootID)
	if r.Status == wire.NodeOnline {
		d.line("Units", "%d loaded, %d failed", r.Units, len(r.Failed))
		d.line("Jobs", "%d", r.Jobs)
	}
	for _, u := range r.Failed {
		d.line("Failed", "%s", a.options().Paint(render.Bad, render.Clean(u)))
	}
	return d.flush()
}
