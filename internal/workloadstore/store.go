// Package workloadstore keeps what the manager remembers of workloads in plain files:
//
//	workloads/NAME.json          what is wanted of a workload, and how far it has come
//	workloads/packages/SHA256    encoded packages
//
// Each file is replaced in one step. A file that cannot be read is said by name and never
// written over: its workload is unknown until somebody repairs or removes the file.
package workloadstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"example.org/ctrl/internal/atomicfile"
	"example.org/ctrl/internal/bundle"
	"example.org/ctrl/internal/workload"
)

// Bounds of files that are read.
const (
	maxSpec    = 16 << 20
	maxPackage = bundle.MaxPackage
)

// Store is workload.Store. Make one with Open, then Run.
type Store struct {
	dir     string
	log     *slog.Logger
	damaged map[string]error // workloads whose file could not be read

	mu     sync.Mutex
	queue  []*write          // in order
	saving map[string]*write // the waiting write of a spec, which takes in later ones
	wake   chan struct{}
	ended  bool
}

var _ workload.Store = (*Store)(nil)

// write is one thing to do to the disk.
type write struct {
	do   func() error
	done []func(error)
}

// Open makes the folder below a state directory where it is missing, and reads what is there.
func Open(stateDir string, log *slog.Logger) (*Store, []*workload.Spec, error) {
	s := &Store{
		dir: filepath.Join(stateDir, "workloads"), log: log, damaged: make(map[string]error),
		saving: make(map[string]*write), wake: make(chan struct{}, 1),
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "packages"), 0o700); err != nil {
		return nil, nil, fmt.Errorf("cannot make the folder for workloads: %w", err)
	}
	specs, err := s.readAll()
	return s, specs, err
}

func (s *Store) readAll() ([]*workload.Spec, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the folder of workloads: %w", err)
	}
	var specs []*workload.Spec
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || bundle.CheckWorkload(name) != nil {
			if strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
				_ = os.Remove(filepath.Join(s.dir, e.Name())) // what a crash left half written
			}
			continue
		}
		spec, err := s.read(name)
		if err != nil {
			s.damaged[name] = err
			s.log.Error("a workload cannot be read and is unknown until its file is repaired or removed; nodes keep what they have", "err", err)
			continue
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

func (s *Store) read(name string) (*workload.Spec, error) {
	path := s.file(name)
	data, err := readFile(path, maxSpec)
	if err != nil {
		return nil, err
	}
	var spec workload.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if err := spec.Check(); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if spec.Name != name {
		return nil, fmt.Errorf("%s is damaged: it is about workload %q", path, spec.Name)
	}
	return &spec, nil
}

// readFile reads a regular file of bounded size.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s is no file of at most %d MiB", path, limit>>20)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

func (s *Store) file(name string) string { return filepath.Join(s.dir, name+".json") }

func (s *Store) packageFile(digest string) string {
	return filepath.Join(s.dir, "packages", filepath.Base(digest))
}

// Run writes until ctx ends; what waits then is written before it returns.
func (s *Store) Run(ctx context.Context) {
	for {
		for w := s.next(); w != nil; w = s.next() {
			err := w.do()
			for _, done := range w.done {
				done(err)
			}
		}
		select {
		case <-s.wake:
			continue
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.ended = len(s.queue) == 0
		ended := s.ended
		s.mu.Unlock()
		if ended {
			return
		}
	}
}

func (s *Store) next() *write {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	w := s.queue[0]
	s.queue = s.queue[1:]
	for name, waiting := range s.saving {
		if waiting == w {
			delete(s.saving, name)
		}
	}
	return w
}

var errEnded = errors.New("the manager is shutting down")

// add queues a write. One for a spec that waits already is taken in by that one.
func (s *Store) add(spec string, do func() error, done func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		go done(errEnded)
		return
	}
	if w := s.saving[spec]; spec != "" && w != nil {
		w.do = do
		w.done = append(w.done, done)
		return
	}
	w := &write{do: do, done: []func(error){done}}
	s.queue = append(s.queue, w)
	if spec != "" {
		s.saving[spec] = w
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// SaveSpec implements workload.Store.
func (s *Store) SaveSpec(spec *workload.Spec, done func(error)) {
	if err := s.damaged[spec.Name]; err != nil {
		go done(fmt.Errorf("%w; repair or remove the file and restart the manager", err))
		return
	}
	s.add(spec.Name, func() error {
		data, err := json.MarshalIndent(spec, "", "\t")
		if err != nil {
			return err
		}
		return atomicfile.Write(s.file(spec.Name), append(data, '\n'), 0o600)
	}, done)
}

// RemoveSpec implements workload.Store.
func (s *Store) RemoveSpec(name string, done func(error)) {
	s.add(name, func() error {
		if err := os.Remove(s.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return atomicfile.SyncDir(s.dir)
	}, done)
}

// SavePackage implements workload.Store.
func (s *Store) SavePackage(digest string, data []byte, done func(error)) {
	s.add("", func() error {
		path := s.packageFile(digest)
		if old, err := readFile(path, maxPackage); err == nil && bundle.Sum(old) == digest {
			return nil
		}
		return atomicfile.Write(path, data, 0o600)
	}, done)
}

// Package implements workload.Store.
func (s *Store) Package(digest string, done func([]byte, error)) {
	var data []byte
	s.add("", func() (err error) {
		path := s.packageFile(digest)
		if data, err = readFile(path, maxPackage); err == nil && bundle.Sum(data) != digest {
			err = fmt.Errorf("%s is damaged: its content has another digest than its name", path)
		}
		return err
	}, func(err error) { done(data, err) })
}

// Forget implements workload.Store.
func (s *Store) Forget(digests []string) {
	s.add("", func() error {
		for _, digest := range digests {
			if err := os.Remove(s.packageFile(digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.log.Warn("a package that nobody needs could not be removed", "err", err)
			}
		}
		return nil
	}, func(error) {})
}
