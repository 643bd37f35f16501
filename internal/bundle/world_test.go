package bundle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/ctrl/internal/unit"
)

// node is a machine in memory: a disk and a systemd that outlive the engine. It answers at
// once, on the engine's own goroutine.
type node struct {
	disk      map[string]PathFact
	staged    map[string]string
	store     map[string]bool
	states    map[string]State
	revisions map[string]map[uint64]Bundle
	elsewhere map[string]string

	loaded  map[string]string // unit files as systemd has read them
	units   map[string]*process
	enabled map[string]bool
	serial  int

	reloads int
	writes  int
	jobs    []string
	faults  []string             // what Verify says
	dead    bool                 // nothing happens any more
	fail    func(Step) error     // makes a step fail
	inside  func(Step, int) bool // reports a crash inside of a step, after so many of its parts
}

type process struct {
	active, invocation, text string
	done                     bool
}

func newNode() *node {
	return &node{
		disk: make(map[string]PathFact), staged: make(map[string]string), store: make(map[string]bool), states: make(map[string]State),
		revisions: make(map[string]map[uint64]Bundle), elsewhere: make(map[string]string),
		loaded: make(map[string]string), units: make(map[string]*process), enabled: make(map[string]bool),
	}
}

func (n *node) Load(done func(Disk, error)) {
	if n.dead {
		return
	}
	clear(n.staged)
	d := Disk{Current: make(map[string]Bundle), Contents: make(map[string]map[uint64][]string), Stored: make(map[string]int64), Marked: make(map[string]string)}
	for name, s := range n.states {
		d.States = append(d.States, s)
		d.Current[name] = n.revisions[name][s.Current]
		d.Contents[name] = make(map[uint64][]string)
		for number, b := range n.revisions[name] {
			_, known := s.revision(number)
			if !known && (s.Pending == nil || s.Pending.Target != number) {
				delete(n.revisions[name], number)
				continue
			}
			d.Contents[name][number] = slices.Collect(maps.Keys(b.contents()))
		}
	}
	for name := range n.revisions {
		if _, known := n.states[name]; !known {
			delete(n.revisions, name)
		}
	}
	for id := range n.store {
		d.Stored[id] = 1
	}
	for at, f := range n.disk {
		if owner := Mark(f.Text); owner != "" {
			d.Marked[at] = owner
		}
	}
	done(d, nil)
}

func (n *node) Look(q Query, done func(Facts, error)) {
	if n.dead {
		return
	}
	f := Facts{Paths: make(map[string]PathFact), Contents: make(map[string]bool), Elsewhere: n.elsewhere}
	paths := slices.Clone(q.Texts)
	for _, file := range q.Files {
		paths = append(paths, file.Path)
	}
	for _, at := range paths {
		if fact, ok := n.disk[at]; ok {
			f.Paths[at] = fact
		}
	}
	for _, id := range q.Contents {
		f.Contents[id] = n.store[id]
	}
	done(f, nil)
}

func (n *node) Verify(_ []Text, done func([]string, error)) {
	if !n.dead {
		done(n.faults, nil)
	}
}

func (n *node) Revision(name string, number uint64, done func(Bundle, error)) {
	if n.dead {
		return
	}
	b, ok := n.revisions[name][number]
	if !ok {
		done(b, fmt.Errorf("no file of revision %d", number))
		return
	}
	done(b, nil)
}

// crashed reports whether the machine dies inside of a step after so many parts of it.
func (n *node) crashed(s Step, parts int) bool {
	if n.inside != nil && n.inside(s, parts) {
		n.dead = true
	}
	return n.dead
}

func (n *node) Do(s Step, done func(error)) {
	if n.dead {
		return
	}
	if n.fail != nil {
		if err := n.fail(s); err != nil {
			done(err)
			return
		}
	}
	if s.Kind.ForSystemd() {
		n.doSystemd(s)
	} else {
		n.doFiles(s)
	}
	if !n.dead {
		done(nil)
	}
}

