package authz

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Bounds of what one Polkit has under way. The system bus lets a client wait for at most 128
// answers (max_replies_per_connection in dbus-daemon(1)); past that it would refuse for us,
// and the manager has other questions too.
const (
	// MaxChecks is how many checks may be under way or wait, of all callers together.
	MaxChecks = 4096
	// MaxQuestions is how many questions that polkit answers by itself are open at a time;
	// more wait. Each caller has at most one of them.
	MaxQuestions = 16
	// MaxPrompts and MaxPromptsPerUser are how many questions may wait for a person.
	MaxPrompts        = 32
	MaxPromptsPerUser = 4
	// MaxSubjects is how many units on how many nodes, multiplied, one call may name.
	MaxSubjects = 1024
)

// Time limits. A client of ours waits for two minutes where a person may be asked, so that it
// still learns what has happened.
const (
	questionTimeout = 20 * time.Second // polkit's rules may run programs for 10 s
	promptTimeout   = 100 * time.Second
)

// Polkit lets uid 0 do everything and asks polkit about all others, for every unit and node
// that a call names. Where polkit is not on the bus, only uid 0 may do anything.
type Polkit struct {
	log       *slog.Logger
	questions chan struct{}
	work      sync.WaitGroup

	mu      sync.Mutex
	callers map[caller]*client
	checks  int
	prompts map[uint32]int // by user
	asking  int            // sum of prompts
	serial  uint64         // of the last prompt
	missing bool           // polkit was not there when it was last asked
}

// client is what is known of a caller that is on the bus.
type client struct {
	turn    chan struct{} // held by its one question that is open
	gone    context.Context
	leave   context.CancelFunc
	uid     uint32
	known   bool            // the uid
	prompts map[string]bool // by their cancellation id
}

// NewPolkit makes one for the callers of a system bus.
func NewPolkit(log *slog.Logger) *Polkit {
	return &Polkit{
		log: log, questions: make(chan struct{}, MaxQuestions),
		callers: make(map[caller]*client), prompts: make(map[uint32]int),
	}
}

// Check implements busobject.Authorizer. A refusal is of kind wire.ErrAccessDenied and names
// the right.
func (p *Polkit) Check(r busobject.Request, done func(error)) (decided bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who := caller{r.Conn, r.Sender}
	c := p.callers[who]
	if c == nil {
		c = &client{turn: make(chan struct{}, 1), prompts: make(map[string]bool)}
		c.gone, c.leave = context.WithCancel(context.Background())
		p.callers[who] = c
	}
	if c.known && (c.uid == 0 || r.Action == wire.ActionRoot) {
		return true, onlyRoot(r, c.uid)
	}
	if p.checks >= MaxChecks {
		return true, wire.ErrLimitsExceeded.With("%d checks of rights are under way; try again later", p.checks)
	}
	p.checks++
	p.work.Go(func() {
		err := p.judge(c, r)
		p.mu.Lock()
		p.checks--
		p.mu.Unlock()
		done(err)
	})
	return false, nil
}

// Left implements busobject.Authorizer. Nobody is asked any more for who has left.
func (p *Polkit) Left(conn *peer.Conn, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name != "" {
		p.drop(caller{conn, name})
		return
	}
	for who := range p.callers {
		if who.conn == conn {
			p.drop(who)
		}
	}
}

func (p *Polkit) drop(who caller) {
	c := p.callers[who]
	if c == nil {
		return
	}
	delete(p.callers, who)
	c.leave()
	for id := range c.prompts {
		c.cancel(who.conn, id)
	}
}

// Trusted implements busobject.Authorizer.
func (p *Polkit) Trusted(conn *peer.Conn, sender string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.callers[caller{conn, sender}]
	return c != nil && c.known && c.uid == 0
}

// UID is the user of a caller that was checked and has not left since.
func (p *Polkit) UID(conn *peer.Conn, sender string) (uid uint32, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.callers[caller{conn, sender}]; c != nil {
		return c.uid, c.known
	}
	return 0, false
}

// Wait returns when no check is under way any more, which is soon after Left for the whole
// bus.
func (p *Polkit) Wait() { p.work.Wait() }

// judge decides about one call.
func (p *Polkit) judge(c *client, r busobject.Request) error {
	uid, err := p.user(c, r)
	if err != nil {
		return err
	}
	if uid == 0 || r.Action == wire.ActionRoot {
		return onlyRoot(r, uid)
	}
	about := r.About
	if r.Find != nil {
		if about, err = find(c.gone, r.Find); err != nil {
			return err
		}
	}
	all, err := subjects(about)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := p.ask(c, question{r, uid, s}); err != nil {
			return err
		}
	}
	return nil
}

// user is the caller's uid.
func (p *Polkit) user(c *client, r busobject.Request) (uint32, error) {
	p.mu.Lock()
	uid, known := c.uid, c.known
	p.mu.Unlock()
	if known {
		return uid, nil
	}
	ctx, cancel := context.WithTimeout(c.gone, lookupTimeout)
	defer cancel()
	args, err := peer.Encode(r.Sender)
	var m *peer.Message
	if err == nil {
		m, err = r.Conn.Call(ctx, userOf(args))
	}
	if err == nil {
		err = peer.Decode(m.Body, &uid)
	}
	if err != nil {
		return 0, unknownCaller(r, err)
	}
	p.mu.Lock()
	c.uid, c.known = uid, true
	p.mu.Unlock()
	return uid, nil
}

// find waits for what completes a request; whoever looks it up has its own deadline.
func find(gone context.Context, look func(func(busobject.About, error))) (busobject.About, error) {
	type found struct {
		about busobject.About
		err   error
	}
	result := make(chan found, 1)
	look(func(about busobject.About, err error) { result <- found{about, err} })
	select {
	case f := <-result:
		return f.about, f.err
	case <-gone.Done():
		return busobject.About{}, gone.Err()
	}
}
