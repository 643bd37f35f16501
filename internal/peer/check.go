package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	errShort   = errors.New("data ends within a value")
	errPadding = errors.New("padding is not zero")
	errDeep    = fmt.Errorf("containers are nested deeper than %d", maxDepth)
)

// checker walks little-endian data beside its signature and accepts only what the D-Bus
// specification allows ("Marshaling (Wire Format)").
type checker struct {
	data []byte
	pos  int
}

// checkBody checks a little-endian body against a valid signature.
func checkBody(sig string, data []byte) error {
	c := checker{data: data}
	for i := 0; i < len(sig); {
		next, err := c.value(sig, i, 0)
		if err != nil {
			return err
		}
		i = next
	}
	if c.pos != len(data) {
		return fmt.Errorf("%d bytes follow the last value of signature %q", len(data)-c.pos, clip(sig))
	}
	return nil
}

// checkVariant checks the content of a variant that lies under depth containers.
func checkVariant(sig string, data []byte, depth int) error {
	if err := checkSingle(sig); err != nil {
		return err
	}
	c := checker{data: data}
	if _, err := c.value(sig, 0, depth); err != nil {
		return err
	}
	if c.pos != len(data) {
		return fmt.Errorf("%d bytes follow the value of signature %q", len(data)-c.pos, clip(sig))
	}
	return nil
}

func (c *checker) align(n int) error {
	end := (c.pos + n - 1) &^ (n - 1)
	if end > len(c.data) {
		return errShort
	}
	for ; c.pos < end; c.pos++ {
		if c.data[c.pos] != 0 {
			return errPadding
		}
	}
	return nil
}

func (c *checker) uint32() (uint32, error) {
	if err := c.align(4); err != nil {
		return 0, err
	}
	if len(c.data)-c.pos < 4 {
		return 0, errShort
	}
	v := binary.LittleEndian.Uint32(c.data[c.pos:])
	c.pos += 4
	return v, nil
}

// value checks the complete type at sig[i] and returns the offset behind it.
func (c *checker) value(sig string, i, depth int) (int, error) {
	code := sig[i]
	switch code {
	case 's':
		s, err := c.text()
		if err == nil && !validText(s) {
			err = fmt.Errorf("string %q is not UTF-8 without NUL", clip(s))
		}
		return i + 1, err
	case 'o':
		s, err := c.text()
		if err == nil && !validPath(s) {
			err = fmt.Errorf("%q is not an object path", clip(s))
		}
		return i + 1, err
	case 'g':
		s, err := c.signature()
		if err == nil {
			err = checkSignature(s)
		}
		return i + 1, err
	case 'b':
		v, err := c.uint32()
		if err == nil && v > 1 {
			err = fmt.Errorf("boolean is %d", v)
		}
		return i + 1, err
	case 'a', 'v', '(', '{':
		if depth++; depth > maxDepth {
			return 0, errDeep
		}
		switch code {
		case 'a':
			return c.array(sig, i, depth)
		case 'v':
			return i + 1, c.variant(depth)
		}
		return c.fields(sig, i, depth)
	default:
		n := int(fixedSizes[code])
		if err := c.align(n); err != nil {
			return 0, err
		}
		if len(c.data)-c.pos < n {
			return 0, errShort
		}
		c.pos += n
		return i + 1, nil
	}
}

// text reads a string or path without its terminating NUL.
func (c *checker) text() ([]byte, error) {
	n, err := c.uint32()
	if err != nil {
		return nil, err
	}
	return c.terminated(uint64(n))
}

func (c *checker) signature() ([]byte, error) {
	if c.pos >= len(c.data) {
		return nil, errShort
	}
	n := c.data[c.pos]
	c.pos++
	return c.terminated(uint64(n))
}

func (c *checker) terminated(n uint64) ([]byte, error) {
	if n+1 > uint64(len(c.data)-c.pos) {
		return nil, errShort
	}
	s := c.data[c.pos : c.pos+int(n)]
	if c.data[c.pos+int(n)] != 0 {
		return nil, errors.New("string has no NUL behind it")
	}
	c.pos += int(n) + 1
	return s, nil
}

func (c *checker) variant(depth int) error {
	s, err := c.signature()
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
	_, err = c.value(sig, 0, depth)
	return err
}

func (c *checker) array(sig string, i, depth int) (int, error) {
	length, err := c.uint32()
	if err != nil {
		return 0, err
	}
	if length > maxArrayBytes {
		return 0, fmt.Errorf("array of %d bytes is larger than %d", length, maxArrayBytes)
	}
	elem := sig[i+1]
	if err := c.align(int(alignments[elem])); err != nil {
		return 0, err
	}
	n := int(length)
	if n > len(c.data)-c.pos {
		return 0, errShort
	}
	if size := int(fixedSizes[elem]); size != 0 && elem != 'b' {
		if n%size != 0 {
			return 0, fmt.Errorf("array of %d bytes does not hold whole elements of %d", n, size)
		}
		c.pos += n
		return i + 2, nil
	}
	if n == 0 {
		return typeEnd(sig, i+1), nil
	}
	// Elements must end exactly where the array does, so they may not look beyond it.
	inner := checker{data: c.data[:c.pos+n], pos: c.pos}
	next := i + 2
	for inner.pos < len(inner.data) {
		if next, err = inner.value(sig, i+1, depth); err != nil {
			return 0, err
		}
	}
	c.pos = inner.pos
	return next, nil
}

// fields checks a struct or dictionary entry.
func (c *checker) fields(sig string, i, depth int) (int, error) {
	if err := c.align(8); err != nil {
		return 0, err
	}
	i++
	for sig[i] != ')' && sig[i] != '}' {
		next, err := c.value(sig, i, depth)
		if err != nil {
			return 0, err
		}
		i = next
	}
	return i + 1, nil
}

// knownSignatures saves checking and copying what variants mostly hold.
var knownSignatures = func() map[string]string {
	m := make(map[string]string)
	for _, s := range []string{
		"y", "b", "n", "q", "i", "u", "x", "t", "d", "s", "o", "g", "v", "h",
		"as", "ao", "ay", "au", "at", "ss", "sss", "us", "uo", "so", "ssss", "uss", "usss",
		"a{sv}", "a{ss}", "a(ss)", "(ss)", "(uo)", "(so)", "(bs)", "sa{sv}as", "a(sv)",
		"a(ssssssouso)", "a(sasbttttuii)", "(ssssssouso)", "a(stt)", "a(sb)", "a(bs)", "uoss",
	} {
		if err := checkSignature(s); err != nil {
			panic(err)
		}
		m[s] = s
	}
	return m
}()

// knownSignature finds a single complete type that needs no check any more.
func knownSignature(s []byte) (string, bool) {
	if len(s) == 0 || len(s) > 16 {
		return "", false
	}
	sig, ok := knownSignatures[string(s)]
	return sig, ok && typeEnd(sig, 0) == len(sig)
}
