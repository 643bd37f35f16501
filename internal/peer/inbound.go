package peer

import (
	"errors"
	"io"
	"sync"
)

// inbound buffers what is read. An idle connection waits with a small buffer of its own,
// which a heartbeat fits into; while more comes at once it borrows a large one.
type inbound struct {
	src   io.Reader
	buf   []byte // small or *large
	r, w  int    // buf[r:w] has not been taken
	last  int    // bytes of the last read
	large *[readBuffer]byte
	small [waitBuffer]byte
	err   error // of src, given once all before it was taken
}

// waitBuffer has room for a heartbeat, the report of a job, and most answers.
const waitBuffer = 256

var largeBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

func (in *inbound) init(src io.Reader) { in.src, in.buf = src, in.small[:] }

// Buffered is how many bytes can be taken without reading.
func (in *inbound) Buffered() int { return in.w - in.r }

// Peek waits for the next n bytes, at most readBuffer, without taking them. They stay valid
// until the next call. With fewer there is an error.
func (in *inbound) Peek(n int) ([]byte, error) {
	for in.w-in.r < n && in.err == nil {
		in.fill(n)
	}
	if have := in.w - in.r; have < n {
		return in.buf[in.r:in.w], in.failed()
	}
	return in.buf[in.r : in.r+n], nil
}

// Discard takes n bytes.
func (in *inbound) Discard(n int) (int, error) {
	for left := n; ; {
		k := min(left, in.w-in.r)
		in.r += k
		if left -= k; left == 0 {
			return n, nil
		}
		if in.err != nil {
			return n - left, in.failed()
		}
		in.fill(1)
	}
}

// ReadByte takes one.
func (in *inbound) ReadByte() (byte, error) {
	b, err := in.Peek(1)
	if err != nil {
		return 0, err
	}
	in.r++
	return b[0], nil
}

// Read takes what there is, or reads past the buffer where p is as large.
func (in *inbound) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if in.r == in.w {
		if in.err != nil {
			return 0, in.failed()
		}
		if len(p) >= readBuffer {
			n, err := in.src.Read(p)
			in.last = n
			return n, err
		}
		for in.r == in.w && in.err == nil {
			in.fill(1)
		}
		if in.r == in.w {
			return 0, in.failed()
		}
	}
	n := copy(p, in.buf[in.r:in.w])
	in.r += n
	return n, nil
}

func (in *inbound) failed() error {
	err := in.err
	in.err = nil
	return err
}

// maxEmptyReads is how often in turn a source may give nothing, and no error.
const maxEmptyReads = 100

var errNoProgress = errors.New("the connection gives no bytes and no error")

// fill reads once, into a buffer that has room for n bytes from r on.
func (in *inbound) fill(n int) {
	in.choose(n)
	for range maxEmptyReads {
		k, err := in.src.Read(in.buf[in.w:])
		in.w += k
		if k > 0 {
			in.last = k
		}
		if in.err = err; k > 0 || err != nil {
			return
		}
	}
	in.err = errNoProgress
}

// choose makes room. Bytes that came many at a time will do so again.
func (in *inbound) choose(n int) {
	have := in.w - in.r
	wantLarge := have+1 > waitBuffer || n > waitBuffer || in.last >= waitBuffer
	switch {
	case wantLarge && in.large == nil:
		in.large = largeBuffers.Get().(*[readBuffer]byte)
		copy(in.large[:], in.buf[in.r:in.w])
		in.buf = in.large[:]
	case !wantLarge && in.large != nil && have == 0:
		in.release()
	case have > 0 && in.r > 0:
		copy(in.buf, in.buf[in.r:in.w])
	}
	in.r, in.w = 0, have
}

// release gives the large buffer back. What was in it is gone.
func (in *inbound) release() {
	if in.large != nil {
		largeBuffers.Put(in.large)
		in.large = nil
		in.buf, in.r, in.w = in.small[:], 0, 0
	}
}