func (n *node) doFiles(s Step) {
	switch s.Kind {
	case StepContent:
		n.store[s.File.ContentID()] = true
	case StepStage:
		for i, t := range s.Texts {
			if n.crashed(s, i) {
				return
			}
			n.staged[t.Path] = t.Text
		}
	case StepUnstage:
		clear(n.staged)
	case StepRevision:
		if n.revisions[s.Workload] == nil {
			n.revisions[s.Workload] = make(map[uint64]Bundle)
		}
		n.revisions[s.Workload][s.Number] = *s.Bundle
	case StepState:
		n.states[s.Workload] = *s.State
	case StepUnit:
		n.disk[s.Path] = PathFact{Kind: KindFile, Text: n.staged[s.Path]}
		delete(n.staged, s.Path)
		n.writes++
	case StepFile:
		if !n.store[s.File.ContentID()] {
			panic("content of " + s.Path + " is not in the store")
		}
		n.disk[s.Path] = PathFact{Kind: KindFile, ID: s.File.ContentID()}
		n.writes++
	case StepRemove:
		delete(n.disk, s.Path)
		n.writes++
	case StepDropRevision:
		delete(n.revisions[s.Workload], s.Number)
	case StepDropContent:
		delete(n.store, s.Path)
	case StepForget:
		delete(n.states, s.Workload)
	default:
		panic("step " + s.Kind)
	}
}

func (n *node) doSystemd(s Step) {
	switch s.Kind {
	case StepReload:
		n.read()
		n.reloads++
	case StepEnable:
		for _, name := range s.Names {
			n.enabled[name] = true
		}
	case StepDisable:
		for _, name := range s.Names {
			delete(n.enabled, name)
		}
	case StepResetFailed:
		for _, name := range s.Names {
			if p := n.units[name]; p != nil && p.active == "failed" {
				delete(n.units, name)
			}
		}
	}
}

// read is a daemon-reload.
func (n *node) read() {
	n.loaded = make(map[string]string)
	for at, f := range n.disk {
		n.loaded[at] = f.Text
	}
}

