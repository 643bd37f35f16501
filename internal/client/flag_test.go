package client

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/godbus/dbus/v5"
)

// TestCallsAllowToAsk: without the flag nobody would be asked for a password.
func TestCallsAllowToAsk(t *testing.T) {
	var sent bytes.Buffer
	m := node("node1").message("StopUnit", []any{"a.service", "replace"})
	if err := m.EncodeTo(&sent, binary.LittleEndian); err != nil {
		t.Fatal(err)
	}
	got, err := dbus.DecodeMessage(&sent)
	if err != nil || got.Flags != dbus.FlagAllowInteractiveAuthorization || len(got.Body) != 2 {
		t.Errorf("what is sent is %+v, %v", got, err)
	}
}
