package peer

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Limits of the handshake.
const (
	saslLine    = 1 << 10 // bytes of one line, "\r\n" included
	saslLines   = 16
	saslRejects = 5
)

var serverGUID = sync.OnceValue(func() string {
	var id [16]byte
	rand.Read(id[:]) // never fails (crypto/rand)
	return hex.EncodeToString(id[:])
})

// lines is where the handshake reads, and nothing beyond it.
type lines interface {
	Peek(n int) ([]byte, error)
	Buffered() int
	Discard(n int) (int, error)
	ReadByte() (byte, error)
}

// readLine reads one line without its "\r\n".
func readLine(br lines) ([]byte, error) {
	for n := 1; ; {
		if _, err := br.Peek(n); err != nil {
			return nil, err
		}
		b, _ := br.Peek(min(br.Buffered(), saslLine))
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line := bytes.Clone(b[:i])
			br.Discard(i + 1)
			if i == 0 || line[i-1] != '\r' {
				return nil, errors.New("line does not end with CR LF")
			}
			return line[:i-1], nil
		}
		if len(b) >= saslLine {
			return nil, fmt.Errorf("line is longer than %d bytes", saslLine)
		}
		n = len(b) + 1
	}
}

// saslServer is the server's half of the handshake (D-Bus specification, "Authentication
// Protocol"). Any identity is accepted, since it is only a claim.
type saslServer struct {
	br      lines
	w       io.Writer
	out     []byte
	state   func(*saslServer, string, string) error
	rejects int
	done    bool
}

func acceptSASL(br lines, w io.Writer) error {
	zero, err := br.ReadByte()
	if err != nil {
		return err
	}
	if zero != 0 {
		return fmt.Errorf("first byte is 0x%02x, not NUL: the peer does not speak D-Bus", zero)
	}
	s := &saslServer{br: br, w: w, state: (*saslServer).waitAuth}
	for range saslLines {
		line, err := readLine(br)
		if err != nil {
			return err
		}
		command, argument, _ := bytes.Cut(line, []byte(" "))
		if err := s.state(s, string(command), string(argument)); err != nil {
			return err
		}
		// Answers go out together once nothing more is waiting: a peer that sends all its
		// lines at once need not read between them.
		if s.done || !lineWaiting(br) {
			if err := s.flush(); err != nil {
				return err
			}
		}
		if s.done {
			return nil
		}
	}
	return fmt.Errorf("no BEGIN within %d lines", saslLines)
}

func lineWaiting(br lines) bool {
	b, _ := br.Peek(br.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}

func (s *saslServer) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.w.Write(s.out)
	s.out = s.out[:0]
	return err
}

func (s *saslServer) say(line string) error {
	s.out = append(append(s.out, line...), '\r', '\n')
	return nil
}

func (s *saslServer) reject() error {
	if s.rejects++; s.rejects > saslRejects {
		return fmt.Errorf("more than %d rejected tries", saslRejects)
	}
	s.state = (*saslServer).waitAuth
	return s.say("REJECTED EXTERNAL ANONYMOUS")
}

func (s *saslServer) accept() error {
	s.state = (*saslServer).waitBegin
	return s.say("OK " + serverGUID())
}

func (s *saslServer) waitAuth(command, argument string) error {
	switch command {
	case "AUTH":
		mechanism, response, given := cutSpace(argument)
		if mechanism != "EXTERNAL" && mechanism != "ANONYMOUS" {
			return s.reject()
		}
		if given {
			return s.claim(response)
		}
		s.state = (*saslServer).waitData
		return s.say("DATA")
	case "BEGIN":
		return errors.New("BEGIN before authentication")
	case "CANCEL", "ERROR":
		return s.reject()
	}
	return s.say("ERROR unknown command")
}

func (s *saslServer) waitData(command, argument string) error {
	switch command {
	case "DATA":
		return s.claim(argument)
	case "BEGIN":
		return errors.New("BEGIN before authentication")
	case "CANCEL", "ERROR":
		return s.reject()
	}
	return s.say("ERROR unknown command")
}

// claim looks at an identity only as far as its form goes.
func (s *saslServer) claim(response string) error {
	if _, err := hex.DecodeString(response); err != nil {
		return s.reject()
	}
	return s.accept()
}

func (s *saslServer) waitBegin(command, _ string) error {
	switch command {
	case "BEGIN":
		s.done = true
		return nil
	case "NEGOTIATE_UNIX_FD":
		return s.say("ERROR file descriptors are not passed")
	case "CANCEL", "ERROR":
		return s.reject()
	}
	return s.say("ERROR unknown command")
}

func cutSpace(s string) (head, tail string, found bool) {
	for i := range len(s) {
		if s[i] == ' ' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// offerSASL is the client's half. It returns when the server has accepted and not before:
// an sd-bus server that finds BEGIN and a message in one read leaves the message lying
// until more bytes come.
func offerSASL(br lines, w io.Writer) error {
	if _, err := io.WriteString(w, "\x00AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n"); err != nil {
		return err
	}
	for range saslLines {
		line, err := readLine(br)
		if err != nil {
			return err
		}
		command, argument, _ := bytes.Cut(line, []byte(" "))
		switch string(command) {
		case "DATA":
		case "OK":
			return nil
		case "REJECTED":
			return fmt.Errorf("server rejects authentication EXTERNAL, it offers %q", clip(argument))
		default:
			return fmt.Errorf("server answers %q to authentication", clip(line))
		}
	}
	return fmt.Errorf("server does not answer OK within %d lines", saslLines)
}
