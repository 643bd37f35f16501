package client_test

import (
	"errors"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/client"
	"example.org/ctrl/internal/wire"
	"example.org/ctrl/test/fakemanager"
)

func awaitLapses(t *testing.T, w *client.Watch, of client.Subject, want int) {
	t.Helper()
	for ctx := limited(t); w.Lapses(of.Is) < want; {
		select {
		case <-w.Changed():
		case <-ctx.Done():
			t.Fatalf("%d lapses, want %d", w.Lapses(of.Is), want)
		}
	}
	if got := w.Lapses(of.Is); got != want {
		t.Errorf("%d lapses, want %d", got, want)
	}
}

// What is up again before anybody has looked was down all the same.
func TestWatchSeesLapses(t *testing.T) {
	m, c, address := world(t)
	w, err := c.Watch(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 3 {
		_ = m.SetOffline("node1", true, "cable")
		_ = m.SetOffline("node1", false, "")
	}
	awaitLapses(t, w, client.NodeSubject("node1"), 3)
	awaitLapses(t, w, client.WholeSystem, 3)
	m.Stop()
	awaitLapses(t, w, client.ManagerProcess, 1)
	f, _ := fakemanager.ParseFleet([]byte(fleet))
	again, err := fakemanager.Start(address, f)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	_ = again.SetOffline("node1", true, "cable")
	awaitLapses(t, w, client.NodeSubject("node1"), 4)
}

// Anybody may send a signal to anybody: only the manager's count.
func TestWatchTrustsOnlyTheDaemons(t *testing.T) {
	m, c, address := world(t)
	w, err := c.Watch(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	liar, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer liar.Close()
	var names []string
	if err := liar.BusObject().Call(wire.DBusName+".ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	for _, to := range names {
		if to[0] != ':' {
			continue
		}
		msg := &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(wire.NodePath("node1"))), dbus.FieldInterface: dbus.MakeVariant(wire.PropertiesInterface),
			dbus.FieldMember: dbus.MakeVariant("PropertiesChanged"), dbus.FieldDestination: dbus.MakeVariant(to),
			dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf("", map[string]dbus.Variant{}, []string{})),
		}, Body: []any{wire.NodeInterface, map[string]dbus.Variant{"Status": dbus.MakeVariant("offline")}, []string{}}}
		liar.Send(msg, make(chan *dbus.Call, 1))
	}
	// The bus keeps the order of one sender only; a round trip of ours is behind the lie.
	if err := liar.BusObject().Call(wire.DBusName+".GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
	if _, err := c.Info(limited(t)); err != nil {
		t.Fatal(err)
	}
	_ = m.SetOffline("node1", true, "cable")
	awaitLapses(t, w, client.NodeSubject("node1"), 1)
}

func TestWatchWithoutAnybody(t *testing.T) {
	bus := bustest.Start(t)
	c := dial(t, client.Options{Address: bus.Address, Getenv: noEnv})
	w, err := c.Watch(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := c.Info(limited(t)); !errors.Is(err, client.ErrNotRunning) {
		t.Fatal(err)
	}
	a, err := fakemanager.StartAgent(bus.Address, "online")
	if err != nil {
		t.Fatal(err)
	}
	a.SetStatus("offline")
	awaitLapses(t, w, client.LocalAgent, 1)
	a.Stop()
	awaitLapses(t, w, client.LocalAgent, 2)
	bus.Stop()
	awaitLapses(t, w, client.LocalAgent, 3)
	<-c.Lost()
}

func TestMetrics(t *testing.T) {
	m, c, _ := world(t)
	if on, err := c.MetricsOn(limited(t)); on || err != nil {
		t.Fatalf("metrics are on: %v, %v", on, err)
	}
	list, err := c.Metrics(limited(t))
	if err == nil {
		err = c.SetMetrics(limited(t), true)
	}
	if err != nil {
		t.Fatal(err)
	}
	if on, err := c.MetricsOn(limited(t)); !on || err != nil {
		t.Fatalf("metrics are off: %v, %v", on, err)
	}
	if err := m.Start("node1", "foo.service"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []client.JobMetric{
		{Node: "node1", Unit: "foo.service", Job: 1, Total: 12345e3, Start: 9876e3},
		{Node: "node1", Unit: "foo.service", Method: "StartUnit", Total: 11000e3},
	} {
		select {
		case got := <-list.List():
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		case <-limited(t).Done():
			t.Fatal("no metrics")
		}
	}
	m.Stop()
	<-list.Over()
	if !errors.Is(list.Err(), client.ErrManagerGone) {
		t.Errorf("ended with %v", list.Err())
	}
}
