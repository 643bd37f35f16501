package peer

import (
	"encoding/binary"
	"fmt"

	"example.org/ctrl/internal/wire"
)

// transcoder copies values from one place to another whose alignment or byte order
// differs. What it reads may be hostile: it stays within bounds and checks padding,
// nesting and signatures of variants; the rest is checkBody's work.
type transcoder struct {
	src  []byte
	pos  int
	big  bool // src is big-endian
	dst  []byte
	base int // offset in dst from which alignment counts
}

// littleEndian appends the little-endian form of a big-endian body to dst.
func littleEndian(dst []byte, sig string, body []byte) ([]byte, error) {
	t := transcoder{src: body, big: true, dst: dst, base: len(dst)}
	for i := 0; i < len(sig); {
		next, err := t.value(sig, i, 0)
		if err != nil {
			return dst, err
		}
		i = next
	}
	if t.pos != len(body) {
		return dst, fmt.Errorf("%d bytes follow the last value of signature %q", len(body)-t.pos, clip(sig))
	}
	return t.dst, nil
}

// appendShifted appends the values of sig that begin at src[pos] to dst, whose alignment
// counts from base, and returns dst and the offset behind the last value in src.
func appendShifted(dst []byte, base int, sig string, src []byte, pos int) ([]byte, int, error) {
	t := transcoder{src: src, pos: pos, dst: dst, base: base}
	for i := 0; i < len(sig); {
		next, err := t.value(sig, i, 0)
		if err != nil {
			return dst, pos, err
		}
		i = next
	}
	return t.dst, t.pos, nil
}

func (t *transcoder) align(n int) error {
	end := (t.pos + n - 1) &^ (n - 1)
	if end > len(t.src) {
		return errShort
	}
	for ; t.pos < end; t.pos++ {
		if t.src[t.pos] != 0 {
			return errPadding
		}
	}
	t.dst = appendPadding(t.dst, t.base, n)
	return nil
}

func (t *transcoder) take(n int) ([]byte, error) {
	if n > len(t.src)-t.pos {
		return nil, errShort
	}
	b := t.src[t.pos : t.pos+n]
	t.pos += n
	return b, nil
}

