package peer

import (
	"encoding/binary"
	"math"

	"example.org/ctrl/internal/wire"
)

// Decoder reads the values of a checked body one after the other, for paths where Decode's
// reflection is too slow. It follows no signature: the caller has compared Raw.Sig. Bounds
// are checked all the same; the first error sticks, and every later read gives a zero.
type Decoder struct {
	data []byte
	pos  int
	err  error
}

// NewDecoder reads a body from its beginning.
func NewDecoder(body wire.Raw) Decoder { return Decoder{data: body.Data} }

// Err is the first error.
func (d *Decoder) Err() error { return d.err }

func (d *Decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.pos = len(d.data)
}

// take returns the next n bytes, aligned, or nil.
func (d *Decoder) take(n, align int) []byte {
	start := (d.pos + align - 1) &^ (align - 1)
	if d.err != nil || n < 0 || start > len(d.data) || n > len(d.data)-start {
		d.fail(errShort)
		return nil
	}
	d.pos = start + n
	return d.data[start:d.pos]
}

// Byte reads a "y".
func (d *Decoder) Byte() byte {
	if b := d.take(1, 1); b != nil {
		return b[0]
	}
	return 0
}

// Bool reads a "b".
func (d *Decoder) Bool() bool { return d.Uint32() != 0 }

// Int16 reads an "n".
func (d *Decoder) Int16() int16 { return int16(d.Uint16()) }

// Uint16 reads a "q".
func (d *Decoder) Uint16() uint16 {
	if b := d.take(2, 2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// Int32 reads an "i".
func (d *Decoder) Int32() int32 { return int32(d.Uint32()) }

// Uint32 reads a "u".
func (d *Decoder) Uint32() uint32 {
	if b := d.take(4, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// Int64 reads an "x".
func (d *Decoder) Int64() int64 { return int64(d.Uint64()) }

// Uint64 reads a "t".
func (d *Decoder) Uint64() uint64 {
	if b := d.take(8, 8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Float64 reads a "d".
func (d *Decoder) Float64() float64 { return math.Float64frombits(d.Uint64()) }

// String reads an "s".
func (d *Decoder) String() string { return string(d.StringBytes()) }

// StringBytes reads an "s" or "o" as a part of the body's memory.
func (d *Decoder) StringBytes() []byte {
	n := d.Uint32()
	if uint64(n) >= uint64(len(d.data)-d.pos) {
		d.fail(errShort)
		return nil
	}
	return d.terminated(int(n))
}

func (d *Decoder) terminated(n int) []byte {
	b := d.take(n+1, 1)
	if b == nil {
		return nil
	}
	return b[:n]
}

// ObjectPath reads an "o".
func (d *Decoder) ObjectPath() wire.ObjectPath { return wire.ObjectPath(d.StringBytes()) }

// Signature reads a "g".
func (d *Decoder) Signature() wire.Signature {
	return wire.Signature(internSignature(d.terminated(int(d.Byte()))))
}

func internSignature(b []byte) string {
	if s, ok := knownSignatures[string(b)]; ok {
		return s
	}
	return string(b)
}

// Value reads a "v" into memory of its own.
func (d *Decoder) Value() wire.Value {
	sig := d.Signature()
	if d.err != nil {
		return wire.Value{}
	}
	if err := checkSingle(sig); err != nil {
		d.fail(err)
		return wire.Value{}
	}
	return d.content(sig)
}

// content reads one value of type sig as a wire.Value in memory of its own.
func (d *Decoder) content(sig wire.Signature) wire.Value {
	d.take(0, int(alignments[sig[0]]))
	start := d.pos
	c := checker{data: d.data, pos: start}
	if _, err := c.value(string(sig), 0, 0); err != nil {
		d.fail(err)
		return wire.Value{}
	}
	d.pos = c.pos
	v := wire.Value{Sig: sig, Data: make([]byte, 0, c.pos-start+4)}
	if start&(maxAlign(sig)-1) == 0 {
		v.Data = append(v.Data, d.data[start:c.pos]...)
		return v
	}
	var err error
	if v.Data, _, err = appendShifted(v.Data, 0, string(sig), d.data, start); err != nil {
		d.fail(err)
	}
	return v
}

// Struct begins a struct or dictionary entry.
func (d *Decoder) Struct() { d.take(0, 8) }

// Array begins an array whose elements' type begins with elem and returns the offset of its
// end, for More.
func (d *Decoder) Array(elem byte) (end int) {
	n := d.Uint32()
	d.take(0, max(1, int(alignments[elem])))
	if uint64(n) > uint64(len(d.data)-d.pos) {
		d.fail(errShort)
		return len(d.data)
	}
	return d.pos + int(n)
}

// More reports whether the array that ends at end has another element.
func (d *Decoder) More(end int) bool { return d.err == nil && d.pos < end }
