package unitfile

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Words splits a value into words as systemd splits command lines and Environment=
// (systemd.syntax(7), "Quoting"; extract_first_word in systemd): quotes are taken off and C
// escapes replaced, specifiers and "$" stay as they are. What systemd would take over with a
// warning, or drop, is an error: an escape it does not know, a quote that is not closed.
func Words(value string) ([]string, error) {
	w := splitter{rest: value}
	var words []string
	for {
		w.rest = strings.TrimLeft(w.rest, " \t")
		if w.rest == "" {
			return words, nil
		}
		word, err := w.next()
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
}

type splitter struct{ rest string }

// next reads one word; rest begins with it.
func (w *splitter) next() (string, error) {
	var b strings.Builder
	quote := byte(0)
	for w.rest != "" {
		c := w.rest[0]
		switch {
		case c == '\\':
			if err := w.escape(&b); err != nil {
				return "", err
			}
			continue
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && (c == ' ' || c == '\t'):
			return b.String(), nil
		default:
			b.WriteByte(c)
		}
		w.rest = w.rest[1:]
	}
	if quote != 0 {
		return "", fmt.Errorf("the quote %c is not closed", quote)
	}
	return b.String(), nil
}

// simple are the escapes of one character (cunescape_one in systemd).
var simple = map[byte]byte{
	'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v',
	'\\': '\\', '"': '"', '\'': '\'', 's': ' ',
}

// coded are those that give a number: how many digits, in which base, and whether they give
// one byte or a character.
var coded = map[byte]struct {
	digits, base int
	char         bool
}{'x': {2, 16, false}, 'u': {4, 16, true}, 'U': {8, 16, true}}

func (w *splitter) escape(b *strings.Builder) error {
	text := w.rest[1:]
	if text == "" {
		return fmt.Errorf("nothing follows the backslash at the end")
	}
	if c, ok := simple[text[0]]; ok {
		b.WriteByte(c)
		w.rest = text[1:]
		return nil
	}
	code, ok := coded[text[0]]
	from := 1
	if !ok && text[0] >= '0' && text[0] <= '7' {
		code.digits, code.base, from, ok = 3, 8, 0, true
	}
	if !ok || len(text) < from+code.digits {
		return w.unknown()
	}
	n, err := strconv.ParseUint(text[from:from+code.digits], code.base, 32)
	switch {
	case err != nil, n == 0, !code.char && n > 0xff, code.char && !utf8.ValidRune(rune(n)):
		return w.unknown()
	case code.char:
		b.WriteRune(rune(n))
	default:
		b.WriteByte(byte(n))
	}
	w.rest = text[from+code.digits:]
	return nil
}

func (w *splitter) unknown() error {
	return fmt.Errorf("systemd does not know the escape sequence at %q; write \\\\ for a backslash", shorten(w.rest))
}
