package peer

import (
	"encoding/binary"
	"fmt"
	"math"

	"example.org/ctrl/internal/wire"
)

// Encoder appends D-Bus values to a body, for paths where Encode's reflection is too slow
// or the body is made piece by piece. The zero value is ready. The first error sticks and
// comes out of Body.
type Encoder struct {
	buf   []byte
	depth int
	err   error
}

// Array marks an array that is being written.
type Array struct{ lengthAt, start int }

// Reset empties the encoder and keeps its memory. A body made before is overwritten.
func (e *Encoder) Reset() { e.buf, e.depth, e.err = e.buf[:0], 0, nil }

// Len is the number of bytes written so far.
func (e *Encoder) Len() int { return len(e.buf) }

// Body is what was written. The caller says its signature and is right about it: under the
// race detector a wrong one panics.
func (e *Encoder) Body(sig wire.Signature) (wire.Raw, error) {
	if e.err != nil {
		return wire.Raw{}, e.err
	}
	raw := wire.Raw{Sig: sig, Data: e.buf}
	if checkedBuild {
		mustBeValid(raw)
	}
	return raw, nil
}

func mustBeValid(raw wire.Raw) {
	err := checkSignature(string(raw.Sig))
	if err == nil {
		err = checkBody(string(raw.Sig), raw.Data)
	}
	if err != nil {
		panic(fmt.Sprintf("body does not match its signature %q: %v", raw.Sig, err))
	}
}

func (e *Encoder) fail(format string, args ...any) {
	if e.err == nil {
		e.err = wire.ErrInvalidArgs.With(format, args...)
	}
}

func (e *Encoder) align(n int) { e.buf = appendPadding(e.buf, 0, n) }

// Byte appends a "y".
func (e *Encoder) Byte(v byte) { e.buf = append(e.buf, v) }

// Bool appends a "b".
func (e *Encoder) Bool(v bool) {
	var n uint32
	if v {
		n = 1
	}
	e.Uint32(n)
}

// Int16 appends an "n".
func (e *Encoder) Int16(v int16) { e.Uint16(uint16(v)) }

// Uint16 appends a "q".
func (e *Encoder) Uint16(v uint16) {
	e.align(2)
	e.buf = binary.LittleEndian.AppendUint16(e.buf, v)
}

// Int32 appends an "i".
func (e *Encoder) Int32(v int32) { e.Uint32(uint32(v)) }

// Uint32 appends a "u".
func (e *Encoder) Uint32(v uint32) {
	e.align(4)
	e.buf = binary.LittleEndian.AppendUint32(e.buf, v)
}

// Int64 appends an "x".
func (e *Encoder) Int64(v int64) { e.Uint64(uint64(v)) }

// Uint64 appends a "t".
func (e *Encoder) Uint64(v uint64) {
	e.align(8)
	e.buf = binary.LittleEndian.AppendUint64(e.buf, v)
}

// Float64 appends a "d".
func (e *Encoder) Float64(v float64) { e.Uint64(math.Float64bits(v)) }

// String appends an "s". Text that is not UTF-8, or has a NUL, is an error.
func (e *Encoder) String(v string) {
	if !validTextString(v) {
		e.fail("string %q is not UTF-8 without NUL", clip(v))
		return
	}
	e.rawString(v)
}

// ObjectPath appends an "o".
func (e *Encoder) ObjectPath(v wire.ObjectPath) {
	if !validPath(v) {
		e.fail("%q is not an object path", clip(v))
		return
	}
	e.rawString(string(v))
}

func (e *Encoder) rawString(v string) {
	if len(v) > maxArrayBytes {
		e.fail("string of %d bytes is too long", len(v))
		return
	}
	e.Uint32(uint32(len(v)))
	e.buf = append(e.buf, v...)
	e.buf = append(e.buf, 0)
}

// Signature appends a "g".
func (e *Encoder) Signature(v wire.Signature) {
	if err := checkSignature(v); err != nil {
		e.fail("%v", err)
		return
	}
	e.rawSignature(string(v))
}

func (e *Encoder) rawSignature(v string) {
	e.buf = append(e.buf, byte(len(v)))
	e.buf = append(e.buf, v...)
	e.buf = append(e.buf, 0)
}

// Value appends a "v".
func (e *Encoder) Value(v wire.Value) {
	if e.err != nil {
		return
	}
	sig := string(v.Sig)
	if err := checkVariant(sig, v.Data, e.depth+1); err != nil {
		e.fail("value of type %q cannot be sent: %v", clip(sig), err)
		return
	}
	e.rawSignature(sig)
	e.align(int(alignments[sig[0]]))
	e.content(sig, v.Data)
}

// BeginVariant writes a variant's signature; exactly one value of that type follows, and
// then EndVariant.
func (e *Encoder) BeginVariant(sig wire.Signature) {
	if err := checkSingle(string(sig)); err != nil {
		e.fail("%v", err)
		return
	}
	e.enter()
	e.rawSignature(string(sig))
}

