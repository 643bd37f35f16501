package logging

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Much of what is logged was said by others: peers, callers, systemd. None of it may move a
// terminal's cursor, break a line in two or turn the direction of writing.

// escape writes what cannot be printed as \xNN or \uNNNN. Text that can be printed stays as
// it is, a backslash included: unit names have some, and a field must match what it names.
func escape(s string) string {
	if printable(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += size
	}
	return b.String()
}

func printable(s string) bool {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			return false
		}
		i += size
	}
	return true
}

// bare reports whether a value needs no quotes around it to be told from what follows.
func bare(s string) bool {
	return s != "" && !strings.ContainsAny(s, "\"=\\ ") && printable(s)
}

// quoted writes a value of key=value.
func quoted(s string) string {
	if bare(s) {
		return s
	}
	return strconv.Quote(s)
}

// escapeLines is escape for a text of several lines, which stay.
func escapeLines(s string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		lines = append(lines, escape(strings.ReplaceAll(line, "\t", "    ")))
	}
	return lines
}

// clip bounds what one value may take, in bytes, at a whole character.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// escapeJSON writes what JSON allows but a terminal should not see with JSON's own escapes,
// which lose nothing. Such characters stand only within strings.
func escapeJSON(line []byte) []byte {
	body := strings.TrimSuffix(string(line), "\n")
	if printable(body) {
		return line
	}
	out := make([]byte, 0, len(line)+32)
	for _, r := range body {
		switch {
		case unicode.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return append(out, '\n')
}
