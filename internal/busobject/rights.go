package busobject

import (
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// Request is the question whether a caller may do something.
type Request struct {
	Conn   *peer.Conn // the bus that the caller is on
	Sender string     // the caller's unique name there
	Action string     // one of wire's actions
	Verb   string     // ctl's word for what is to be done
	About
	// Find completes About where that has to be looked up elsewhere first; nil: About is
	// complete. It is for who needs to know, and may be called from any goroutine. done is
	// called at most once, from any goroutine; never where the server ends meanwhile.
	Find func(done func(About, error))
	// Interactive: the caller agreed to be asked for a password, which may take minutes.
	Interactive bool
}

// Authorizer decides what callers may do. Its methods are called on the server's goroutine
// and must not block.
type Authorizer interface {
	// Check decides at once where it can: decided is then true and err the decision, nil for
	// yes. Else done is called once, from any goroutine.
	Check(r Request, done func(err error)) (decided bool, err error)
	// Left says that a caller has left the bus, or that the bus itself is gone where sender is
	// "": what is kept about it can be dropped, and checks under way need no answer any more.
	Left(conn *peer.Conn, sender string)
	// Trusted reports whether a caller may do everything and therefore see secrets too. It is
	// no for who has not called yet.
	Trusted(conn *peer.Conn, sender string) bool
}

// MaxCallsPerCaller is how many calls of one caller may wait for the check of its rights.
const MaxCallsPerCaller = 1024

// caller is who calls: a unique name means something on its own bus only.
type caller struct {
	conn *peer.Conn
	name string
}

// lane holds the calls of one caller while a check of its rights is under way. They are
// carried out in the order in which they came, except that calls which change nothing do
// not wait behind a person who is asked for a password.
type lane struct {
	queue       []*Call // the first is being checked
	interactive int     // calls in queue that may ask a person
	beside      int     // checks under way of calls that went past the queue
	gone        bool    // the caller has left
}

// admit takes a call whose arguments have the right types to its handler, by way of the
// caller's lane.
func (s *Server) admit(c *Call) {
	l := s.lanes[c.caller()]
	switch {
	case l == nil:
		l = &lane{}
		s.lanes[c.caller()] = l
		s.enqueue(l, c)
	case len(l.queue)+l.beside >= MaxCallsPerCaller:
		c.Fail(wire.ErrLimitsExceeded.With("%d calls of this connection wait for a check of its rights already; wait for their answers",
			MaxCallsPerCaller))
	case l.interactive > 0 && !c.changes():
		s.pass(l, c)
	default:
		s.enqueue(l, c)
	}
}

func (s *Server) enqueue(l *lane, c *Call) {
	l.queue = append(l.queue, c)
	if c.interactive() {
		l.interactive++
	}
	if len(l.queue) == 1 {
		s.advance(l, c.caller())
	}
}

// advance carries out the queue up to the first call whose check is not decided at once.
func (s *Server) advance(l *lane, who caller) {
	for len(l.queue) > 0 {
		c := l.queue[0]
		decided, err := s.check(c, func(err error) {
			if !l.gone {
				l.pop()
				s.decide(c, err)
				s.advance(l, who)
			}
		})
		if !decided {
			return
		}
		l.pop()
		s.decide(c, err)
	}
	s.tidy(l, who)
}

// pass checks a call that changes nothing beside the queue.
func (s *Server) pass(l *lane, c *Call) {
	l.beside++
	end := func(err error) {
		if !l.gone {
			l.beside--
			s.decide(c, err)
			s.tidy(l, c.caller())
		}
	}
	if decided, err := s.check(c, end); decided {
		end(err)
	}
}

func (l *lane) pop() {
	if l.queue[0].interactive() {
		l.interactive--
	}
	l.queue[0] = nil
	l.queue = l.queue[1:]
}

func (s *Server) tidy(l *lane, who caller) {
	if len(l.queue)+l.beside == 0 {
		delete(s.lanes, who)
	}
}

func (s *Server) decide(c *Call, err error) {
	c.judged(err)
	if err != nil {
		c.Fail(err)
		return
	}
	c.method.Serve(c)
}

// check finds out whether a call may be carried out; done is called on the server's
// goroutine, after check has returned, and only if it is not decided at once.
func (s *Server) check(c *Call, done func(error)) (decided bool, err error) {
	if c.spec.Action == "" {
		return true, nil // of a standard interface: for everyone
	}
	var about About
	if c.method.About != nil {
		if about, err = c.method.About(c); err != nil {
			return true, err
		}
	}
	r := c.request(about)
	if find := c.method.Find; find != nil {
		r.Find = func(found func(About, error)) {
			s.loop.Defer(func() {
				find(c, func(about About, err error) {
					c.Concerns(about)
					found(about, err)
				})
			})
		}
	}
	return s.authorizer.Check(r, func(err error) { s.loop.Defer(func() { done(err) }) })
}

// left drops what waits for a caller that has left the bus; all callers of conn for "".
func (s *Server) left(conn *peer.Conn, name string) {
	if name != "" {
		s.drop(caller{conn, name})
	} else {
		for who := range s.lanes {
			if who.conn == conn {
				s.drop(who)
			}
		}
	}
	s.authorizer.Left(conn, name)
	if name != "" {
		s.clientGone(name)
	}
}

func (s *Server) drop(who caller) {
	if l := s.lanes[who]; l != nil {
		l.gone = true
		delete(s.lanes, who)
	}
}
