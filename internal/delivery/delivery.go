// Package delivery makes the bundle engine, this node's disk and its systemd one component of
// the agent, which answers the calls of wire.BundleMethods.
package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"

	"example.org/ctrl/internal/agent"
	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/nodefiles"
	"example.org/ctrl/internal/nodeunits"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Options of the component.
type Options struct {
	Layout    bundle.Layout
	UnitPath  []string // where systemd looks for unit files
	State     string   // the agent's state directory
	FilePaths []string // AllowFilePaths=
	Judge     func(bundle.Bundle) error
	Systemd   nodeunits.Systemd
	// Tell gets the signals about workloads, by member, as JSON. It does not block.
	Tell func(member, text string)
	Log  *slog.Logger
	// Fault, in tests, is called before and after each step.
	Fault func(before bool, step bundle.Step)
}

// Delivery is the component. Make one with New and run it with Run.
type Delivery struct {
	Engine *bundle.Engine
	files  *nodefiles.Files
	units  *nodeunits.Units
	tell   func(member, text string)
	// calls are on their way to the engine, in order; the agent's core bounds them.
	calls *loop.Loop
}

var _ agent.Workloads = (*Delivery)(nil)

// New makes the component. It does nothing until Run.
func New(opt Options) *Delivery {
	d := &Delivery{tell: opt.Tell, calls: loop.New(1)}
	d.files = nodefiles.New(nodefiles.Options{
		Layout: opt.Layout, FilePaths: opt.FilePaths, UnitPath: opt.UnitPath,
		Workloads: filepath.Join(opt.State, "workloads"), Scratch: filepath.Join(opt.State, "scratch"),
	}, opt.Log)
	d.units = nodeunits.New(opt.Systemd)
	d.Engine = bundle.New(bundle.Config{
		Layout: opt.Layout, FilePaths: opt.FilePaths, Judge: opt.Judge, Fault: opt.Fault,
	}, d.files, d.units, d, opt.Log)
	return d
}

// Run serves until ctx ends. What is under way then is left as a crash would leave it, and
// brought to an end by the next run.
func (d *Delivery) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { d.files.Run(ctx) })
	all.Go(func() { d.units.Run(ctx) })
	all.Go(func() { d.Engine.Run(ctx) })
	all.Go(func() { d.calls.Run(ctx) })
	all.Wait()
}

// Configure changes what the node allows.
func (d *Delivery) Configure(filePaths []string, judge func(bundle.Bundle) error) {
	d.files.Configure(filePaths)
	d.calls.Defer(func() { d.Engine.Configure(filePaths, judge) })
}

// SystemdUp says that there is a new connection to systemd.
func (d *Delivery) SystemdUp() { d.units.SystemdUp() }

// SystemdJobRemoved is systemd's signal that a job has ended.
func (d *Delivery) SystemdJobRemoved(job uint32, result string) {
	d.units.SystemdJobRemoved(job, result)
}

// Progress implements bundle.Events.
func (d *Delivery) Progress(e bundle.Event) { d.tell(wire.MemberBundleProgress, text(e)) }

// Changed implements bundle.Events.
func (d *Delivery) Changed(s bundle.Status) { d.tell(wire.MemberWorkloadChanged, text(s)) }

// SessionEnded implements agent.Workloads.
func (d *Delivery) SessionEnded() { d.calls.Defer(d.Engine.ForgetUploads) }

// text is the JSON of what bundle made, which is always possible.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Call implements agent.Workloads.
func (d *Delivery) Call(method string, args wire.Raw, done func(wire.Raw, error)) {
	carryOut, ok := calls[method]
	if !ok {
		done(wire.Raw{}, wire.ErrUnknownMethod.With("this agent does not know %s", method))
		return
	}
	answered := func(answer any, err error) {
		if err != nil {
			done(wire.Raw{}, asError(err))
			return
		}
		switch answer := answer.(type) {
		case nil:
			done(wire.Raw{}, nil)
		case uint64:
			done(peer.Encode(answer))
		default:
			done(peer.Encode(text(answer)))
		}
	}
	if !d.calls.Defer(func() { carryOut(d.Engine, args, answered) }) {
		answered(nil, bundle.ErrEnded)
	}
}

// asError is a refusal as a D-Bus error.
func asError(err error) error {
	var r *bundle.Refusal
	switch {
	case errors.Is(err, bundle.ErrEnded):
		return wire.ErrShuttingDown.With("%v", err)
	case !errors.As(err, &r):
		return err
	}
	switch r.Code {
	case bundle.CodeInvalid:
		return wire.ErrInvalidArgs.With("%v", err)
	case bundle.CodeDenied:
		return wire.ErrAccessDenied.With("%v", err)
	case bundle.CodeBusy:
		return wire.ErrLimitsExceeded.With("%v", err)
	}
	return wire.ErrFailed.With("%v", err)
}
