package journal

import (
	"context"
	"time"

	"example.org/ctrl/internal/wire"
)

// reader is one reader's place in this node's journal, and the journalctl that stands there.
//
// It first reads what the journal has, with a journalctl that ends there: so it is certain when
// a reader has seen everything. Then it follows with another one, from the last entry on. A
// journalctl from an entry on prints that entry first, which is left out; where it prints
// another one, the entry is not in the journal any more.
type reader struct {
	j     *Journal
	query wire.LogQuery
	text  string // of the query, as it was asked

	at     where
	child  *child
	follow bool     // child follows
	skip   string   // the cursor of the entry that child begins with, to be left out
	ready  []*entry // were read and had no room
	failed int      // children in a row that ended badly and gave nothing

	// Guarded by Journal.mu.
	used   time.Time
	busy   bool
	cancel context.CancelCauseFunc // of the call that is under way
}

// answer is what one call gives.
type answer struct {
	entries   []wire.LogEntry
	at        where
	idle, end bool
}

// Waits of a reader.
const (
	// gather is how long it waits for more entries after one, so that few messages carry many.
	gather = 10 * time.Millisecond
	// restart is how long a journalctl that follows and has ended is not started again.
	restart = 500 * time.Millisecond
	// maxFailed is how often in a row one may end badly without having given anything.
	maxFailed = 5
)

// read gives what comes after a place; see wire.LogMethods.
func (r *reader) read(ctx context.Context, at where, wait time.Duration, most int) (answer, error) {
	if at != r.at {
		r.stop()
		r.at = at
	}
	out := collector{most: most}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		if r.child == nil {
			if err := r.begin(ctx, r.follow); err != nil {
				return answer{}, err
			}
		}
		e, more := r.take(ctx, limit.C, len(out.entries) > 0)
		switch {
		case e != nil:
			if !out.add(e) {
				r.ready = append([]*entry{e}, r.ready...)
				return r.answer(&out, false, false), nil
			}
			r.at, r.failed = where{cursor: e.cursor}, 0
		case more: // nothing for the moment
			return r.answer(&out, r.follow, false), nil
		case ctx.Err() != nil:
			return answer{}, context.Cause(ctx)
		default:
			end, err := r.childEnded(ctx, limit.C)
			if err != nil && len(out.entries) == 0 {
				return answer{}, err
			}
			if err != nil || end || len(out.entries) > 0 || !r.follow || r.child == nil {
				return r.answer(&out, r.follow && err == nil, end && err == nil), nil
			}
			// It begins to follow: the caller should know that it has all there was.
			return r.answer(&out, true, false), nil
		}
	}
}

func (r *reader) answer(out *collector, idle, end bool) answer {
	return answer{entries: out.entries, at: r.at, idle: idle, end: end}
}

// take gives the next entry. Without one, more says whether the child goes on.
func (r *reader) take(ctx context.Context, limit <-chan time.Time, some bool) (e *entry, more bool) {
	if len(r.ready) > 0 {
		e, r.ready = r.ready[0], r.ready[1:]
		return e, true
	}
	var soon <-chan time.Time
	if some {
		soon = time.After(gather)
	}
	for {
		select {
		case e, more = <-r.child.entries:
			switch {
			case !more:
				return nil, false
			case r.skip == "":
				return e, true
			case r.skip == e.cursor:
				r.skip = ""
				continue
			}
			r.skip = ""
			r.ready = append(r.ready, e)
			return lost(e, r.at), true
		case <-soon:
			return nil, true
		case <-limit:
			return nil, true
		case <-ctx.Done():
			return nil, false
		}
	}
}

// lost is the note that stands where entries may be missing. Its place is that of the entry
// before, so that whoever asks again from there is told again.
func lost(next *entry, at where) *entry {
	return &entry{time: next.time, cursor: at.cursor, fields: []field{{name: wire.LogFieldNote,
		value: []byte("entries may have been deleted from the journal before they could be read")}}}
}

// begin starts a journalctl at the reader's place.
func (r *reader) begin(ctx context.Context, follow bool) error {
	from := r.at
	r.skip = from.cursor
	if q := &r.query; from == (where{}) && q.Limited && q.Grep != "" && !follow {
		first, err := r.firstMatch(ctx)
		if err != nil {
			return err
		}
		from.cursor = first // which is not left out
	}
	c, err := start(r.j.ctx, r.j.program, arguments(&r.query, r.j.user, from, follow))
	if err != nil {
		return wire.ErrFailed.With("%v", err)
	}
	r.child, r.follow = c, follow
	return nil
}

// firstMatch finds the first of the last entries that match an expression, which journalctl
// can count backwards only.
func (r *reader) firstMatch(ctx context.Context) (cursor string, err error) {
	q := r.query
	args := append([]string{"--reverse"}, arguments(&q, r.j.user, where{}, false)...)
	c, err := start(r.j.ctx, r.j.program, args)
	if err != nil {
		return "", wire.ErrFailed.With("%v", err)
	}
	defer c.stop()
	for {
		select {
		case e, more := <-c.entries:
			if !more {
				<-c.ended
				if c.err != nil {
					return "", wire.ErrFailed.With("%v", c.err)
				}
				return cursor, nil
			}
			cursor = e.cursor
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// childEnded decides how to go on after the end of a journalctl: with one that follows, with
// another one of the same kind, or not at all.
func (r *reader) childEnded(ctx context.Context, limit <-chan time.Time) (end bool, err error) {
	c := r.child
	<-c.ended
	r.child = nil
	followed := r.follow
	switch {
	case c.err != nil && (r.failed >= maxFailed || !followed && !c.broke):
		r.follow = false
		return false, wire.ErrFailed.With("%v", c.err)
	case c.err != nil:
		r.failed++
		r.follow = false // what it may have missed is read first
		return false, r.pause(ctx, limit)
	case !r.query.Follow:
		return true, nil
	case followed && r.query.Until > 0:
		return true, nil
	case followed:
		// It does not end by itself, but where a glob matches nothing yet.
		r.follow = false
		return false, r.pause(ctx, limit)
	}
	if r.at == (where{}) {
		r.at.since = uint64(c.asked.UnixMicro())
	}
	return false, r.begin(ctx, true)
}

// pause waits a moment before another try.
func (r *reader) pause(ctx context.Context, limit <-chan time.Time) error {
	select {
	case <-time.After(restart):
	case <-limit:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// stop ends the child. The reader can go on from any place afterwards.
func (r *reader) stop() {
	if r.child != nil {
		r.child.stop()
	}
	r.child, r.ready, r.skip, r.follow, r.failed = nil, nil, "", false, 0
}
