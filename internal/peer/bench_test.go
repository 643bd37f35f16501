package peer

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/ctrl/internal/wire"
)

// tcpPair connects a server and a client over loopback TCP.
func tcpPair(t testing.TB, serverOpt, clientOpt Options) (server, client *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ready := make(chan error, 1)
	go func() {
		nc, err := l.Accept()
		if err == nil {
			server, err = Server(t.Context(), nc, serverOpt)
		}
		ready <- err
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if client, err = Client(t.Context(), nc, clientOpt); err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close(nil)
		server.Close(nil)
		<-client.Done()
		<-server.Done()
	})
	return server, client
}

var benchCall = Call{
	Path: "/org/example/ctrl1/internal", Interface: "org.example.ctrl1.internal.Agent",
	Member: "StartUnit", Body: MustEncode(uint32(7), "nginx.service", "replace"),
}

func echo(c *Conn, m *Message) { c.Reply(m, m.Body) }

func BenchmarkPipelinedCalls(b *testing.B) {
	_, client := tcpPair(b, Options{Handler: echo}, Options{})
	const window = 512
	slots := make(chan struct{}, window)
	done := func(m *Message, err error) {
		if err != nil {
			b.Error(err)
		}
		<-slots
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		slots <- struct{}{}
		client.Go(benchCall, time.Minute, done)
	}
	for range window {
		slots <- struct{}{}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func BenchmarkBlockingCalls(b *testing.B) {
	_, client := tcpPair(b, Options{Handler: echo}, Options{})
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := client.Call(context.Background(), benchCall); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSignals(b *testing.B) {
	var got atomic.Int64
	var wg sync.WaitGroup
	wg.Add(1)
	_, client := tcpPair(b, Options{Handler: func(_ *Conn, m *Message) {
		if got.Add(1) == int64(b.N) {
			wg.Done()
		}
	}}, Options{})
	body := MustEncode(uint32(9), "running")
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		for client.queued.Load() > 128<<10 {
			runtime.Gosched()
		}
		if err := client.Signal("/org/example/ctrl1/internal", "org.example.ctrl1.internal.Agent", "JobState", body); err != nil {
			b.Fatal(i, err)
		}
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "signals/s")
}

// BenchmarkIdleConnection reports what one idle connection costs, both ends together.
func BenchmarkIdleConnection(b *testing.B) {
	l, err := net.Listen("unix", b.TempDir()+"/s")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	memory := func() (n uint64) {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapInuse + s.StackInuse
	}
	var conns []*Conn
	before := memory()
	const count = 500
	for range count {
		accepted := make(chan *Conn)
		go func() {
			nc, _ := l.Accept()
			c, _ := Server(context.Background(), nc, Options{Handler: echo})
			accepted <- c
		}()
		nc, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		client, err := Client(context.Background(), nc, Options{})
		if err != nil {
			b.Fatal(err)
		}
		conns = append(conns, client, <-accepted)
		if _, err := client.Call(context.Background(), benchCall); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
	}
	b.ReportMetric(float64(memory()-before)/float64(len(conns)), "B/conn")
	for _, c := range conns {
		c.Close(nil)
	}
}

func BenchmarkEncode(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		MustEncode(uint32(7), "nginx.service", "replace")
	}
}

func BenchmarkDecodeUnits(b *testing.B) {
	units := make([]wire.UnitStatus, 200)
	for i := range units {
		units[i] = wire.UnitStatus{Name: "foo@bar.service", Description: "A service that does things", LoadState: "loaded",
			ActiveState: "active", SubState: "running", Path: wire.UnitPath("foo@bar.service"), JobPath: "/"}
	}
	body := MustEncode(units)
	b.SetBytes(int64(len(body.Data)))
	b.ReportAllocs()
	for b.Loop() {
		var back []wire.UnitStatus
		if err := Decode(body, &back); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckUnits(b *testing.B) {
	units := make([]wire.UnitStatus, 200)
	for i := range units {
		units[i] = wire.UnitStatus{Name: "foo@bar.service", Description: "A service that does things", LoadState: "loaded",
			ActiveState: "active", SubState: "running", Path: wire.UnitPath("foo@bar.service"), JobPath: "/"}
	}
	body := MustEncode(units)
	b.SetBytes(int64(len(body.Data)))
	for b.Loop() {
		if err := checkBody(string(body.Sig), body.Data); err != nil {
			b.Fatal(err)
		}
	}
}
