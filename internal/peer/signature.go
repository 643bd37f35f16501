package peer

import (
	"errors"
	"fmt"

	"example.org/ctrl/internal/wire"
)

// Limits of the type system (D-Bus specification, "Valid Signatures" and "Message Format").
const (
	maxSignature  = 255
	maxTypeNest   = 32      // arrays within arrays, structs within structs
	maxDepth      = 64      // containers around a value, variants included
	maxArrayBytes = 1 << 26 // 64 MiB
)

// alignments by type code; 0 is no type code.
var alignments = [256]uint8{
	'y': 1, 'b': 4, 'n': 2, 'q': 2, 'i': 4, 'u': 4, 'x': 8, 't': 8, 'd': 8,
	's': 4, 'o': 4, 'g': 1, 'h': 4, 'v': 1, 'a': 4, '(': 8, '{': 8,
}

// fixedSizes are the sizes of types that have one; 'h' is an index into file descriptors
// that never come with a message, so it is passed on as a plain number.
var fixedSizes = [256]uint8{
	'y': 1, 'b': 4, 'n': 2, 'q': 2, 'i': 4, 'u': 4, 'x': 8, 't': 8, 'd': 8, 'h': 4,
}

func isBasic(c byte) bool {
	return fixedSizes[c] != 0 || c == 's' || c == 'o' || c == 'g'
}

// typeEnd is the offset behind the complete type that begins at sig[i]. The signature must
// be valid.
func typeEnd[T text](sig T, i int) int {
	for sig[i] == 'a' {
		i++
	}
	if sig[i] != '(' && sig[i] != '{' {
		return i + 1
	}
	open := 0
	for ; ; i++ {
		switch sig[i] {
		case '(', '{':
			open++
		case ')', '}':
			if open--; open == 0 {
				return i + 1
			}
		}
	}
}

// maxAlign is the greatest alignment that anything within a value of signature sig can
// have. A variant may hold anything.
func maxAlign[T text](sig T) int {
	m := 1
	for i := 0; i < len(sig); i++ {
		switch sig[i] {
		case 'x', 't', 'd', '(', '{', 'v':
			return 8
		}
		m = max(m, int(alignments[sig[i]]))
	}
	return m
}

var errSignatureLength = errors.New("signature is longer than 255 bytes")

// checkSignature checks any number of complete types.
func checkSignature[T text](sig T) error {
	if len(sig) > maxSignature {
		return errSignatureLength
	}
	for i := 0; i < len(sig); {
		end, err := scanType(sig, i, 0, 0)
		if err != nil {
			return err
		}
		i = end
	}
	return nil
}

// checkSingle checks that sig is one complete type.
func checkSingle[T text](sig T) error {
	if len(sig) == 0 {
		return errors.New("signature of a variant is empty")
	}
	if len(sig) > maxSignature {
		return errSignatureLength
	}
	end, err := scanType(sig, 0, 0, 0)
	if err == nil && end != len(sig) {
		err = fmt.Errorf("signature %q of a variant is more than one type", clip(sig))
	}
	return err
}

func scanType[T text](sig T, i, arrays, structs int) (int, error) {
	if i >= len(sig) {
		return 0, fmt.Errorf("signature %q ends within a type", clip(sig))
	}
	switch c := sig[i]; {
	case isBasic(c) || c == 'v':
		return i + 1, nil
	case c == 'a':
		if arrays++; arrays > maxTypeNest {
			return 0, fmt.Errorf("signature %q nests arrays deeper than %d", clip(sig), maxTypeNest)
		}
		if i+1 < len(sig) && sig[i+1] == '{' {
			return scanDict(sig, i+1, arrays, structs)
		}
		return scanType(sig, i+1, arrays, structs)
	case c == '(':
		return scanStruct(sig, i, arrays, structs+1)
	default:
		return 0, fmt.Errorf("signature %q has a wrong %q", clip(sig), c)
	}
}

func scanStruct[T text](sig T, i, arrays, structs int) (int, error) {
	if structs > maxTypeNest {
		return 0, fmt.Errorf("signature %q nests structs deeper than %d", clip(sig), maxTypeNest)
	}
	i++
	for first := true; ; first = false {
		if i < len(sig) && sig[i] == ')' && !first {
			return i + 1, nil
		}
		end, err := scanType(sig, i, arrays, structs)
		if err != nil {
			return 0, err
		}
		i = end
	}
}

func scanDict[T text](sig T, i, arrays, structs int) (int, error) {
	i++
	if i >= len(sig) || !isBasic(sig[i]) {
		return 0, fmt.Errorf("signature %q has a dictionary whose key is no basic type", clip(sig))
	}
	end, err := scanType(sig, i+1, arrays, structs)
	if err != nil {
		return 0, err
	}
	if end >= len(sig) || sig[end] != '}' {
		return 0, fmt.Errorf("signature %q has a dictionary entry that is not a pair", clip(sig))
	}
	return end + 1, nil
}

// clip makes untrusted bytes short enough for an error text.
func clip[T text](s T) string {
	const most = 64
	if len(s) <= most {
		return string(s)
	}
	return string(s[:most]) + "…"
}

// joinSignatures concatenates argument lists.
func joinSignatures(a, b wire.Signature) (wire.Signature, error) {
	if len(a)+len(b) > maxSignature {
		return "", errSignatureLength
	}
	return a + b, nil
}
