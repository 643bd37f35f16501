package wire

import "encoding/binary"

// The few readers that cores need to look into a body or value without opening it. Both are
// checked and little-endian by construction, so there is nothing to go wrong but the type.

// AsString is the content of a value of type "s".
func (v Value) AsString() (string, bool) {
	if v.Sig != "s" {
		return "", false
	}
	s, _ := readString(v.Data, 0)
	return s, true
}

// FirstStrings gives the first argument of a body where it is a string ("s…") or a list of
// strings ("as…").
func (r Raw) FirstStrings() ([]string, bool) {
	switch {
	case len(r.Sig) > 0 && r.Sig[0] == 's':
		s, _ := readString(r.Data, 0)
		return []string{s}, true
	case len(r.Sig) > 1 && r.Sig[:2] == "as":
		end := 4 + int(binary.LittleEndian.Uint32(r.Data))
		var list []string
		for at := 4; at < end; {
			var s string
			s, at = readString(r.Data, (at+3)&^3)
			list = append(list, s)
		}
		return list, true
	}
	return nil, false
}

// VariantUint64 is the number in a body of one variant of type "t".
func (r Raw) VariantUint64() (uint64, bool) {
	// One byte of length, the signature, its NUL, and the number at the next multiple of 8.
	if r.Sig != "v" || len(r.Data) != 16 || r.Data[1] != 't' {
		return 0, false
	}
	return binary.LittleEndian.Uint64(r.Data[8:]), true
}

// Strings is a body of strings that are known to be valid: names of units, interfaces and
// properties.
func Strings(args ...string) Raw {
	var r Raw
	for _, s := range args {
		for len(r.Data)%4 != 0 {
			r.Data = append(r.Data, 0)
		}
		r.Data = binary.LittleEndian.AppendUint32(r.Data, uint32(len(s)))
		r.Data = append(append(r.Data, s...), 0)
		r.Sig += "s"
	}
	return r
}

// readString reads a string at an offset that is a multiple of 4, and says where it ends.
func readString(data []byte, at int) (s string, end int) {
	n := int(binary.LittleEndian.Uint32(data[at:]))
	at += 4
	return string(data[at : at+n]), at + n + 1
}