// text is all that systemd has read of a unit: fragment and drop-ins.
func (n *node) text(name string) string {
	var out []string
	for at, text := range n.loaded {
		base := path.Base(at)
		if strings.HasSuffix(path.Dir(at), ".d") {
			base = strings.TrimSuffix(path.Base(path.Dir(at)), ".d")
		}
		if base == name || base == Template(name) {
			out = append(out, at+"\n"+text)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

func (n *node) start(name string) string {
	text := n.text(name)
	n.serial++
	p := &process{active: "active", invocation: fmt.Sprint(n.serial), text: text}
	n.units[name] = p
	switch {
	case text == "":
		delete(n.units, name)
		return "refused: no such unit"
	case strings.Contains(text, "FAILS"):
		p.active = "failed"
		return "failed"
	case strings.Contains(text, "FALLS"):
		p.active = "failed"
	case strings.Contains(text, "ONCE"):
		p.active, p.done = "inactive", true
	}
	return "done"
}

func (n *node) Jobs(jobs []Job, wait bool, _ time.Duration, each func(int, string), done func()) {
	for i, j := range jobs {
		if n.crashed(Step{Kind: StepJobs, Jobs: jobs}, i) {
			return
		}
		n.jobs = append(n.jobs, j.Verb+" "+j.Unit)
		result := "done"
		switch p := n.units[j.Unit]; {
		case j.Verb == "stop" && p != nil && strings.Contains(p.text, "CLINGS"):
			result = "timeout"
		case j.Verb == "stop":
			delete(n.units, j.Unit)
		case j.Verb == "reload-or-restart" && p != nil && p.active == "active":
		case j.Verb == "start" && p != nil && p.active == "active":
		default:
			result = n.start(j.Unit)
		}
		if !wait {
			result = "queued"
		}
		each(i, result)
	}
	done()
}

func (n *node) Units() Systemd { return systemdOf{n} }

// systemdOf is the node's Systemd, whose Look has other arguments than that of Files.
type systemdOf struct{ *node }

func (s systemdOf) Look(names, templates []string, done func(map[string]UnitFact, error)) {
	if s.dead {
		return
	}
	m := make(map[string]UnitFact)
	for name := range s.units {
		if slices.Contains(templates, Template(name)) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		f := UnitFact{Active: "inactive", FileState: "disabled"}
		if s.enabled[name] {
			f.FileState = "enabled"
		}
		if p := s.units[name]; p != nil {
			f.Active, f.Done, f.Invocation = p.active, p.done, p.invocation
		}
		if unit.TypeOf(name) == "socket" {
			f.Triggers = []string{strings.TrimSuffix(name, ".socket") + ".service"}
		}
		m[name] = f
	}
	done(m, nil)
}

// reboot starts everything that is enabled from what is on the disk.
func (n *node) reboot() {
	n.read()
	clear(n.units)
	for _, name := range slices.Sorted(maps.Keys(n.enabled)) {
		n.start(name)
	}
}

// life is one run of an agent on a node.
type life struct {
	t       *testing.T
	n       *node
	e       *Engine
	results map[uint64]Result
	status  map[string]Status
	id      uint64
	end     context.CancelFunc
}

func (l *life) Progress(ev Event) {
	if ev.Done {
		l.results[ev.ID] = *ev.Result
	}
}

func (l *life) Changed(s Status) { l.status[s.Workload] = s }

// live starts an agent inside of a bubble and lets it recover what there is.
func live(t *testing.T, n *node, fault func(bool, Step)) *life {
	t.Helper()
	n.dead = false
	l := &life{t: t, n: n, results: make(map[uint64]Result), status: make(map[string]Status)}
	l.e = New(Config{Layout: SystemLayout, FilePaths: []string{"/etc/ctrl-files"}, Fault: fault}, n, n.Units(), l, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	l.end = cancel
	go l.e.Run(ctx)
	synctest.Wait()
	return l
}

// upload puts a package on the node and returns a request for it.
func (l *life) upload(p Package, opt Options) Request {
	l.t.Helper()
	data := p.Encode()
	l.e.Upload(Sum(data), uint64(len(data)), 0, data, func(_ uint64, err error) {
		if err != nil {
			l.t.Error(err)
		}
	})
	l.id++
	return Request{ID: l.id, Workload: p.Bundle.Workload, Package: Sum(data), Options: opt}
}

// ask asks for something and waits until all is quiet.
func (l *life) ask(req Request, call func(Request, func(error))) (Result, error) {
	l.t.Helper()
	var refused error
	call(req, func(err error) { refused = err })
	synctest.Wait()
	r, ok := l.results[req.ID]
	if !ok && refused == nil && !l.n.dead {
		l.t.Fatalf("request %d has no result", req.ID)
	}
	return r, refused
}

func (l *life) apply(p Package, opt Options) Result {
	l.t.Helper()
	r, err := l.ask(l.upload(p, opt), l.e.Apply)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

func (l *life) request(workload string) Request {
	l.id++
	return Request{ID: l.id, Workload: workload}
}

// is checks that exactly the texts and files of a bundle are on the disk.
func (n *node) is(b Bundle) error {
	var errs []error
	want := make(map[string]bool)
	for _, t := range b.Render(SystemLayout) {
		want[t.Path] = true
		if n.disk[t.Path].Text != t.Text {
			errs = append(errs, fmt.Errorf("%s is another text", t.Path))
		}
	}
	for _, f := range b.Files {
		if !n.store[f.ContentID()] {
			errs = append(errs, fmt.Errorf("content of %s is not in the store", f.Path))
		}
		if f.Write {
			want[f.Path] = true
			if n.disk[f.Path].ID != f.ContentID() {
				errs = append(errs, fmt.Errorf("%s is %+v", f.Path, n.disk[f.Path]))
			}
		}
	}
	for at := range n.disk {
		if !want[at] {
			errs = append(errs, fmt.Errorf("%s should not be there", at))
		}
	}
	for at := range n.staged {
		errs = append(errs, fmt.Errorf("a staged %s is left", at))
	}
	return errors.Join(errs...)
}
