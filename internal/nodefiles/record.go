package nodefiles

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/ctrl/internal/bundle"
)

const stateName = "state.json"

func revisionName(number uint64) string { return fmt.Sprintf("%d.json", number) }

// private is for records: who may read them may read what is in the units.
func private() attributes { return attributes{0o600, os.Geteuid(), os.Getegid()} }

func (f *Files) putRecord(workload, name string, v any) error {
	if err := bundle.CheckWorkload(workload); err != nil {
		return err
	}
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(f.opt.Workloads, workload), 0o700); err != nil {
		return err
	}
	return f.put(f.opt.Workloads, filepath.Join(workload, name), bytes.NewReader(append(text, '\n')), private())
}

func (f *Files) putRevision(workload string, number uint64, b *bundle.Bundle) error {
	return f.putRecord(workload, revisionName(number), b)
}

// putState records a state after all that it speaks of is on the disk.
func (f *Files) putState(s *bundle.State) error {
	if err := f.settle(); err != nil {
		return err
	}
	if err := f.putRecord(s.Workload, stateName, s); err != nil {
		return err
	}
	f.dirty[f.opt.Workloads] = true
	return f.settle()
}

func (f *Files) dropRevision(workload string, number uint64) error {
	d, name, err := open(f.opt.Workloads, filepath.Join(workload, revisionName(number)), false)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.unlink(name)
}

func (f *Files) forget(workload string) error {
	if err := bundle.CheckWorkload(workload); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(f.opt.Workloads, workload))
}

// maxRecord bounds what is read of one record: a bundle is smaller than its package.
const maxRecord = 2 * bundle.MaxPackage

func (f *Files) readRecord(workload, name string, into any) error {
	d, base, err := open(f.opt.Workloads, filepath.Join(workload, name), false)
	if err != nil {
		return err
	}
	defer d.Close()
	file, _, err := d.read(base)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file.Name(), err)
	}
	return nil
}

// Revision implements bundle.Files.
func (f *Files) Revision(workload string, number uint64, done func(bundle.Bundle, error)) {
	f.post(func() { done(f.revision(workload, number)) }, func() { done(bundle.Bundle{}, errEnded) })
}

func (f *Files) revision(workload string, number uint64) (bundle.Bundle, error) {
	var b bundle.Bundle
	if err := f.readRecord(workload, revisionName(number), &b); err != nil {
		return b, fmt.Errorf("cannot read revision %d of workload %s: %w", number, workload, err)
	}
	if err := b.Check(); err != nil {
		return b, fmt.Errorf("revision %d of workload %s is not as it was written: %w", number, workload, err)
	}
	return b, nil
}

// Load implements bundle.Files.
func (f *Files) Load(done func(bundle.Disk, error)) {
	f.post(func() { done(f.load()) }, func() { done(bundle.Disk{}, errEnded) })
}

func (f *Files) load() (bundle.Disk, error) {
	d := bundle.Disk{
		Current: make(map[string]bundle.Bundle), Contents: make(map[string]map[uint64][]string), Stored: make(map[string]int64),
		Broken: make(map[string]string), Marked: make(map[string]string),
	}
	f.tidy(d.Marked)
	entries, err := os.ReadDir(f.opt.Workloads)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, err
	}
	for _, e := range entries {
		if !e.IsDir() || bundle.CheckWorkload(e.Name()) != nil {
			continue
		}
		if err := f.loadWorkload(e.Name(), &d); err != nil {
			d.Broken[e.Name()] = err.Error()
		}
	}
	return d, f.loadStore(d.Stored)
}

// loadWorkload reads one state and what its revisions refer to.
func (f *Files) loadWorkload(name string, d *bundle.Disk) error {
	var s bundle.State
	err := f.readRecord(name, stateName, &s)
	if errors.Is(err, fs.ErrNotExist) {
		// The first apply was interrupted before there was anything to go back from.
		return f.forget(name)
	}
	switch {
	case err != nil:
		return err
	case s.Format != bundle.Format:
		return fmt.Errorf("it has format %d, and this version of the agent knows %d", s.Format, bundle.Format)
	case s.Workload != name:
		return fmt.Errorf("it says that it is of workload %q", s.Workload)
	}
	contents := make(map[uint64][]string)
	for _, number := range f.revisions(name, s) {
		b, err := f.revision(name, number)
		if err != nil && number != s.Current && (s.Pending == nil || number != s.Pending.Target) {
			f.log.Warn("a revision cannot be read; a rollback to it will fail", "workload", name, "err", err)
			continue
		}
		if err != nil {
			return err
		}
		if number == s.Current {
			d.Current[name] = b
		}
		for _, file := range b.Files {
			contents[number] = append(contents[number], file.ContentID())
		}
	}
	d.States = append(d.States, s)
	d.Contents[name] = contents
	return nil
}

// revisions are those that a state knows; the files of others are removed.
func (f *Files) revisions(name string, s bundle.State) []uint64 {
	known := make(map[uint64]bool)
	for _, r := range s.Revisions {
		known[r.Number] = true
	}
	if s.Pending != nil {
		known[s.Pending.Target] = true
	}
	delete(known, 0)
	entries, err := os.ReadDir(filepath.Join(f.opt.Workloads, name))
	if err != nil {
		f.log.Warn("cannot tidy up a workload's records", "workload", name, "err", err)
	}
	for _, e := range entries {
		number, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), ".json"), 10, 64)
		if left := original(e.Name()) != ""; left || err == nil && !known[number] {
			os.Remove(filepath.Join(f.opt.Workloads, name, e.Name()))
		}
	}
	return slices.Sorted(maps.Keys(known))
}

func (f *Files) loadStore(stored map[string]int64) error {
	entries, err := os.ReadDir(f.opt.Layout.Store)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if original(e.Name()) != "" {
			os.Remove(filepath.Join(f.opt.Layout.Store, e.Name()))
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			stored[e.Name()] = info.Size()
		}
	}
	return err
}
