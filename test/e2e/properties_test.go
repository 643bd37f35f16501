package e2e

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"example.org/ctrl/internal/lab"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/unit"
	"example.org/ctrl/internal/wire"
)

// moving are properties that count by themselves, from one question to the next.
var moving = map[string]string{
	"CPUUsageNSec": "the kernel counts processor time", "MemoryCurrent": "the kernel counts memory", "MemoryAvailable": "the kernel counts memory",
	"IPIngressBytes": "the kernel counts traffic", "IPIngressPackets": "the kernel counts traffic",
	"IPEgressBytes": "the kernel counts traffic", "IPEgressPackets": "the kernel counts traffic",
	"IOReadBytes": "the kernel counts traffic", "IOReadOperations": "the kernel counts traffic",
	"IOWriteBytes": "the kernel counts traffic", "IOWriteOperations": "the kernel counts traffic",
	"TasksCurrent": "programs start threads", "NTasks": "programs start threads",
}

// TestPropertiesPassUnchanged reads all properties of all units of a node, and of units of
// every kind, by interface and all at once, through ctrl and from systemd itself, as root:
// the same names, types and values, byte for byte.
func TestPropertiesPassUnchanged(t *testing.T) {
	d := newDiffer(t)
	d.ours.prepare(t, lookCopies())
	boss, systemd := rawBus(t, d.fleet.Boss), rawBus(t, d.ours.node)
	var rows []wire.UnitStatus
	do(t, d.ours.call(within(t), "ListUnits").Store(&rows))
	types := make(map[wire.Signature]int)
	for _, row := range rows {
		kind := unit.TypeOf(row.Name)
		for _, iface := range []string{"", wire.SystemdUnitInterface, wire.SystemdName + "." + strings.ToUpper(kind[:1]) + kind[1:]} {
			ours := ask(t, boss, peer.Call{
				Destination: wire.BusName, Path: wire.NodePath("node1"),
				Interface: wire.NodeInterface, Member: "GetUnitProperties", Body: peer.MustEncode(row.Name, iface),
			})
			theirs := ask(t, systemd, peer.Call{
				Destination: wire.SystemdName, Path: wire.UnitPath(row.Name),
				Interface: wire.PropertiesInterface, Member: "GetAll", Body: peer.MustEncode(iface),
			})
			sameValues(t, row.Name+" "+iface, ours, theirs)
			for _, v := range ours {
				types[v.Sig]++
			}
		}
	}
	t.Logf("%d units; values of the types %v", len(rows), slices.Sorted(maps.Keys(types)))
	if len(rows) < 60 || len(types) < 25 {
		t.Errorf("only %d units with %d types of values", len(rows), len(types))
	}
}

// rawBus is the bus of a node, spoken to without a library that takes values apart.
func rawBus(t *testing.T, n *lab.Node) *peer.Conn {
	t.Helper()
	address := fmt.Sprintf("unix:path=/proc/%d/root/run/dbus/system_bus_socket", n.PID())
	conn, err := peer.DialBus(within(t), address, peer.Options{
		Handler: func(*peer.Conn, *peer.Message) {}, MaxMessage: peer.DefaultBusMaxMessage, Log: slog.New(slog.DiscardHandler),
	})
	do(t, err)
	t.Cleanup(func() { conn.Close(nil); <-conn.Done() })
	return conn
}

func ask(t *testing.T, conn *peer.Conn, call peer.Call) (props map[string]wire.Value) {
	t.Helper()
	m, err := conn.Call(within(t), call)
	if err == nil {
		err = peer.Decode(m.Body, &props)
	}
	do(t, err)
	return props
}

func sameValues(t *testing.T, what string, ours, theirs map[string]wire.Value) {
	t.Helper()
	if len(ours) != len(theirs) {
		t.Errorf("%s: %d properties, systemd has %d", what, len(ours), len(theirs))
	}
	for name, want := range theirs {
		got, has := ours[name]
		switch {
		case !has:
			t.Errorf("%s: no %s", what, name)
		case got.Sig != want.Sig:
			t.Errorf("%s: %s is of type %s, not %s", what, name, got.Sig, want.Sig)
		case slices.Contains(sets, name):
			if x, y := words(t, got), words(t, want); !slices.Equal(x, y) {
				t.Errorf("%s: %s is %v, not %v", what, name, x, y)
			}
		case !bytes.Equal(got.Data, want.Data) && moving[name] == "":
			t.Errorf("%s: %s is %x, not %x", what, name, got.Data, want.Data)
		}
	}
}

// words are a list whose order is none: systemd makes it of a hash table.
func words(t *testing.T, v wire.Value) (list []string) {
	t.Helper()
	do(t, peer.DecodeValue(v, &list))
	slices.Sort(list)
	return list
}
