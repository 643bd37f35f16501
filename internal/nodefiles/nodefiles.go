// Package nodefiles is bundle.Files: the unit files, configuration and records of workloads
// on this node's disk.
//
// Below the few directories that it is given it follows no symbolic link, for reading,
// writing or removing, so that nobody who may write into one of them can lead it elsewhere.
// What it writes is complete: a temporary file beside the place, its content on the disk,
// then the rename.
package nodefiles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/loop"
)

// Options of the adapter. All paths are absolute.
type Options struct {
	Layout    bundle.Layout
	FilePaths []string // roots below which files may be written
	// Workloads is the directory of states and revisions.
	Workloads string
	// UnitPath are all directories in which systemd looks for unit files.
	UnitPath []string
	// Analyze checks unit texts as systemd would read them; nil is systemd-analyze(1).
	Analyze func(ctx context.Context, dir string, units []string) (string, error)
	// Scratch is a directory for what is checked.
	Scratch string
}

// SystemUnitPath is where the system's service manager looks for unit files
// (systemd.unit(5), "Unit File Load Path").
var SystemUnitPath = []string{
	"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/run/systemd/generator.early",
	"/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached",
	"/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/generator.late",
}

// Files is the adapter. One goroutine, that of Run, does everything, in the order in which
// it was asked for.
type Files struct {
	opt   Options
	log   *slog.Logger
	loop  *loop.Loop
	dirty map[string]bool // directories whose entries may not be on the disk yet
}

var _ bundle.Files = (*Files)(nil)

// New makes an adapter. It does nothing until Run.
func New(opt Options, log *slog.Logger) *Files {
	if opt.Analyze == nil {
		opt.Analyze = analyze
	}
	return &Files{opt: opt, log: log, loop: loop.New(1), dirty: make(map[string]bool)}
}

// Run serves until ctx ends.
func (f *Files) Run(ctx context.Context) { f.loop.Run(ctx) }

// Configure changes the roots below which files may be written.
func (f *Files) Configure(filePaths []string) {
	f.post(func() { f.opt.FilePaths = filePaths }, func() {})
}

var errEnded = errors.New("the agent is shutting down")

// post runs fn on the adapter's goroutine, or refuse at once where it has ended. The engine
// bounds how much it asks at a time.
func (f *Files) post(fn, refuse func()) {
	if !f.loop.Defer(fn) {
		refuse()
	}
}

// Do implements bundle.Files.
func (f *Files) Do(s bundle.Step, done func(error)) {
	f.post(func() { done(f.do(s)) }, func() { done(errEnded) })
}

func (f *Files) do(s bundle.Step) error {
	switch s.Kind {
	case bundle.StepContent:
		return f.putContent(s.File, s.Data)
	case bundle.StepStage:
		return f.stage(s.Texts)
	case bundle.StepUnstage:
		return f.unstage(s.Texts)
	case bundle.StepRevision:
		return f.putRevision(s.Workload, s.Number, s.Bundle)
	case bundle.StepState:
		return f.putState(s.State)
	case bundle.StepUnit:
		return f.place(s.Path)
	case bundle.StepFile:
		return f.putFile(s.File)
	case bundle.StepRemove:
		return f.remove(s.Path)
	case bundle.StepDropRevision:
		return f.dropRevision(s.Workload, s.Number)
	case bundle.StepForget:
		return f.forget(s.Workload)
	case bundle.StepDropContent:
		return f.dropContent(s.Path)
	}
	return fmt.Errorf("step %s is none of files", s.Kind)
}

// root finds the directory that is trusted as it is, of which a path is below.
func (f *Files) root(path string) (root, rel string, err error) {
	roots := append([]string{f.opt.Layout.Units, f.opt.Layout.Runtime}, f.opt.FilePaths...)
	for _, r := range roots {
		r = filepath.Clean(r)
		if rel, ok := strings.CutPrefix(path, r+"/"); ok && filepath.Clean(path) == path {
			return r, rel, nil
		}
	}
	return "", "", fmt.Errorf("%s is not below a directory that this agent writes to", path)
}
