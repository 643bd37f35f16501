// Package journal reads this node's journal for a manager, through journalctl: sdjournal
// needs cgo.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// MaxReaders is how many readers have a journalctl at a time. Past it the one that was read
// the longest ago gives its place up, and goes on from where it was when it is read again.
const MaxReaders = 32

// keep is how long a journalctl that nobody reads is kept.
const keep = time.Minute

// Bounds of what one call may ask for.
const (
	maxWait  = 25 * time.Second
	minBytes = 1 << 10
	maxBytes = 3 << 20 // a message to the manager holds 4 MiB
	maxQuery = 64 << 10
	maxName  = 64 // of a reader
)

// Journal is this node's journal. It is made with New and runs journalctl only while it is read.
type Journal struct {
	program string
	user    bool // a user's journal
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	most    int

	mu      sync.Mutex
	readers map[string]*reader
	calls   sync.WaitGroup
	over    bool
	sweep   *time.Timer
}

// Options is what a Journal needs to know.
type Options struct {
	User    bool   // read the user's own journal, in which units are the user's
	Program string // journalctl where empty
	Log     *slog.Logger
}

// New makes a Journal. Close ends it.
func New(opt Options) *Journal {
	j := &Journal{program: opt.Program, user: opt.User, log: opt.Log, readers: make(map[string]*reader), most: MaxReaders}
	if j.program == "" {
		j.program = "journalctl"
	}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	return j
}

// Call carries out a method of wire.LogMethods. It does not block; done is called once, from
// any goroutine.
// Errors: ErrInvalidArgs, ErrLimitsExceeded, ErrShuttingDown, ErrDisconnected, ErrFailed with what
// journalctl says.
func (j *Journal) Call(method string, args wire.Raw, done func(wire.Raw, error)) {
	switch method {
	case wire.MemberReadLog:
		j.readLog(args, done)
	case wire.MemberCloseLog:
		var name string
		err := peer.Decode(args, &name)
		if err == nil {
			j.closeReader(name)
		}
		done(wire.Raw{}, err)
	default:
		done(wire.Raw{}, wire.ErrUnknownMethod.With("%q is no method for the journal", method))
	}
}

// request is ReadLog with its arguments checked.
type request struct {
	name  string
	query wire.LogQuery
	text  string
	at    where
	wait  time.Duration
	bytes int
}

func decode(args wire.Raw) (request, error) {
	var r request
	var position string
	var wait uint64
	var bytes uint32
	if err := peer.Decode(args, &r.name, &r.text, &position, &wait, &bytes); err != nil {
		return r, err
	}
	if len(r.name) == 0 || len(r.name) > maxName || len(r.text) > maxQuery {
		return r, wire.ErrInvalidArgs.With("a reader's name of %d bytes or a query of %d is not accepted", len(r.name), len(r.text))
	}
	if err := json.Unmarshal([]byte(r.text), &r.query); err != nil {
		return r, wire.ErrInvalidArgs.With("the query of a journal: %v", err)
	}
	err := errors.Join(r.query.Check(), checkUnits(r.query.Units))
	if err == nil {
		r.at, err = parseWhere(position)
	}
	r.wait = min(time.Duration(min(wait, uint64(maxWait/time.Microsecond)))*time.Microsecond, maxWait)
	r.bytes = int(min(max(bytes, minBytes), maxBytes))
	if err != nil {
		return r, wire.ErrInvalidArgs.With("%v", err)
	}
	return r, nil
}

