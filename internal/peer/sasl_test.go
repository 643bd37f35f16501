package peer

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const accepted = "OK "

func TestSASLServer(t *testing.T) {
	many := func(n int, s string) string { return strings.Repeat(s, n) }
	tests := []struct {
		name, in string
		out      string // lines of answers, "OK" without its id
		ok       bool
	}{
		{"external, id given", "\x00AUTH EXTERNAL 30\r\nBEGIN\r\n", "OK", true},
		{"external, id asked for", "\x00AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n", "DATA OK", true},
		{"external, id as data", "\x00AUTH EXTERNAL\r\nDATA 30\r\nBEGIN\r\n", "DATA OK", true},
		{"external, empty id", "\x00AUTH EXTERNAL \r\nBEGIN\r\n", "OK", true},
		{"sd-bus with descriptors", "\x00AUTH EXTERNAL\r\nDATA\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n", "DATA OK ERROR", true},
		{"anonymous", "\x00AUTH ANONYMOUS 666f6f\r\nBEGIN\r\n", "OK", true},
		{"anonymous without trace", "\x00AUTH ANONYMOUS\r\nDATA\r\nBEGIN\r\n", "DATA OK", true},
		{"godbus asks first", "\x00AUTH\r\nAUTH EXTERNAL 30\r\nBEGIN\r\n", "REJECTED OK", true},
		{"unknown mechanism first", "\x00AUTH DBUS_COOKIE_SHA1 30\r\nAUTH EXTERNAL 30\r\nBEGIN\r\n", "REJECTED OK", true},
		{"unknown command", "\x00HELLO\r\nAUTH EXTERNAL 30\r\nFOO\r\nBEGIN\r\n", "ERROR OK ERROR", true},
		{"wrong hex", "\x00AUTH EXTERNAL 3\r\nAUTH EXTERNAL zz\r\nAUTH EXTERNAL 30\r\nBEGIN\r\n", "REJECTED REJECTED OK", true},
		{"cancel and again", "\x00AUTH EXTERNAL\r\nCANCEL\r\nAUTH EXTERNAL 30\r\nCANCEL\r\nAUTH EXTERNAL 30\r\nBEGIN\r\n",
			"DATA REJECTED OK REJECTED OK", true},
		{"error of the client", "\x00ERROR what\r\nAUTH EXTERNAL 30\r\nBEGIN\r\n", "REJECTED OK", true},
		{"16 lines", "\x00" + many(14, "X\r\n") + "AUTH EXTERNAL 30\r\nBEGIN\r\n", many(14, "ERROR ") + "OK", true},
		{"line of 1 KiB", "\x00AUTH EXTERNAL " + many(1008, "0") + "\r\nBEGIN\r\n", "OK", true},

		{"nothing", "", "", false},
		{"only NUL", "\x00", "", false},
		{"no NUL", "AUTH EXTERNAL 30\r\nBEGIN\r\n", "", false},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", "", false},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01", "", false},
		{"BEGIN at once", "\x00BEGIN\r\n", "", false},
		{"BEGIN instead of data", "\x00AUTH EXTERNAL\r\nBEGIN\r\n", "DATA", false},
		{"BEGIN behind a reject", "\x00AUTH FOO\r\nBEGIN\r\n", "REJECTED", false},
		{"BEGIN behind a cancel", "\x00AUTH EXTERNAL 30\r\nCANCEL\r\nBEGIN\r\n", "OK REJECTED", false},
		{"no BEGIN", "\x00AUTH EXTERNAL 30\r\n", "OK", false},
		{"end within a line", "\x00AUTH EXTERNAL 30\r\nBEG", "OK", false},
		{"LF without CR", "\x00AUTH EXTERNAL 30\nBEGIN\n", "", false},
		{"17 lines", "\x00" + many(15, "X\r\n") + "AUTH EXTERNAL 30\r\nBEGIN\r\n", many(15, "ERROR ") + "OK", false},
		{"6 rejects", "\x00" + many(6, "AUTH\r\n") + "AUTH EXTERNAL 30\r\nBEGIN\r\n", many(5, "REJECTED "), false},
		{"line over 1 KiB", "\x00AUTH EXTERNAL " + many(1010, "0") + "\r\nBEGIN\r\n", "", false},
		{"endless line", "\x00" + many(100000, "A"), "", false},
	}
	for _, test := range tests {
		for _, way := range []struct {
			name string
			wrap func(io.Reader) io.Reader
		}{{"at once", func(r io.Reader) io.Reader { return r }}, {"byte by byte", iotest.OneByteReader}, {"in halves", iotest.HalfReader}} {
			const next = "first message"
			var out bytes.Buffer
			in := test.in
			if test.ok {
				in += next
			}
			br := bufio.NewReaderSize(way.wrap(strings.NewReader(in)), readBuffer)
			err := acceptSASL(br, &out)
			if (err == nil) != test.ok {
				t.Errorf("%s, %s: %v", test.name, way.name, err)
			}
			if test.ok || way.name == "byte by byte" { // answers that nobody waits for go out with the next
				if got := answerWords(t, out.String()); got != strings.TrimSpace(test.out) {
					t.Errorf("%s, %s: answers %q, want %q", test.name, way.name, got, test.out)
				}
			}
			if rest, _ := io.ReadAll(br); test.ok && string(rest) != next {
				t.Errorf("%s, %s: %q is left behind BEGIN, want %q", test.name, way.name, rest, next)
			}
		}
	}
}

