package unit

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Glob is a checked shell pattern: "*" is any run of characters, "?" is one, "[a-z]" and
// "[!a-z]" are classes. There is no escape character, since "\" is common in unit names:
// it stands for itself (fnmatch(3) with FNM_NOESCAPE, as systemd matches).
type Glob struct{ pattern string }

// maxGlob bounds a pattern, in bytes. No unit or node name is longer than 255.
const maxGlob = 1024

// HasGlob reports whether s has a character that makes it a pattern.
func HasGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

// CompileGlob checks a pattern.
func CompileGlob(pattern string) (Glob, error) {
	switch {
	case pattern == "":
		return Glob{}, fmt.Errorf("pattern is empty")
	case len(pattern) > maxGlob:
		return Glob{}, fmt.Errorf("pattern is %d bytes long, at most %d are allowed", len(pattern), maxGlob)
	case !utf8.ValidString(pattern):
		return Glob{}, fmt.Errorf("pattern %q is not valid UTF-8", pattern)
	}
	for rest := pattern; rest != ""; {
		if rest[0] != '[' {
			rest = rest[1:]
			continue
		}
		end := classEnd(rest)
		if end < 0 {
			return Glob{}, fmt.Errorf("pattern %q has a [ without its ]", pattern)
		}
		rest = rest[end:]
	}
	return Glob{pattern}, nil
}

// String is the pattern as it was compiled.
func (g Glob) String() string { return g.pattern }

// Match reports whether the whole of s matches. It takes time proportional to
// len(pattern)·len(s) at worst: one star is retried at a time.
func (g Glob) Match(s string) bool {
	p := g.pattern
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		if i < len(p) && p[i] == '*' {
			star, mark = i, j
			i++
			continue
		}
		if width, next, ok := matchOne(p[i:], s[j:]); ok {
			i, j = i+next, j+width
			continue
		}
		if star < 0 {
			return false
		}
		_, width := utf8.DecodeRuneInString(s[mark:])
		mark += width
		i, j = star+1, mark
	}
	return strings.Trim(p[i:], "*") == ""
}

// matchOne matches one character of s with the element at the head of p. It returns the
// bytes used of each.
func matchOne(p, s string) (width, next int, ok bool) {
	if p == "" {
		return 0, 0, false
	}
	r, width := utf8.DecodeRuneInString(s)
	switch p[0] {
	case '?':
		return width, 1, true
	case '[':
		end := classEnd(p)
		return width, end, matchClass(p[1:end-1], r)
	}
	pr, n := utf8.DecodeRuneInString(p)
	return width, n, pr == r && (r != utf8.RuneError || p[0] == s[0])
}

// classEnd finds the end of the class that p begins with, -1 where it has none. A "]" right
// after the opening stands for itself (glob(7)).
func classEnd(p string) int {
	i := 1
	if i < len(p) && (p[i] == '!' || p[i] == '^') {
		i++
	}
	if i < len(p) && p[i] == ']' {
		i++
	}
	if end := strings.IndexByte(p[min(i, len(p)):], ']'); end >= 0 {
		return i + end + 1
	}
	return -1
}

func matchClass(class string, r rune) bool {
	negated := class != "" && (class[0] == '!' || class[0] == '^')
	if negated {
		class = class[1:]
	}
	found := false
	for class != "" {
		low, n := utf8.DecodeRuneInString(class)
		class = class[n:]
		high := low
		if len(class) >= 2 && class[0] == '-' {
			high, n = utf8.DecodeRuneInString(class[1:])
			class = class[1+n:]
		}
		found = found || low <= r && r <= high
	}
	return found != negated
}
