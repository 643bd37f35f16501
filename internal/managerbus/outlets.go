package managerbus

import (
	"errors"
	"log/slog"
	"time"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/wire"
)

const (
	// maxQuestions is how many recipients may be asked at a time. One that is stopped never
	// answers, and the system bus lets each client wait for 128 answers only, of which other
	// questions need some.
	maxQuestions = 64
	// patienceForQuestion is how long a recipient waits for its turn to be asked. Longer
	// means that so many are stopped that this one cannot be asked at all.
	patienceForQuestion = 2 * time.Second
	// pauseAfterRefusal is how long the bus is left alone that passes no question on.
	pauseAfterRefusal = time.Second
)

// outlets sends events of units to the recipients of monitors, to each as fast as it reads,
// so that a slow one costs nobody else anything. How fast that is, a recipient is asked with
// Ping, which libraries answer by themselves. It is of the server's goroutine.
type outlets struct {
	after func(time.Duration, func()) *loop.Timer
	iface *busobject.Interface
	log   *slog.Logger
	max   bounds // of one recipient
	// letGo ends all that a recipient has to do with monitors, and calls done after the last
	// event for it.
	letGo func(name, reason string, done func())

	sender    sender
	all       map[string]*outlet // by unique name
	paths     map[uint32]wire.ObjectPath
	questions int
	waiting   []*outlet // for their turn to be asked, in order
	turn      *loop.Timer
	said      map[string]bool // what is logged once
}

// sender is one connection to the bus, a busobject.Sender with its rules.
type sender interface {
	Signal(t busobject.Target, iface *busobject.Interface, signal string, args wire.Raw)
	Ping(to string, done func(error))
	Trusted(to string) bool
	Dropped(iface *busobject.Interface, signal string, err error)
}

// outlet is the way to one recipient.
type outlet struct {
	recipient
	name  string
	since time.Time // it waits for its turn; zero when it does not
	gone  bool      // it was let go, or is forgotten
	slow  bool      // it was said that it is
}

func (o *outlets) reset(sender sender) {
	o.turn.Stop()
	*o = outlets{
		after: o.after, iface: o.iface, log: o.log, max: o.max, letGo: o.letGo, sender: sender,
		all: make(map[string]*outlet), paths: make(map[uint32]wire.ObjectPath), said: make(map[string]bool),
	}
}

// use notes which bus is connected. Nothing that belongs to the one before is kept.
func (o *outlets) use(sender sender) {
	if o.all == nil || o.sender != sender {
		o.reset(sender)
	}
}

func (o *outlets) event(s *signal, audience []manager.Audience) {
	for _, a := range audience {
		for _, name := range a.To {
			out := o.all[name]
			if out == nil {
				out = &outlet{name: name}
				o.all[name] = out
			}
			if out.gone {
				continue
			}
			if err := out.put(item{a.Monitor, s}, o.max); err != nil {
				o.giveUp(out, err)
				continue
			}
			o.flush(out)
		}
	}
}

// flush sends what the recipient's window has room for, and asks where that is due.
func (o *outlets) flush(out *outlet) {
	for {
		i, ok := out.take()
		if !ok {
			break
		}
		args, err := i.signal.encode(func() bool { return o.sender.Trusted(out.name) })
		if err != nil {
			o.sender.Dropped(o.iface, i.signal.name(), err)
			continue
		}
		o.sender.Signal(busobject.Target{Path: o.path(i.monitor), To: out.name}, o.iface, i.signal.name(), args)
	}
	if out.merged != out.slow {
		out.slow = out.merged
		o.log.Debug("pace of a monitor's recipient has changed", "client", out.name, "slow", out.slow)
	}
	if out.wantsAnswer() && out.since.IsZero() {
		o.askOrWait(out)
	}
}

func (o *outlets) path(monitor uint32) wire.ObjectPath {
	p, known := o.paths[monitor]
	if !known {
		p = wire.MonitorPath(monitor)
		o.paths[monitor] = p
	}
	return p
}

func (o *outlets) askOrWait(out *outlet) {
	if o.questions < maxQuestions {
		o.ask(out)
		return
	}
	out.since = time.Now()
	o.waiting = append(o.waiting, out)
	if len(o.waiting) == 1 {
		o.turn = o.after(patienceForQuestion, o.overdue)
	}
}

func (o *outlets) ask(out *outlet) {
	out.ask()
	o.questions++
	sender := o.sender
	sender.Ping(out.name, func(err error) {
		if o.sender == sender {
			o.answer(out, err)
		}
	})
}

func (o *outlets) answer(out *outlet, err error) {
	switch {
	case errors.Is(err, wire.ErrLimitsExceeded):
		// The question counts until the pause is over: others would meet with the same.
		sender := o.sender
		o.after(pauseAfterRefusal, func() {
			out.refused()
			if o.sender == sender {
				o.endQuestion(out)
			}
		})
		return
	case errors.Is(err, wire.ErrAccessDenied):
		// Unless the client itself says so, for which it is sent things faster than it reads.
		o.sayOnce("bus does not let the manager ask its clients whether they read: slow ones are sent everything at once; install the D-Bus policy file "+wire.BusName+".conf", "err", err)
	}
	out.answered() // by any other error too: the client has read the question, or is gone
	o.endQuestion(out)
}

func (o *outlets) endQuestion(out *outlet) {
	o.questions--
	for len(o.waiting) > 0 && o.questions < maxQuestions {
		next := o.waiting[0]
		o.waiting = o.waiting[1:]
		next.since = time.Time{}
		if !next.gone {
			o.ask(next)
		}
	}
	if !out.gone {
		o.flush(out)
	}
}

// overdue sends to those who cannot be asked, since too many others do not answer, as fast as
// the bus takes it: they may be well.
func (o *outlets) overdue() {
	now := time.Now()
	for len(o.waiting) > 0 {
		first := o.waiting[0]
		if left := patienceForQuestion - now.Sub(first.since); left > 0 {
			o.turn = o.after(left, o.overdue)
			return
		}
		o.waiting = o.waiting[1:]
		first.since = time.Time{}
		if !first.gone {
			o.sayOnce("too many recipients of monitors do not read: further ones are sent everything at once", "limit", maxQuestions)
			first.trust()
			o.flush(first)
		}
	}
}

func (o *outlets) sayOnce(text string, args ...any) {
	if !o.said[text] {
		o.said[text] = true
		o.log.Warn(text, args...)
	}
}

// giveUp lets a recipient go. Whoever has read nothing for so long is told so last.
func (o *outlets) giveUp(out *outlet, why error) {
	o.log.Warn("monitor's recipient is let go", "client", out.name, "err", why)
	out.recipient, out.gone = recipient{}, true
	sender := o.sender
	o.letGo(out.name, why.Error(), func() {
		if o.sender == sender && o.all[out.name] == out {
			delete(o.all, out.name)
		}
	})
}

// forget drops a client that has left the bus.
func (o *outlets) forget(name string) {
	if out := o.all[name]; out != nil {
		out.recipient, out.gone = recipient{}, true
		delete(o.all, name)
	}
}

// drop forgets what waits for one recipient of a monitor.
func (o *outlets) drop(monitor uint32, name string) {
	if out := o.all[name]; out != nil {
		out.drop(monitor)
	}
}

// closed forgets a monitor.
func (o *outlets) closed(monitor uint32) {
	delete(o.paths, monitor)
	for _, out := range o.all {
		out.drop(monitor)
	}
}