func (t *transcoder) uint32() (uint32, error) {
	b, err := t.take(4)
	if err != nil {
		return 0, err
	}
	if t.big {
		return binary.BigEndian.Uint32(b), nil
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (t *transcoder) value(sig string, i, depth int) (int, error) {
	code := sig[i]
	if err := t.align(int(alignments[code])); err != nil {
		return 0, err
	}
	switch code {
	case 's', 'o':
		n, err := t.uint32()
		if err != nil {
			return 0, err
		}
		if uint64(n)+1 > uint64(len(t.src)-t.pos) {
			return 0, errShort
		}
		t.dst = binary.LittleEndian.AppendUint32(t.dst, n)
		return i + 1, t.copy(int(n) + 1)
	case 'g':
		_, err := t.signature()
		return i + 1, err
	case 'a', 'v', '(', '{':
		if depth++; depth > maxDepth {
			return 0, errDeep
		}
		switch code {
		case 'a':
			return t.array(sig, i, depth)
		case 'v':
			return i + 1, t.variant(depth)
		}
		return t.fields(sig, i, depth)
	default:
		return i + 1, t.fixed(int(fixedSizes[code]), int(fixedSizes[code]))
	}
}

func (t *transcoder) copy(n int) error {
	b, err := t.take(n)
	t.dst = append(t.dst, b...)
	return err
}

// fixed copies n bytes of numbers that are size bytes each.
func (t *transcoder) fixed(n, size int) error {
	b, err := t.take(n)
	if err != nil {
		return err
	}
	if !t.big || size == 1 {
		t.dst = append(t.dst, b...)
		return nil
	}
	for ; len(b) >= size; b = b[size:] {
		for k := size - 1; k >= 0; k-- {
			t.dst = append(t.dst, b[k])
		}
	}
	return nil
}

func (t *transcoder) signature() ([]byte, error) {
	if t.pos >= len(t.src) {
		return nil, errShort
	}
	n := int(t.src[t.pos])
	if n+2 > len(t.src)-t.pos {
		return nil, errShort
	}
	s := t.src[t.pos+1 : t.pos+1+n]
	return s, t.copy(n + 2)
}

func (t *transcoder) variant(depth int) error {
	s, err := t.signature()
	if err != nil {
		return err
	}
	sig, known := knownSignature(s)
	if !known {
		if err := checkSingle(s); err != nil {
			return err
		}
		sig = string(s)
	}
	_, err = t.value(sig, 0, depth)
	return err
}

func (t *transcoder) array(sig string, i, depth int) (int, error) {
	length, err := t.uint32()
	if err != nil {
		return 0, err
	}
	if length > maxArrayBytes {
		return 0, fmt.Errorf("array of %d bytes is larger than %d", length, maxArrayBytes)
	}
	lengthAt := len(t.dst)
	t.dst = append(t.dst, 0, 0, 0, 0)
	elem := sig[i+1]
	if err := t.align(int(alignments[elem])); err != nil {
		return 0, err
	}
	start, n := len(t.dst), int(length)
	if n > len(t.src)-t.pos {
		return 0, errShort
	}
	next, err := t.elements(sig, i+1, n, depth)
	if err != nil {
		return 0, err
	}
	binary.LittleEndian.PutUint32(t.dst[lengthAt:], uint32(len(t.dst)-start))
	return next, nil
}

// elements copies n bytes of array elements whose type begins at sig[i].
func (t *transcoder) elements(sig string, i, n, depth int) (int, error) {
	if size := int(fixedSizes[sig[i]]); size != 0 {
		if n%size != 0 {
			return 0, fmt.Errorf("array of %d bytes does not hold whole elements of %d", n, size)
		}
		return i + 1, t.fixed(n, size)
	}
	next := typeEnd(sig, i)
	if !t.big && (len(t.dst)-t.base-t.pos)&7 == 0 {
		return next, t.copy(n) // nothing within can shift
	}
	all := t.src
	t.src = all[:t.pos+n]
	for t.pos < len(t.src) {
		if _, err := t.value(sig, i, depth); err != nil {
			return 0, err
		}
	}
	t.src = all
	return next, nil
}

func (t *transcoder) fields(sig string, i, depth int) (int, error) {
	i++
	for sig[i] != ')' && sig[i] != '}' {
		next, err := t.value(sig, i, depth)
		if err != nil {
			return 0, err
		}
		i = next
	}
	return i + 1, nil
}

var zeros [8]byte

func appendPadding(dst []byte, base, align int) []byte {
	n := (align - (len(dst)-base)&(align-1)) & (align - 1)
	return append(dst, zeros[:n]...)
}

// skipper finds the end of values without copying them.
func valuesEnd(sig string, data []byte) (int, error) {
	c := checker{data: data}
	for i := 0; i < len(sig); {
		next, err := c.value(sig, i, 0)
		if err != nil {
			return 0, err
		}
		i = next
	}
	return c.pos, nil
}

// SplitBody divides a body behind its first n arguments, for example to take the job id off
// the arguments of a verb. Head and tail may share the body's memory.
func SplitBody(body wire.Raw, n int) (head, tail wire.Raw, err error) {
	sig := string(body.Sig)
	if err := checkSignature(sig); err != nil {
		return head, tail, err
	}
	at := 0
	for k := 0; k < n; k++ {
		if at == len(sig) {
			return head, tail, wire.ErrInvalidArgs.With("signature %q has fewer than %d arguments", sig, n)
		}
		at = typeEnd(sig, at)
	}
	end, err := valuesEnd(sig[:at], body.Data)
	if err != nil {
		return head, tail, fmt.Errorf("body does not match its signature %q: %w", sig, err)
	}
	head = wire.Raw{Sig: body.Sig[:at], Data: body.Data[:end:end]}
	tail = wire.Raw{Sig: body.Sig[at:]}
	if at == len(sig) {
		return head, tail, nil
	}
	align := int(alignments[sig[at]])
	begin := (end + align - 1) &^ (align - 1)
	if begin > len(body.Data) {
		return head, wire.Raw{}, fmt.Errorf("body does not match its signature %q: %w", sig, errShort)
	}
	if begin&(maxAlign(sig[at:])-1) == 0 {
		tail.Data = body.Data[begin:]
		return head, tail, nil
	}
	tail.Data, _, err = appendShifted(make([]byte, 0, len(body.Data)-begin+8), 0, sig[at:], body.Data, begin)
	if err != nil {
		return head, wire.Raw{}, fmt.Errorf("body does not match its signature %q: %w", sig, err)
	}
	return head, tail, nil
}

// JoinBody makes one argument list of several. The result may share the memory of a part
// when no other part holds an argument.
func JoinBody(parts ...wire.Raw) (wire.Raw, error) {
	var e Encoder
	filled, last := 0, wire.Raw{}
	size := 0
	for _, p := range parts {
		if p.Sig != "" {
			filled, last = filled+1, p
			size += len(p.Data) + 8
		}
	}
	if filled <= 1 {
		return last, nil
	}
	e.buf = make([]byte, 0, size)
	var sig wire.Signature
	for _, p := range parts {
		joined, err := joinSignatures(sig, p.Sig)
		if err != nil {
			return wire.Raw{}, err
		}
		sig = joined
		e.Raw(p)
	}
	return e.Body(sig)
}
