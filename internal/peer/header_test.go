package peer

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/wire"
)

// Header fields made by hand after the D-Bus specification, "Header Fields".
const (
	hexPath        = "01 016f00 02000000 2f6100"
	hexInterface   = "02 017300 03000000 612e6200"
	hexMember      = "03 017300 01000000 4300"
	hexErrorName   = "04 017300 03000000 612e6200"
	hexReplySerial = "05 017500 07000000"
	hexDestination = "06 017300 03000000 612e6200"
	hexSender      = "07 017300 04000000 3a312e3500"
	hexSignature   = "08 016700 01 7500"
	hexNoFDs       = "09 017500 00000000"
)

// message puts a message together from a kind and header fields.
func message(t testing.TB, kind Type, body string, fields ...string) []byte {
	t.Helper()
	b := []byte{'l', byte(kind), 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}
	for _, f := range fields {
		b = appendPadding(b, 0, 8)
		b = append(b, unhex(t, f)...)
	}
	binary.LittleEndian.PutUint32(b[12:], uint32(len(b)-fixedHeader))
	b = appendPadding(b, 0, 8)
	data := unhex(t, body)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(data)))
	return append(b, data...)
}

func TestMessagesByHand(t *testing.T) {
	u := wire.Raw{Sig: "u", Data: []byte{9, 0, 0, 0}}
	tests := []struct {
		name string
		b    []byte
		want Message
	}{
		{"call", message(t, TypeCall, "", hexPath, hexMember), Message{Type: TypeCall, Serial: 1, Path: "/a", Member: "C"}},
		{"call with everything", message(t, TypeCall, "09000000", hexPath, hexInterface, hexMember, hexDestination, hexSender, hexSignature, hexNoFDs),
			Message{Type: TypeCall, Serial: 1, Path: "/a", Interface: "a.b", Member: "C", Destination: "a.b", Sender: ":1.5", Body: u}},
		{"fields in another order", message(t, TypeCall, "09000000", hexSignature, hexMember, hexPath),
			Message{Type: TypeCall, Serial: 1, Path: "/a", Member: "C", Body: u}},
		{"answer", message(t, TypeReturn, "", hexReplySerial), Message{Type: TypeReturn, Serial: 1, ReplySerial: 7}},
		{"error", message(t, TypeError, "", hexReplySerial, hexErrorName), Message{Type: TypeError, Serial: 1, ReplySerial: 7, ErrorName: "a.b"}},
		{"signal", message(t, TypeSignal, "", hexPath, hexInterface, hexMember),
			Message{Type: TypeSignal, Serial: 1, Path: "/a", Interface: "a.b", Member: "C"}},
		{"unknown field", message(t, TypeCall, "", hexPath, "c8 04 28737929 00 00 01000000 4100 07", hexMember),
			Message{Type: TypeCall, Serial: 1, Path: "/a", Member: "C"}},
		{"unknown type", message(t, 9, ""), Message{Type: 9, Serial: 1}},
	}
	for _, test := range tests {
		m, err := parse(test.b)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if len(m.Body.Data) == 0 {
			m.Body.Data = nil
		}
		if !reflect.DeepEqual(*m, test.want) {
			t.Errorf("%s: got %+v, want %+v", test.name, *m, test.want)
		}
		for n := range len(test.b) {
			if _, err := parse(test.b[:n]); err == nil {
				t.Errorf("%s: its first %d bytes were accepted", test.name, n)
			}
		}
	}
}