// EndVariant ends what BeginVariant began.
func (e *Encoder) EndVariant() { e.depth-- }

// Raw appends complete arguments that were encoded or received before.
func (e *Encoder) Raw(body wire.Raw) {
	if e.err != nil || body.Sig == "" {
		return
	}
	if err := checkSignature(body.Sig); err != nil {
		e.fail("%v", err)
		return
	}
	if e.depth > 0 && maxAlign(body.Sig) == 8 { // may hold variants: how deep is not known
		if err := e.checkRaw(body); err != nil {
			e.fail("body of type %q cannot be sent: %v", body.Sig, err)
			return
		}
	}
	e.align(int(alignments[body.Sig[0]]))
	e.content(string(body.Sig), body.Data)
}

func (e *Encoder) checkRaw(body wire.Raw) error {
	c := checker{data: body.Data}
	for i := 0; i < len(body.Sig); {
		next, err := c.value(string(body.Sig), i, e.depth)
		if err != nil {
			return err
		}
		i = next
	}
	return nil
}

// content appends values that were encoded at an offset that is a multiple of 8. The first
// value's alignment is already there.
func (e *Encoder) content(sig string, data []byte) {
	if len(e.buf)&(maxAlign(sig)-1) == 0 {
		e.buf = append(e.buf, data...)
		return
	}
	buf, _, err := appendShifted(e.buf, 0, sig, data, 0)
	if err != nil {
		e.fail("body of type %q cannot be sent: %v", sig, err)
		return
	}
	e.buf = buf
}

func (e *Encoder) enter() {
	if e.depth++; e.depth > maxDepth {
		e.fail("%v", errDeep)
	}
}

// BeginStruct begins a struct or dictionary entry; its fields follow, then EndStruct.
func (e *Encoder) BeginStruct() {
	e.enter()
	e.align(8)
}

// EndStruct ends what BeginStruct began.
func (e *Encoder) EndStruct() { e.depth-- }

// BeginArray begins an array whose elements' type begins with elem ('s', '(', '{', 'a' …).
func (e *Encoder) BeginArray(elem byte) Array {
	e.enter()
	e.Uint32(0)
	a := Array{lengthAt: len(e.buf) - 4}
	if n := int(alignments[elem]); n != 0 {
		e.align(n)
	} else {
		e.fail("%q is no type code", elem)
	}
	a.start = len(e.buf)
	return a
}

// EndArray ends what BeginArray began.
func (e *Encoder) EndArray(a Array) {
	e.depth--
	n := len(e.buf) - a.start
	if n > maxArrayBytes {
		e.fail("array of %d bytes is larger than %d", n, maxArrayBytes)
		return
	}
	binary.LittleEndian.PutUint32(e.buf[a.lengthAt:], uint32(n))
}

// AppendElements appends elements, as ArrayContent gives them, to the array that is being
// written. The elements must have the array's element type.
func (e *Encoder) AppendElements(elem wire.Signature, content []byte) {
	if len(content) == 0 || e.err != nil {
		return
	}
	if err := checkSingle(elem); err != nil {
		e.fail("%v", err)
		return
	}
	e.align(int(alignments[elem[0]]))
	if len(e.buf)&(maxAlign(elem)-1) == 0 {
		e.buf = append(e.buf, content...)
		return
	}
	t := transcoder{src: content, dst: e.buf}
	for t.pos < len(content) {
		if _, err := t.value(string(elem), 0, e.depth); err != nil {
			e.fail("elements of type %q cannot be sent: %v", elem, err)
			return
		}
	}
	e.buf = t.dst
}

// ArrayContent opens a body that is one array: its element type, and the elements' bytes as
// if they began at an offset that is a multiple of 8. They share the body's memory where
// they can.
func ArrayContent(body wire.Raw) (elem wire.Signature, content []byte, err error) {
	sig := string(body.Sig)
	if checkSingle(sig) != nil || sig[0] != 'a' {
		return "", nil, wire.ErrInvalidArgs.With("signature is %q, not one array", clip(sig))
	}
	if sig[1] == '{' {
		return "", nil, wire.ErrInvalidArgs.With("signature is %q: entries of a dictionary are no type of their own", clip(sig))
	}
	if err := checkBody(sig, body.Data); err != nil {
		return "", nil, fmt.Errorf("body does not match its signature %q: %w", sig, err)
	}
	elem = body.Sig[1:]
	start := 4
	if alignments[sig[1]] == 8 {
		start = 8
	}
	content = body.Data[start:]
	if start&(maxAlign(elem)-1) == 0 {
		return elem, content, nil
	}
	t := transcoder{src: body.Data, pos: start}
	for t.pos < len(t.src) {
		if _, err := t.value(string(elem), 0, 0); err != nil {
			return "", nil, err
		}
	}
	return elem, t.dst, nil
}
