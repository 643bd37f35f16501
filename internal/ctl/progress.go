package ctl

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.org/ctrl/internal/ctl/render"
	"example.org/ctrl/internal/wire"
)

// progressAfter is how long a wait must be before it is shown, progressEvery how often the
// line is written anew.
const (
	progressAfter = 2 * time.Second
	progressEvery = time.Second
)

// progress shows on a terminal what is waited for.
type progress struct {
	a    *app
	word string
	quit chan struct{}
	over chan struct{}

	mu      sync.Mutex
	pending [][2]string // node, unit
	total   int
	asked   int // of pending, those that the manager has not taken yet
}

func (p *progress) start(a *app, word string) {
	p.a, p.word = a, word
	if !a.errIs.terminal || a.opt.quiet {
		return
	}
	p.quit, p.over = make(chan struct{}), make(chan struct{})
	go p.run()
}

func (p *progress) stop() {
	if p.quit != nil {
		close(p.quit)
		<-p.over
	}
}

func (p *progress) add(node, unit string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, [2]string{node, unit})
	p.total++
	p.asked++
}

// answered notes that the manager has taken a job or refused it.
func (p *progress) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked--
}

func (p *progress) done(node, unit string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = slices.DeleteFunc(p.pending, func(w [2]string) bool { return w == [2]string{node, unit} })
}

func (p *progress) run() {
	defer close(p.over)
	began := p.a.now()
	next := time.NewTimer(progressAfter)
	defer next.Stop()
	shown := false
	for {
		select {
		case <-p.quit:
			if shown {
				fmt.Fprint(p.a.errOut, "\r\x1b[K")
			}
			return
		case <-next.C:
		}
		if p.mayAsk() {
			next.Reset(progressEvery)
			continue
		}
		line := render.Clean(p.line(p.a.now().Sub(began)))
		if p.a.errIs.width > 1 {
			line = render.Cut(line, p.a.errIs.width-1)
		}
		fmt.Fprintf(p.a.errOut, "\r%s\x1b[K", line)
		shown = true
		next.Reset(progressEvery)
	}
}

// mayAsk reports that somebody may be typing a password.
func (p *progress) mayAsk() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked > 0 && p.a.asks()
}

// line is what a wait looks like. One that waits behind another job says so.
func (p *progress) line(waited time.Duration) string {
	p.mu.Lock()
	pending, total := slices.Clone(p.pending), p.total
	p.mu.Unlock()
	span := render.Span(uint64(waited.Microseconds()), 1_000_000)
	switch {
	case len(pending) == 0:
		return fmt.Sprintf("waiting (%s)", span)
	case total > 1:
		return fmt.Sprintf("waiting for %d of %d jobs, %s on %s … (%s)", len(pending), total, pending[0][1], pending[0][0], span)
	}
	return fmt.Sprintf("waiting for %s of %s on %s%s (%s)", p.word, pending[0][1], pending[0][0], p.behind(pending[0]), span)
}

// behind says which job of the same unit runs while ours waits.
func (p *progress) behind(what [2]string) string {
	ctx, cancel := context.WithTimeout(p.a.ctx, progressEvery)
	defer cancel()
	jobs, err := p.a.bus.Jobs(ctx)
	if err != nil {
		return ""
	}
	return behindText(jobs, what[0], what[1], p.word)
}

func behindText(jobs []wire.JobRow, node, unit, verb string) string {
	var running, ours *wire.JobRow
	for i := range jobs {
		j := &jobs[i]
		switch {
		case j.Node != node || j.Unit != unit:
		case j.State == wire.JobRunning:
			running = j
		case j.Type == verb:
			ours = j
		}
	}
	if running == nil || ours == nil {
		return ""
	}
	return fmt.Sprintf(", behind job %d (%s)", running.ID, running.Type)
}
