package unitfile

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bytes is the canonical text of the file: one blank line between sections, LF, a final
// newline, nothing else. Values must be what systemd sees (see Entry): they are not quoted
// here. A value or name that would read back as something else is an error, so that no
// text taken from a document can open a second section or swallow the next line.
func (f *File) Bytes() ([]byte, error) {
	var b strings.Builder
	for i, s := range f.Sections {
		if s.Name == "" || strings.ContainsAny(s.Name, "[]\n\r\x00") || !utf8.ValidString(s.Name) {
			return nil, fmt.Errorf("section name %q cannot be written", s.Name)
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "[%s]\n", s.Name)
		for _, e := range s.Entries {
			if err := checkEntry(e); err != nil {
				return nil, fmt.Errorf("[%s] %w", s.Name, err)
			}
			b.WriteString(e.Key)
			b.WriteByte('=')
			b.WriteString(e.Value)
			b.WriteByte('\n')
		}
	}
	return []byte(b.String()), nil
}

func checkEntry(e Entry) error {
	switch {
	case e.Key == "" || strings.ContainsAny(e.Key, " \t\n\r=[\x00") || e.Key[0] == '#' || e.Key[0] == ';' || !utf8.ValidString(e.Key):
		return fmt.Errorf("key %q cannot be written", e.Key)
	case strings.ContainsAny(e.Value, "\n\r\x00"):
		return fmt.Errorf("%s= has a line break or NUL in its value", e.Key)
	case !utf8.ValidString(e.Value):
		return fmt.Errorf("%s= has a value that is not valid UTF-8", e.Key)
	case strings.Trim(e.Value, " \t") != e.Value:
		return fmt.Errorf("%s= has blanks around its value, which systemd would cut", e.Key)
	case trailingBackslashes([]byte(e.Value))%2 == 1:
		return fmt.Errorf("%s= ends in a backslash, which would join the next line", e.Key)
	}
	return nil
}

// QuoteArg writes one argument of an ExecStart= line whose command has the ":" prefix, so
// that the program gets it byte for byte: quoted where needed, C escapes for what a line
// cannot hold, "%" doubled because specifiers are expanded (systemd.service(5), "Command
// lines"). NUL is impossible in an argument and is an error.
func QuoteArg(arg string) (string, error) { return quote(arg, false) }

// QuoteArgExpanded is QuoteArg for a command without the ":" prefix: "$" is doubled too.
func QuoteArgExpanded(arg string) (string, error) { return quote(arg, true) }

// QuoteEnv writes one assignment of an Environment= line (systemd.exec(5)). Control
// characters other than tab and newline are refused, as systemd drops such a variable.
func QuoteEnv(name, value string) (string, error) {
	if !envName(name) {
		return "", fmt.Errorf("environment variable name %q is not valid: use letters, digits and _, not beginning with a digit", name)
	}
	if !utf8.ValidString(value) {
		return "", fmt.Errorf("environment variable %s has a value that is not valid UTF-8", name)
	}
	for _, r := range value {
		if (r < 0x20 && r != '\t' && r != '\n') || r == 0x7f {
			return "", fmt.Errorf("environment variable %s has the control character %q in its value, which systemd does not take", name, r)
		}
	}
	return quote(name+"="+value, false)
}

func envName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// plain are the characters that need no quotes anywhere in an argument.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=+@^~%$"

func quote(arg string, dollars bool) (string, error) {
	if strings.IndexByte(arg, 0) >= 0 {
		return "", fmt.Errorf("argument %q contains a NUL byte", arg)
	}
	var b strings.Builder
	quoted := arg == ""
	for i := 0; i < len(arg); {
		r, n := utf8.DecodeRuneInString(arg[i:])
		quoted = quoted || r >= utf8.RuneSelf || strings.IndexByte(plain, arg[i]) < 0
		writeRune(&b, arg[i:i+n], r, n, dollars)
		i += n
	}
	if !quoted {
		return b.String(), nil
	}
	return `"` + b.String() + `"`, nil
}

func writeRune(b *strings.Builder, s string, r rune, n int, dollars bool) {
	switch {
	case r == '%':
		b.WriteString("%%")
	case r == '$' && dollars:
		b.WriteString("$$")
	case r == '"' || r == '\\':
		b.WriteByte('\\')
		b.WriteByte(s[0])
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\t':
		b.WriteString(`\t`)
	case r == utf8.RuneError && n == 1, r < 0x20, r == 0x7f:
		fmt.Fprintf(b, `\x%02x`, s[0])
	default:
		b.WriteString(s)
	}
}
