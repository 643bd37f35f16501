package peer

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// maxName is the longest bus, interface, member or error name (D-Bus specification,
// "Valid Names").
const maxName = 255

// Classes of the bytes that names are made of.
const (
	classDigit = 1 << iota
	classLetter
	classUnderscore
	classHyphen
)

var byteClass = func() (t [256]uint8) {
	for c := '0'; c <= '9'; c++ {
		t[c] = classDigit
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = classLetter, classLetter
	}
	t['_'], t['-'] = classUnderscore, classHyphen
	return t
}()

// text is what a name may be given as, so that received bytes are checked before they
// become a string.
type text interface{ ~string | ~[]byte }

func validMember[T text](s T) bool {
	if len(s) == 0 || len(s) > maxName || byteClass[s[0]]&classDigit != 0 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if byteClass[s[i]]&(classDigit|classLetter|classUnderscore) == 0 {
			return false
		}
	}
	return true
}

// validInterface checks interface and error names, which have the same form.
func validInterface[T text](s T) bool {
	return validDotted(s, classDigit|classLetter|classUnderscore, false)
}

// validBusName checks unique (":1.5") and well-known names.
func validBusName[T text](s T) bool {
	const allowed = classDigit | classLetter | classUnderscore | classHyphen
	if len(s) > 0 && s[0] == ':' {
		return len(s) <= maxName && validDotted(s[1:], allowed, true)
	}
	return validDotted(s, allowed, false)
}

// validDotted wants at least two elements of allowed bytes, separated by single dots.
func validDotted[T text](s T, allowed uint8, leadingDigit bool) bool {
	if len(s) == 0 || len(s) > maxName {
		return false
	}
	elements, start := 1, true
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '.' {
			if start {
				return false
			}
			elements, start = elements+1, true
			continue
		}
		class := byteClass[c]
		if class&allowed == 0 || start && !leadingDigit && class&classDigit != 0 {
			return false
		}
		start = false
	}
	return elements >= 2 && !start
}

// validPath checks an object path ("Valid Object Paths").
func validPath[T text](s T) bool {
	if len(s) == 0 || s[0] != '/' {
		return false
	}
	if len(s) == 1 {
		return true
	}
	slash := true
	for i := 1; i < len(s); i++ {
		c := s[i]
		if c == '/' {
			if slash {
				return false
			}
			slash = true
			continue
		}
		if byteClass[c]&(classDigit|classLetter|classUnderscore) == 0 {
			return false
		}
		slash = false
	}
	return !slash
}

// validText checks a string value: UTF-8 without NUL.
func validText(s []byte) bool {
	// Eight bytes at a time while all are ASCII and none is NUL: x-ones sets the high bit of
	// a byte that is 0 and has no effect on others up to the first such byte.
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(s) >= 8 {
		x := binary.LittleEndian.Uint64(s)
		if (x|(x-ones))&highs != 0 {
			break
		}
		s = s[8:]
	}
	for i, c := range s {
		if c == 0 {
			return false
		}
		if c >= utf8.RuneSelf {
			return utf8.Valid(s[i:]) && bytes.IndexByte(s[i:], 0) < 0
		}
	}
	return true
}

func validTextString(s string) bool {
	return strings.IndexByte(s, 0) < 0 && utf8.ValidString(s)
}
