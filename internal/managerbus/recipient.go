package managerbus

import "errors"

// The window of one recipient: what may be under way to it that it has not proved to have
// read. It is small, so that what waits for one recipient inside the bus holds up nobody
// else's messages, and large enough that one which reads is never waited for.
const (
	windowMessages = 256
	windowBytes    = 256 << 10
)

// Beyond the window events wait here in order, none left out, up to these bounds: a
// recipient may pause for seconds and still get everything. Past them it is slow, and gets
// the latest of each unit only (type latest), until nothing waits any more.
const (
	inOrderEvents = 1 << 14
	inOrderBytes  = 4 << 20
)

// Bounds of what is kept for a slow recipient. Past them it is let go.
const (
	// MaxHeldUnits is how many units, counted per monitor, may have changes that wait for one
	// recipient.
	MaxHeldUnits = 1 << 19
	// MaxHeldBytes is about how large all of these changes may be as messages. Here they take
	// less: recipients share them.
	MaxHeldBytes = 256 << 20
)

// bounds are MaxHeldUnits and MaxHeldBytes, but in tests.
type bounds struct{ units, bytes int }

var errHoldsTooMuch = errors.New("it has not read its signals for long, and changes of more than 524288 units, or more than 256 MiB of them, wait for it")

// item is one event on its way to one recipient, as a signal of one monitor.
type item struct {
	monitor uint32
	signal  *signal
}

// recipient is one client of the bus that hears of units: what it was sent, and what waits
// until it has read that. It decides and does nothing: events go in by put and come out by
// take, as far as the window allows.
type recipient struct {
	sent, read, asked mark
	asking            bool // whether all up to asked was read; one question at a time

	queue  []item // in order; empty while held is used
	head   int    // of what is left in queue
	size   int    // of what is left in queue, bytes
	burst  []item // of one unit that was taken out of held
	held   *latest
	merged bool // something was left out since the last time that nothing waited
}

// mark is a place in the stream of messages to one recipient.
type mark struct{ messages, bytes int }

// put takes an event. An error says that too much waits: the recipient must be let go.
func (r *recipient) put(i item, max bounds) error {
	if r.held == nil {
		r.queue = append(r.queue, i)
		r.size += i.signal.size()
		if len(r.queue)-r.head <= inOrderEvents && r.size <= inOrderBytes {
			return nil
		}
		r.held, r.merged = newLatest(), true
		for _, i := range r.queue[r.head:] {
			r.held.add(i)
		}
		r.queue, r.head, r.size = nil, 0, 0
	} else {
		r.held.add(i)
	}
	if len(r.held.units) > max.units || r.held.size > max.bytes {
		return errHoldsTooMuch
	}
	return nil
}

// take gives the next event to send now, as far as there is one and the window has room.
// The caller must send it.
func (r *recipient) take() (item, bool) {
	if r.sent.messages-r.read.messages >= windowMessages || r.sent.bytes-r.read.bytes >= windowBytes {
		return item{}, false
	}
	i, ok := r.next()
	if ok {
		r.sent.messages++
		r.sent.bytes += i.signal.size()
	}
	return i, ok
}

func (r *recipient) next() (item, bool) {
	if len(r.burst) == 0 && r.held != nil {
		r.burst = r.held.take()
		if r.burst == nil {
			r.held, r.merged = nil, false
		}
	}
	if len(r.burst) > 0 {
		i := r.burst[0]
		r.burst = r.burst[1:]
		return i, true
	}
	if r.head == len(r.queue) {
		return item{}, false
	}
	i := r.queue[r.head]
	r.queue[r.head] = item{}
	r.head++
	r.size -= i.signal.size()
	switch {
	case r.head == len(r.queue) && cap(r.queue) > windowMessages:
		r.queue, r.head = nil, 0 // a burst leaves nothing behind
	case r.head == len(r.queue):
		r.queue, r.head = r.queue[:0], 0
	case r.head > len(r.queue)/2 && r.head >= windowMessages:
		r.queue, r.head = append([]item(nil), r.queue[r.head:]...), 0
	}
	return i, true
}

// wantsAnswer reports whether it is time to ask if all was read: at half of the window, so
// that the answer of one who reads comes before the window is full.
func (r *recipient) wantsAnswer() bool {
	return !r.asking && (r.sent.messages-r.read.messages >= windowMessages/2 || r.sent.bytes-r.read.bytes >= windowBytes/2)
}

// ask notes that the recipient is being asked; the answer proves that it has read all that
// was sent before.
func (r *recipient) ask() { r.asking, r.asked = true, r.sent }

func (r *recipient) answered() { r.asking, r.read = false, r.asked }

// refused notes that the question did not reach the recipient.
func (r *recipient) refused() { r.asking = false }

// trust takes for read all that was sent.
func (r *recipient) trust() { r.read = r.sent }

// drop forgets what waits for one monitor.
func (r *recipient) drop(monitor uint32) {
	kept := r.queue[:0:0]
	r.size = 0
	for _, i := range r.queue[r.head:] {
		if i.monitor != monitor {
			kept = append(kept, i)
			r.size += i.signal.size()
		}
	}
	r.queue, r.head = kept, 0
	var burst []item
	for _, i := range r.burst {
		if i.monitor != monitor {
			burst = append(burst, i)
		}
	}
	r.burst = burst
	if r.held != nil {
		r.held.drop(monitor)
	}
}
