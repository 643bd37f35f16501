package unit

import (
	"path"
	"strings"
)

const lowerHex = "0123456789abcdef"

// Escape makes one part of a unit name from any string, as systemd-escape(1): "/" becomes
// "-", everything but letters, digits and : _ . becomes \xNN, and so does a leading dot.
func Escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '/':
			b.WriteByte('-')
		case c == '-' || c == '\\' || !nameByte(c) || c == '.' && i == 0:
			escapeByte(&b, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func escapeByte(b *strings.Builder, c byte) {
	b.WriteString(`\x`)
	b.WriteByte(lowerHex[c>>4])
	b.WriteByte(lowerHex[c&15])
}

// Unescape is the inverse of Escape. What Escape cannot have made is refused.
func Unescape(s string) (string, bool) {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '-':
			out = append(out, '/')
		case c != '\\':
			out = append(out, c)
		default:
			if i+3 >= len(s) || s[i+1] != 'x' {
				return "", false
			}
			hi, lo := hexDigit(s[i+2]), hexDigit(s[i+3])
			if hi < 0 || lo < 0 || hi|lo == 0 {
				return "", false
			}
			out = append(out, byte(hi<<4|lo))
			i += 3
		}
	}
	return string(out), true
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// EscapePath makes the name of a file system path, as systemd-escape --path: the root is
// "-", otherwise the cleaned path without its outer slashes is escaped.
func EscapePath(p string) string {
	p = strings.Trim(path.Clean("/"+p), "/")
	if p == "" {
		return "-"
	}
	return Escape(p)
}

// Mangle completes what a user typed, as systemctl does (unit_name_mangle): a path below
// /dev becomes a device, another absolute path a mount, bytes that no name has are escaped,
// and a name without a unit type is a service. Globs pass unchanged where globs is true.
func Mangle(typed string, globs bool) string {
	switch {
	case Valid(typed):
		return typed
	case globs && HasGlob(typed):
		return typed
	case strings.HasPrefix(typed, "/dev/") || strings.HasPrefix(typed, "/sys/"):
		return EscapePath(typed) + ".device"
	case strings.HasPrefix(typed, "/"):
		return EscapePath(typed) + ".mount"
	}
	var b strings.Builder
	for i := range len(typed) {
		switch c := typed[i]; {
		case c == '/':
			b.WriteByte('-')
		case c == '@' || nameByte(c):
			b.WriteByte(c)
		default:
			escapeByte(&b, c)
		}
	}
	return WithSuffix(b.String())
}
