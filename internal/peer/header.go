package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"

	"example.org/ctrl/internal/wire"
)

const (
	fixedHeader = 16       // up to and with the length of the header fields
	maxHeader   = 64 << 10 // the whole header, padding included
	version     = 1
)

// Header field codes (D-Bus specification, "Header Fields").
const (
	fieldPath = 1 + iota
	fieldInterface
	fieldMember
	fieldErrorName
	fieldReplySerial
	fieldDestination
	fieldSender
	fieldSignature
	fieldUnixFDs
)

var fieldTypes = [...]byte{
	fieldPath: 'o', fieldInterface: 's', fieldMember: 's', fieldErrorName: 's', fieldReplySerial: 'u',
	fieldDestination: 's', fieldSender: 's', fieldSignature: 'g', fieldUnixFDs: 'u',
}

// Reserved for what a D-Bus library tells itself (D-Bus specification, "Header Fields").
const (
	localPath      = wire.DBusPath + "/Local"
	localInterface = wire.DBusInterface + ".Local"
)

// frame is the fixed part of a header: what it takes to know how long a message is.
type frame struct {
	big    bool
	kind   Type
	flags  Flags
	serial uint32
	header int // bytes, padding included; the body follows
	fields int // bytes of the header fields
	body   uint64
}

func parseFrame(b []byte) (f frame, err error) {
	var order binary.ByteOrder = binary.LittleEndian
	switch b[0] {
	case 'l':
	case 'B':
		order, f.big = binary.BigEndian, true
	default:
		return f, fmt.Errorf("byte order is 0x%02x, not 'l' or 'B'", b[0])
	}
	if b[3] != version {
		return f, fmt.Errorf("protocol version is %d, not %d", b[3], version)
	}
	if b[1] == 0 {
		return f, errors.New("message type is 0")
	}
	f.kind, f.flags = Type(b[1]), Flags(b[2])
	f.body = uint64(order.Uint32(b[4:]))
	if f.serial = order.Uint32(b[8:]); f.serial == 0 {
		return f, errors.New("serial is 0")
	}
	fields := uint64(order.Uint32(b[12:]))
	if fields > maxArrayBytes {
		return f, fmt.Errorf("header fields of %d bytes are larger than %d", fields, maxArrayBytes)
	}
	f.fields = int(fields)
	f.header = (fixedHeader + f.fields + 7) &^ 7
	return f, nil
}

// total is the size of the whole message.
func (f *frame) total() uint64 { return uint64(f.header) + f.body }

// Kinds of interned strings: what has been checked about them.
const (
	internPath = 1 + iota
	internInterface
	internMember
	internBusName
	internSig
)

const (
	internSets   = 16
	internWays   = 4
	internLength = maxName // longer strings are not kept
)

type internSlot struct {
	s    string
	kind uint8
}

// interner remembers the strings that headers repeat, so that they are checked and
// allocated once. Its size is fixed: what a peer sends can only displace, not grow. Within
// a set, strings that come often move to the front and those that came once fall out.
type interner struct {
	sets [internSets]*[internWays]internSlot // made where they are needed: a session has few names
}

var internSeed = maphash.MakeSeed()

// get checks b as kind says and makes a string of it; ok is false where b is not valid.
func (t *interner) get(kind uint8, b []byte) (s string, ok bool) {
	at := &t.sets[maphash.Bytes(internSeed, b)%internSets]
	if *at == nil {
		*at = new([internWays]internSlot)
	}
	set := *at
	for i := range set {
		if set[i].s != string(b) || set[i].kind != kind {
			continue
		}
		s = set[i].s
		if i > 0 {
			set[i], set[i-1] = set[i-1], set[i]
		}
		return s, true
	}
	if !validKind(kind, b) {
		return "", false
	}
	s = string(b)
	if len(s) <= internLength {
		set[internWays-1] = internSlot{s, kind}
	}
	return s, true
}

func validKind(kind uint8, b []byte) bool {
	switch kind {
	case internPath:
		return validPath(b)
	case internInterface:
		return validInterface(b)
	case internMember:
		return validMember(b)
	case internBusName:
		return validBusName(b)
	}
	return checkSignature(b) == nil
}

