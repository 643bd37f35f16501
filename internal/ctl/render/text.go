package render

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes a text safe to print: what a node sends must not steer a terminal or break a
// line. Control characters, invisible direction marks and bytes that are no UTF-8 become
// escapes.
func Clean(s string) string {
	if !dirty(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1, r < ' ', r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

func dirty(s string) bool {
	for i, r := range s {
		if r < ' ' || r == 0x7f || r >= 0x80 && (hidden(r) || r == utf8.RuneError && s[i] != 0xef) {
			return true
		}
	}
	return false
}

// hidden reports characters that a terminal acts on or that reorder text: C1 controls, line
// separators, bidirectional marks.
func hidden(r rune) bool {
	return r >= 0x80 && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r) || r == 0x2028 || r == 0x2029
}

// CleanLines is Clean for a text of several lines: newlines and tabs stay.
func CleanLines(s string) string {
	if !dirty(s) {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		parts := strings.Split(line, "\t")
		for j := range parts {
			parts[j] = Clean(parts[j])
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}

// wide are the ranges of characters that take two cells (Unicode Standard Annex 11, classes
// W and F, in coarse ranges).
var wide = [...][2]rune{
	{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0x33ff}, {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xa000, 0xa4cf},
	{0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd},
}

func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	for _, w := range wide {
		if r >= w[0] && r <= w[1] {
			return 2
		}
	}
	return 1
}

// Width is how many cells of a terminal a text takes.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// Cut shortens a text to a number of cells, with an ellipsis at its end.
func Cut(s string, cells int) string {
	if Width(s) <= cells {
		return s
	}
	n := 0
	for i, r := range s {
		if n+runeWidth(r) > cells-1 {
			return s[:i] + ellipsis
		}
		n += runeWidth(r)
	}
	return s
}