func TestBadMessages(t *testing.T) {
	set := func(b []byte, at int, v ...byte) []byte {
		copy(b[at:], v)
		return b
	}
	call := func() []byte { return message(t, TypeCall, "", hexPath, hexMember) }
	long := "03 017300 00010000" + strings.Repeat("61", 256) + "00"
	tests := map[string][]byte{
		"byte order X":               set(call(), 0, 'X'),
		"type 0":                     set(call(), 1, 0),
		"version 2":                  set(call(), 3, 2),
		"version 0":                  set(call(), 3, 0),
		"serial 0":                   set(call(), 8, 0, 0, 0, 0),
		"fields of 4 GiB":            set(call(), 12, 0xff, 0xff, 0xff, 0xff),
		"fields that end in a field": set(call(), 12, 25),
		"padding behind fields":      set(call(), len(call())-1, 1),
		"padding between fields":     set(call(), 16+12, 1),
		"body without a signature":   message(t, TypeCall, "09000000", hexPath, hexMember),
		"signature without a body":   message(t, TypeCall, "", hexPath, hexMember, hexSignature),
		"body longer than signature": message(t, TypeCall, "0900000000", hexPath, hexMember, hexSignature),
		"call without a path":        message(t, TypeCall, "", hexMember),
		"call without a member":      message(t, TypeCall, "", hexPath),
		"signal without interface":   message(t, TypeSignal, "", hexPath, hexMember),
		"signal without a path":      message(t, TypeSignal, "", hexInterface, hexMember),
		"signal without a member":    message(t, TypeSignal, "", hexPath, hexInterface),
		"answer to nothing":          message(t, TypeReturn, "", hexPath),
		"error without a name":       message(t, TypeError, "", hexReplySerial),
		"error to nothing":           message(t, TypeError, "", hexErrorName),
		"answer to serial 0":         message(t, TypeReturn, "", "05 017500 00000000"),
		"field 0":                    message(t, TypeCall, "", hexPath, hexMember, "00 017500 00000000"),
		"path twice":                 message(t, TypeCall, "", hexPath, hexMember, hexPath),
		"path as a string":           message(t, TypeCall, "", "01 017300 02000000 2f6100", hexMember),
		"path as two types":          message(t, TypeCall, "", "01 026f6f00 0000 00 02000000 2f6100", hexMember),
		"path that is none":          message(t, TypeCall, "", "01 016f00 02000000 2f2f00", hexMember),
		"member that is none":        message(t, TypeCall, "", hexPath, "03 017300 01000000 2e00"),
		"member of 256 letters":      message(t, TypeCall, "", hexPath, long),
		"member without NUL":         message(t, TypeCall, "", hexPath, "03 017300 01000000 4343"),
		"member longer than fields":  message(t, TypeCall, "", hexPath, "03 017300 ff000000 4300"),
		"interface that is none":     message(t, TypeCall, "", hexPath, hexMember, "02 017300 01000000 6100"),
		"error name that is none":    message(t, TypeError, "", hexReplySerial, "04 017300 01000000 6100"),
		"sender that is none":        message(t, TypeCall, "", hexPath, hexMember, "07 017300 01000000 6100"),
		"destination that is none":   message(t, TypeCall, "", hexPath, hexMember, "06 017300 01000000 6100"),
		"signature that is none":     message(t, TypeCall, "", hexPath, hexMember, "08 016700 01 7a00"),
		"a file descriptor":          message(t, TypeCall, "", hexPath, hexMember, "09 017500 01000000"),
		"unknown field, wrong value": message(t, TypeCall, "", hexPath, hexMember, "c8 016200 02000000"),
		"unknown field, no type":     message(t, TypeCall, "", hexPath, hexMember, "c8 00 00 00"),
		"unknown field, cut short":   message(t, TypeCall, "", hexPath, hexMember, "c8 017300 ff000000"),
		"the library's own path": message(t, TypeCall, "", hexMember,
			"01 016f00 1b000000 2f6f72672f667265656465736b746f702f444275732f4c6f63616c00"),
		"the library's own interface": message(t, TypeSignal, "", hexPath, hexMember,
			"02 017300 1a000000 6f72672e667265656465736b746f702e444275732e4c6f63616c00"),
	}
	for name, b := range tests {
		if m, err := parse(b); err == nil {
			t.Errorf("%s: accepted as %v", name, m)
		}
	}
}

