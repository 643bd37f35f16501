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
		return r.strings(), true
	}
	return nil, false
}

// AuxiliaryUnits names the units that StartTransientUnit makes beside the first one: r is
// the body behind its name and mode, "a(sv)a(sa(sv))".
func (r Raw) AuxiliaryUnits() []string {
	if r.Sig != "a(sv)a(sa(sv))" {
		return nil
	}
	_, properties := readArray(r.Data, 0)
	begin, end := readArray(r.Data, properties)
	var names []string
	for at := begin; at < end; {
		var name string
		name, at = readString(r.Data, align(at, 8))
		_, at = readArray(r.Data, at)
		names = append(names, name)
	}
	return names
}

// readArray finds the content of an array of structures whose length is at or soon after an
// offset.
func readArray(data []byte, at int) (begin, end int) {
	at = align(at, 4)
	begin = align(at+4, 8)
	return begin, begin + int(binary.LittleEndian.Uint32(data[at:]))
}

func align(at, to int) int { return (at + to - 1) &^ (to - 1) }

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
