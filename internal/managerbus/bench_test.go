package managerbus

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"example.org/ctrl/internal/busobject"
	"example.org/ctrl/internal/loop"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// swallowing is a bus that takes everything, with the cost of encoding for it.
type swallowing struct{ conn *peer.Conn }

func (s swallowing) Signal(t busobject.Target, iface *busobject.Interface, signal string, args wire.Raw) {
	if err := s.conn.SignalTo(t.To, t.Path, wire.MonitorInterface, signal, args); err != nil {
		panic(err)
	}
}

func (s swallowing) Trusted(string) bool             { return true }
func (s swallowing) Ping(_ string, done func(error)) { done(nil) }
func (s swallowing) Dropped(_ *busobject.Interface, signal string, err error) {
	panic(err)
}

// BenchmarkUnitEvent is what one event costs for a hundred recipients that read: ns and
// allocations of all of them.
func BenchmarkUnitEvent(b *testing.B) {
	near, far := net.Pipe()
	go func() {
		conn, err := peer.Server(context.Background(), far, peer.Options{})
		if err == nil {
			<-conn.Done()
		}
	}()
	conn, err := peer.Client(context.Background(), near, peer.Options{WriteCap: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(io.EOF)
	l := loop.New(1)
	o := outlets{after: l.After, log: slog.New(slog.DiscardHandler), max: few}
	o.use(swallowing{conn})
	var audience []manager.Audience
	for i := range 100 {
		audience = append(audience, manager.Audience{Monitor: uint32(i + 1), To: []string{fmt.Sprint(":1.", i)}})
	}
	b.ReportAllocs()
	for b.Loop() {
		o.event(&signal{event: manager.UnitEvent{
			Kind: manager.UnitStateChanged, Node: "node1", Unit: "web-1.service", Active: "active", Sub: "running", Reason: manager.ReasonReal,
		}}, audience)
	}
}