// parseBody checks the body of a message whose header has been parsed. m.Body shares its
// memory where it can.
func parseBody(m *Message, f *frame, body []byte) error {
	sig := string(m.Body.Sig)
	if f.big && len(body) > 0 {
		little, err := littleEndian(make([]byte, 0, len(body)), sig, body)
		if err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
		body = little
	}
	if err := checkBody(sig, body); err != nil {
		return fmt.Errorf("%v: %w", m, err)
	}
	m.Body.Data = body[:len(body):len(body)]
	return nil
}

// parseHeader fills m from a header that is whole, and checks it. The body's signature is
// in m.Body.Sig afterwards.
func (t *interner) parseHeader(m *Message, f *frame, header []byte) error {
	if f.big {
		little, err := littleEndian(nil, "yyyyuua(yv)", header[:fixedHeader+f.fields])
		if err != nil {
			return fmt.Errorf("message header is wrong: %w", err)
		}
		header = append(little, header[fixedHeader+f.fields:]...)
	}
	*m = Message{Type: f.kind, Flags: f.flags, Serial: f.serial}
	c := checker{data: header[:fixedHeader+f.fields], pos: fixedHeader}
	var seen uint16
	for c.pos < len(c.data) {
		if err := t.field(m, &c, &seen); err != nil {
			return fmt.Errorf("message header is wrong: %w", err)
		}
	}
	c.data = header
	if err := c.align(8); err != nil {
		return fmt.Errorf("message header is wrong: %w", err)
	}
	return checkFields(m, seen)
}

func (t *interner) field(m *Message, c *checker, seen *uint16) error {
	if err := c.align(8); err != nil {
		return err
	}
	if c.pos >= len(c.data) {
		return errShort
	}
	code := c.data[c.pos]
	c.pos++
	if code == 0 {
		return errors.New("header field 0")
	}
	if int(code) >= len(fieldTypes) {
		return c.variant(3) // unknown fields are ignored, but not unchecked
	}
	sig, err := c.signature()
	if err != nil {
		return err
	}
	if len(sig) != 1 || sig[0] != fieldTypes[code] {
		return fmt.Errorf("header field %d is of type %q, not %q", code, clip(sig), fieldTypes[code])
	}
	if *seen&(1<<code) != 0 {
		return fmt.Errorf("header field %d stands twice", code)
	}
	*seen |= 1 << code
	switch sig[0] {
	case 'u':
		return numberField(m, c, code)
	case 'g':
		value, err := c.signature()
		if err != nil {
			return err
		}
		return t.set(m, code, value)
	}
	value, err := c.text()
	if err != nil {
		return err
	}
	return t.set(m, code, value)
}

func numberField(m *Message, c *checker, code byte) error {
	v, err := c.uint32()
	if err != nil {
		return err
	}
	if code == fieldUnixFDs {
		if v != 0 {
			return fmt.Errorf("%d file descriptors are announced, which were not negotiated", v)
		}
		return nil
	}
	if v == 0 {
		return errors.New("reply serial is 0")
	}
	m.ReplySerial = v
	return nil
}

func (t *interner) set(m *Message, code byte, value []byte) (err error) {
	var s string
	ok := false
	switch code {
	case fieldPath:
		s, ok = t.get(internPath, value)
		m.Path = wire.ObjectPath(s)
	case fieldInterface:
		m.Interface, ok = t.get(internInterface, value)
	case fieldMember:
		m.Member, ok = t.get(internMember, value)
	case fieldErrorName:
		m.ErrorName, ok = t.get(internInterface, value)
	case fieldDestination:
		m.Destination, ok = t.get(internBusName, value)
	case fieldSender:
		m.Sender, ok = t.get(internBusName, value)
	case fieldSignature:
		s, ok = t.get(internSig, value)
		m.Body.Sig = wire.Signature(s)
	}
	if !ok {
		return fmt.Errorf("header field %d has a wrong value %q", code, clip(value))
	}
	return nil
}

// requiredFields by message type; a type that is not known requires none.
var requiredFields = [...]uint16{
	TypeCall:   1<<fieldPath | 1<<fieldMember,
	TypeReturn: 1 << fieldReplySerial,
	TypeError:  1<<fieldErrorName | 1<<fieldReplySerial,
	TypeSignal: 1<<fieldPath | 1<<fieldInterface | 1<<fieldMember,
}

