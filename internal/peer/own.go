package peer

import (
	"bytes"
	"os"

	"example.org/ctrl/internal/wire"
)

// ownName is the unique name that Hello gives to a peer, as sd-bus clients insist on one.
const ownName = ":1.0"

// answerOwn answers what every D-Bus connection answers (D-Bus specification,
// "org.freedesktop.DBus.Peer"), and as a server Hello.
func (c *Conn) answerOwn(m *Message) bool {
	switch m.Interface {
	case wire.PeerInterface:
		switch m.Member {
		case "Ping":
			c.Reply(m, wire.Raw{})
		case "GetMachineId":
			c.answerMachineID(m)
		default:
			c.ReplyError(m, UnknownMethod(m))
		}
		return true
	case wire.DBusInterface:
		if c.server && m.Path == wire.DBusPath && m.Member == "Hello" {
			c.Reply(m, MustEncode(ownName))
			return true
		}
	}
	return false
}

func (c *Conn) answerMachineID(m *Message) {
	id, err := os.ReadFile("/etc/machine-id")
	id = bytes.TrimSpace(id)
	if err == nil && (len(id) != 32 || !validMember(append([]byte("x"), id...))) {
		err = wire.ErrFailed.With("/etc/machine-id holds no machine id")
	}
	if err != nil {
		c.ReplyError(m, err)
		return
	}
	c.Reply(m, MustEncode(string(id)))
}