// answerWords is the first word of each line.
func answerWords(t *testing.T, out string) string {
	t.Helper()
	var words []string
	for out != "" {
		line, rest, ok := strings.Cut(out, "\r\n")
		if !ok {
			t.Fatalf("answer %q has no end", out)
		}
		word, arg, _ := strings.Cut(line, " ")
		if word == "OK" && len(arg) != 32 {
			t.Errorf("id %q has not 32 digits", arg)
		}
		if word == "REJECTED" && arg != "EXTERNAL ANONYMOUS" {
			t.Errorf("rejected with %q", arg)
		}
		words, out = append(words, word), rest
	}
	return strings.Join(words, " ")
}

func TestSASLClient(t *testing.T) {
	id := strings.Repeat("0", 32)
	tests := []struct {
		name, in string
		ok       bool
	}{
		{"bus", "DATA\r\nOK " + id + "\r\n", true},
		{"server that asks for nothing", "OK " + id + "\r\n", true},
		{"rejected", "REJECTED ANONYMOUS\r\n", false},
		{"error", "ERROR\r\n", false},
		{"closed", "", false},
		{"closed within a line", "DATA\r\nOK ", false},
		{"something else", "HTTP/1.1 400 Bad Request\r\n\r\n", false},
		{"data without end", strings.Repeat("DATA\r\n", 100), false},
		{"line without end", strings.Repeat("x", 5000), false},
	}
	for _, test := range tests {
		const next = "first message"
		var out bytes.Buffer
		br := bufio.NewReaderSize(strings.NewReader(test.in+next), readBuffer)
		err := offerSASL(br, &out)
		if (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := out.String(); got != "\x00AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n" {
			t.Errorf("%s: client said %q", test.name, got)
		}
		if rest, _ := io.ReadAll(br); test.ok && string(rest) != next {
			t.Errorf("%s: %q is left", test.name, rest)
		}
	}
	broken := errors.New("broken")
	if err := offerSASL(nil, failingWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("write error became %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func FuzzSASLServer(f *testing.F) {
	f.Add([]byte("\x00AUTH EXTERNAL\r\nDATA\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\nl"))
	f.Add([]byte("\x00AUTH\r\nAUTH ANONYMOUS 00\r\nCANCEL\r\nERROR\r\nAUTH EXTERNAL 30\r\nBEGIN\r\n"))
	f.Add([]byte("\x00" + strings.Repeat("AUTH\r\n", 20)))
	f.Add([]byte("\x00" + strings.Repeat("A", 2000)))
	f.Fuzz(func(t *testing.T, in []byte) {
		var whole, slow bytes.Buffer
		err := acceptSASL(bufio.NewReaderSize(bytes.NewReader(in), readBuffer), &whole)
		errSlow := acceptSASL(bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(in)), readBuffer), &slow)
		if (err == nil) != (errSlow == nil) {
			t.Fatalf("at once %v, byte by byte %v", err, errSlow)
		}
		if err == nil && whole.String() != slow.String() {
			t.Fatalf("at once %q, byte by byte %q", whole.String(), slow.String())
		}
		if slow.Len() > saslLines*64 {
			t.Fatalf("%d bytes of answers", slow.Len())
		}
		if err == nil && !strings.Contains(whole.String(), accepted) {
			t.Fatalf("let in with %q", whole.String())
		}
	})
}