func TestMessagesReadByGodbus(t *testing.T) {
	body := MustEncode("hello", uint32(1))
	for _, m := range []Message{
		{Type: TypeCall, Path: "/a", Member: "C"},
		{Type: TypeCall, Flags: FlagAllowInteraction, Path: "/a/b", Interface: "a.b", Member: "C", Destination: ":1.7", Body: body},
		{Type: TypeReturn, Flags: FlagNoReply, ReplySerial: 5, Destination: ":1.7", Body: body},
		{Type: TypeReturn, ReplySerial: 5},
		{Type: TypeError, ReplySerial: 6, ErrorName: "a.b.C", Body: MustEncode("text")},
		{Type: TypeSignal, Flags: FlagNoReply, Path: "/", Interface: "a.b", Member: "Longer", Body: body},
	} {
		b := appendMessage([]byte("before"), &m, 77)[len("before"):]
		if size := headerSize(&m) + len(m.Body.Data); len(b) > size {
			t.Errorf("%v: %d bytes, more than the bound %d", &m, len(b), size)
		}
		got, err := dbus.DecodeMessage(bytes.NewReader(b))
		if err != nil || got.IsValid() != nil {
			t.Errorf("%v: %v, %v", &m, err, got.IsValid())
			continue
		}
		header := func(f dbus.HeaderField) any { return got.Headers[f].Value() }
		if got.Serial() != 77 || byte(got.Type) != byte(m.Type) || byte(got.Flags) != byte(m.Flags) ||
			m.Path != "" && header(dbus.FieldPath) != dbus.ObjectPath(m.Path) ||
			m.Member != "" && header(dbus.FieldMember) != m.Member ||
			m.ReplySerial != 0 && header(dbus.FieldReplySerial) != m.ReplySerial ||
			m.Destination != "" && header(dbus.FieldDestination) != m.Destination ||
			m.ErrorName != "" && header(dbus.FieldErrorName) != m.ErrorName {
			t.Errorf("%v: godbus read %v", &m, got)
		}
		if back, err := parse(b); err != nil || !bytes.Equal(back.Body.Data, m.Body.Data) || back.Path != m.Path || back.Member != m.Member {
			t.Errorf("%v: we read %v, %v", &m, back, err)
		}
	}
}

func TestOutgoingNames(t *testing.T) {
	good := Message{Type: TypeSignal, Path: "/a", Interface: "a.b", Member: "C"}
	bad := map[string]func(*Message){
		"path":            func(m *Message) { m.Path = "a" },
		"no path":         func(m *Message) { m.Path = "" },
		"interface":       func(m *Message) { m.Interface = "a" },
		"no interface":    func(m *Message) { m.Interface = "" },
		"member":          func(m *Message) { m.Member = "a.b" },
		"no member":       func(m *Message) { m.Member = "" },
		"destination":     func(m *Message) { m.Destination = "a" },
		"error name":      func(m *Message) { m.Type, m.ErrorName = TypeError, "a" },
		"own path":        func(m *Message) { m.Path = localPath },
		"own interface":   func(m *Message) { m.Interface = localInterface },
		"call's path":     func(m *Message) { m.Type, m.Path = TypeCall, "" },
		"call's member":   func(m *Message) { m.Type, m.Member = TypeCall, "" },
		"call, interface": func(m *Message) { m.Type, m.Interface = TypeCall, "x" },
	}
	for name, change := range bad {
		for _, before := range []bool{false, true} {
			var names checkedNames
			if before {
				if err := names.check(&good); err != nil {
					t.Fatal(err)
				}
			}
			m := good
			change(&m)
			for range 2 {
				if names.check(&m) == nil {
					t.Errorf("%s: accepted", name)
				}
			}
			if err := names.check(&good); err != nil {
				t.Errorf("%s: a good message behind it: %v", name, err)
			}
		}
	}
}