func checkFields(m *Message, seen uint16) error {
	if int(m.Type) < len(requiredFields) {
		if missing := requiredFields[m.Type] &^ seen; missing != 0 {
			return fmt.Errorf("message of type %d has no header field %d", m.Type, lowestBit(missing))
		}
	}
	if m.Path == localPath || m.Interface == localInterface {
		return errors.New("message uses a name that is reserved for a library's own messages")
	}
	return nil
}

func lowestBit(v uint16) int {
	n := 0
	for ; v&1 == 0; v >>= 1 {
		n++
	}
	return n
}

// checkedNames remembers the last names that were sent, mostly the same ones again.
type checkedNames struct {
	path        wire.ObjectPath
	iface       string
	member      string
	destination string
}

// check refuses a message that the other side would have to close the connection for.
func (k *checkedNames) check(m *Message) error {
	if m.Type == TypeCall || m.Type == TypeSignal {
		if m.Path == "" || m.Path != k.path && !validPath(m.Path) || m.Path == localPath {
			return wrongName("object path", string(m.Path))
		}
		if m.Member == "" || m.Member != k.member && !validMember(m.Member) {
			return wrongName("member name", m.Member)
		}
		k.path, k.member = m.Path, m.Member
	}
	if m.Interface != "" || m.Type == TypeSignal {
		if m.Interface == "" || m.Interface != k.iface && !validInterface(m.Interface) || m.Interface == localInterface {
			return wrongName("interface name", m.Interface)
		}
		k.iface = m.Interface
	}
	if m.Destination != "" {
		if m.Destination != k.destination && !validBusName(m.Destination) {
			return wrongName("bus name", m.Destination)
		}
		k.destination = m.Destination
	}
	if m.Type == TypeError && !validInterface(m.ErrorName) {
		return wrongName("error name", m.ErrorName)
	}
	return nil
}

func wrongName(what, value string) error {
	return wire.ErrInvalidArgs.With("cannot send a message: %q is not a valid %s", clip(value), what)
}

// headerSize is an upper bound of what appendMessage puts before the body.
func headerSize(m *Message) int {
	const perField = 16 // code, signature, length, NUL, padding
	return fixedHeader + 8*perField + len(m.Path) + len(m.Interface) + len(m.Member) +
		len(m.ErrorName) + len(m.Destination) + len(m.Body.Sig)
}

// appendMessage appends a message that checkOutgoing has passed.
func appendMessage(dst []byte, m *Message, serial uint32) []byte {
	base := len(dst)
	dst = append(dst, 'l', byte(m.Type), byte(m.Flags), version)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(m.Body.Data)))
	dst = binary.LittleEndian.AppendUint32(dst, serial)
	dst = append(dst, 0, 0, 0, 0)
	if m.ReplySerial != 0 {
		dst = appendPadding(dst, base, 8)
		dst = append(dst, fieldReplySerial, 1, 'u', 0)
		dst = binary.LittleEndian.AppendUint32(dst, m.ReplySerial)
	}
	dst = appendField(dst, base, fieldPath, 'o', string(m.Path))
	dst = appendField(dst, base, fieldInterface, 's', m.Interface)
	dst = appendField(dst, base, fieldMember, 's', m.Member)
	dst = appendField(dst, base, fieldErrorName, 's', m.ErrorName)
	dst = appendField(dst, base, fieldDestination, 's', m.Destination)
	if sig := m.Body.Sig; sig != "" {
		dst = appendPadding(dst, base, 8)
		dst = append(dst, fieldSignature, 1, 'g', 0, byte(len(sig)))
		dst = append(dst, sig...)
		dst = append(dst, 0)
	}
	binary.LittleEndian.PutUint32(dst[base+12:], uint32(len(dst)-base-fixedHeader))
	dst = appendPadding(dst, base, 8)
	return append(dst, m.Body.Data...)
}

func appendField(dst []byte, base int, code, typ byte, s string) []byte {
	if s == "" {
		return dst
	}
	dst = appendPadding(dst, base, 8)
	dst = append(dst, code, 1, typ, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s)))
	dst = append(dst, s...)
	return append(dst, 0)
}
