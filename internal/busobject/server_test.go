package busobject

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

// TestChangedAsAnnotated: PropertiesChanged has values, or names, or is not sent.
func TestChangedAsAnnotated(t *testing.T) {
	w := newWorld(t, allowAll{}).run()
	bodies := make(chan []any, 4)
	conn, err := peer.DialBus(w.ctx(), w.bus.Address, peer.Options{Handler: func(_ *peer.Conn, m *peer.Message) {
		if m.Interface == wire.PropertiesInterface {
			body, _ := peer.BodyAny(m.Body)
			bodies <- body
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { conn.Close(nil); <-conn.Done() }()
	if err := conn.AddMatch(w.ctx(), "type='signal',sender='"+testName+"'"); err != nil {
		t.Fatal(err)
	}
	w.server.Changed(w.root, w.iface, "Const", "Quiet")
	w.server.Changed(w.root, w.iface, "True", "Name", "Const", "Quiet")
	body := wait(t, bodies)
	changed, invalidated := body[1].(map[any]any), body[2].([]any)
	if body[0] != testName || len(changed) != 1 || changed["True"] == nil || len(invalidated) != 1 || invalidated[0] != "Name" {
		t.Errorf("told was %v", body)
	}
}

// TestWrongSignalsAreDropped: what the XML does not have is not sent, and logged.
func TestWrongSignalsAreDropped(t *testing.T) {
	w := newWorld(t, allowAll{}).run()
	c := w.client()
	if err := c.conn.AddMatch(w.ctx(), "type='signal',sender='"+testName+"'"); err != nil {
		t.Fatal(err)
	}
	w.server.Emit(wire.RootPath, w.iface, "Nonsense", "x")
	w.server.Emit(wire.RootPath, w.iface, "Happened", uint32(1))
	w.server.Emit(wire.RootPath, w.iface, "Happened", "x")
	w.server.Emit(wire.RootPath, w.iface, "Happened", "not \xff UTF-8")
	c.expect("signal Happened")
	w.stop()
	if n := strings.Count(w.log.String(), "signal dropped"); n != 3 {
		t.Errorf("%d signals were dropped, want 3:\n%s", n, w.log)
	}
}

// TestBacklogIsBounded: a server that cannot keep up gives the bus up instead of growing.
func TestBacklogIsBounded(t *testing.T) {
	w := newWorld(t, allowAll{})
	if err := w.server.Connect(w.ctx()); err != nil {
		t.Fatal(err)
	}
	conn := w.server.conn.Load()
	ran := 0
	for range maxBacklog + 10 {
		w.server.Do(func() { ran++ })
	}
	wait(t, conn.Done())
	if conn.Err() != errBacklog {
		t.Errorf("the connection ended with %v", conn.Err())
	}
	w.start() // and it goes on afterwards
	c := w.client()
	if err := c.conn.AddMatch(w.ctx(), "type='signal',member='NameOwnerChanged',arg0='"+testName+"'"); err != nil {
		t.Fatal(err)
	}
	for up := false; !up; {
		_, err := c.conn.NameOwner(w.ctx(), testName)
		up = err == nil
	}
	c.call("Look", "again", 0)
	c.expect("again")
	w.stop()
	if ran != maxBacklog || w.server.backlog.Load() != 0 {
		t.Errorf("%d were done of %d that there is room for, %d are left", ran, maxBacklog, w.server.backlog.Load())
	}
}

// TestRunWithoutConnect: a bus that is not there at first is used when it comes.
func TestRunWithoutConnect(t *testing.T) {
	w := newWorld(t, allowAll{})
	w.bus.Stop()
	w.start()
	w.bus.Start()
	c := w.client()
	for up := false; !up; {
		_, err := c.conn.NameOwner(w.ctx(), testName)
		up = err == nil
	}
	c.call("Look", "there", 0)
	c.expect("there")
}

func TestHandlersAndXMLMustAgree(t *testing.T) {
	none := Method{Serve: func(*Call) {}}
	get := Property(func(string) any { return "" })
	properties := func() map[string]Getter {
		m := make(map[string]Getter)
		for _, name := range []string{"Id", "Node", "Unit", "JobType", "State"} {
			m[name] = get
		}
		return m
	}
	lacking := properties()
	delete(lacking, "State")
	extra := properties()
	extra["Color"] = get
	for name, test := range map[string]struct {
		methods    map[string]Method
		properties map[string]Getter
		panics     bool
	}{
		"same":             {map[string]Method{"Cancel": none}, properties(), false},
		"method missing":   {nil, properties(), true},
		"method extra":     {map[string]Method{"Cancel": none, "Fly": none}, properties(), true},
		"property missing": {map[string]Method{"Cancel": none}, lacking, true},
		"property extra":   {map[string]Method{"Cancel": none}, extra, true},
	} {
		func() {
			defer func() {
				if p := recover(); (p != nil) != test.panics {
					t.Errorf("%s: panic %v", name, p)
				}
			}()
			NewInterface(wire.JobInterface, test.methods, test.properties)
		}()
	}
}

func TestTimestamps(t *testing.T) {
	clock := func() uint64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return uint64(ts.Nano() / 1000)
	}
	const slack = 1_000_000 // of start, had the process been stopped between its two clocks
	before, now, after := clock(), time.Now(), clock()
	if m := Monotonic(now); m+slack < before || m > after+slack {
		t.Errorf("monotonic is %d, want %d to %d", m, before, after)
	}
	if d := Monotonic(now.Add(time.Second)) - Monotonic(now); d != 1_000_000 {
		t.Errorf("a second is %d µs", d)
	}
	if r := Realtime(time.UnixMicro(123)); r != 123 {
		t.Errorf("realtime is %d", r)
	}
	for _, never := range []time.Time{{}, time.UnixMicro(-1)} {
		if Realtime(never) != 0 || Monotonic(never) != 0 {
			t.Errorf("%v is %d, %d", never, Realtime(never), Monotonic(never))
		}
	}
}
