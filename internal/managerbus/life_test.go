package managerbus

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"

	"example.org/ctrl/internal/authz"
	"example.org/ctrl/internal/bustest"
	"example.org/ctrl/internal/manager"
	"example.org/ctrl/internal/peer"
	"example.org/ctrl/internal/wire"
)

func options(address string) Options {
	return Options{
		Address: address, Authorizer: authz.NewByUID(uint32(os.Getuid())),
		Daemon: &fakeDaemon{level: "INFO", shutdown: make(chan struct{})}, Log: slog.New(slog.DiscardHandler),
	}
}

func TestNameTaken(t *testing.T) {
	w := newWorld(t)
	second := New(options(w.bus.Address))
	err := second.Connect(w.ctx(), w.core)
	want := fmt.Sprintf("%s on the bus at %s is taken by process %d", wire.BusName, w.bus.Address, os.Getpid())
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a second manager got %v, want an error with %q", err, want)
	}
	var nodes []wire.NodeRow
	if err := w.client().Object(wire.BusName, dbus.ObjectPath(wire.RootPath)).Call(wire.ManagerInterface+".ListNodes", 0).Store(&nodes); err != nil || len(nodes) != 2 {
		t.Errorf("the first manager then lists %v, %v", nodes, err)
	}
}

func TestNoBus(t *testing.T) {
	err := New(options("unix:path=/nonexistent/bus")).Connect(t.Context(), newFakeCore())
	if err == nil || !strings.Contains(err.Error(), "unix:path=/nonexistent/bus") || !strings.Contains(err.Error(), "dbus.service") {
		t.Errorf("without a bus the error is %v", err)
	}
}

// TestNameDenied: the bus's policy decides who may own the name.
func TestNameDenied(t *testing.T) {
	bus := bustest.StartDenying(t, wire.BusName)
	err := New(options(bus.Address)).Connect(t.Context(), newFakeCore())
	if err == nil || !strings.Contains(err.Error(), wire.BusName+".conf") {
		t.Errorf("without the right to own the name the error is %v", err)
	}
}

// TestBusComesBack: the bus is restarted under the manager; the name is there again by
// itself, the core is only told that all clients are gone, and a client that was there
// before has nothing left, although the new bus gives its name to somebody else.
func TestBusComesBack(t *testing.T) {
	w := &world{t: t, bus: bustest.Start(t), core: newFakeCore()}
	w.daemon = &fakeDaemon{level: "INFO", shutdown: make(chan struct{})}
	w.api = New(options(w.bus.Address))
	w.core.events = w.api
	if err := w.api.Connect(t.Context(), w.core); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ends sync.WaitGroup
	ends.Go(func() { w.core.loop.Run(context.Background()) })
	ends.Go(func() { w.api.Run(ctx) })
	defer func() {
		cancel()
		w.core.loop.Stop()
		ends.Wait()
	}()

	client := w.client()
	var monitor dbus.ObjectPath
	if err := client.Object(wire.BusName, dbus.ObjectPath(wire.RootPath)).Call(wire.ManagerInterface+".CreateMonitor", 0).Store(&monitor); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.bus.Stop()
		w.do(func() { w.core.events.NodeChanged(w.core.nodes[0]) }) // while there is nobody to tell
		w.bus.Start()
		appeared := make(chan bool, 8)
		watcher := w.raw(func(m *peer.Message) {
			if m.Member == "NameOwnerChanged" {
				appeared <- true
			}
		})
		if err := watcher.AddMatch(w.ctx(), fmt.Sprintf("type='signal',member='NameOwnerChanged',arg0='%s'", wire.BusName)); err != nil {
			t.Fatal(err)
		}
		if _, err := watcher.NameOwner(w.ctx(), wire.BusName); err != nil {
			wait(t, appeared)
		}
		var nodes []wire.NodeRow
		object := w.client().Object(wire.BusName, dbus.ObjectPath(wire.RootPath))
		if err := object.Call(wire.ManagerInterface+".ListNodes", 0).Store(&nodes); err != nil || len(nodes) != 2 {
			t.Errorf("after the bus came back: nodes %v, %v", nodes, err)
		}
	}
	w.do(func() {
		if len(w.core.monitors) != 0 || !slices.Contains(w.core.gone, "") {
			t.Errorf("monitors left are %v, told were %q", w.core.monitors, w.core.gone)
		}
	})
}

// TestMonitorEndsWithItsOwner: signals of a monitor go to its owner alone, after the answer
// to the subscription, and the core hears when the owner leaves.
func TestMonitorEndsWithItsOwner(t *testing.T) {
	w := newWorld(t)
	var got []string
	came := make(chan bool, 8)
	note := func(what string) { got = append(got, what); came <- true }
	owner := w.raw(func(m *peer.Message) {
		if m.Interface == wire.MonitorInterface {
			note(m.Member + " " + string(m.Path))
		}
	})
	other := w.raw(func(m *peer.Message) {
		if m.Interface == wire.MonitorInterface {
			t.Errorf("another client received %v", m)
		}
	})
	if err := other.AddMatch(w.ctx(), fmt.Sprintf("type='signal',sender='%s'", wire.BusName)); err != nil {
		t.Fatal(err)
	}
	answer, err := owner.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: wire.RootPath, Member: "CreateMonitor"})
	var monitor wire.ObjectPath
	if err == nil {
		err = peer.Decode(answer.Body, &monitor)
	}
	if err != nil || monitor != wire.MonitorPath(1) {
		t.Fatalf("monitor is %q, %v", monitor, err)
	}
	owner.Go(peer.Call{Destination: wire.BusName, Path: monitor, Member: "Subscribe", Body: samples["ss"]}, patience,
		func(_ *peer.Message, err error) { note(fmt.Sprint("answer ", err)) })
	wait(t, came)
	wait(t, came)
	if want := []string{"answer <nil>", "UnitNew " + string(monitor)}; !slices.Equal(got, want) {
		t.Errorf("the owner saw %q, want %q", got, want)
	}
	name := owner.UniqueName()
	owner.Close(nil)
	<-owner.Done()
	for gone := false; !gone; {
		if _, err := other.Call(w.ctx(), peer.Call{Destination: wire.BusName, Path: wire.RootPath, Member: "ListNodes"}); err != nil {
			t.Fatal(err)
		}
		w.do(func() { gone = slices.Contains(w.core.gone, name) })
	}
}

// TestEndSendsEverything: what the core tells while it ends still reaches the bus before
// the name is released.
func TestEndSendsEverything(t *testing.T) {
	// More than socket buffers hold, and far less than the time limit of the end allows.
	const jobs = 2000
	w := newWorld(t)
	var ended int
	left := make(chan bool, 1)
	conn := w.raw(func(m *peer.Message) {
		switch {
		case m.Member == "JobRemoved":
			ended++
		case m.Member == "NameOwnerChanged":
			left <- true
		}
	})
	for _, rule := range []string{"member='JobRemoved'", fmt.Sprintf("member='NameOwnerChanged',arg0='%s'", wire.BusName)} {
		if err := conn.AddMatch(w.ctx(), "type='signal',"+rule); err != nil {
			t.Fatal(err)
		}
	}
	w.do(func() {
		for id := range uint32(jobs) {
			w.core.events.JobRemoved(manager.JobInfo{ID: id + 1, Node: "node1", Unit: "a.service"}, wire.ResultCanceled)
		}
	})
	w.stop()
	wait(t, left)
	if ended != jobs {
		t.Errorf("%d of %d ends arrived", ended, jobs)
	}
}
