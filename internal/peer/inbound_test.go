package peer

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// trickle gives a text in pieces of any size, sometimes none, and then an error.
type trickle struct {
	left   []byte
	random *rand.Rand
	end    error
}

func (t *trickle) Read(p []byte) (int, error) {
	if len(t.left) == 0 {
		return 0, t.end
	}
	n := min(t.random.IntN(3*waitBuffer), len(p), len(t.left))
	copy(p, t.left[:n])
	t.left = t.left[n:]
	return n, nil
}

// TestInboundGivesWhatCame: whatever is asked for in whatever order, the bytes come once, in
// order, and the error after the last.
func TestInboundGivesWhatCame(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		text := make([]byte, random.IntN(5*readBuffer))
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		end := errors.New("the end")
		var in inbound
		in.init(&trickle{text, random, end})
		var got []byte
		var err error
		for err == nil {
			switch random.IntN(4) {
			case 0:
				var b []byte
				n := 1 + random.IntN(readBuffer)
				if b, err = in.Peek(n); err == nil {
					got = append(got, b...)
					in.Discard(n)
				} else {
					got = append(got, b...)
				}
			case 1:
				p := make([]byte, random.IntN(2*readBuffer))
				var n int
				n, err = in.Read(p)
				got = append(got, p[:n]...)
			case 2:
				var b byte
				if b, err = in.ReadByte(); err == nil {
					got = append(got, b)
				}
			case 3:
				before := in.Buffered()
				b, _ := in.Peek(before)
				got = append(got, b...)
				_, err = in.Discard(before)
			}
		}
		if !errors.Is(err, end) || !bytes.Equal(got, text) {
			t.Fatalf("seed %d: %d of %d bytes, same %v, then %v", seed, len(got), len(text), bytes.Equal(got, text), err)
		}
	}
}

// TestInboundWaitsSmall: after a burst the connection waits without the large buffer again.
func TestInboundWaitsSmall(t *testing.T) {
	r, w := io.Pipe()
	var in inbound
	in.init(r)
	go func() {
		w.Write(make([]byte, 3*readBuffer))
		w.Write(make([]byte, 100))
		w.Write(make([]byte, 100))
		w.CloseWithError(io.EOF)
	}()
	in.Discard(3 * readBuffer)
	if in.large == nil {
		t.Error("a burst was read with the small buffer")
	}
	in.Discard(100)
	in.Discard(100)
	if in.large != nil {
		t.Error("the large buffer is kept")
	}
	if _, err := in.Discard(1); err != io.EOF {
		t.Errorf("then %v", err)
	}
}
