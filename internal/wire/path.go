package wire

import (
	"strconv"
	"strings"
)

// Paths of the public API.
const (
	RootPath     = ObjectPath("/org/example/ctrl1")
	MetricsPath  = ObjectPath("/org/example/ctrl1/metrics")
	InternalPath = ObjectPath("/org/example/ctrl1/internal")

	nodePrefix    = "/org/example/ctrl1/node/"
	jobPrefix     = "/org/example/ctrl1/job/"
	monitorPrefix = "/org/example/ctrl1/monitor/"
)

// NodePath is the object path of the node called name.
func NodePath(name string) ObjectPath { return ObjectPath(nodePrefix + EscapeLabel(name)) }

// JobPath is the object path of job id; ids are plain decimals.
func JobPath(id uint32) ObjectPath { return ObjectPath(jobPrefix + formatID(id)) }

// MonitorPath is the object path of monitor id; ids are plain decimals.
func MonitorPath(id uint32) ObjectPath { return ObjectPath(monitorPrefix + formatID(id)) }

// ParseNodePath is the inverse of NodePath. It accepts only the form that NodePath makes.
func ParseNodePath(p ObjectPath) (name string, ok bool) {
	label, ok := strings.CutPrefix(string(p), nodePrefix)
	if !ok {
		return "", false
	}
	return UnescapeLabel(label)
}

// ParseJobPath is the inverse of JobPath.
func ParseJobPath(p ObjectPath) (id uint32, ok bool) { return parseID(string(p), jobPrefix) }

// ParseMonitorPath is the inverse of MonitorPath.
func ParseMonitorPath(p ObjectPath) (id uint32, ok bool) { return parseID(string(p), monitorPrefix) }

// UnitPath is the path of a unit's object in systemd's API (bus_path_encode in sd-bus).
func UnitPath(unit string) ObjectPath { return ObjectPath(SystemdUnitPrefix + EscapeLabel(unit)) }

// ParseUnitPath is the inverse of UnitPath.
func ParseUnitPath(p ObjectPath) (unit string, ok bool) {
	label, ok := strings.CutPrefix(string(p), SystemdUnitPrefix)
	if !ok {
		return "", false
	}
	return UnescapeLabel(label)
}

// SystemdJobPath is the path of a job's object in systemd's API.
func SystemdJobPath(id uint32) ObjectPath { return ObjectPath(SystemdJobPrefix + formatID(id)) }

// ParseSystemdJobPath is the inverse of SystemdJobPath.
func ParseSystemdJobPath(p ObjectPath) (id uint32, ok bool) {
	return parseID(string(p), SystemdJobPrefix)
}

func formatID(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

func parseID(path, prefix string) (uint32, bool) {
	digits, ok := strings.CutPrefix(path, prefix)
	if !ok || digits == "" || digits[0] < '1' || digits[0] > '9' {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 32)
	return uint32(id), err == nil
}

const lowerHex = "0123456789abcdef"

// EscapeLabel makes one element of an object path from any string, as sd-bus does
// (bus_label_escape): "_" and two lower-case hex digits for every byte outside
// [A-Za-z0-9] and for a leading digit; the empty string is "_".
func EscapeLabel(s string) string {
	if s == "" {
		return "_"
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := range len(s) {
		c := s[i]
		if isAlpha(c) || (isDigit(c) && i > 0) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('_')
		b.WriteByte(lowerHex[c>>4])
		b.WriteByte(lowerHex[c&15])
	}
	return b.String()
}

// UnescapeLabel is the inverse of EscapeLabel. Anything EscapeLabel cannot have made is
// refused, so that one object never has two paths.
func UnescapeLabel(label string) (string, bool) {
	if label == "_" {
		return "", true
	}
	out := make([]byte, 0, len(label))
	for i := 0; i < len(label); i++ {
		c := label[i]
		if c != '_' {
			out = append(out, c)
			continue
		}
		if i+2 >= len(label) {
			return "", false
		}
		hi, lo := strings.IndexByte(lowerHex, label[i+1]), strings.IndexByte(lowerHex, label[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		out = append(out, byte(hi<<4|lo))
		i += 2
	}
	s := string(out)
	return s, s != "" && EscapeLabel(s) == label
}

func isAlpha(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
