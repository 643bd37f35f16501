package managerbus

import "sync"

// maxEvents is how many events of units may wait for the server's goroutine before agents
// are made to wait. It has a few microseconds of work with each for each recipient.
const maxEvents = 4096

// valve counts events that wait, for those who could send fewer.
type valve struct {
	mu    sync.Mutex
	less  sync.Cond
	count int
	ended bool
}

func (v *valve) in() {
	v.mu.Lock()
	v.count++
	v.mu.Unlock()
}

func (v *valve) out() {
	v.mu.Lock()
	v.count--
	if v.count == maxEvents/2 {
		v.wake()
	}
	v.mu.Unlock()
}

// wait blocks while there are too many, until half of them are sent.
func (v *valve) wait() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.count < maxEvents {
		return
	}
	v.less.L = &v.mu
	for v.count > maxEvents/2 && !v.ended {
		v.less.Wait()
	}
}

// end lets everyone pass: nothing is sent any more.
func (v *valve) end() {
	v.mu.Lock()
	v.ended = true
	v.wake()
	v.mu.Unlock()
}

func (v *valve) wake() {
	if v.less.L != nil {
		v.less.Broadcast()
	}
}
