package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Bounds of an entry as it is read. journald takes fields of up to 768 MiB; what is past these
// is skipped without being held.
const (
	maxFields    = 1024
	maxFieldName = 64
	// MaxField is how much of one field is read, in bytes.
	MaxField = 1 << 20
	// maxEntry is how much of all fields of one entry is read.
	maxEntry = 2 << 20
)

// field is one field of an entry. A name may stand several times.
type field struct {
	name  string
	value []byte
	cut   bool // it was longer
}

// entry is one entry of a journal.
type entry struct {
	time   uint64 // __REALTIME_TIMESTAMP
	cursor string
	fields []field
}

// Cost of an entry and of a field beside their bytes, about as memory has it.
const (
	entryCost = 128
	fieldCost = 64
)

func (e *entry) size() int {
	size := entryCost + len(e.cursor)
	for _, f := range e.fields {
		size += fieldCost + len(f.name) + len(f.value)
	}
	return size
}

// exportReader reads the journal export format (systemd.dev, "Journal Export Formats"): lines
// NAME=value, or NAME, a length of eight bytes and a value of any bytes; an empty line ends an
// entry.
type exportReader struct{ in *bufio.Reader }

func newExportReader(r io.Reader) *exportReader { return &exportReader{bufio.NewReaderSize(r, 64<<10)} }

// next gives the next entry, or io.EOF after the last one. An entry that breaks off is none.
func (x *exportReader) next() (*entry, error) {
	e, left := &entry{}, maxEntry
	for {
		name, value, size, err := x.begin()
		switch {
		case err != nil:
			return nil, err
		case name == "" && e.cursor == "" && len(e.fields) == 0:
			continue // more than one empty line
		case name == "":
			return e, nil
		}
		f := field{name: name, value: value}
		if size >= 0 {
			f.value, f.cut, err = x.binary(size, min(MaxField, left))
		} else {
			f.value, f.cut, err = x.line(value, min(MaxField, left))
		}
		if err != nil {
			return nil, broken(err)
		}
		left -= len(f.value)
		x.take(e, f)
	}
}

// take puts a field where it belongs. Of the address fields only two are of use.
func (x *exportReader) take(e *entry, f field) {
	switch {
	case f.name == "__CURSOR":
		e.cursor = string(f.value)
	case f.name == "__REALTIME_TIMESTAMP":
		e.time, _ = strconv.ParseUint(string(f.value), 10, 64)
	case strings.HasPrefix(f.name, "__") && f.name != "__MONOTONIC_TIMESTAMP", len(f.name) > maxFieldName, len(e.fields) >= maxFields:
	default:
		e.fields = append(e.fields, f)
	}
}

// begin reads the name of a field and, for one on a line, as much of its value as is at hand:
// then size is -1. The name is empty at the end of an entry.
func (x *exportReader) begin() (name string, value []byte, size int64, err error) {
	head, err := x.in.ReadSlice('\n')
	long := errors.Is(err, bufio.ErrBufferFull)
	if err != nil && !long {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return "", nil, 0, err
	}
	if at := bytes.IndexByte(head, '='); at >= 0 {
		return string(head[:at]), bytes.Clone(head[at+1:]), -1, nil
	}
	if long {
		return "", nil, 0, errors.New("a field has no name")
	}
	name = string(head[:len(head)-1])
	if name == "" {
		return "", nil, -1, nil
	}
	var length [8]byte
	if _, err := io.ReadFull(x.in, length[:]); err != nil {
		return "", nil, 0, broken(err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > 1<<40 {
		return "", nil, 0, fmt.Errorf("field %.64q claims to be %d bytes long", name, n)
	}
	return name, nil, int64(n), nil
}

// line reads what is left of a value on a line, of which value is the beginning.
func (x *exportReader) line(value []byte, most int) (_ []byte, cut bool, err error) {
	for len(value) == 0 || value[len(value)-1] != '\n' {
		more, err := x.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, false, err
		}
		last := err == nil
		if len(value) <= most {
			value = append(value, more...)
		}
		if last {
			break
		}
	}
	value = bytes.TrimSuffix(value, []byte("\n"))
	if len(value) > most {
		return value[:most:most], true, nil
	}
	return value, false, nil
}

// binary reads a value whose size is known.
func (x *exportReader) binary(size int64, most int) (value []byte, cut bool, err error) {
	keep := min(size, int64(most))
	value = make([]byte, keep)
	if _, err := io.ReadFull(x.in, value); err != nil {
		return nil, false, err
	}
	if _, err := io.CopyN(io.Discard, x.in, size-keep+1); err != nil { // and the newline
		return nil, false, err
	}
	return value, keep < size, nil
}

func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