// checkUnits refuses what names no unit, since journalctl reads some words in ways of its own.
func checkUnits(units []string) error {
	for _, u := range units {
		if unit.HasGlob(u) {
			if _, err := unit.CompileGlob(u); err != nil {
				return err
			}
			continue
		}
		if err := unit.CheckInstance(u); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) readLog(args wire.Raw, done func(wire.Raw, error)) {
	req, err := decode(args)
	if err != nil {
		done(wire.Raw{}, err)
		return
	}
	r, ctx, err := j.enter(req)
	if err != nil {
		done(wire.Raw{}, err)
		return
	}
	go func() {
		defer j.calls.Done()
		a, err := r.read(ctx, req.at, req.wait, req.bytes)
		j.leave(req.name, r, a.end || err != nil)
		if err != nil {
			done(wire.Raw{}, err)
			return
		}
		entries := a.entries
		if entries == nil {
			entries = []wire.LogEntry{}
		}
		body, err := peer.Encode(entries, a.at.String(), a.idle, a.end)
		done(body, err)
	}()
}

// enter finds the reader for a call, or makes it, and takes it for this call.
func (j *Journal) enter(req request) (*reader, context.Context, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		return nil, nil, wire.ErrShuttingDown.With("the agent is shutting down")
	}
	r := j.readers[req.name]
	switch {
	case r != nil && r.busy:
		return nil, nil, wire.ErrLimitsExceeded.With("reader %.64q of the journal is being read already", req.name)
	case r != nil && r.text != req.text:
		j.drop(req.name, r)
		r = nil
	}
	if r == nil {
		if err := j.makeRoom(); err != nil {
			return nil, nil, err
		}
		r = &reader{j: j, query: req.query, text: req.text, at: req.at}
		j.readers[req.name] = r
	}
	ctx, cancel := context.WithCancelCause(j.ctx)
	r.busy, r.used, r.cancel = true, time.Now(), cancel
	j.calls.Add(1)
	j.sweepLater()
	return r, ctx, nil
}

// makeRoom lets the reader go that was read the longest ago.
func (j *Journal) makeRoom() error {
	if len(j.readers) < j.most {
		return nil
	}
	oldest := ""
	for name, r := range j.readers {
		if !r.busy && (oldest == "" || r.used.Before(j.readers[oldest].used)) {
			oldest = name
		}
	}
	if oldest == "" {
		return wire.ErrLimitsExceeded.With("the journal of this node has %d readers already; end one of them", len(j.readers))
	}
	j.drop(oldest, j.readers[oldest])
	return nil
}

// drop forgets a reader that is not busy.
func (j *Journal) drop(name string, r *reader) {
	delete(j.readers, name)
	j.calls.Go(r.stop)
}

func (j *Journal) leave(name string, r *reader, over bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.busy, r.used = false, time.Now()
	r.cancel(nil)
	switch {
	case j.readers[name] != r: // it was closed meanwhile
		j.calls.Go(r.stop)
	case over:
		j.drop(name, r)
	}
}

// closeReader forgets a reader; a call that waits is answered.
func (j *Journal) closeReader(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.readers[name]; r != nil {
		j.close(name, r, wire.ErrFailed.With("the reader was closed"))
	}
}

func (j *Journal) close(name string, r *reader, why error) {
	if r.busy {
		delete(j.readers, name)
		r.cancel(why)
		return
	}
	j.drop(name, r)
}

// SessionEnded ends all readers: what the next session wants to read it says itself.
func (j *Journal) SessionEnded() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.endAll(wire.ErrDisconnected.With("the session to the manager has ended"))
}

func (j *Journal) endAll(why error) {
	for name, r := range j.readers {
		j.close(name, r, why)
	}
}

// sweepLater lets go of readers that are not read any more. One that is read again goes on
// from where it was.
func (j *Journal) sweepLater() {
	if j.sweep == nil {
		j.sweep = time.AfterFunc(keep, j.sweepNow)
	}
}

func (j *Journal) sweepNow() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sweep = nil
	if j.over {
		return
	}
	for name, r := range j.readers {
		if !r.busy && time.Since(r.used) >= keep {
			j.drop(name, r)
		}
	}
	if len(j.readers) > 0 {
		j.sweepLater()
	}
}

// Close ends all readers and waits until their processes are gone, at most until ctx ends.
func (j *Journal) Close(ctx context.Context) {
	j.mu.Lock()
	j.over = true
	if j.sweep != nil {
		j.sweep.Stop()
	}
	j.endAll(wire.ErrShuttingDown.With("the agent is shutting down"))
	j.cancel()
	j.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		j.calls.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
		j.log.Warn("journalctl has not ended", "err", context.Cause(ctx))
	}
}
