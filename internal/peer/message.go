package peer

import (
	"bytes"
	"fmt"

	"example.org/ctrl/internal/wire"
)

// Type says what a message is.
type Type uint8

// Types of messages (D-Bus specification, "Message Format").
const (
	TypeCall Type = 1 + iota
	TypeReturn
	TypeError
	TypeSignal
)

// Flags of a message.
type Flags uint8

// Flags (D-Bus specification, "Message Format"). Others are ignored.
const (
	FlagNoReply          Flags = 1 << iota // the caller wants no answer
	FlagNoAutoStart                        // do not start the destination
	FlagAllowInteraction                   // the caller can wait for a person to authorise it
)

// Message is one received message. The strings may be kept; Body and the message itself are
// valid only during the callback they are given to, and are good for Clone.
type Message struct {
	Type        Type
	Flags       Flags
	Serial      uint32
	ReplySerial uint32 // of TypeReturn and TypeError: the call's serial
	Path        wire.ObjectPath
	Interface   string // may be "" in a call
	Member      string
	ErrorName   string // of TypeError
	// Sender is the unique name that the bus vouches for. "" on a connection between peers,
	// whatever the peer says.
	Sender      string
	Destination string
	Body        wire.Raw
}

// Clone copies a message into memory of its own, to keep it or to answer it later.
func (m *Message) Clone() *Message {
	c := m.CloneHeader()
	c.Body = CloneRaw(m.Body)
	return c
}

// CloneHeader is Clone without the body, which is enough to answer later.
func (m *Message) CloneHeader() *Message {
	c := *m
	c.Body = wire.Raw{}
	return &c
}

// CloneRaw copies a body into memory of its own.
func CloneRaw(body wire.Raw) wire.Raw {
	return wire.Raw{Sig: body.Sig, Data: bytes.Clone(body.Data)}
}

// NoReply reports whether the caller wants no answer.
func (m *Message) NoReply() bool { return m.Flags&FlagNoReply != 0 }

// AllowInteraction reports whether the caller can wait for a person to authorise it.
func (m *Message) AllowInteraction() bool { return m.Flags&FlagAllowInteraction != 0 }

// String is what a message is, for logs and error texts.
func (m *Message) String() string {
	switch m.Type {
	case TypeCall:
		name := m.Member
		if m.Interface != "" {
			name = m.Interface + "." + name
		}
		return fmt.Sprintf("call of %s on %s", name, m.Path)
	case TypeReturn:
		return fmt.Sprintf("answer to call %d", m.ReplySerial)
	case TypeError:
		return fmt.Sprintf("error %s to call %d", m.ErrorName, m.ReplySerial)
	case TypeSignal:
		return fmt.Sprintf("signal %s.%s of %s", m.Interface, m.Member, m.Path)
	}
	return fmt.Sprintf("message of type %d", m.Type)
}

// asError makes an error of a TypeError message: its name, and its text where it has one.
func (m *Message) asError() *wire.Error {
	e := &wire.Error{Name: m.ErrorName}
	if len(m.Body.Sig) > 0 && m.Body.Sig[0] == 's' {
		d := NewDecoder(m.Body)
		e.Text = d.String()
	}
	return e
}
